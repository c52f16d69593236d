//! Maps pod events to Services.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use setpoint::object::DecodeError;
use setpoint::{Cached, Event, Informer, Key, Lister, Object, Queue};

use super::backend::Backend;
use super::service::Service;
use crate::workload::throttle::Throttle;

/// Enqueues every Service that a pod event concerns, delayed by `batch`: other pods of the Service often change soon
/// after.
pub(crate) fn follow_pods(
    pods: &Informer,
    services: &Informer,
    queue: &Queue<Key>,
    throttle: &Arc<Throttle<Key>>,
    batch: Duration,
) {
    let (queue, throttle) = (queue.clone(), throttle.clone());
    let memberships = Memberships { services: services.lister() };
    pods.add_handler(move |event: &Event| {
        for service in memberships.concerned(event) {
            let delay = throttle.delay(&service).max(batch);
            queue.add_after(service, delay);
        }
    });
}

/// Lists the pods that a Service selects, sorted by name.
pub(crate) fn selected_pods(
    pods: &Lister<Backend>,
    service: &Cached<Service>,
) -> Result<Vec<Cached<Backend>>, DecodeError> {
    let pods = pods.objects().list(service.key().namespace());
    // Filter before decoding: most pods of a namespace belong to other Services.
    pods.into_iter().filter(|pod| service.selects(&pod.meta().labels)).map(Cached::new).collect()
}

struct Memberships {
    services: Lister<Service>,
}

/// The effect of a pod change on Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    /// Its endpoint changes.
    endpoint: bool,
    /// It may belong to different Services.
    membership: bool,
}

impl Memberships {
    fn concerned(&self, event: &Event) -> BTreeSet<Key> {
        match event {
            Event::Updated { old, new } => self.concerned_by_update(old, new),
            event => self.selecting(event.object()),
        }
    }

    fn concerned_by_update(&self, old: &Object, new: &Object) -> BTreeSet<Key> {
        if old.same_version(new) {
            return BTreeSet::new();
        }
        let after = self.selecting(new);
        let relabelled = old.meta().labels != new.meta().labels;
        let before = if relabelled { self.selecting(old) } else { after.clone() };
        // Skip decoding: most pods belong to no Service.
        if before.is_empty() && after.is_empty() {
            return after;
        }
        match change(old, new) {
            Change { endpoint: false, membership: false } => BTreeSet::new(),
            Change { membership: false, .. } => after,
            Change { endpoint: true, .. } => &before | &after,
            Change { endpoint: false, .. } => &before ^ &after,
        }
    }

    /// Lists the Services that select a pod.
    fn selecting(&self, pod: &Object) -> BTreeSet<Key> {
        let labels = &pod.meta().labels;
        match self.services.list(pod.key().namespace()) {
            Ok(services) => {
                let selecting = services.iter().filter(|service| service.selects(labels));
                selecting.map(|service| service.key().clone()).collect()
            }
            Err(error) => {
                tracing::warn!(pod = %pod.key(), %error, "cannot determine which services select a pod");
                BTreeSet::new()
            }
        }
    }
}

fn change(old: &Object, new: &Object) -> Change {
    let relabelled = old.meta().labels != new.meta().labels;
    let ending = old.meta().deletion_timestamp != new.meta().deletion_timestamp;
    // Enqueue Services of undecodable pods: their reconcile reports the error.
    let (Ok(before), Ok(after)) = (old.view::<Backend>(), new.view::<Backend>()) else {
        return Change { endpoint: true, membership: true };
    };
    let renamed = (&before.hostname, &before.subdomain) != (&after.hostname, &after.subdomain);
    let moved = before.ready != after.ready || before.addresses != after.addresses;
    let ended = before.has_ended() != after.has_ended();
    Change { endpoint: ending || moved || ended, membership: relabelled || renamed }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workload::fixtures::cached;

    fn memberships() -> Memberships {
        let service = |name: &str, selector: Value| {
            let service =
                json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"selector": selector}});
            cached::<Service>(service).object().clone()
        };
        let services = [
            service("all", json!({"app": "w"})),
            service("blue", json!({"app": "w", "colour": "blue"})),
            service("none", json!({})),
        ];
        Memberships { services: Lister::from_objects(services) }
    }

    fn pod(version: u64, colour: &str, ready: bool, spec: Value) -> Object {
        let labels = json!({"app": "w", "colour": colour});
        let conditions = json!([{"type": "Ready", "status": if ready { "True" } else { "False" }}]);
        let metadata =
            json!({"name": "p", "namespace": "ns", "resourceVersion": version.to_string(), "labels": labels});
        cached::<Backend>(json!({"metadata": metadata, "spec": spec, "status": {"conditions": conditions}}))
            .object()
            .clone()
    }

    #[track_caller]
    fn check(old: Object, new: Object, expected: &[&str]) {
        let concerned = memberships().concerned(&Event::Updated { old, new });
        let names: Vec<_> = concerned.iter().map(Key::name).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn a_change_concerns_the_services_whose_endpoints_it_changes() {
        let plain = || json!({});
        check(pod(1, "blue", true, plain()), pod(1, "blue", true, plain()), &[]);
        check(pod(1, "blue", true, plain()), pod(2, "blue", true, plain()), &[]);
        check(pod(1, "blue", true, plain()), pod(2, "blue", false, plain()), &["all", "blue"]);
        check(pod(1, "blue", true, plain()), pod(2, "red", true, plain()), &["blue"]);
        check(pod(1, "blue", true, plain()), pod(2, "red", false, plain()), &["all", "blue"]);
        check(pod(1, "red", true, plain()), pod(2, "red", true, json!({"nodeName": "n"})), &[]);
    }
}
