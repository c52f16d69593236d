//! The registered clusters and their labels.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::credential::Meta;
use crate::names::{CLUSTER_GROUP, CONTROL_PLANE, LOCAL_CLUSTER};

/// The clusters that topologies select from: the local one first, then the others, the newest first.
#[derive(Clone, Debug)]
pub(crate) struct Inventory {
    known: Vec<(String, BTreeMap<String, String>)>,
    /// Whether unknown clusters may exist.
    is_open: bool,
}

impl Inventory {
    /// Returns the inventory of the local cluster and these Secrets.
    pub(crate) fn of<'a>(secrets: impl IntoIterator<Item = &'a Meta>) -> Self {
        // The name of the local cluster is reserved.
        let mut others: Vec<&Meta> = secrets.into_iter().filter(|meta| meta.name != LOCAL_CLUSTER).collect();
        let age = |meta: &Meta| meta.creation_timestamp.unwrap_or(Timestamp::UNIX_EPOCH);
        others.sort_by(|a, b| age(b).cmp(&age(a)).then_with(|| a.name.cmp(&b.name)));
        let local = (LOCAL_CLUSTER.to_owned(), labels(&BTreeMap::new(), true));
        let others = others.into_iter().map(|meta| (meta.name.clone(), labels(&meta.labels, false)));
        Self { known: std::iter::once(local).chain(others).collect(), is_open: false }
    }

    /// Returns an inventory without a cluster connection: every name is accepted.
    pub(crate) fn unknown() -> Self {
        Self { is_open: true, ..Self::of([]) }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.is_open || self.known.iter().any(|(known, _)| known == name)
    }

    /// Returns the clusters with these labels.
    pub(crate) fn matching(&self, wanted: &BTreeMap<String, String>) -> Vec<&str> {
        let matches = |labels: &BTreeMap<String, String>| {
            wanted.iter().all(|(name, value)| labels.get(name) == Some(value))
        };
        self.known.iter().filter(|(_, labels)| matches(labels)).map(|(name, _)| name.as_str()).collect()
    }

    /// Returns the names of all clusters except the local one.
    pub(crate) fn members(&self) -> Vec<&str> {
        self.known.iter().skip(1).map(|(name, _)| name.as_str()).collect()
    }
}

/// The gateway's own labels are not labels of the cluster.
fn labels(all: &BTreeMap<String, String>, is_local: bool) -> BTreeMap<String, String> {
    let own = all.iter().filter(|(name, _)| !name.starts_with(CLUSTER_GROUP));
    let mut labels: BTreeMap<String, String> =
        own.map(|(name, value)| (name.clone(), value.clone())).collect();
    labels.insert(CONTROL_PLANE.to_owned(), is_local.to_string());
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(name: &str, second: i64, label: (&str, &str)) -> Meta {
        Meta {
            name: name.to_owned(),
            labels: [(label.0.to_owned(), label.1.to_owned())].into(),
            creation_timestamp: Timestamp::from_second(second).ok(),
        }
    }

    #[test]
    fn clusters_are_chosen_by_their_own_labels() {
        let metas = [meta("old", 1, ("zone", "a")), meta("new", 2, ("zone", "a"))];
        let gateway = meta("b", 2, ("cluster.core.oam.dev/cluster-credential-type", "X509Certificate"));
        let inventory = Inventory::of(metas.iter().chain([&gateway]));
        let matching = |name: &str, value: &str| {
            inventory.matching(&[(name.to_owned(), value.to_owned())].into()).join(" ")
        };
        assert_eq!(matching("zone", "a"), "new old");
        assert_eq!(matching("cluster.core.oam.dev/control-plane", "true"), "local");
        assert_eq!(matching("cluster.core.oam.dev/cluster-credential-type", "X509Certificate"), "");
        assert_eq!(inventory.matching(&BTreeMap::new()), ["local", "b", "new", "old"]);
        let namesake = meta("local", 3, ("zone", "a"));
        assert_eq!(
            Inventory::of([&namesake]).matching(&BTreeMap::new()),
            ["local"],
            "no other cluster has its name"
        );
        assert!(inventory.has("old") && !inventory.has("older") && Inventory::unknown().has("older"));
    }
}
