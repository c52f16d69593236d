//! Names that users and other tools rely on: labels, annotations, finalizers, namespaces.

/// The API group of applications and definitions.
pub const GROUP: &str = "core.oam.dev";
/// The namespace of shared definitions.
pub const SYSTEM_NAMESPACE: &str = "vela-system";
/// The cluster that the applications are in.
pub const LOCAL_CLUSTER: &str = "local";
/// The API group of clusters, which prefixes the labels below.
pub(crate) const CLUSTER_GROUP: &str = "cluster.core.oam.dev";
/// On a Secret: the type of a cluster's credential.
pub const CLUSTER_CREDENTIAL_TYPE: &str = "cluster.core.oam.dev/cluster-credential-type";
/// On such a Secret: the type of the cluster's endpoint.
pub(crate) const CLUSTER_ENDPOINT_TYPE: &str = "cluster.core.oam.dev/cluster-endpoint-type";
/// A label of every cluster: whether it is the one that the applications are in.
pub(crate) const CONTROL_PLANE: &str = "cluster.core.oam.dev/control-plane";
/// On an object: the cluster it is in, unless that is the local one.
pub(crate) const APP_CLUSTER: &str = "app.oam.dev/cluster";
/// The field manager of applied objects.
pub(crate) const FIELD_MANAGER: &str = "setpoint-applications";

pub const APP_NAME: &str = "app.oam.dev/name";
pub const APP_NAMESPACE: &str = "app.oam.dev/namespace";
pub const APP_UID: &str = "app.oam.dev/uid";
pub const APP_COMPONENT: &str = "app.oam.dev/component";
pub const APP_REVISION: &str = "app.oam.dev/appRevision";
pub const APP_REVISION_HASH: &str = "app.oam.dev/app-revision-hash";
pub(crate) const COMPONENT_REVISION: &str = "app.oam.dev/revision";
pub(crate) const RESOURCE_TYPE: &str = "app.oam.dev/resourceType";
pub(crate) const WORKLOAD_TYPE: &str = "workload.oam.dev/type";
pub(crate) const TRAIT_TYPE: &str = "trait.oam.dev/type";
pub(crate) const TRAIT_RESOURCE: &str = "trait.oam.dev/resource";
pub(crate) const RENDER_HASH: &str = "oam.dev/render-hash";
pub(crate) const REPLICA_KEY: &str = "app.oam.dev/replicaKey";
/// On an object: the WorkflowRun that applied it.
pub(crate) const RUN_NAME: &str = "workflowrun.oam.dev/name";
pub(crate) const RUN_NAMESPACE: &str = "workflowrun.oam.dev/namespace";
/// Returns a type without its revision: `webservice@v1` is a `webservice`. Labels cannot contain `@`.
pub(crate) fn without_revision(kind: &str) -> &str {
    kind.split_once('@').map_or(kind, |(name, _)| name)
}

/// The trait type of objects that a component itself adds.
pub(crate) const AUXILIARY: &str = "AuxiliaryWorkload";
/// Pauses an application: nothing is reconciled.
pub(crate) const PAUSE: &str = "controller.core.oam.dev/pause";

pub(crate) const SHARED_BY: &str = "app.oam.dev/shared-by";
pub(crate) const PUBLISH_VERSION: &str = "app.oam.dev/publishVersion";
/// The service account that an application acts as.
pub const SERVICE_ACCOUNT: &str = "app.oam.dev/service-account-name";
/// On a record: the number of its workflow run, which increases with each run.
pub(crate) const RUN: &str = "app.oam.dev/workflow-run";
/// On a record: the start time of that run.
pub(crate) const RUN_START: &str = "app.oam.dev/workflow-start";
/// On a record: the uids of the clusters with its objects.
pub(crate) const CLUSTERS: &str = "app.oam.dev/clusters";
pub(crate) const AUTO_UPDATE: &str = "app.oam.dev/autoUpdate";
pub(crate) const WORKFLOW_NAME: &str = "app.oam.dev/workflowName";
pub(crate) const DISABLE_HEALTH_CHECK: &str = "app.oam.dev/disable-health-check";
pub(crate) const FILTER_LABELS: &str = "filter.oam.dev/label-keys";
pub(crate) const FILTER_ANNOTATIONS: &str = "filter.oam.dev/annotation-keys";

/// The finalizer of applications, held until their objects are gone.
pub const APP_FINALIZER: &str = "app.oam.dev/resource-tracker-finalizer";
/// The finalizer that keeps the objects of a deleted application.
pub(crate) const ORPHAN_FINALIZER: &str = "app.oam.dev/orphan-resource";
/// The finalizer of records, held until their objects are gone.
pub(crate) const TRACKER_FINALIZER: &str = "resourcetracker.core.oam.dev/finalizer";
/// The name of a definition, on its revisions.
pub(crate) const DEFINITION_NAME: [(&str, &str); 4] = [
    ("ComponentDefinition", "componentdefinition.oam.dev/name"),
    ("TraitDefinition", "trait.oam.dev/name"),
    ("PolicyDefinition", "policydefinition.oam.dev/name"),
    ("WorkflowStepDefinition", "workflowstepdefinition.oam.dev/name"),
];
