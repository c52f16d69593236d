//! `setpoint app tree`: the recorded objects of an application in all clusters, and what they own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::Value;
use setpoint::client::Optional;
use setpoint::{Key, Kind};

use super::clusters::{Reached, cluster_of, reached};
use super::connection::Connection;
use super::output::{Color, colored, print};
use super::{Named, applications};

/// The kinds whose objects belong to workloads.
fn owned_kinds() -> [Kind; 3] {
    [
        Kind::new("apps", "v1", "ReplicaSet", "replicasets", true),
        Kind::new("batch", "v1", "Job", "jobs", true),
        Kind::new("", "v1", "Pod", "pods", true),
    ]
}

fn trackers() -> Kind {
    Kind::new("core.oam.dev", "v1beta1", "ResourceTracker", "resourcetrackers", false)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(super) async fn run(named: Named) -> anyhow::Result<()> {
    let connection = named.connect().await?;
    let app = connection.get(&applications(), &named.name).await?;
    let recorded = recorded(&connection, &named.name).await?;
    let mut clusters = BTreeMap::new();
    for name in recorded.iter().map(cluster_of).collect::<BTreeSet<_>>() {
        clusters.insert(name, reached(&connection, name).await);
    }
    let mut out = format!("{} ({})\n", named.name, text(&app["status"]["status"]));
    for entry in &recorded {
        let cluster = cluster_of(entry);
        let place = format!("{cluster}/{}", text(&entry["namespace"]));
        let title = format!("{}/{}", text(&entry["kind"]), text(&entry["name"]));
        let age = if entry["old"] == true { ", of an earlier revision" } else { "" };
        let _ = write!(out, "├─ {title} ({place}, component {}{age})", text(&entry["component"]));
        match &clusters[cluster] {
            Ok(cluster) => cluster.add(&mut out, entry).await?,
            Err(why) => {
                let _ = writeln!(out, " {}: {why:#}", colored("unknown", Color::Red));
            }
        }
    }
    print(&out)
}

impl Reached {
    /// Adds the state of a recorded object, and what it owns.
    async fn add(&self, out: &mut String, entry: &Value) -> anyhow::Result<()> {
        let kind = self.served.kind(text(&entry["apiVersion"]), text(&entry["kind"]));
        let live = match kind {
            Some(kind) => live(&self.connection, kind, entry).await?,
            None => None,
        };
        let state = if live.is_some() { String::new() } else { colored(" missing", Color::Red) };
        let _ = writeln!(out, "{state}");
        match live {
            Some(live) => add_owned(out, &self.connection, &live, 1).await,
            None => Ok(()),
        }
    }
}

/// Returns the entries of all records, the newest first. Each object is in it once; those that only older records name are
/// marked as `old`.
async fn recorded(connection: &Connection, name: &str) -> anyhow::Result<Vec<Value>> {
    let labels = format!("app.oam.dev/name={name},app.oam.dev/namespace={}", connection.namespace);
    let mut all = connection.list(&trackers(), None, Some(labels)).await?;
    all.iter_mut().try_for_each(setpoint_oam::unpack_tracker).map_err(anyhow::Error::msg)?;
    all.sort_by_key(|tracker| -tracker["spec"]["applicationGeneration"].as_i64().unwrap_or_default());
    Ok(newest_first(&all))
}

fn newest_first(trackers: &[Value]) -> Vec<Value> {
    let is_root = |tracker: &&Value| tracker["spec"]["type"] == "root";
    let runs = trackers.iter().filter(|tracker| !is_root(tracker));
    let by_age = trackers.iter().filter(is_root).map(|root| (root, false));
    let by_age = by_age.chain(runs.enumerate().map(|(age, run)| (run, age > 0)));
    let mut entries: Vec<Value> = Vec::new();
    let place = |entry: &Value| ["cluster", "kind", "namespace", "name"].map(|field| entry[field].clone());
    for (tracker, is_old) in by_age {
        for entry in tracker["spec"]["managedResources"].as_array().into_iter().flatten() {
            if !entries.iter().any(|known| place(known) == place(entry)) {
                let mut entry = entry.clone();
                entry["old"] = (is_old || entry["deleted"] == true).into();
                entries.push(entry);
            }
        }
    }
    entries
}

async fn live(connection: &Connection, kind: &Kind, entry: &Value) -> anyhow::Result<Option<Value>> {
    let key = match kind.namespaced() {
        true => Key::namespaced(text(&entry["namespace"]), text(&entry["name"])),
        false => Key::cluster(text(&entry["name"])),
    };
    let found = connection.client.get(kind, &key).await.optional()?;
    Ok(found.map(|object| object.decode()).transpose()?)
}

/// Adds what an object owns: replica sets, jobs and pods, at most two levels deep.
async fn add_owned(
    out: &mut String,
    connection: &Connection,
    owner: &Value,
    depth: usize,
) -> anyhow::Result<()> {
    const WORKLOADS: [&str; 6] = ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob"];
    if depth > 2 || !WORKLOADS.contains(&text(&owner["kind"])) {
        return Ok(());
    }
    let namespace = text(&owner["metadata"]["namespace"]);
    for kind in owned_kinds() {
        for mut object in connection.list(&kind, Some(namespace), None).await? {
            let mut owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            if !owners.any(|one| one["uid"] == owner["metadata"]["uid"]) {
                continue;
            }
            let (name, phase) = (text(&object["metadata"]["name"]), text(&object["status"]["phase"]));
            let _ = writeln!(out, "│{}└─ {}/{name} {phase}", "   ".repeat(depth), kind.kind());
            object["kind"] = kind.kind().into();
            Box::pin(add_owned(out, connection, &object, depth + 1)).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_only_older_records_name_is_shown_as_such() {
        let tracker = |kind: &str, clusters: &[&str]| {
            let entries: Vec<Value> = clusters
                .iter()
                .map(|cluster| json!({"cluster": cluster, "kind": "A", "name": "a"}))
                .collect();
            json!({"spec": {"type": kind, "managedResources": entries}})
        };
        let all = [
            tracker("versioned", &["west"]),
            tracker("versioned", &["east", "west"]),
            tracker("root", &[""]),
        ];
        let found = newest_first(&all);
        let shown: Vec<_> =
            found.iter().map(|entry| (text(&entry["cluster"]), entry["old"] == true)).collect();
        assert_eq!(shown, [("", false), ("west", false), ("east", true)]);
    }
}
