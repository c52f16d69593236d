//! Features of v1.34 that change what is served. Whoever starts a server says which are on.

use std::collections::BTreeSet;

/// Which of them are on: those that v1.34 has on, unless it is said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    on: BTreeSet<&'static str>,
}

/// Those that change something here, and whether v1.34 has them on.
const KNOWN: [(&str, bool); 13] = [
    ("ClearingNominatedNodeNameAfterBinding", false),
    ("ClusterTrustBundle", false),
    ("DRADeviceTaints", false),
    ("DeploymentReplicaSetTerminatingReplicas", false),
    ("HPAConfigurableTolerance", false),
    ("HPAScaleToZero", false),
    ("MaxUnavailableStatefulSet", false),
    ("PodCertificateRequest", false),
    ("PodTopologyLabelsAdmission", false),
    ("RelaxedServiceNameValidation", false),
    ("StorageVersionAPI", false),
    ("StorageVersionMigrator", false),
    ("TokenRequestServiceAccountUIDValidation", true),
];

impl Default for Features {
    fn default() -> Self {
        Self { on: KNOWN.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect() }
    }
}

impl Features {
    /// Those of which this is said.
    pub fn that(is_on: impl Fn(&str) -> bool) -> Self {
        Self { on: KNOWN.into_iter().map(|(name, _)| name).filter(|name| is_on(name)).collect() }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        debug_assert!(
            KNOWN.iter().any(|(known, _)| *known == name),
            "{name} is none of the features that are known"
        );
        self.on.contains(name)
    }
}
