//! Features of v1.34 that are off by default and change what is served. Whoever starts a server says which are on.

use std::collections::BTreeSet;

/// Which of them are on: none, unless it is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    on: BTreeSet<&'static str>,
}

/// Those that change something here.
const KNOWN: [&str; 9] = [
    "ClusterTrustBundle",
    "DRADeviceTaints",
    "DeploymentReplicaSetTerminatingReplicas",
    "HPAConfigurableTolerance",
    "HPAScaleToZero",
    "MaxUnavailableStatefulSet",
    "PodCertificateRequest",
    "StorageVersionAPI",
    "StorageVersionMigrator",
];

impl Features {
    /// Those of which this is said.
    pub fn that(is_on: impl Fn(&str) -> bool) -> Self {
        Self { on: KNOWN.into_iter().filter(|name| is_on(name)).collect() }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        debug_assert!(KNOWN.contains(&name), "{name} is none of the features that are known");
        self.on.contains(name)
    }
}
