//! Where components are deployed.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Policies;
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
    /// Returns the placements that the named topologies choose. Without any, it is the application's own namespace.
    pub(crate) fn placements(&self, named: &[String], namespace: &str) -> Result<Vec<Placement>, String> {
        let chosen = self.topologies.iter().filter(|(name, _)| named.contains(name));
        let (mut placements, mut any) = (Vec::new(), false);
        for (name, topology) in chosen {
            any = true;
            for placement in topology.placements(namespace).map_err(|why| format!("policy {name}: {why}"))? {
                if !placements.contains(&placement) {
                    placements.push(placement);
                }
            }
        }
        Ok(if any { placements } else { vec![Placement::local(namespace)] })
    }
}

impl Topology {
    fn placements(&self, namespace: &str) -> Result<Vec<Placement>, String> {
        let namespace = if self.namespace.is_empty() { namespace } else { &self.namespace };
        let selector = self.cluster_label_selector.as_ref().or(self.cluster_selector.as_ref());
        match (&self.clusters, selector) {
            (Some(clusters), _) => clusters.iter().map(|cluster| placed(cluster, namespace)).collect(),
            // The own cluster has no labels, so only an empty selector finds it.
            (None, Some(labels)) if labels.is_empty() => Ok(vec![Placement::local(namespace)]),
            (None, Some(_)) if self.allow_empty => Ok(Vec::new()),
            (None, Some(labels)) => {
                Err(format!("failed to find any cluster matches given labels {labels:?}"))
            }
            (None, None) => Ok(vec![Placement::local(namespace)]),
        }
    }
}

/// Checks that a cluster is the own one: others are not supported.
pub(crate) fn placed(cluster: &str, namespace: &str) -> Result<Placement, String> {
    match cluster {
        "" | LOCAL_CLUSTER => Ok(Placement::local(namespace)),
        other => Err(format!("failed to get cluster {other}: only the cluster {LOCAL_CLUSTER} is supported")),
    }
}
