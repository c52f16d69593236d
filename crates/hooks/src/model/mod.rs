//! CompositeControllers and DecoratorControllers as users write them.
//!
//! Invariant: a controller that [`check`] accepts can run, as far as this can be determined without a cluster.

mod check;
mod hook;

use serde::Deserialize;
use setpoint::LabelSelector;

pub(crate) use check::{check_composite, check_decorator};
pub(crate) use hook::{
    Authorization, BasicAuth, CaBundle, ClientTls, EndpointConfig, Hook, HookVersion, KeyRef, Webhook,
    go_duration,
};

/// A kind by its version and plural name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resource {
    pub(crate) api_version: String,
    pub(crate) resource: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CompositeSpec {
    pub(crate) parent_resource: ParentRule,
    #[serde(default)]
    pub(crate) child_resources: Vec<ChildRule>,
    #[serde(default)]
    pub(crate) hooks: Option<Hooks>,
    #[serde(default)]
    pub(crate) endpoint_configs: Vec<EndpointConfig>,
    pub(crate) resync_period_seconds: Option<i32>,
    #[serde(default)]
    pub(crate) generate_selector: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DecoratorSpec {
    pub(crate) resources: Vec<DecoratedRule>,
    #[serde(default)]
    pub(crate) attachments: Vec<ChildRule>,
    #[serde(default)]
    pub(crate) hooks: Option<Hooks>,
    #[serde(default)]
    pub(crate) endpoint_configs: Vec<EndpointConfig>,
    pub(crate) resync_period_seconds: Option<i32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ParentRule {
    #[serde(flatten)]
    pub(crate) resource: Resource,
    pub(crate) label_selector: Option<LabelSelector>,
    #[serde(default)]
    pub(crate) ignore_status_changes: bool,
    pub(crate) revision_history: Option<RevisionHistory>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RevisionHistory {
    #[serde(default)]
    pub(crate) field_paths: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DecoratedRule {
    #[serde(flatten)]
    pub(crate) resource: Resource,
    pub(crate) label_selector: Option<LabelSelector>,
    pub(crate) annotation_selector: Option<AnnotationSelector>,
    #[serde(default)]
    pub(crate) ignore_status_changes: bool,
}

/// A selector for annotations.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AnnotationSelector {
    match_annotations: setpoint::Labels,
    match_expressions: Box<[setpoint::selector::Requirement]>,
}

impl AnnotationSelector {
    pub(crate) fn into_selector(self) -> LabelSelector {
        LabelSelector { match_labels: self.match_annotations, match_expressions: self.match_expressions }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChildRule {
    #[serde(flatten)]
    pub(crate) resource: Resource,
    #[serde(default)]
    pub(crate) update_strategy: UpdateStrategy,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct UpdateStrategy {
    pub(crate) method: Method,
    pub(crate) status_checks: StatusChecks,
}

/// How children are updated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum Method {
    /// They are not. A deleted child is recreated from the hook's current response.
    #[default]
    #[serde(alias = "")]
    OnDelete,
    /// They are deleted, and recreated once they are gone.
    Recreate,
    /// They are updated.
    InPlace,
    /// Like `Recreate`, one child after the other.
    RollingRecreate,
    /// Like `InPlace`, one child after the other.
    RollingInPlace,
}

impl Method {
    pub(crate) fn is_rolling(self) -> bool {
        matches!(self, Self::RollingRecreate | Self::RollingInPlace)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct StatusChecks {
    pub(crate) conditions: Vec<ConditionCheck>,
}

/// The required condition of a child before the next child is updated.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct ConditionCheck {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: Option<String>,
    pub(crate) reason: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Hooks {
    pub(crate) sync: Option<Hook>,
    pub(crate) finalize: Option<Hook>,
    pub(crate) customize: Option<Hook>,
}
