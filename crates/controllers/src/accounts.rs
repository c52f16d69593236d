//! Service accounts of the controllers in `kube-system`, which the roles `system:controller:…` are bound to. Used with
//! one identity per controller.

use crate::registry::Entry;

/// Controllers whose service account has a different name.
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
    // Specific to this project, like its account and role.
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

/// The controller that uses the manager's own identity, as in v1.34: it creates the tokens of the others.
const OF_THE_MANAGER: &str = "serviceaccount-token-controller";

impl Entry {
    /// Returns the controller's service account, or `None` if it uses the manager's own identity.
    pub fn account(&self) -> Option<&'static str> {
        if self.name == OF_THE_MANAGER {
            return None;
        }
        let other = ACCOUNTS.iter().find(|(name, _)| *name == self.name).map(|(_, account)| *account);
        Some(other.unwrap_or(self.name))
    }
}
