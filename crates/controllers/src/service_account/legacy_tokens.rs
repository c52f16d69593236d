//! Legacy token cleaner: invalidates, and later deletes, token Secrets that have not been used for a long time.
//!
//! Owns: the label `kubernetes.io/legacy-token-invalid-since`, and the deletion of tokens that carry it long enough.
//! Watches: Secrets, ServiceAccounts, Pods.
//! Writes: Secrets (patch, delete).
//!
//! Invariants:
//! - a token is invalidated only if it was generated for its account, no pod mounts it, and both the token and its
//!   last-used record are older than the period;
//! - a token is invalid for a whole period before it is deleted, and is kept if it changes in the meantime.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, ClientError, Clock, Context, Key, Kind, Lister, Outcome, Queue, ReconcileError,
    Reconciler, Runnable,
};

use super::tokens::view::{Secret, ServiceAccount};
use crate::flags::{Flag, duration};
use crate::registry::{Access, Entry, Options};
use crate::wiring;
use crate::workload::encoding::null_is_empty;
use crate::workload::pod::Pod;

pub(crate) const ENTRY: Entry = Entry {
    name: "legacy-serviceaccount-token-cleaner-controller",
    aliases: &["legacy-service-account-token-cleaner"],
    on_by_default: true,
    gates: &[],
    summary: "invalidates and deletes token Secrets that have not been used for a year",
    watches: &[Access::watch("", "secrets"), Access::watch("", "serviceaccounts"), Access::watch("", "pods")],
    writes: &[Access::to("", "secrets", &["delete", "patch"]), Access::to("", "configmaps", &["get"])],
    default_workers: 1,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[Flag::new(
    "legacy-service-account-token-clean-up-period",
    "DURATION",
    "8760h",
    "How long a token Secret must be unused before it is invalidated, and then invalid before it is deleted.",
    |options, text| duration(text).map(|period| options.legacy_token_clean_up_period = period),
)];

/// The time between checks.
const PERIOD: Duration = Duration::from_secs(24 * 3600);
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// The ConfigMap in which the API server records since when it tracks the use of tokens.
const TRACKING: (&str, &str) = ("kube-system", "kube-apiserver-legacy-service-account-token-tracking");

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let secrets = context.informers.of::<Secret>();
    let accounts = context.informers.of::<ServiceAccount>();
    let pods = context.informers.of::<Pod>();
    let queue = Queue::new("legacy_service_account_token_cleaner", &context.runtime);
    queue.add(Key::cluster("secrets"));
    let cleaner = Cleaner {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        secrets: secrets.lister(),
        accounts: accounts.lister(),
        pods: pods.lister(),
        unused_for: options.legacy_token_clean_up_period,
    };
    let controller = wiring::part(ENTRY.name, queue, cleaner, [&secrets, &accounts, &pods]);
    vec![Box::new(controller)]
}

struct Cleaner {
    client: Client,
    clock: Clock,
    secrets: Lister<Secret>,
    accounts: Lister<ServiceAccount>,
    pods: Lister<Pod>,
    unused_for: Duration,
}

/// The decision about a token.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Keep,
    /// Invalid from this day on.
    Invalidate(Date),
    Delete,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Tracking {
    #[serde(deserialize_with = "null_is_empty")]
    data: BTreeMap<String, String>,
}

impl Reconciler for Cleaner {
    type Key = Key;

    /// All Secrets share one key and are checked once a day.
    async fn reconcile(&self, _: &Key) -> Result<Outcome, ReconcileError> {
        let now = self.clock.now();
        let Some(before) = self.unused_before(now).await? else { return Ok(Outcome::CheckAfter(PERIOD)) };
        let mut mounted = BTreeMap::new();
        for secret in self.secrets.list(None)? {
            if !self.is_of_its_account(&secret)? || self.is_mounted(&secret, &mut mounted) {
                continue;
            }
            let done = match decide(&secret, before, now) {
                Decision::Keep => Ok(()),
                Decision::Invalidate(since) => self.invalidate(&secret, since).await,
                Decision::Delete => self.remove(&secret).await,
            };
            if let Err(error) = done {
                // The next check tries again.
                tracing::warn!(secret = %secret.key(), %error, "cannot invalidate or delete a token");
            }
        }
        Ok(Outcome::CheckAfter(PERIOD))
    }
}

impl Cleaner {
    /// Tokens last used before this time are unused. `None` if usage has not been tracked for long enough.
    async fn unused_before(&self, now: Timestamp) -> Result<Option<Timestamp>, ReconcileError> {
        let kind = Kind::of::<k8s_openapi::api::core::v1::ConfigMap>();
        let tracking = self.client.get(&kind, &Key::namespaced(TRACKING.0, TRACKING.1)).await;
        let tracking: Tracking = match tracking {
            Err(error) if error.is_not_found() => return Ok(None),
            found => found.attempting("read since when token usage is tracked")?.decode()?,
        };
        let Some(since) = tracking.data.get("since").and_then(|since| since.parse::<Date>().ok()) else {
            return Ok(None);
        };
        // The first day may be tracked only partially.
        let since = since.checked_add(1.day()).unwrap_or(since).to_zoned(TimeZone::UTC);
        let Ok(unused_before) = now.checked_sub(self.unused_for) else { return Ok(None) };
        Ok(since.is_ok_and(|since| since.timestamp() <= unused_before).then_some(unused_before))
    }

