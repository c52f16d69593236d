//! Controllers whose names are known and that do not run: those of clouds, and those whose kinds are not served.
//!
//! A list of controllers may name any of them, and whoever asks for one is told why it does not run.

use crate::registry::Entry;

const CLOUD: &str =
    "it needs a cloud provider, and kube-controller-manager has none: run the cloud's own manager";

/// Why a controller of [`ENTRIES`] does not run.
const WHY: &[(&str, &str)] = &[
    ("node-route-controller", CLOUD),
    ("cloud-node-lifecycle-controller", CLOUD),
    (
        "podcertificaterequest-cleaner-controller",
        "PodCertificateRequests (certificates.k8s.io/v1alpha1, gate PodCertificateRequest) are not supported",
    ),
    (
        "kube-apiserver-serving-clustertrustbundle-publisher-controller",
        "ClusterTrustBundles (certificates.k8s.io/v1beta1, gate ClusterTrustBundle) are not supported",
    ),
    (
        "device-taint-eviction-controller",
        "DeviceTaintRules (resource.k8s.io/v1alpha3, gate DRADeviceTaints) are not supported",
    ),
    (
        "storageversion-garbage-collector-controller",
        "StorageVersions (internal.apiserver.k8s.io/v1alpha1, gate StorageVersionAPI) are not supported",
    ),
    (
        "storage-version-migrator-controller",
        "StorageVersionMigrations (storagemigration.k8s.io/v1alpha1, gate StorageVersionMigrator) are not supported",
    ),
    ("selinux-warning-controller", "SELinux labels of volumes (gate SELinuxChangePolicy) are not supported"),
];

pub(crate) const NODE_ROUTE: Entry = absent("node-route-controller", &["route"]);
pub(crate) const CLOUD_NODE_LIFECYCLE: Entry =
    absent("cloud-node-lifecycle-controller", &["cloud-node-lifecycle"]);
pub(crate) const POD_CERTIFICATES: Entry = absent("podcertificaterequest-cleaner-controller", &[]);
pub(crate) const TRUST_BUNDLES: Entry =
    absent("kube-apiserver-serving-clustertrustbundle-publisher-controller", &[]);
pub(crate) const DEVICE_TAINTS: Entry = absent("device-taint-eviction-controller", &[]);
pub(crate) const STORAGE_VERSIONS: Entry =
    absent("storageversion-garbage-collector-controller", &["storage-version-gc"]);
pub(crate) const STORAGE_MIGRATIONS: Entry = absent("storage-version-migrator-controller", &["svm"]);
pub(crate) const SELINUX: Entry = absent("selinux-warning-controller", &[]);

const fn absent(name: &'static str, aliases: &'static [&'static str]) -> Entry {
    Entry {
        name,
        aliases,
        on_by_default: false,
        summary: "known by name; it does not run",
        watches: &[],
        writes: &[],
        default_workers: 1,
        build: |_, _| Vec::new(),
    }
}

/// Why a controller does not run although it was asked for; `None` if it does.
pub fn why_absent(entry: &Entry) -> Option<&'static str> {
    WHY.iter().find(|(name, _)| *name == entry.name).map(|(_, why)| *why)
}
