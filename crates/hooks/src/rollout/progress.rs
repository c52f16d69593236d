//! Decides which child moves to the latest revision next.
//!
//! One child moves per reconcile: the first in the order of the hook's response that is not at the latest revision. It
//! moves only if all children of the latest revision exist, are up to date and pass their status checks. Children that
//! no revision claims, and those that already match the latest revision, move immediately.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use setpoint::{Key, Kind};

use super::revision::Revision;
use crate::model::{Method, StatusChecks, UpdateStrategy};
use crate::wire::Objects;

/// The children that already match the latest revision.
pub(crate) type Settled = BTreeSet<(Kind, Key)>;

/// The inputs of a rollout.
pub(crate) struct Rollout<'a> {
    /// The namespace of the parent.
    pub(crate) namespace: Option<&'a str>,
    pub(crate) observed: &'a Objects,
    pub(crate) strategy: &'a (dyn Fn(&Kind) -> UpdateStrategy + Sync),
    /// Returns the key of a child in a response.
    pub(crate) identify: &'a (dyn Fn(&Value) -> Option<(Kind, Key)> + Sync),
    pub(crate) settled: &'a Settled,
}

impl Rollout<'_> {
    fn is_settled(&self, kind: &Kind, key: &Key) -> bool {
        self.settled.contains(&(kind.clone(), key.clone()))
    }
}

/// The condition `Updated` of the parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Updated {
    pub(crate) done: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// Moves children to the latest revision, which is the first. Revisions without children are dropped.
pub(crate) fn progress(revisions: &mut Vec<Revision>, rollout: &Rollout<'_>) -> Updated {
    forget_stale_claims(revisions, rollout);
    move_settled(revisions, rollout);
    let updated = move_next(revisions, rollout);
    let mut nth = 0;
    revisions.retain(|revision| {
        nth += 1;
        nth == 1 || !revision.claims.is_empty()
    });
    updated
}

/// Returns the children that should exist: those of the latest revision, except where another claims one.
pub(crate) fn merged_children(revisions: &[Revision], namespace: Option<&str>) -> Objects {
    let mut merged = revisions[0].desired.clone();
    for older in &revisions[1..] {
        for (kind, key) in older.claims.children(&older.desired, namespace) {
            if let Some(child) = older.desired.get(kind, &key)
                && merged.contains(kind, &key)
            {
                merged.insert(kind, key, child.clone());
            }
        }
    }
    merged
}

/// Drops claims on children that are not rolled out, that the latest revision no longer has, or that a newer revision
/// claims too.
fn forget_stale_claims(revisions: &mut [Revision], rollout: &Rollout<'_>) {
    let wanted = revisions[0].desired.clone();
    let mut claimed = Objects::default();
    for revision in revisions {
        let mut kept = super::Claims::default();
        for (kind, key) in revision.claims.children(&wanted, rollout.namespace) {
            let is_rolling = (rollout.strategy)(kind).method.is_rolling();
            if is_rolling && wanted.contains(kind, &key) && !claimed.contains(kind, &key) {
                kept.add(kind, rollout.namespace, &key);
                claimed.insert(kind, key, Value::Null);
            }
        }
        revision.claims = kept;
    }
}

/// Moves children that no revision claims, and those that need no change.
fn move_settled(revisions: &mut [Revision], rollout: &Rollout<'_>) {
    let (latest, older) = revisions.split_first_mut().expect("there always is a latest revision");
    let namespace = rollout.namespace;
    for (kind, key, _) in latest.desired.iter() {
        if !(rollout.strategy)(kind).method.is_rolling() || latest.claims.has(kind, namespace, key) {
            continue;
        }
        let claimant = older.iter_mut().find(|revision| revision.claims.has(kind, namespace, key));
        match claimant {
            None => latest.claims.add(kind, namespace, key),
            Some(claimant) if rollout.is_settled(kind, key) => {
                claimant.claims.remove(kind, namespace, key);
                latest.claims.add(kind, namespace, key);
            }
            Some(_) => {}
        }
    }
}

fn move_next(revisions: &mut [Revision], rollout: &Rollout<'_>) -> Updated {
    let (latest, older) = revisions.split_first_mut().expect("there always is a latest revision");
    let namespace = rollout.namespace;
    let waits = |(kind, key): &(Kind, Key)| {
        (rollout.strategy)(kind).method.is_rolling() && !latest.claims.has(kind, namespace, key)
    };
    let next = latest.answer.children.iter().filter_map(rollout.identify).find(waits);
    let Some((kind, key)) = next else {
        let message = format!("latest ControllerRevision: {}", latest.name);
        return Updated { done: true, reason: "OnLatestRevision", message };
    };
    if let Err(message) = check_latest(latest, rollout) {
        return Updated { done: false, reason: "RolloutWaiting", message };
    }
    latest.claims.add(&kind, namespace, &key);
    older.iter_mut().for_each(|revision| revision.claims.remove(&kind, namespace, &key));
    let message = format!("updating {} {}", kind.kind(), key.name());
    Updated { done: false, reason: "RolloutProgressing", message }
}

