//! The SELinux label a pod wants for a volume, and which labels conflict. Pure.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::workload::encoding::null_is_empty;

/// The pod fields that determine labels.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Labelled {
    spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    security_context: Option<SecurityContext>,
    #[serde(deserialize_with = "null_is_empty")]
    init_containers: Vec<Container>,
    #[serde(deserialize_with = "null_is_empty")]
    containers: Vec<Container>,
    #[serde(deserialize_with = "null_is_empty")]
    ephemeral_containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SecurityContext {
    #[serde(rename = "seLinuxOptions")]
    options: Option<SeLinuxOptions>,
    #[serde(rename = "seLinuxChangePolicy")]
    change_policy: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SeLinuxOptions {
    user: String,
    role: String,
    r#type: String,
    level: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    security_context: Option<SecurityContext>,
    #[serde(deserialize_with = "null_is_empty")]
    volume_mounts: Vec<Mount>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Mount {
    name: String,
}

/// How a pod uses a volume: the label it is mounted with, and the change policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) label: String,
    pub(super) policy: String,
}

/// A volume is mounted in one pod with different labels.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SeveralLabels;

const RECURSIVE: &str = "Recursive";
const MOUNT_OPTION: &str = "MountOption";

impl SeLinuxOptions {
    /// Returns the specified parts. Omitted ones depend on the node.
    fn label(&self) -> String {
        let label = [&*self.user, &*self.role, &*self.r#type, &*self.level].join(":");
        if label == ":::" { String::new() } else { label }
    }
}

impl Labelled {
    /// Returns how the pod uses a volume. `None` if no container mounts it. `can_be_mounted` says whether it can be
    /// mounted with a label.
    pub(super) fn of_volume(&self, volume: &str, can_be_mounted: bool) -> Result<Option<Use>, SeveralLabels> {
        let spec = &self.spec;
        let all = spec.init_containers.iter().chain(&spec.containers).chain(&spec.ephemeral_containers);
        let mounting: Vec<&Container> = all
            .filter(|container| container.volume_mounts.iter().any(|mount| mount.name == volume))
            .collect();
        if mounting.is_empty() {
            return Ok(None);
        }
        let labels: BTreeSet<String> =
            mounting.iter().filter_map(|container| self.label_in(container)).collect();
        if labels.len() > 1 {
            return Err(SeveralLabels);
        }
        let given = self.policy();
        let label = match given == RECURSIVE || !can_be_mounted {
            true => String::new(),
            false => labels.into_iter().next().unwrap_or_default(),
        };
        // A volume that is not mounted with a label is relabelled recursively.
        let policy = if label.is_empty() { RECURSIVE } else { given };
        Ok(Some(Use { label, policy: policy.to_owned() }))
    }

    fn label_in(&self, container: &Container) -> Option<String> {
        let own = container.security_context.as_ref().and_then(|context| context.options.as_ref());
        let pods = self.spec.security_context.as_ref().and_then(|context| context.options.as_ref());
        own.or(pods).map(SeLinuxOptions::label)
    }

    fn policy(&self) -> &str {
        let context = self.spec.security_context.as_ref();
        context.and_then(|context| context.change_policy.as_deref()).unwrap_or(MOUNT_OPTION)
    }
}

/// Whether two labels conflict. Omitted parts match anything, since nodes fill them in, except for the level.
pub(super) fn conflict(one: &str, other: &str) -> bool {
    let parts = |label: &str| -> [String; 4] {
        let mut parts = label.splitn(4, ':').map(str::to_owned);
        std::array::from_fn(|_| parts.next().unwrap_or_default())
    };
    let (one, other) = (parts(one), parts(other));
    let differ = |at: usize| one[at] != other[at];
    differ(3) || (0..3).any(|at| differ(at) && !one[at].is_empty() && !other[at].is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn labels_conflict_where_both_are_set_and_differ() {
        for (one, other, expected) in [
            ("", "", false),
            (":::s0:c1,c2", ":::s0:c1,c2", false),
            (":::s0:c1,c2", ":::s0:c98,c99", true),
            ("system_u:system_r:container_t:s0:c1,c2", ":::s0:c1,c2", false),
            ("system_u:system_r:container_t:s0:c1,c2", "system_u:system_r:other_t:s0:c1,c2", true),
            (":::s0:c1,c2", "", true),
        ] {
            assert_eq!(conflict(one, other), expected, "{one:?} {other:?}");
            assert_eq!(conflict(other, one), expected, "{other:?} {one:?}");
        }
    }

    #[test]
    fn a_containers_label_overrides_that_of_the_pod() {
        let container = |level: Option<&str>| {
            let context = level.map(|level| json!({"seLinuxOptions": {"level": level}}));
            json!({"securityContext": context, "volumeMounts": [{"name": "v"}]})
        };
        let check = |pod: Value,
                     containers: Value,
                     mounted: bool,
                     expected: Result<Option<(&str, &str)>, SeveralLabels>| {
            let text = json!({"spec": {"securityContext": pod, "containers": containers}});
            let labelled: Labelled = serde_json::from_value(text.clone()).expect("a pod");
            let used = labelled.of_volume("v", mounted);
            let expected = expected.map(|used| {
                used.map(|(label, policy)| Use { label: label.to_owned(), policy: policy.to_owned() })
            });
            assert_eq!(used, expected, "{text}");
        };
        let pods = || json!({"seLinuxOptions": {"level": "s0"}});
        check(pods(), json!([container(None)]), true, Ok(Some((":::s0", "MountOption"))));
        check(pods(), json!([container(Some("s1"))]), true, Ok(Some((":::s1", "MountOption"))));
        check(pods(), json!([container(Some("s1")), container(None)]), true, Err(SeveralLabels));
        check(pods(), json!([container(None)]), false, Ok(Some(("", "Recursive"))));
        check(Value::Null, json!([container(None)]), true, Ok(Some(("", "Recursive"))));
        let recursive = json!({"seLinuxOptions": {"level": "s0"}, "seLinuxChangePolicy": "Recursive"});
        check(recursive, json!([container(None)]), true, Ok(Some(("", "Recursive"))));
        check(pods(), json!([{"volumeMounts": []}]), true, Ok(None));
    }
}
