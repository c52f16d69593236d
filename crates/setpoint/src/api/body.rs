//! The bodies of typed writes: encoded values with their kind, and the preconditions they need.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::contained::is_contained;
use crate::{ClientError, Key, Kind, Object};

/// An encoded object. Its metadata is an object, and its `apiVersion` and `kind` are set.
pub(super) struct Body<'a> {
    kind: &'a Kind,
    object: Map<String, Value>,
}

impl<'a> Body<'a> {
    /// Encodes an object of a kind.
    pub(super) fn of(kind: &'a Kind, object: &impl Serialize) -> Result<Self, ClientError> {
        let Value::Object(mut object) = to_json(object)? else {
            return Err(rejected(format!("{} is not encoded as a JSON object", kind.kind())));
        };
        object.insert("apiVersion".into(), kind.api_version().into());
        object.insert("kind".into(), kind.kind().into());
        if !object.get("metadata").is_some_and(Value::is_object) {
            object.insert("metadata".into(), json!({}));
        }
        Ok(Self { kind, object })
    }

    /// Returns the namespace and the name.
    pub(super) fn key(&self) -> Key {
        let namespace = self.metadata("namespace").filter(|_| self.kind.namespaced());
        Key::in_namespace(namespace, self.metadata("name").unwrap_or_default())
    }

    /// Returns a text in the metadata, unless it is empty.
    fn metadata(&self, field: &str) -> Option<&str> {
        self.object["metadata"][field].as_str().filter(|text| !text.is_empty())
    }

    /// Requires a name, and a namespace if the kind has them: other paths would address something else.
    pub(super) fn named(self, done: &str) -> Result<Self, ClientError> {
        let missing = |field: &str| {
            let kind = self.kind.kind();
            Err(rejected(format!("{field}: a {kind} that is {done} needs one")))
        };
        if self.metadata("name").is_none() {
            return missing("metadata.name");
        }
        if self.kind.namespaced() && self.metadata("namespace").is_none() {
            return missing("metadata.namespace");
        }
        Ok(self)
    }

    /// Requires the resource version that an update is based on.
    pub(super) fn versioned(self) -> Result<Self, ClientError> {
        match self.metadata("resourceVersion") {
            Some(_) => Ok(self),
            None => Err(unread(self.kind, &self.key(), "metadata.resourceVersion", "updated")),
        }
    }

    /// Returns whether an object has all fields that an apply would set.
    pub(super) fn is_contained_in(&self, object: &Object) -> bool {
        let observed = object.decode::<Map<String, Value>>();
        observed.is_ok_and(|observed| is_contained(&self.object, &observed))
    }

    pub(super) fn encode(&self) -> Bytes {
        serde_json::to_vec(&self.object).expect("a JSON value with text keys encodes").into()
    }

    /// Encodes the fields to apply. An applied object has no `managedFields`, which the API server rejects, and no
    /// status, which belongs to its subresource.
    pub(super) fn into_applied(mut self) -> Bytes {
        self.object.remove("status");
        if let Some(Value::Object(metadata)) = self.object.get_mut("metadata") {
            metadata.remove("managedFields");
        }
        self.encode()
    }
}

/// Encodes a value.
pub(super) fn to_json(value: &impl Serialize) -> Result<Value, ClientError> {
    serde_json::to_value(value).map_err(|error| rejected(format!("cannot encode the request: {error}")))
}

/// Returns the status of an object, which may be empty.
pub(super) fn status_of(object: &Object) -> Result<Value, ClientError> {
    #[derive(serde::Deserialize)]
    struct WithStatus {
        #[serde(default)]
        status: Value,
    }
    let decoded: WithStatus =
        object.decode().map_err(|error| ClientError::InvalidResponse(Box::new(error)))?;
    Ok(without_nulls(decoded.status))
}

/// Removes fields that are `null`, which is the same as absent: optional fields are often encoded so. A status that is
/// `null` is empty.
pub(super) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Null => json!({}),
        value => strip_nulls(value),
    }
}

fn strip_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            kept.map(|(name, value)| (name, strip_nulls(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.into_iter().map(strip_nulls).collect(),
        value => value,
    }
}

/// Returns the merge patch that turns `before` into `after`: all fields of `after`, and `null` for removed ones.
pub(super) fn replacing(before: &Value, after: Value) -> Value {
    let (Value::Object(before), Value::Object(mut fields)) = (before, after.clone()) else { return after };
    for (name, old) in before {
        let new = fields.remove(name).unwrap_or(Value::Null);
        fields.insert(name.clone(), replacing(old, new));
    }
    fields.into()
}

/// The error of a write that needs an object as it was read from the API server.
pub(super) fn unread(kind: &Kind, key: &Key, field: &str, done: &str) -> ClientError {
    let kind = kind.kind();
    rejected(format!("{field}: {kind} {key} has none, so it cannot be {done} safely: read it first"))
}

/// The error of a list with objects that cannot be decoded.
pub(super) fn undecodable(kind: &Kind, count: usize) -> ClientError {
    let why = format!("{count} of the listed {} have no valid metadata", kind.plural());
    ClientError::InvalidResponse(why.into())
}

/// The error of a request that is not sent.
fn rejected(message: String) -> ClientError {
    ClientError::Api {
        code: 400,
        reason: "BadRequest".into(),
        message,
        causes: Vec::new(),
        retry_after_seconds: None,
    }
}