/// Returns why the rollout has to wait for a child of the latest revision.
fn check_latest(latest: &Revision, rollout: &Rollout<'_>) -> Result<(), String> {
    for (kind, key) in latest.claims.children(&latest.desired, rollout.namespace) {
        let child = format!("{} {}", kind.kind(), key.name());
        let strategy = (rollout.strategy)(kind);
        let observed = rollout.observed.get(kind, &key).ok_or_else(|| format!("missing child {child}"))?;
        if !rollout.is_settled(kind, &key) {
            return Err(format!("child {child} is not updated yet"));
        }
        if strategy.method == Method::RollingInPlace && !has_observed_its_generation(observed) {
            return Err(format!("child {child} hasn't observed its latest spec"));
        }
        check_status(&strategy.status_checks, observed)
            .map_err(|why| format!("child {child} failed status check: {why}"))?;
    }
    Ok(())
}

/// Kinds without `observedGeneration` pass.
fn has_observed_its_generation(child: &Value) -> bool {
    let observed = child["status"]["observedGeneration"].as_i64().unwrap_or_default();
    observed <= 0 || observed >= child["metadata"]["generation"].as_i64().unwrap_or_default()
}

fn check_status(checks: &StatusChecks, child: &Value) -> Result<(), String> {
    let conditions = child["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    for check in &checks.conditions {
        let kind = &check.kind;
        let found = conditions.iter().find(|condition| condition["type"] == kind.as_str());
        let found = found.ok_or_else(|| format!("required condition type missing: {kind:?}"))?;
        for (field, wanted) in [("status", &check.status), ("reason", &check.reason)] {
            let is = found[field].as_str().unwrap_or_default();
            if let Some(wanted) = wanted.as_ref().filter(|wanted| *wanted != is) {
                return Err(format!("{kind:?} condition {field} is {is:?} (want {wanted:?})"));
            }
        }
    }
    Ok(())
}

