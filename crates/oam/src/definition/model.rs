//! The parts of a definition that rendering uses.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

/// Definitions by the names of their types.
pub(crate) type ByType = BTreeMap<String, Arc<Definition>>;

/// A definition of any type.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Definition {
    pub(crate) metadata: Meta,
    pub(crate) spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Meta {
    pub(crate) name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Spec {
    pub(crate) schematic: Option<Schematic>,
    pub(crate) workload: Workload,
    pub(crate) status: Status,
    pub(crate) stage: Option<Stage>,
    pub(crate) manage_workload: bool,
    /// Whether the objects of a trait go to the local cluster, regardless of the component's cluster.
    pub(crate) control_plane_only: bool,
    pub(crate) workload_ref_path: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Schematic {
    pub(crate) cue: Option<CueTemplate>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CueTemplate {
    pub(crate) template: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Workload {
    pub(crate) definition: Option<GroupVersionKind>,
}

#[derive(Clone, Debug, Default, Deserialize, serde::Serialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GroupVersionKind {
    pub(crate) api_version: String,
    pub(crate) kind: String,
}

/// The health and status templates.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Status {
    pub(crate) health_policy: String,
    pub(crate) custom_status: String,
    pub(crate) details: String,
}

/// When a trait's objects are applied.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    #[serde(rename = "PreDispatch")]
    Pre,
    #[default]
    #[serde(rename = "DefaultDispatch")]
    Default,
    #[serde(rename = "PostDispatch")]
    Post,
}

impl Status {
    /// Returns whether there are no such templates.
    pub(crate) fn is_empty(&self) -> bool {
        [&self.health_policy, &self.custom_status, &self.details]
            .iter()
            .all(|template| template.trim().is_empty())
    }
}

impl Definition {
    pub(crate) fn of(object: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(object)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns the CUE template, or an error for a definition in another language.
    pub(crate) fn template(&self) -> Result<&str, String> {
        match self.spec.schematic.as_ref().and_then(|schematic| schematic.cue.as_ref()) {
            Some(cue) => Ok(&cue.template),
            None => {
                Err(format!("definition {} has no CUE template: only CUE is supported", self.metadata.name))
            }
        }
    }
}
