//! Descriptions of built-in types and their fields, from the types themselves.

use std::borrow::Cow;

use k8s_openapi::api::{
    admissionregistration, apps, authentication, authorization, autoscaling, batch, certificates,
    coordination, core, discovery, events, flowcontrol, networking, node, policy, rbac, resource, scheduling,
    storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

/// The descriptions of some types and all types they refer to.
pub(super) struct Descriptions(Map<String, Value>);

impl Descriptions {
    /// Collects the descriptions of the named types; skips names that are not known kinds.
    pub(super) fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut generator = SchemaGenerator::default();
        for name in names {
            if let Some((_, describe)) = DESCRIBED.iter().find(|(described, _)| described() == name) {
                describe(&mut generator);
            }
        }
        Self(generator.take_definitions(false))
    }

    pub(super) fn of_type(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.get("description")?.as_str()
    }

    pub(super) fn of_field(&self, name: &str, field: &str) -> Option<&str> {
        let described =
            self.0.get(name).and_then(|ty| ty.get("properties")?.get(field)?.get("description")?.as_str());
        described.or_else(|| list_field(name, field))
    }
}

/// Lists are all alike.
fn list_field(name: &str, field: &str) -> Option<&'static str> {
    match field {
        _ if !name.ends_with("List") => None,
        "apiVersion" => Some("APIVersion defines the versioned schema of this representation of an object."),
        "kind" => Some("Kind is a string value representing the REST resource this object represents."),
        "metadata" => Some("Standard list metadata."),
        "items" => Some("The items of the list."),
        _ => None,
    }
}

/// A type's name, and the function that adds it to a generator, with all types it refers to.
type Described = (fn() -> Cow<'static, str>, fn(&mut SchemaGenerator));

const fn described<T: JsonSchema>() -> Described {
    (T::schema_name, |generator| _ = generator.subschema_for::<T>())
}

macro_rules! described {
    ($($kind:ty),+ $(,)?) => { &[$(described::<$kind>()),+] };
}

const DESCRIBED: &[Described] = described![
    admissionregistration::v1::MutatingWebhookConfiguration,
    admissionregistration::v1::ValidatingAdmissionPolicy,
    admissionregistration::v1::ValidatingAdmissionPolicyBinding,
    admissionregistration::v1::ValidatingWebhookConfiguration,
    admissionregistration::v1alpha1::MutatingAdmissionPolicy,
    admissionregistration::v1alpha1::MutatingAdmissionPolicyBinding,
    admissionregistration::v1beta1::MutatingAdmissionPolicy,
    admissionregistration::v1beta1::MutatingAdmissionPolicyBinding,
    apps::v1::ControllerRevision,
    apps::v1::DaemonSet,
    apps::v1::Deployment,
    apps::v1::ReplicaSet,
    apps::v1::StatefulSet,
    authentication::v1::SelfSubjectReview,
    authentication::v1::TokenRequest,
    authentication::v1::TokenReview,
    authorization::v1::LocalSubjectAccessReview,
    authorization::v1::SelfSubjectAccessReview,
    authorization::v1::SelfSubjectRulesReview,
    authorization::v1::SubjectAccessReview,
    autoscaling::v1::HorizontalPodAutoscaler,
    autoscaling::v1::Scale,
    autoscaling::v2::HorizontalPodAutoscaler,
    batch::v1::CronJob,
    batch::v1::Job,
    certificates::v1::CertificateSigningRequest,
    coordination::v1::Lease,
    core::v1::Binding,
    core::v1::ComponentStatus,
    core::v1::ConfigMap,
    core::v1::Endpoints,
    core::v1::Event,
    core::v1::LimitRange,
    core::v1::Namespace,
    core::v1::Node,
    core::v1::PersistentVolume,
    core::v1::PersistentVolumeClaim,
    core::v1::Pod,
    core::v1::PodTemplate,
    core::v1::ReplicationController,
    core::v1::ResourceQuota,
    core::v1::Secret,
    core::v1::Service,
    core::v1::ServiceAccount,
    discovery::v1::EndpointSlice,
    events::v1::Event,
    flowcontrol::v1::FlowSchema,
    flowcontrol::v1::PriorityLevelConfiguration,
    networking::v1::IPAddress,
    networking::v1::Ingress,
    networking::v1::IngressClass,
    networking::v1::NetworkPolicy,
    networking::v1::ServiceCIDR,
    node::v1::RuntimeClass,
    policy::v1::Eviction,
    policy::v1::PodDisruptionBudget,
    rbac::v1::ClusterRole,
    rbac::v1::ClusterRoleBinding,
    rbac::v1::Role,
    rbac::v1::RoleBinding,
    resource::v1::DeviceClass,
    resource::v1::ResourceClaim,
    resource::v1::ResourceClaimTemplate,
    resource::v1::ResourceSlice,
    scheduling::v1::PriorityClass,
    storage::v1::CSIDriver,
    storage::v1::CSINode,
    storage::v1::CSIStorageCapacity,
    storage::v1::StorageClass,
    storage::v1::VolumeAttachment,
    storage::v1::VolumeAttributesClass,
    apiextensions::CustomResourceDefinition,
    meta::DeleteOptions,
    meta::ListMeta,
    meta::ObjectMeta,
    meta::Status,
    apiregistration::APIService,
];
