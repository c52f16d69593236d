//! v1.34's feature gates that change what is served. The caller that starts a server chooses which are enabled.

use std::collections::BTreeSet;

/// The enabled feature gates: by default, those that v1.34 enables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    on: BTreeSet<&'static str>,
}

/// The feature gates that matter here, and whether v1.34 enables them.
const KNOWN: [(&str, bool); 17] = [
    ("ClearingNominatedNodeNameAfterBinding", false),
    ("ClusterTrustBundle", false),
    ("DRADeviceTaints", false),
    ("DeploymentReplicaSetTerminatingReplicas", false),
    ("HPAConfigurableTolerance", false),
    ("HPAScaleToZero", false),
    ("MaxUnavailableStatefulSet", false),
    ("MutatingAdmissionPolicy", false),
    ("PodCertificateRequest", false),
    ("PodLogsQuerySplitStreams", false),
    ("PodTopologyLabelsAdmission", false),
    ("PortForwardWebsockets", true),
    ("RelaxedServiceNameValidation", false),
    ("StorageVersionAPI", false),
    ("StorageVersionMigrator", false),
    ("TokenRequestServiceAccountUIDValidation", true),
    ("TranslateStreamCloseWebsocketRequests", true),
];

impl Default for Features {
    fn default() -> Self {
        Self { on: KNOWN.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect() }
    }
}

impl Features {
    /// Enables the features for which `is_on` returns true.
    pub fn enabled_by(is_on: impl Fn(&str) -> bool) -> Self {
        Self { on: KNOWN.into_iter().map(|(name, _)| name).filter(|name| is_on(name)).collect() }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        debug_assert!(KNOWN.iter().any(|(known, _)| *known == name), "{name} is not a known feature");
        self.on.contains(name)
    }
}
