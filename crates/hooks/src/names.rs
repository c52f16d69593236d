//! Names shared with other programs: kinds, labels, annotations, finalizers.

use setpoint::Kind;

pub(crate) const GROUP: &str = "metacontroller.k8s.io";
pub(crate) const VERSION: &str = "v1alpha1";

/// On a child: the last applied object, as JSON.
pub(crate) const LAST_APPLIED: &str = "metacontroller.k8s.io/last-applied-configuration";
/// On an attachment: the DecoratorController that created it.
pub(crate) const DECORATED_BY: &str = "metacontroller.k8s.io/decorator-controller";
/// On a child of a parent whose selector is generated: the parent's uid.
pub(crate) const CONTROLLER_UID: &str = "controller-uid";
/// On a ControllerRevision: the kind of its parent.
pub(crate) const PARENT_GROUP: &str = "metacontroller.k8s.io/apiGroup";
pub(crate) const PARENT_RESOURCE: &str = "metacontroller.k8s.io/resource";
/// On a CompositeController or DecoratorController: the apply strategy for its children.
pub(crate) const APPLY_STRATEGY: &str = "hooks.setpoint.dev/apply-strategy";

/// The source of events.
pub(crate) const COMPONENT: &str = "metacontroller";

pub(crate) fn composite_kind() -> Kind {
    Kind::new(GROUP, VERSION, "CompositeController", "compositecontrollers", false)
}

pub(crate) fn decorator_kind() -> Kind {
    Kind::new(GROUP, VERSION, "DecoratorController", "decoratorcontrollers", false)
}

pub(crate) fn revision_kind() -> Kind {
    Kind::new(GROUP, VERSION, "ControllerRevision", "controllerrevisions", true)
}

pub(crate) fn definition_kind() -> Kind {
    Kind::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false)
}

pub(crate) fn namespace_kind() -> Kind {
    Kind::new("", "v1", "Namespace", "namespaces", false)
}

/// On objects that a program wrote and their owner cannot own: the owner, and its kind. Names of the Operator SDK.
pub(crate) const PRIMARY_RESOURCE: &str = "operator-sdk/primary-resource";
pub(crate) const PRIMARY_RESOURCE_TYPE: &str = "operator-sdk/primary-resource-type";
/// On objects of a Helm operator's releases: the chart. A name of the Operator SDK.
pub(crate) const CHART: &str = "helm.sdk.operatorframework.io/chart";
/// On a revision of a release: the uid of its object, the digest of its chart and values, and of those that failed
/// before it.
pub(crate) const RELEASE_OF: &str = "hooks.setpoint.dev/release-of";
pub(crate) const RELEASE_INPUTS: &str = "hooks.setpoint.dev/release-inputs";
pub(crate) const RELEASE_FAILED: &str = "hooks.setpoint.dev/release-failed-inputs";
/// On a revision that was marked as failed because the operation was interrupted.
pub(crate) const RELEASE_INTERRUPTED: &str = "hooks.setpoint.dev/release-interrupted";

pub(crate) fn secret_kind() -> Kind {
    Kind::new("", "v1", "Secret", "secrets", true)
}
