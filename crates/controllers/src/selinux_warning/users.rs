//! Which pods use a volume, and how. Pure.

use std::collections::BTreeMap;

use setpoint::Key;

use super::label::{Use, conflict};

/// Users by unique volume name. Bounded by the volumes of existing pods.
#[derive(Debug, Default)]
pub(super) struct Users {
    volumes: BTreeMap<String, BTreeMap<Key, Use>>,
}

/// The event for one of two conflicting pods.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) pod: Key,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Users {
    /// Records how a pod uses a volume. Returns new conflicts; known ones are not repeated.
    pub(super) fn add(&mut self, volume: &str, pod: &Key, used: Use) -> Vec<Conflict> {
        let pods = self.volumes.entry(volume.to_owned()).or_default();
        if pods.get(pod) == Some(&used) {
            return Vec::new();
        }
        pods.insert(pod.clone(), used.clone());
        let mut conflicts = Vec::new();
        for (other, theirs) in pods.iter().filter(|(other, _)| *other != pod) {
            if theirs.policy != used.policy {
                let reason = "SELinuxChangePolicyConflict";
                conflicts.extend(both(
                    "SELinuxChangePolicy",
                    reason,
                    (pod, &used.policy),
                    (other, &theirs.policy),
                ));
            }
            if conflict(&theirs.label, &used.label) {
                conflicts.extend(both(
                    "SELinuxLabel",
                    "SELinuxLabelConflict",
                    (pod, &used.label),
                    (other, &theirs.label),
                ));
            }
        }
        conflicts
    }

    /// Forgets a pod.
    pub(super) fn forget(&mut self, pod: &Key) {
        self.volumes.retain(|_, pods| {
            pods.remove(pod);
            !pods.is_empty()
        });
    }

    /// Lists all conflicts as metric labels: the property and both pods.
    pub(super) fn conflicts(&self) -> Vec<[(&'static str, String); 7]> {
        let mut found = Vec::new();
        for pods in self.volumes.values() {
            for (pod, used) in pods {
                for (other, theirs) in pods.iter().filter(|(other, _)| *other != pod) {
                    if theirs.policy != used.policy {
                        found.push(labels(
                            "SELinuxChangePolicy",
                            (pod, &used.policy),
                            (other, &theirs.policy),
                        ));
                    }
                    if conflict(&theirs.label, &used.label) {
                        found.push(labels("SELinuxLabel", (pod, &used.label), (other, &theirs.label)));
                    }
                }
            }
        }
        found
    }

    /// Lists pods that use volumes of a driver.
    pub(super) fn of_driver(&self, driver: &str) -> Vec<Key> {
        let prefix = format!("kubernetes.io/csi/{driver}^");
        let volumes = self.volumes.iter().filter(|(name, _)| name.starts_with(&prefix));
        volumes.flat_map(|(_, pods)| pods.keys().cloned()).collect()
    }
}

fn labels(
    property: &str,
    (pod, value): (&Key, &str),
    (other, theirs): (&Key, &str),
) -> [(&'static str, String); 7] {
    let namespace = |key: &Key| key.namespace().unwrap_or_default().to_owned();
    [
        ("property", property.to_owned()),
        ("pod1_namespace", namespace(pod)),
        ("pod1_name", pod.name().to_owned()),
        ("pod1_value", value.to_owned()),
        ("pod2_namespace", namespace(other)),
        ("pod2_name", other.name().to_owned()),
        ("pod2_value", theirs.to_owned()),
    ]
}

fn both(property: &str, reason: &'static str, one: (&Key, &str), other: (&Key, &str)) -> [Conflict; 2] {
    let conflict = |(pod, value): (&Key, &str), (other, theirs): (&Key, &str)| Conflict {
        pod: pod.clone(),
        reason,
        message: message(property, (pod, value), (other, theirs)),
    };
    [conflict(one, other), conflict(other, one)]
}

const OUTCOME: &str = "If both pods land on the same node, only one of them may access the volume.";

/// Builds the message for a pod. A pod of another namespace is not named.
fn message(property: &str, (pod, value): (&Key, &str), (other, theirs): (&Key, &str)) -> String {
    match pod.namespace() == other.namespace() {
        true => format!(
            "{property} \"{value}\" conflicts with pod {} that uses the same volume as this pod with {property} \
             \"{theirs}\". {OUTCOME}",
            other.name()
        ),
        false => format!(
            "{property}\"{value}\" conflicts with another pod that uses the same volume as this pod with a different \
             {property}. {OUTCOME}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(label: &str, policy: &str) -> Use {
        Use { label: label.to_owned(), policy: policy.to_owned() }
    }

    #[test]
    fn both_pods_get_one_event_and_other_namespaces_are_not_named() {
        let mut users = Users::default();
        let (a, b, far) =
            (Key::namespaced("ns", "a"), Key::namespaced("ns", "b"), Key::namespaced("far", "c"));
        let volume = "kubernetes.io/csi/d^v";
        assert_eq!(users.add(volume, &a, used(":::s0", "MountOption")), []);
        let conflicts = users.add(volume, &b, used(":::s1", "MountOption"));
        let names: Vec<_> = conflicts.iter().map(|one| (one.pod.name(), one.reason)).collect();
        assert_eq!(names, [("b", "SELinuxLabelConflict"), ("a", "SELinuxLabelConflict")]);
        let expected = "SELinuxLabel \":::s1\" conflicts with pod a that uses the same volume as this pod with \
                        SELinuxLabel \":::s0\". If both pods land on the same node, only one of them may access the volume.";
        assert_eq!(conflicts[0].message, expected);
        assert_eq!(users.add(volume, &b, used(":::s1", "MountOption")), []);
        let shown = users.conflicts();
        assert_eq!(shown.len(), 2, "seen from both sides");
        let values: Vec<&str> = shown[0].iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(values, ["SELinuxLabel", "ns", "a", ":::s0", "ns", "b", ":::s1"]);
        users.forget(&a);
        let conflicts = users.add(volume, &far, used("", "Recursive"));
        assert_eq!(conflicts.len(), 4);
        assert!(
            conflicts[0].message.starts_with("SELinuxChangePolicy\"Recursive\" conflicts with another pod")
        );
        assert_eq!(users.of_driver("d"), [far, b]);
        assert!(users.of_driver("e").is_empty());
    }
}