    /// Whether the Secret was generated for the account it names. Others are managed by users.
    fn is_of_its_account(&self, secret: &Cached<Secret>) -> Result<bool, ReconcileError> {
        let Some(name) = secret.account() else { return Ok(false) };
        let Some(account) = self.accounts.get(&secret.key().sibling(name))? else { return Ok(false) };
        let same = secret.account_uid().is_none_or(|uid| *uid == *account.meta().uid);
        let listed = account.secrets.iter().flatten();
        Ok(same && listed.into_iter().any(|listed| listed["name"] == secret.key().name()))
    }

    fn is_mounted(&self, secret: &Cached<Secret>, mounted: &mut BTreeMap<String, BTreeSet<String>>) -> bool {
        let namespace = secret.key().namespace().unwrap_or_default();
        let names = mounted.entry(namespace.to_owned()).or_insert_with(|| {
            let pods = self.pods.objects().list(Some(namespace));
            pods.iter()
                .filter_map(|pod| pod.decode::<Value>().ok())
                .flat_map(|pod| secrets_of(&pod))
                .collect()
        });
        names.contains(secret.key().name())
    }

    async fn invalidate(&self, secret: &Cached<Secret>, since: Date) -> Result<(), ClientError> {
        let body =
            json!({"metadata": {"uid": secret.meta().uid, "labels": {INVALID_SINCE: since.to_string()}}});
        let kind = Kind::of::<Secret>();
        self.client.patch(&kind, secret.key(), Subresource::None, Patch::merge(&body)).await.map(drop)
    }

    async fn remove(&self, secret: &Cached<Secret>) -> Result<(), ClientError> {
        let version = Some(secret.meta().resource_version.to_string());
        let delete = DeleteOptions { resource_version: version, ..DeleteOptions::default() };
        match self.client.delete(&Kind::of::<Secret>(), secret.key(), &delete).await {
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            deleted => deleted,
        }
    }
}

fn decide(secret: &Cached<Secret>, before: Timestamp, now: Timestamp) -> Decision {
    let meta = secret.meta();
    let young = meta.creation_timestamp.is_none_or(|created| created >= before);
    let day = |time: Timestamp| time.to_zoned(TimeZone::UTC).date();
    let label = |name: &str| meta.label(name).map(|text| text.parse::<Date>().ok());
    let in_use = match label(LAST_USED) {
        None => false,
        // Keep a token whose last-used date cannot be parsed.
        Some(used) => used.is_none_or(|used| used >= day(before)),
    };
    if young || meta.is_being_deleted() || in_use {
        return Decision::Keep;
    }
    match label(INVALID_SINCE).flatten() {
        None => Decision::Invalidate(day(now)),
        Some(since) if since >= day(before) => Decision::Keep,
        Some(_) => Decision::Delete,
    }
}

/// Lists the names of all Secrets that a pod references.
fn secrets_of(pod: &Value) -> Vec<String> {
    let spec = &pod["spec"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let containers = ["containers", "initContainers", "ephemeralContainers"];
    let mut found: Vec<Value> =
        list(&spec["imagePullSecrets"]).iter().map(|one| one["name"].clone()).collect();
    for container in containers.iter().flat_map(|name| list(&spec[*name])) {
        found.extend(
            list(&container["env"]).iter().map(|one| one["valueFrom"]["secretKeyRef"]["name"].clone()),
        );
        found.extend(list(&container["envFrom"]).iter().map(|one| one["secretRef"]["name"].clone()));
    }
    for volume in list(&spec["volumes"]) {
        found.push(volume["secret"]["secretName"].clone());
        found.push(volume["azureFile"]["secretName"].clone());
        found.push(volume["csi"]["nodePublishSecretRef"]["name"].clone());
        found.extend(list(&volume["projected"]["sources"]).iter().map(|one| one["secret"]["name"].clone()));
        let drivers = ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"];
        found.extend(drivers.iter().map(|driver| volume[*driver]["secretRef"]["name"].clone()));
    }
    found.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::fixtures::cached;

    #[test]
    fn a_token_is_invalid_for_a_period_before_it_is_deleted() {
        let time = |day: &str| format!("{day}T12:00:00Z").parse::<Timestamp>().unwrap();
        let (before, now) = (time("2025-01-10"), time("2026-01-10"));
        let check = |created: &str, labels: Value, expected: Decision| {
            let secret =
                json!({"metadata": {"name": "t", "creationTimestamp": time(created), "labels": labels}});
            assert_eq!(decide(&cached(secret.clone()), before, now), expected, "{secret}");
        };
        let today = Decision::Invalidate("2026-01-10".parse().unwrap());
        check("2025-01-11", json!({}), Decision::Keep);
        check("2024-01-01", json!({LAST_USED: "2025-01-10"}), Decision::Keep);
        check("2024-01-01", json!({LAST_USED: "nonsense"}), Decision::Keep);
        check("2024-01-01", json!({}), today);
        check("2024-01-01", json!({LAST_USED: "2025-01-09", INVALID_SINCE: "2025-06-01"}), Decision::Keep);
        check("2024-01-01", json!({LAST_USED: "2025-01-09", INVALID_SINCE: "2025-01-09"}), Decision::Delete);
    }

    #[test]
    fn many_pod_fields_refer_to_secrets() {
        let pod = json!({"spec": {
            "imagePullSecrets": [{"name": "a"}],
            "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "b"}}}], "envFrom": [{"secretRef": {"name": "c"}}]}],
            "volumes": [{"secret": {"secretName": "d"}}, {"projected": {"sources": [{"secret": {"name": "e"}}]}},
                {"rbd": {"secretRef": {"name": "f"}}}],
        }});
        assert_eq!(secrets_of(&pod), ["a", "b", "c", "d", "e", "f"]);
    }
}
