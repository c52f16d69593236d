//! Placement: the clusters and namespaces of components.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Policies;
use crate::apply::cluster::ClusterError;
use crate::clusters::inventory::Inventory;
use crate::names::LOCAL_CLUSTER;

/// A topology policy. Unknown fields are an error.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Topology {
    clusters: Option<Vec<String>>,
    cluster_label_selector: Option<BTreeMap<String, String>>,
    cluster_selector: Option<BTreeMap<String, String>>,
    allow_empty: bool,
    namespace: String,
}

/// A replication policy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Replication {
    pub(crate) keys: Vec<String>,
    pub(crate) selector: Vec<String>,
}

/// A namespace of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) cluster: String,
    pub(crate) namespace: String,
}

impl Placement {
    /// Returns a namespace of this cluster.
    pub(crate) fn local(namespace: &str) -> Self {
        Self { cluster: LOCAL_CLUSTER.to_owned(), namespace: namespace.to_owned() }
    }
}

impl Policies {
    /// Returns the placements that the named topologies select among these clusters. Without a topology, it is the
    /// application's own namespace.
    pub(crate) fn placements(
        &self,
        named: &[String],
        namespace: &str,
        clusters: &Inventory,
    ) -> Result<Vec<Placement>, String> {
        let chosen = self.topologies.iter().filter(|(name, _)| named.contains(name));
        let (mut placements, mut any) = (Vec::new(), false);
        for (name, topology) in chosen {
            any = true;
            let places = topology.placements(namespace, clusters);
            for placement in places.map_err(|why| format!("policy {name}: {why}"))? {
                if !placements.contains(&placement) {
                    placements.push(placement);
                }
            }
        }
        Ok(if any { placements } else { vec![Placement::local(namespace)] })
    }
}

impl Topology {
    fn placements(&self, namespace: &str, clusters: &Inventory) -> Result<Vec<Placement>, String> {
        let namespace = if self.namespace.is_empty() { namespace } else { &self.namespace };
        let selector = self.cluster_label_selector.as_ref().or(self.cluster_selector.as_ref());
        let at = |cluster: &str| Placement { cluster: cluster.to_owned(), namespace: namespace.to_owned() };
        match (&self.clusters, selector) {
            (Some(named), _) => named.iter().map(|cluster| placed(cluster, namespace, clusters)).collect(),
            (None, Some(labels)) => match clusters.matching(labels) {
                none if none.is_empty() && !self.allow_empty => {
                    Err(format!("failed to find any cluster matches given labels {labels:?}"))
                }
                found => Ok(found.into_iter().map(at).collect()),
            },
            (None, None) => Ok(vec![Placement::local(namespace)]),
        }
    }
}

/// Returns a namespace of a named cluster, which must exist. An empty name is the local cluster.
pub(crate) fn placed(cluster: &str, namespace: &str, clusters: &Inventory) -> Result<Placement, String> {
    match cluster {
        "" | LOCAL_CLUSTER => Ok(Placement::local(namespace)),
        other if clusters.has(other) => {
            Ok(Placement { cluster: other.to_owned(), namespace: namespace.to_owned() })
        }
        other => Err(ClusterError::NoCluster { cluster: other.to_owned() }.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::clusters::credential::Meta;
    use crate::model::Policy;

    fn places(properties: Value) -> Result<String, String> {
        let policy = Policy { name: "t".into(), kind: "topology".into(), properties };
        let meta = |name: &str| Meta {
            name: name.into(),
            labels: [("zone".to_owned(), name.to_owned())].into(),
            creation_timestamp: None,
        };
        let clusters = Inventory::of(&[meta("east"), meta("west")]);
        let places = Policies::parse(&[policy])?.placements(&["t".to_owned()], "shop", &clusters)?;
        let text = |place: &Placement| format!("{}/{}", place.cluster, place.namespace);
        Ok(places.iter().map(text).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn clusters_are_chosen_by_name_or_label() {
        assert_eq!(places(json!({"clusters": ["west", "local"]})).unwrap(), "west/shop local/shop");
        let by_label = json!({"clusterLabelSelector": {"zone": "east"}, "namespace": "live"});
        assert_eq!(places(by_label).unwrap(), "east/live");
        let all = places(json!({"clusterSelector": {}})).unwrap();
        assert_eq!(all, "local/shop east/shop west/shop");
        let nowhere = json!({"clusterLabelSelector": {"zone": "north"}, "allowEmpty": true});
        assert_eq!(places(nowhere).unwrap(), "");
    }

    #[test]
    fn a_cluster_that_does_not_exist_is_an_error() {
        let error = places(json!({"clusters": ["north"]})).unwrap_err();
        assert_eq!(
            error,
            "policy t: failed to get cluster north: virtualclusters.cluster.core.oam.dev \"north\" not found"
        );
        let error = places(json!({"clusterLabelSelector": {"zone": "north"}})).unwrap_err();
        assert!(error.contains("failed to find any cluster matches given labels"), "{error}");
    }
}
