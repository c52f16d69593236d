//! Events, before and after encoding.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::{Kind, Object};

/// The type of an event.
///
/// ```
/// assert_eq!(setpoint::EventType::Warning.as_str(), "Warning");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum EventType {
    /// Informational.
    Normal,
    /// Something is wrong.
    Warning,
}

impl EventType {
    /// Returns the `type` value of the event.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// A reference to the object that an event is about.
///
/// ```
/// use setpoint::{Kind, Object, recorder::Reference};
/// let pods = Kind::new("", "v1", "Pod", "pods", true);
/// let pod = Object::from_json(r#"{"metadata":{"name":"web","namespace":"default","uid":"7f3e"}}"#.into()).unwrap();
/// let container = Reference::to(&pods, &pod).field_path("spec.containers{nginx}");
/// assert_eq!(container.uid, "7f3e");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reference {
    /// The object's kind.
    pub kind: String,
    /// The object's namespace. Empty for a cluster-scoped object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The object's uid, if known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The object's `apiVersion`.
    pub api_version: String,
    /// The resource version of the object that caused the event.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The part of the object that the event is about.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_path: String,
}

impl Reference {
    /// Creates a reference to a whole object.
    pub fn to(kind: &Kind, object: &Object) -> Self {
        let meta = object.meta();
        Self {
            kind: kind.kind().into(),
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            name: (*meta.name).into(),
            uid: (*meta.uid).into(),
            api_version: kind.api_version(),
            resource_version: (*meta.resource_version).into(),
            field_path: String::new(),
        }
    }

    /// Restricts the reference to a part of the object.
    pub fn field_path(self, path: impl Into<String>) -> Self {
        Self { field_path: path.into(), ..self }
    }
}

/// The source of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct EventSource {
    pub(super) component: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) host: Arc<str>,
}

/// An event as it is created.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventObject {
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    pub(super) metadata: EventMeta,
    pub(super) involved_object: Reference,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) source: EventSource,
    #[serde(serialize_with = "seconds")]
    pub(super) first_timestamp: Timestamp,
    #[serde(serialize_with = "seconds")]
    pub(super) last_timestamp: Timestamp,
    pub(super) count: u32,
    #[serde(rename = "type")]
    pub(super) event_type: EventType,
    pub(super) reporting_component: &'static str,
    pub(super) reporting_instance: Arc<str>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct EventMeta {
    pub(super) name: String,
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

/// The patch for an event that happens again.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RepeatPatch<'a> {
    pub(super) count: u32,
    #[serde(serialize_with = "seconds")]
    pub(super) last_timestamp: Timestamp,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) message: &'a str,
}

/// Formats times as whole seconds.
fn seconds<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&time.strftime("%Y-%m-%dT%H:%M:%SZ"))
}
