//! Typed view of a policy.

use serde::Deserialize;
use setpoint::Kind;
use setpoint::discovery::Discovered;

use crate::workload::encoding::null_is_empty;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Policy {
    pub(super) spec: Spec,
    pub(super) status: Status,
}

setpoint::view!(Policy of k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Spec {
    pub(super) param_kind: Option<ParamKind>,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) match_constraints: Constraints,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) variables: Vec<Variable>,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) validations: Vec<Validation>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    pub(super) observed_generation: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ParamKind {
    api_version: String,
    kind: String,
}

impl ParamKind {
    pub(super) fn find(&self, served: &Discovered) -> Option<Kind> {
        served.kind(&self.api_version, &self.kind).cloned()
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Constraints {
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) resource_rules: Vec<Rule>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Rule {
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) api_groups: Vec<String>,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) api_versions: Vec<String>,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) resources: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Validation {
    pub(super) expression: String,
    pub(super) message_expression: String,
}
