//! The kinds that v1.34 can decode but no longer serves.
//!
//! A client that sends one of them to the endpoint of a served version has the version wrong, not the kind.

/// Kinds by group and version. Each also has a list.
const KINDS: &[(&str, &str, &[&str])] = &[
    (
        "admissionregistration.k8s.io",
        "v1beta1",
        &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"],
    ),
    ("apiextensions.k8s.io", "v1beta1", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io", "v1beta1", &["APIService"]),
    ("apps", "v1beta1", &["ControllerRevision", "Deployment", "Scale", "StatefulSet"]),
    (
        "apps",
        "v1beta2",
        &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "Scale", "StatefulSet"],
    ),
    ("authentication.k8s.io", "v1alpha1", &["SelfSubjectReview"]),
    ("authentication.k8s.io", "v1beta1", &["SelfSubjectReview", "TokenReview"]),
    (
        "authorization.k8s.io",
        "v1beta1",
        &[
            "LocalSubjectAccessReview",
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        ],
    ),
    ("autoscaling", "v2beta1", &["HorizontalPodAutoscaler"]),
    ("autoscaling", "v2beta2", &["HorizontalPodAutoscaler"]),
    ("batch", "v1beta1", &["CronJob"]),
    ("certificates.k8s.io", "v1beta1", &["CertificateSigningRequest"]),
    ("coordination.k8s.io", "v1beta1", &["Lease"]),
    ("discovery.k8s.io", "v1beta1", &["EndpointSlice"]),
    ("events.k8s.io", "v1beta1", &["Event"]),
    (
        "extensions",
        "v1beta1",
        &["DaemonSet", "Deployment", "Ingress", "NetworkPolicy", "ReplicaSet", "Scale"],
    ),
    ("flowcontrol.apiserver.k8s.io", "v1beta1", &["FlowSchema", "PriorityLevelConfiguration"]),
    ("flowcontrol.apiserver.k8s.io", "v1beta2", &["FlowSchema", "PriorityLevelConfiguration"]),
    ("flowcontrol.apiserver.k8s.io", "v1beta3", &["FlowSchema", "PriorityLevelConfiguration"]),
    ("networking.k8s.io", "v1beta1", &["Ingress", "IngressClass"]),
    ("node.k8s.io", "v1alpha1", &["RuntimeClass"]),
    ("node.k8s.io", "v1beta1", &["RuntimeClass"]),
    ("policy", "v1beta1", &["Eviction", "PodDisruptionBudget"]),
    ("rbac.authorization.k8s.io", "v1alpha1", RBAC),
    ("rbac.authorization.k8s.io", "v1beta1", RBAC),
    ("scheduling.k8s.io", "v1alpha1", &["PriorityClass"]),
    ("scheduling.k8s.io", "v1beta1", &["PriorityClass"]),
    ("storage.k8s.io", "v1alpha1", &["CSIStorageCapacity", "VolumeAttachment"]),
    (
        "storage.k8s.io",
        "v1beta1",
        &["CSIDriver", "CSINode", "CSIStorageCapacity", "StorageClass", "VolumeAttachment"],
    ),
];

const RBAC: &[&str] = &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];

/// Whether a kind is one of these.
pub(super) fn is_registered(group: &str, version: &str, kind: &str) -> bool {
    let item = kind.strip_suffix("List").unwrap_or(kind);
    let matches =
        |(of, at, kinds): &(&str, &str, &[&str])| *of == group && *at == version && kinds.contains(&item);
    KINDS.iter().any(matches)
}
