//! From objects to usage. Pure.

use jiff::Timestamp;
use setpoint_quota::{Evaluator, Item, Resources};

use super::view::{ResourceQuota, Status};

/// Returns the usage of objects of one kind, for the resources a quota limits.
pub(super) fn usage<'a>(
    quota: &ResourceQuota,
    evaluator: &Evaluator,
    items: impl IntoIterator<Item = &'a Item>,
    now: Timestamp,
) -> Resources {
    let mut used = Resources::new();
    for name in quota.spec.hard.names().filter(|name| evaluator.counts(name)) {
        used.set_count(name, 0);
    }
    for item in items.into_iter().filter(|item| item.is_in(&quota.spec.scopes)) {
        used.add(&item.usage(now).only(|name| quota.spec.hard.contains(name)));
    }
    used
}

/// Builds the status of a quota. Resources that were not counted keep their usage.
pub(super) fn status(quota: &ResourceQuota, counted: &Resources) -> Status {
    let hard = quota.spec.hard.clone();
    let mut used = quota.status.used.clone().unwrap_or_default();
    for (name, amount) in counted.iter() {
        used.set(name, *amount);
    }
    Status { used: Some(used.only(|name| hard.contains(name))), hard: Some(hard) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workload::fixtures::at;

    fn quota(hard: Value, used: Value) -> ResourceQuota {
        let spec = json!({"hard": hard, "scopes": ["NotTerminating"]});
        serde_json::from_value(json!({"spec": spec, "status": {"used": used}})).expect("a quota")
    }

    #[test]
    fn only_what_is_limited_and_in_scope_is_counted() {
        let pod = |cpu: &str, deadline: Option<i64>| {
            let containers = json!([{"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]);
            let spec = json!({"containers": containers, "activeDeadlineSeconds": deadline});
            Evaluator::Pods.read(json!({"spec": spec})).expect("a pod")
        };
        let quota = quota(
            json!({"cpu": "2", "pods": "5", "limits.cpu": "1", "secrets": "1"}),
            json!({"secrets": "7"}),
        );
        let pods = [pod("250m", None), pod("1", None), pod("4", Some(10))];
        let counted = usage(&quota, &Evaluator::Pods, &pods, at(0));
        let expected = json!({"cpu": "1250m", "limits.cpu": "0", "pods": "2"});
        assert_eq!(serde_json::to_value(&counted).expect("a map"), expected);

        let status = serde_json::to_value(status(&quota, &counted)).expect("a status");
        let used = json!({"cpu": "1250m", "limits.cpu": "0", "pods": "2", "secrets": "7"});
        assert_eq!(status["used"], used, "what was not counted keeps its number");
        assert_eq!(status["hard"], json!({"cpu": "2", "pods": "5", "limits.cpu": "1", "secrets": "1"}));
    }
}
