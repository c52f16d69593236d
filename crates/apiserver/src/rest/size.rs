//! How large an object may become, however small the requests are that make it grow.

use serde_json::Value;
use setpoint_store::Payload;

use super::{Call, apply, ownership};
use crate::status::Status;

/// What is stored of one object: 1.5 MiB at most, which is what v1.34 may write to etcd at once.
const OBJECT_BYTES: usize = 3 << 19;

/// An object on its way into the store. Where it is too large only by what is noted of who owns its fields, that
/// is forgotten, unless somebody wants to apply to it.
pub(super) fn encode(call: &Call<'_>, object: &mut Value) -> Result<Payload, Status> {
    let payload = call.served.encode(object);
    if payload.bytes.len() <= OBJECT_BYTES {
        return Ok(payload);
    }
    if !apply::is_apply(call) && ownership::set_aside(object).is_some() {
        let bare = call.served.encode(object);
        if bare.bytes.len() <= OBJECT_BYTES {
            return Ok(bare);
        }
    }
    Err(Status::unknown("etcdserver: request is too large"))
}
