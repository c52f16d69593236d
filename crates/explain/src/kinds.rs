//! The kinds that explainers read, by group and name. Their versions depend on the cluster.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

/// A kind in any version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct GroupKind {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub group: Cow<'static, str>,
    pub kind: Cow<'static, str>,
}

impl GroupKind {
    pub const fn of(group: &'static str, kind: &'static str) -> Self {
        Self { group: Cow::Borrowed(group), kind: Cow::Borrowed(kind) }
    }

    pub fn named(group: &str, kind: &str) -> Self {
        Self { group: Cow::Owned(group.to_owned()), kind: Cow::Owned(kind.to_owned()) }
    }

    /// Returns the kind that an `apiVersion` and a `kind` name.
    pub fn of_reference(api_version: &str, kind: &str) -> Self {
        Self::named(api_version.split_once('/').map_or("", |(group, _)| group), kind)
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.group {
            "" => f.write_str(&self.kind),
            group => write!(f, "{}.{group}", self.kind),
        }
    }
}

macro_rules! kinds {
    ($($name:ident = $group:literal, $kind:literal;)*) => {
        $(pub const $name: GroupKind = GroupKind::of($group, $kind);)*
    };
}

kinds! {
    CONFIG_MAP = "", "ConfigMap";
    ENDPOINTS = "", "Endpoints";
    EVENT = "", "Event";
    LIMIT_RANGE = "", "LimitRange";
    NAMESPACE = "", "Namespace";
    NODE = "", "Node";
    CLAIM = "", "PersistentVolumeClaim";
    VOLUME = "", "PersistentVolume";
    POD = "", "Pod";
    QUOTA = "", "ResourceQuota";
    SECRET = "", "Secret";
    SERVICE = "", "Service";
    SERVICE_ACCOUNT = "", "ServiceAccount";
    REPLICATION_CONTROLLER = "", "ReplicationController";
    DAEMON_SET = "apps", "DaemonSet";
    DEPLOYMENT = "apps", "Deployment";
    REPLICA_SET = "apps", "ReplicaSet";
    STATEFUL_SET = "apps", "StatefulSet";
    CRON_JOB = "batch", "CronJob";
    JOB = "batch", "Job";
    AUTOSCALER = "autoscaling", "HorizontalPodAutoscaler";
    ENDPOINT_SLICE = "discovery.k8s.io", "EndpointSlice";
    INGRESS = "networking.k8s.io", "Ingress";
    INGRESS_CLASS = "networking.k8s.io", "IngressClass";
    BUDGET = "policy", "PodDisruptionBudget";
    RUNTIME_CLASS = "node.k8s.io", "RuntimeClass";
    PRIORITY_CLASS = "scheduling.k8s.io", "PriorityClass";
    STORAGE_CLASS = "storage.k8s.io", "StorageClass";
    CSI_NODE = "storage.k8s.io", "CSINode";
    CSI_DRIVER = "storage.k8s.io", "CSIDriver";
    CAPACITY = "storage.k8s.io", "CSIStorageCapacity";
    ATTACHMENT = "storage.k8s.io", "VolumeAttachment";
    DEVICE_CLAIM = "resource.k8s.io", "ResourceClaim";
    DEVICE_CLASS = "resource.k8s.io", "DeviceClass";
    DEVICE_SLICE = "resource.k8s.io", "ResourceSlice";
    DEFINITION = "apiextensions.k8s.io", "CustomResourceDefinition";
    API_SERVICE = "apiregistration.k8s.io", "APIService";
    VALIDATING_WEBHOOKS = "admissionregistration.k8s.io", "ValidatingWebhookConfiguration";
    MUTATING_WEBHOOKS = "admissionregistration.k8s.io", "MutatingWebhookConfiguration";
    CERTIFICATE_REQUEST = "certificates.k8s.io", "CertificateSigningRequest";
    LEASE = "coordination.k8s.io", "Lease";
    APPLICATION = "core.oam.dev", "Application";
    WORKFLOW_RUN = "core.oam.dev", "WorkflowRun";
    GRAPH = "kro.run", "ResourceGraphDefinition";
}
