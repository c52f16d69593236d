//! A decoded Application.

use serde::Deserialize;
use serde_json::{Map, Value};
use setpoint::{Kind, View};

use crate::apply::tracker::AppRef;
use crate::crds;
use crate::model::{Spec, Status};
use crate::names;

/// An Application with its metadata.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Application {
    pub(crate) metadata: Meta,
    pub(crate) spec: Spec,
    pub(crate) status: Status,
}

/// The status of an Application alone.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Standing {
    pub(super) status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) generation: i64,
    #[serde(deserialize_with = "setpoint::null_is_empty")]
    pub(crate) labels: Map<String, Value>,
    #[serde(deserialize_with = "setpoint::null_is_empty")]
    pub(crate) annotations: Map<String, Value>,
}

impl View for Application {
    fn kind() -> Kind {
        crds::APPLICATION.kind()
    }
}

impl Application {
    pub(crate) fn annotation(&self, name: &str) -> &str {
        self.metadata.annotations.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.metadata.labels.get(names::PAUSE).is_some_and(|value| value == "true")
    }

    pub(crate) fn publish_version(&self) -> &str {
        self.annotation(names::PUBLISH_VERSION)
    }

    /// Returns whether a changed definition causes a new revision.
    pub(crate) fn follows_definitions(&self) -> bool {
        self.annotation(names::AUTO_UPDATE) == "true"
    }

    pub(crate) fn reference(&self) -> AppRef {
        AppRef {
            name: self.metadata.name.clone(),
            namespace: self.metadata.namespace.clone(),
            uid: self.metadata.uid.clone(),
            generation: self.metadata.generation,
            publish_version: self.publish_version().to_owned(),
        }
    }
}
