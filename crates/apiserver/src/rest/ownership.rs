//! Who manages which fields: what writes note in `metadata.managedFields`.
//!
//! Every create, update, patch and apply is noted, whoever makes it, the control plane included. As in v1.34 what the
//! server itself writes past its handlers is not: bindings, marks of deletions and evictions.

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

/// Who makes the change.
pub(crate) fn manager(call: &Call<'_>) -> String {
    let user_agent = call.headers.get(USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let user_agent = user_agent.unwrap_or_default();
    apply::manager_name(call.query.get("fieldManager").unwrap_or(""), &user_agent)
}

/// Who manages the fields of a new object.
pub(crate) fn note_create(call: &Call<'_>, object: &mut Value) -> ManagedFields {
    note(call, None, object)
}

/// Who manages the fields of an object that is changed.
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

/// Who manages the fields of an object whose status the server writes in its own name.
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
