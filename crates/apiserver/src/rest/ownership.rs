//! Field ownership: maintains `metadata.managedFields` on writes.
//!
//! Every create, update, patch and apply is recorded, including the control plane's. As in v1.34, direct writes by the
//! server are not: bindings, deletion marks and evictions.

use http::header::USER_AGENT;
use jiff::Timestamp;
use serde_json::Value;

use super::Call;
use crate::apply::{self, Endpoint, Live, ManagedFields, Resets};
use crate::kind::Subresource;
use crate::own_requests;
use crate::registry::Served;
use crate::server::Server;

/// Runs `note` with the endpoint of a call.
pub(crate) fn at<T>(call: &Call<'_>, note: impl FnOnce(&Endpoint<'_>) -> T) -> T {
    let resets = Resets::of(&call.served.kind, call.subresource);
    let subresource = call.subresource.map_or("", |subresource| subresource.name());
    let transitions = &call.server.transitions;
    note(&Endpoint { target: &call.served.target, subresource, resets: &resets, transitions })
}

/// Returns the field manager of a request.
pub(crate) fn manager(call: &Call<'_>) -> String {
    let user_agent = call.headers.get(USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let user_agent = user_agent.unwrap_or_default();
    apply::manager_name(call.query.get("fieldManager").unwrap_or(""), &user_agent)
}

/// Returns the managed fields of a new object.
pub(crate) fn note_create(call: &Call<'_>, object: &mut Value) -> ManagedFields {
    note(call, None, object)
}

/// Returns the managed fields of an updated object.
pub(crate) fn note_update(call: &Call<'_>, live: Live<'_>, new: &mut Value) -> ManagedFields {
    note(call, Some(live), new)
}

fn note(call: &Call<'_>, live: Option<Live<'_>>, new: &mut Value) -> ManagedFields {
    let note =
        |new: &mut Value| at(call, |endpoint| apply::update(endpoint, live, new, &manager(call), call.now));
    match call.served.kind.strategy.owned(new) {
        Some(mut owned) => {
            ManagedFields::discard(new);
            note(&mut owned)
        }
        None => note(new),
    }
}

/// Returns the managed fields after the server itself has written an object's status.
pub(crate) fn note_own_status(
    server: &Server,
    served: &Served,
    live: Live<'_>,
    new: &mut Value,
    now: Timestamp,
) -> ManagedFields {
    let status = Subresource::Status;
    let resets = Resets::of(&served.kind, Some(status));
    let (target, subresource, transitions) = (&served.target, status.name(), &server.transitions);
    let endpoint = Endpoint { target, subresource, resets: &resets, transitions };
    apply::update(&endpoint, Some(live), new, own_requests::NAME, now)
}
