//! Index of bound pods by labels, for topology spread.
//!
//! Pods of one namespace with the same labels form a group with a count per node. The cost of finding the pods that
//! match a selector depends on the number of distinct label sets, not on the number of pods.

use std::collections::{BTreeMap, BTreeSet};

use setpoint::{LabelSelector, Labels, Metadata};

use crate::ledger::decrement;

/// Labels that are unique per pod of a controller. They are left out of the grouping: with them every pod would be a
/// group of its own.
const OF_ONE_POD: [&str; 3] = [
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "statefulset.kubernetes.io/pod-name",
];

/// The number of matching pods per node, by node name.
pub(crate) type OnNodes = BTreeMap<String, usize>;

/// Bound pods that are not being deleted. Bounded by the number of pods.
#[derive(Default)]
pub(crate) struct LabelIndex {
    by_namespace: BTreeMap<Box<str>, Namespace>,
    /// The id of the next group.
    next: usize,
}

#[derive(Default)]
struct Namespace {
    /// Pods with the same labels.
    groups: BTreeMap<usize, Group>,
    by_labels: BTreeMap<Labels, usize>,
    /// Group ids by label key, then value.
    by_label: BTreeMap<Box<str>, BTreeMap<Box<str>, BTreeSet<usize>>>,
}

struct Group {
    labels: Labels,
    on_nodes: OnNodes,
}

impl LabelIndex {
    /// Counts a pod on a node, unless it is being deleted.
    pub(crate) fn add_pod(&mut self, pod: &Metadata, node: &str) {
        if pod.is_being_deleted() {
            return;
        }
        let namespace = pod.namespace.as_deref().unwrap_or_default();
        if !self.by_namespace.contains_key(namespace) {
            self.by_namespace.insert(namespace.into(), Namespace::default());
        }
        let Some(namespace) = self.by_namespace.get_mut(namespace) else { return };
        let on_nodes = match shared(&pod.labels) {
            None => namespace.group(&pod.labels, &mut self.next),
            Some(shared) => namespace.group(&shared, &mut self.next),
        };
        match on_nodes.get_mut(node) {
            Some(count) => *count += 1,
            None => _ = on_nodes.insert(node.to_owned(), 1),
        }
    }

    /// Removes a pod from a node's count. Pods that were being deleted were not counted.
    pub(crate) fn remove_pod_at(&mut self, pod: &Metadata, node: &str) {
        if pod.is_being_deleted() {
            return;
        }
        let name = pod.namespace.as_deref().unwrap_or_default();
        let Some(namespace) = self.by_namespace.get_mut(name) else { return };
        let stripped = shared(&pod.labels);
        namespace.remove(stripped.as_ref().unwrap_or(&pod.labels), node);
        if namespace.groups.is_empty() {
            self.by_namespace.remove(name);
        }
    }

    /// Returns the counts of the pods in a namespace that match all selectors. `None` if a selector uses a label that
    /// the grouping leaves out; the caller then has to check every pod.
    pub(crate) fn selected(&self, namespace: &str, selectors: &[LabelSelector]) -> Option<Vec<&OnNodes>> {
        if selectors.iter().any(asks_for_one) {
            return None;
        }
        let Some(namespace) = self.by_namespace.get(namespace) else { return Some(Vec::new()) };
        let meant = |group: &&Group| selectors.iter().all(|selector| selector.matches(&group.labels));
        Some(match namespace.fewest(selectors) {
            Some(few) => {
                let few = few.into_iter().flatten().filter_map(|number| namespace.groups.get(number));
                few.filter(meant).map(|group| &group.on_nodes).collect()
            }
            None => namespace.groups.values().filter(meant).map(|group| &group.on_nodes).collect(),
        })
    }
}

impl Namespace {
    fn group(&mut self, labels: &Labels, next: &mut usize) -> &mut OnNodes {
        let number = match self.by_labels.get(labels) {
            Some(number) => *number,
            None => {
                *next += 1;
                self.by_labels.insert(labels.clone(), *next);
                for (key, value) in labels.iter() {
                    let values = self.by_label.entry(key.into()).or_default();
                    values.entry(value.into()).or_default().insert(*next);
                }
                *next
            }
        };
        let new = || Group { labels: labels.clone(), on_nodes: OnNodes::new() };
        &mut self.groups.entry(number).or_insert_with(new).on_nodes
    }

