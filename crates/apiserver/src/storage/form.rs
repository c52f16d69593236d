//! The stored form of a built-in kind.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use setpoint_store::Payload;
use setpoint_store::etcd::{Decoded, storage_path};

use super::{StorageMediaType, definition, line};
use crate::apply::ManagedFields;
use crate::json::Json;
use crate::kind::Scope;
use crate::registry::Served;
use crate::schema::protobuf::{is_marked, write};
use crate::schema::{self, FieldValidation, Format, Target};

/// The kinds that v1.34 does not store in the version that is stored here, with the version it stores. Those versions
/// have the same fields, and the same numbers in protobuf, except for definitions, which are converted.
const STORED_AS: [(&str, &str, &str); 8] = [
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies", "v1alpha1"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", "v1alpha1"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "v1beta1"),
    ("resource.k8s.io", "deviceclasses", "v1beta2"),
    ("resource.k8s.io", "resourceclaims", "v1beta2"),
    ("resource.k8s.io", "resourceclaimtemplates", "v1beta2"),
    ("resource.k8s.io", "resourceslices", "v1beta2"),
    ("storage.k8s.io", "volumeattributesclasses", "v1beta1"),
];

/// The groups whose kinds v1.34 always stores as JSON.
const JSON_GROUPS: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

const PREFIX: &str = "/registry/";

pub(super) struct Form {
    served: Arc<Served>,
    /// The version in which it is stored.
    group_version: (String, String),
    media_type: StorageMediaType,
    /// Where its objects are, such as `services/specs/`.
    path: String,
    /// How many names lead from there to an object.
    depth: usize,
}

/// What a stored object says it is.
struct Stated {
    group: String,
    version: String,
    kind: String,
}

impl Form {
    pub(super) fn new(served: Arc<Served>, media_type: StorageMediaType) -> Self {
        let kind = &served.kind;
        let of_kind =
            |(group, plural, _): &&(&str, &str, &str)| *group == kind.group && *plural == kind.plural;
        let version = STORED_AS.iter().find(of_kind).map_or(&*kind.version, |(_, _, version)| version);
        // Two kinds may be stored as one: `events` of the core group.
        let (group, plural) = kind.stored_as.split_once('/').unwrap_or(("", &kind.stored_as));
        let path = storage_path(group, plural, "");
        let path = path.strip_prefix(PREFIX).unwrap_or(&path).to_owned();
        let group_version = (group.to_owned(), version.to_owned());
        let is_json = JSON_GROUPS.contains(&group);
        let media_type = if is_json { StorageMediaType::Json } else { media_type };
        let depth = match kind.scope {
            Scope::Namespaced => 2,
            Scope::Cluster => 1,
        };
        Self { group_version, media_type, path, depth, served }
    }

    /// Returns the same form for objects that are not served, and by name only.
    pub(super) fn at(self, place: &str) -> Self {
        Self { path: format!("{place}/"), depth: 1, ..self }
    }

    /// Whether its kind is stored as another one.
    pub(super) fn is_converted(&self) -> bool {
        self.served.kind.conversion.is_some()
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Returns whether an object of this kind may be at this path.
    pub(super) fn has_object_at(&self, path: &str) -> bool {
        path.split('/').count() == self.depth && path.split('/').all(|part| !part.is_empty())
    }

    fn api_version(&self) -> String {
        match &self.group_version {
            (group, version) if group.is_empty() => version.clone(),
            (group, version) => format!("{group}/{version}"),
        }
    }

    fn is_definition(&self) -> bool {
        self.group_version.0 == "apiextensions.k8s.io"
    }

    pub(super) fn encode(&self, payload: &Payload) -> Result<Bytes, String> {
        let mut object: Value = serde_json::from_slice(&payload.whole()).map_err(|why| why.to_string())?;
        let (api_version, kind) = (self.api_version(), &self.served.kind.kind);
        if self.is_definition() {
            definition::to_v1beta1(&mut object);
        }
        match self.media_type {
            StorageMediaType::Json => {
                if let Some(members) = object.as_object_mut() {
                    members.insert("apiVersion".into(), api_version.into());
                }
                serde_json::to_vec(&object).map(|text| line(&text)).map_err(|why| why.to_string())
            }
            StorageMediaType::Protobuf => {
                let written = write::document(&self.served.target.schema, &api_version, kind, &object);
                written.map_err(|write::NoForm| format!("{kind} has no form in protobuf"))
            }
        }
    }

    pub(super) fn decode(&self, stored: &[u8]) -> Result<Decoded, String> {
        let (format, media_type) = match is_marked(stored) {
            true => (Format::Protobuf, StorageMediaType::Protobuf),
            false => (Format::Json, StorageMediaType::Json),
        };
        let stated = Stated::of(stored)?;
        let mut object = match self.is_definition() && stated.version == "v1beta1" {
            true => self.definition(stored)?,
            false => self.object(&stated, format, stored)?,
        };
        self.served.name_kind(&mut object);
        self.served.kind.strategy.default(&mut object);
        let fields = ManagedFields::take_from(&mut object);
        let is_version = (&stated.group, &stated.version) == (&self.group_version.0, &self.group_version.1);
        let is_current = is_version && media_type == self.media_type;
        Ok(Decoded { payload: self.served.encode(&object, &fields), is_current })
    }

    /// Decodes an object of a version that is like the served one.
    fn object(&self, stated: &Stated, format: Format, stored: &[u8]) -> Result<Value, String> {
        let kind = &self.served.kind;
        let is_served = stated.group == kind.group && stated.version == kind.version;
        let is_stored = stated.group == self.group_version.0 && stated.version == self.group_version.1;
        if stated.kind != kind.kind || !(is_served || is_stored) {
            return Err(format!(
                "it is {}, which this server cannot read as {} {}",
                stated.shown(),
                kind.api_version(),
                kind.kind
            ));
        }
        let target = Target {
            group: stated.group.clone(),
            version: stated.version.clone(),
            ..self.served.target.clone()
        };
        let decoded = schema::decode::decode(&target, format, stored, FieldValidation::Ignore);
        decoded.map(|decoded| decoded.object).map_err(|why| why.message)
    }

    fn definition(&self, stored: &[u8]) -> Result<Value, String> {
        let mut object: Value = serde_json::from_slice(stored).map_err(|why| why.to_string())?;
        definition::to_v1(&mut object);
        self.served.name_kind(&mut object);
        let decoded = self.served.target.decode_value(object, FieldValidation::Ignore);
        decoded.map(|decoded| decoded.object).map_err(|why| why.to_string())
    }
}

impl Stated {
    fn of(stored: &[u8]) -> Result<Self, String> {
        let (api_version, kind) = match is_marked(stored) {
            true => schema::protobuf::stated(stored)?,
            false => {
                let document: Value = serde_json::from_slice(stored)
                    .map_err(|why| format!("it is neither protobuf nor JSON: {why}"))?;
                (document.text("apiVersion").to_owned(), document.text("kind").to_owned())
            }
        };
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        Ok(Self { group: group.into(), version: version.into(), kind })
    }

    fn shown(&self) -> String {
        match self.group.as_str() {
            "" => format!("{} {}", self.version, self.kind),
            group => format!("{group}/{} {}", self.version, self.kind),
        }
    }
}
