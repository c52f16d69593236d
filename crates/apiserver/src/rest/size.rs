//! How large and how deep an object may become, however small the requests are that make it grow.

use serde_json::Value;
use setpoint_store::{Inset, Payload};

use super::{Call, apply};
use crate::apply::ManagedFields;
use crate::json;
use crate::status::Status;

/// What is stored of one object: 1.5 MiB at most, which is what v1.34 may write to etcd at once.
const OBJECT_BYTES: usize = 3 << 19;
/// How deep a stored object is nested at most. JSON is read up to 127 levels, here and by many clients; an object
/// that is deeper could be neither shown nor deleted, and a list or a watch event puts three levels around it.
const OBJECT_DEPTH: usize = 120;

/// How much deeper than the object its managed fields are: metadata, the list, an entry, and its fields.
const FIELDS_DEEPER: usize = 4;

/// An object on its way into the store. Where it is too large or too deep only by its managed fields, these are
/// dropped, unless this is an apply.
pub(super) fn encode(call: &Call<'_>, object: &Value, fields: &ManagedFields) -> Result<Payload, Status> {
    let depth = json::depth(object);
    if depth > OBJECT_DEPTH {
        let why = format!("the object is nested {depth} levels deep, expected at most {OBJECT_DEPTH}");
        return Err(Status::bad_request(why));
    }
    let payload = call.served.encode(object, fields);
    let is_deep = depth + FIELDS_DEEPER > OBJECT_DEPTH && !fields.is_empty();
    if payload.bytes.len() + fields.length() <= OBJECT_BYTES && !is_deep {
        return Ok(payload);
    }
    if !apply::is_apply(call) && !fields.is_empty() && payload.bytes.len() <= OBJECT_BYTES {
        return Ok(Payload { inset: Inset::default(), ..payload });
    }
    Err(Status::unknown("etcdserver: request is too large"))
}