    fn remove(&mut self, labels: &Labels, node: &str) {
        let Some(number) = self.by_labels.get(labels).copied() else { return };
        let Some(group) = self.groups.get_mut(&number) else { return };
        decrement(&mut group.on_nodes, node);
        if !group.on_nodes.is_empty() {
            return;
        }
        self.groups.remove(&number);
        self.by_labels.remove(labels);
        for (key, value) in labels.iter() {
            let Some(values) = self.by_label.get_mut(key) else { continue };
            if let Some(groups) = values.get_mut(value) {
                groups.remove(&number);
                if groups.is_empty() {
                    values.remove(value);
                }
            }
            if values.is_empty() {
                self.by_label.remove(key);
            }
        }
    }

    /// Returns the groups with the rarest label that the selectors require. `None` if they require no label,
    /// `Some(None)` if no pod has one of them.
    fn fewest(&self, selectors: &[LabelSelector]) -> Option<Option<&BTreeSet<usize>>> {
        let labels = selectors.iter().flat_map(|selector| selector.match_labels.iter());
        let groups = labels.map(|(key, value)| self.by_label.get(key).and_then(|values| values.get(value)));
        groups.min_by_key(|groups| groups.map_or(0, BTreeSet::len))
    }
}

/// Returns the labels without those unique to one pod, or `None` if there are no such labels.
fn shared(labels: &Labels) -> Option<Labels> {
    let own = |key: &str| OF_ONE_POD.contains(&key);
    labels.iter().any(|(key, _)| own(key)).then(|| labels.iter().filter(|(key, _)| !own(key)).collect())
}

fn asks_for_one(selector: &LabelSelector) -> bool {
    let mut keys = selector.match_labels.iter().map(|(key, _)| key);
    let mut further = selector.match_expressions.iter().map(|requirement| &*requirement.key);
    keys.any(|key| OF_ONE_POD.contains(&key)) || further.any(|key| OF_ONE_POD.contains(&key))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use setpoint::Object;

    use super::*;

    fn pod(namespace: &str, labels: Value) -> Object {
        let metadata = json!({"name": "p", "namespace": namespace, "labels": labels});
        Object::from_json(json!({"metadata": metadata}).to_string().into()).expect("a pod")
    }

    fn count(label_index: &LabelIndex, selectors: Value) -> Option<usize> {
        let selectors: Vec<LabelSelector> = serde_json::from_value(selectors).expect("selectors");
        let found = label_index.selected("ns", &selectors)?;
        Some(found.iter().flat_map(|on_nodes| on_nodes.values()).sum())
    }

    #[test]
    fn pods_are_found_by_label_selectors() {
        let mut label_index = LabelIndex::default();
        let pods = [
            (pod("ns", json!({"app": "a", "tier": "web"})), "n0"),
            (pod("ns", json!({"app": "a", "tier": "db"})), "n1"),
            (pod("ns", json!({"app": "b", "apps.kubernetes.io/pod-index": "0"})), "n0"),
            (pod("ns", json!({"app": "b", "apps.kubernetes.io/pod-index": "1"})), "n0"),
            (pod("other", json!({"app": "a"})), "n0"),
        ];
        pods.iter().for_each(|(pod, node)| label_index.add_pod(pod.meta(), node));
        let check = |label_index: &LabelIndex, selectors: Value, expected: Option<usize>| {
            assert_eq!(count(label_index, selectors.clone()), expected, "{selectors}");
        };
        let app = |app: &str| json!({"matchLabels": {"app": app}});
        check(&label_index, json!([app("a")]), Some(2));
        check(&label_index, json!([app("b")]), Some(2));
        check(&label_index, json!([app("c")]), Some(0));
        check(&label_index, json!([app("a"), {"matchLabels": {"tier": "db"}}]), Some(1));
        check(&label_index, json!([app("a"), app("b")]), Some(0));
        let exists = json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]});
        check(&label_index, json!([exists]), Some(2));
        check(&label_index, json!([{"matchLabels": {"apps.kubernetes.io/pod-index": "0"}}]), None);
        for (pod, node) in &pods {
            label_index.remove_pod_at(pod.meta(), node);
        }
        assert!(label_index.by_namespace.is_empty(), "nothing is left of pods that are gone");
    }
}
