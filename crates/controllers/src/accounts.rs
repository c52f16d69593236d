//! In whose name each controller acts, where each acts in its own: the service accounts in `kube-system` that
//! the roles `system:controller:…` are bound to.

use crate::registry::Entry;

/// Controllers whose account has another name than they have.
const ACCOUNTS: &[(&str, &str)] = &[
    ("bootstrap-signer-controller", "bootstrap-signer"),
    ("certificatesigningrequest-approving-controller", "certificate-controller"),
    ("certificatesigningrequest-cleaner-controller", "certificate-controller"),
    ("certificatesigningrequest-signing-controller", "certificate-controller"),
    ("daemonset-controller", "daemon-set-controller"),
    ("endpoints-controller", "endpoint-controller"),
    ("endpointslice-mirroring-controller", "endpointslicemirroring-controller"),
    ("garbage-collector-controller", "generic-garbage-collector"),
    ("horizontal-pod-autoscaler-controller", "horizontal-pod-autoscaler"),
    // Of this project's own: so are its account and role.
    ("ingress-controller", "setpoint-ingress-controller"),
    (
        "kube-apiserver-serving-clustertrustbundle-publisher-controller",
        "kube-apiserver-serving-clustertrustbundle-publisher",
    ),
    ("legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-cleaner"),
    ("node-ipam-controller", "node-controller"),
    ("node-lifecycle-controller", "node-controller"),
    ("persistentvolume-attach-detach-controller", "attachdetach-controller"),
    ("persistentvolume-binder-controller", "persistent-volume-binder"),
    ("persistentvolume-expander-controller", "expand-controller"),
    ("persistentvolume-protection-controller", "pv-protection-controller"),
    ("persistentvolumeclaim-protection-controller", "pvc-protection-controller"),
    ("pod-garbage-collector-controller", "pod-garbage-collector"),
    ("podcertificaterequest-cleaner-controller", "podcertificaterequestcleaner"),
    ("replicationcontroller-controller", "replication-controller"),
    ("resourceclaim-controller", "resource-claim-controller"),
    ("root-ca-certificate-publisher-controller", "root-ca-cert-publisher"),
    ("service-cidr-controller", "service-cidrs-controller"),
    ("service-lb-controller", "service-controller"),
    ("serviceaccount-controller", "service-account-controller"),
    ("storageversion-garbage-collector-controller", "storage-version-garbage-collector"),
    ("taint-eviction-controller", "node-controller"),
    ("token-cleaner-controller", "token-cleaner"),
];

/// The controller that acts in the name of the whole manager, as in v1.34: it makes the others' tokens.
const OF_THE_MANAGER: &str = "serviceaccount-token-controller";

impl Entry {
    /// The name of its service account; `None` if it acts in the name of the whole manager.
    pub fn account(&self) -> Option<&'static str> {
        if self.name == OF_THE_MANAGER {
            return None;
        }
        let other = ACCOUNTS.iter().find(|(name, _)| *name == self.name).map(|(_, account)| *account);
        Some(other.unwrap_or(self.name))
    }
}
