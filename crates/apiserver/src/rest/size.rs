//! How large an object may become, however small the requests are that make it grow.

use serde_json::Value;
use setpoint_store::{Inset, Payload};

use super::{Call, apply};
use crate::apply::ManagedFields;
use crate::status::Status;

/// What is stored of one object: 1.5 MiB at most, which is what v1.34 may write to etcd at once.
const OBJECT_BYTES: usize = 3 << 19;

/// An object on its way into the store. Where it is too large only by its managed fields, these are forgotten, unless
/// this is an apply.
pub(super) fn encode(call: &Call<'_>, object: &Value, fields: &ManagedFields) -> Result<Payload, Status> {
    let payload = call.served.encode(object, fields);
    if payload.bytes.len() + fields.length() <= OBJECT_BYTES {
        return Ok(payload);
    }
    if !apply::is_apply(call) && !fields.is_empty() && payload.bytes.len() <= OBJECT_BYTES {
        return Ok(Payload { inset: Inset::default(), ..payload });
    }
    Err(Status::unknown("etcdserver: request is too large"))
}