impl Updated {
    /// Sets the condition in a status. Other conditions are kept.
    pub(crate) fn set_in(&self, status: &mut Map<String, Value>) {
        let condition = json!({
            "type": "Updated", "status": if self.done { "True" } else { "False" },
            "reason": self.reason, "message": self.message,
        });
        let conditions = status.entry("conditions").or_insert_with(|| json!([]));
        let Some(conditions) = conditions.as_array_mut() else { return };
        match conditions.iter_mut().find(|known| known["type"] == "Updated") {
            Some(known) => *known = condition,
            None => conditions.push(condition),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::is_settled;
    use crate::rollout::Claims;
    use crate::wire::SyncAnswer;

    fn pods() -> Kind {
        Kind::new("", "v1", "Pod", "pods", true)
    }

    fn key(name: &str) -> Key {
        Key::namespaced("n", name)
    }

    fn pod(name: &str, image: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "n"}, "spec": {"image": image}})
    }

    /// A pod that was created as desired.
    fn live(name: &str, image: &str, ready: &str) -> Value {
        let mut live = crate::apply::updated(&pod(name, image), &pod(name, image)).expect("it merges");
        live["status"] = json!({"conditions": [{"type": "Ready", "status": ready}]});
        live
    }

    fn revision(image: &str, names: &[&str], claimed: &[&str]) -> Revision {
        let children: Vec<Value> = names.iter().map(|name| pod(name, image)).collect();
        let (mut desired, mut claims) = (Objects::default(), Claims::default());
        desired.declare(&pods());
        names.iter().for_each(|name| desired.insert(&pods(), key(name), pod(name, image)));
        claimed.iter().for_each(|name| claims.add(&pods(), Some("n"), &key(name)));
        let answer = SyncAnswer { children, ..SyncAnswer::default() };
        Revision { name: format!("revision-{image}"), patch: Value::Null, claims, answer, desired }
    }

    /// Advances once, and returns the reason and the claims.
    fn step(revisions: &mut Vec<Revision>, live: &[Value], method: Method) -> (&'static str, Vec<String>) {
        let mut observed = Objects::default();
        observed.declare(&pods());
        for pod in live {
            observed.insert(&pods(), key(pod["metadata"]["name"].as_str().expect("a name")), pod.clone());
        }
        let checks = json!({"method": "RollingInPlace", "statusChecks": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let strategy = UpdateStrategy { method, ..serde_json::from_value(checks).expect("a strategy") };
        let wanted = revisions[0].desired.clone();
        let settled = wanted.iter().filter(|(kind, key, wanted)| {
            observed.get(kind, key).is_some_and(|observed| is_settled(observed, wanted))
        });
        let rollout = Rollout {
            namespace: Some("n"),
            observed: &observed,
            strategy: &move |_| strategy.clone(),
            identify: &|child| Some((pods(), key(child["metadata"]["name"].as_str()?))),
            settled: &settled.map(|(kind, key, _)| (kind.clone(), key.clone())).collect(),
        };
        let updated = progress(revisions, &rollout);
        let claims = revisions.iter().map(|revision| {
            let keys = revision.claims.children(&revision.desired, Some("n"));
            let names: Vec<String> = keys.map(|(_, key)| key.name().to_owned()).collect();
            format!("{}: {}", revision.name, names.join(" "))
        });
        (updated.reason, claims.collect())
    }

    #[test]
    fn one_child_moves_at_a_time_in_the_order_of_the_answer() {
        let mut revisions =
            vec![revision("2", &["b", "a", "c"], &[]), revision("1", &["a", "b", "c"], &["a", "b", "c"])];
        let method = Method::RollingInPlace;
        let old = |name: &str| live(name, "1", "True");
        let (reason, claims) = step(&mut revisions, &[old("a"), old("b"), old("c")], method);
        assert_eq!(
            (reason, claims),
            ("RolloutProgressing", vec!["revision-2: b".into(), "revision-1: a c".into()])
        );
        let merged = merged_children(&revisions, Some("n"));
        let image = |name: &str| merged.get(&pods(), &key(name)).expect("wanted")["spec"]["image"].clone();
        assert_eq!([image("a"), image("b"), image("c")], ["1", "2", "1"]);
        let (reason, _) = step(&mut revisions, &[old("a"), old("b"), old("c")], method);
        assert_eq!(reason, "RolloutWaiting", "b is not updated yet");
        let (reason, _) = step(&mut revisions, &[old("a"), live("b", "2", "False"), old("c")], method);
        assert_eq!(reason, "RolloutWaiting", "b is not ready");
        let (reason, _) = step(&mut revisions, &[old("a"), old("c")], method);
        assert_eq!(reason, "RolloutWaiting", "b is missing");
        let (reason, claims) = step(&mut revisions, &[old("a"), live("b", "2", "True"), old("c")], method);
        assert_eq!((reason, claims[0].as_str()), ("RolloutProgressing", "revision-2: b a"));
        let all = [live("a", "2", "True"), live("b", "2", "True"), old("c")];
        assert_eq!(step(&mut revisions, &all, method).0, "RolloutProgressing");
        let all = [live("a", "2", "True"), live("b", "2", "True"), live("c", "2", "False")];
        let (reason, claims) = step(&mut revisions, &all, method);
        assert_eq!((reason, claims), ("OnLatestRevision", vec!["revision-2: b a c".into()]));
    }

    #[test]
    fn children_that_are_new_or_already_as_wanted_move_at_once() {
        let mut revisions =
            vec![revision("2", &["a", "b", "c"], &[]), revision("1", &["a", "b"], &["a", "b"])];
        let observed = [live("a", "2", "True"), live("b", "1", "True")];
        let (reason, claims) = step(&mut revisions, &observed, Method::RollingRecreate);
        assert_eq!(
            (reason, claims),
            ("RolloutWaiting", vec!["revision-2: a c".into(), "revision-1: b".into()])
        );
    }

    #[test]
    fn claims_on_children_that_are_no_longer_wanted_are_dropped() {
        let mut revisions = vec![revision("2", &["a"], &["a"]), revision("1", &["a", "b"], &["a", "b"])];
        let (reason, claims) = step(&mut revisions, &[live("a", "2", "True")], Method::RollingInPlace);
        assert_eq!((reason, claims), ("OnLatestRevision", vec!["revision-2: a".into()]));
        let mut revisions = vec![revision("2", &["a"], &[]), revision("1", &["a"], &["a"])];
        let (reason, claims) = step(&mut revisions, &[live("a", "1", "True")], Method::InPlace);
        assert_eq!(
            (reason, claims),
            ("OnLatestRevision", vec!["revision-2: ".into()]),
            "it is no longer rolled out"
        );
    }

    #[test]
    fn the_condition_replaces_an_earlier_one_only() {
        let mut status = json!({"conditions": [{"type": "Ready"}, {"type": "Updated", "status": "True"}]});
        let updated = Updated { done: false, reason: "RolloutWaiting", message: "m".into() };
        updated.set_in(status.as_object_mut().expect("an object"));
        let condition =
            json!({"type": "Updated", "status": "False", "reason": "RolloutWaiting", "message": "m"});
        assert_eq!(status["conditions"], json!([{"type": "Ready"}, condition]));
    }
}
