//! Limits on the size and depth of an object, however small the requests that make it grow.

use serde_json::Value;
use setpoint_store::{Inset, Payload};

use super::{Call, apply};
use crate::apply::ManagedFields;
use crate::json;
use crate::status::Status;

/// Maximum stored size of an object: 1.5 MiB, v1.34's limit for a write to etcd.
const OBJECT_BYTES: usize = 3 << 19;
/// Maximum nesting depth of a stored object. This server and many clients read JSON up to 127 levels deep; a deeper
/// object could be neither read nor deleted, and a list or a watch event adds three levels.
const OBJECT_DEPTH: usize = 120;

/// How much deeper managed fields are nested than the object: metadata, the list, an entry, and its fields.
const FIELDS_DEEPER: usize = 4;

/// Encodes an object for the store. If only its managed fields make it too large or too deep, drops them, unless this
/// is an apply.
pub(super) async fn encode(
    call: &Call<'_>,
    object: &Value,
    fields: &ManagedFields,
) -> Result<Payload, Status> {
    let converted = match call.served.is_converted_on_write() {
        true => {
            let converting = call.server.conversions.to_stored(call.served, object, fields);
            Some(call.context.while_awaited(converting).await?)
        }
        false => None,
    };
    let depth = json::depth(converted.as_ref().unwrap_or(object));
    if depth > OBJECT_DEPTH {
        let why = format!("the object is nested {depth} levels deep, expected at most {OBJECT_DEPTH}");
        return Err(Status::bad_request(why));
    }
    let payload = match &converted {
        Some(stored) => call.served.encode_converted(stored, fields),
        None => call.served.encode(object, fields),
    };
    let is_deep = depth + FIELDS_DEEPER > OBJECT_DEPTH && !fields.is_empty();
    if payload.bytes.len() + fields.length() <= OBJECT_BYTES && !is_deep {
        return Ok(payload);
    }
    if !apply::is_apply(call) && !fields.is_empty() && payload.bytes.len() <= OBJECT_BYTES {
        return Ok(Payload { inset: Inset::default(), ..payload });
    }
    Err(Status::unknown("etcdserver: request is too large"))
}
