//! Field ownership: maintains `metadata.managedFields` on writes.
//!
//! Every create, update, patch and apply is recorded, including the control plane's. As in v1.34, direct writes by the
//! server are not: bindings, deletion marks and evictions.

use http::header::USER_AGENT;
use jiff::Timestamp;
use serde_json::Value;

use super::Call;
use crate::apply::{self, Endpoint, Live, ManagedFields, OtherVersions, Resets};
use crate::custom::conversion::ConvertedVersions;
use crate::kind::Subresource;
use crate::loopback;
use crate::registry::Served;
use crate::server::Server;
use crate::status::Status;

/// Runs `note` with the endpoint of a call.
pub(crate) fn at<T>(call: &Call<'_>, note: impl FnOnce(&Endpoint<'_>) -> T) -> T {
    let resets = Resets::of(&call.served.kind, call.subresource);
    let subresource = call.subresource.map_or("", |subresource| subresource.name());
    let transitions = &call.server.transitions;
    let custom = call.served.kind.custom.as_deref().filter(|custom| custom.webhook.is_some());
    let versions = custom.map(|custom| ConvertedVersions {
        custom,
        subresource: call.subresource,
        memo: &call.context.versions,
    });
    let versions = versions.as_ref().map(|versions| versions as &dyn OtherVersions);
    note(&Endpoint { target: &call.served.target, subresource, resets: &resets, transitions, versions })
}

/// How often work is repeated because it lacks a conversion. An apply that prunes converts an object up to four times
/// for each version, each conversion depending on the last; further versions can take this many.
const MAX_ROUNDS: usize = 64;

/// Runs work that determines field ownership. If it lacks conversions by webhook to other versions, makes them and
/// repeats it.
pub(crate) async fn with_versions<T>(call: &Call<'_>, mut work: impl FnMut() -> T) -> Result<T, Status> {
    call.context.versions.begin();
    for _ in 0..MAX_ROUNDS {
        let outcome = work();
        let wanted = call.context.versions.take_wanted();
        if wanted.is_empty() {
            return Ok(outcome);
        }
        for wanted in wanted {
            let converting = call.server.conversions.between(call.served, &wanted.object, &wanted.to);
            let converted = call.context.while_awaited(async { Ok(converting.await) }).await?;
            call.context.versions.insert(wanted, converted.map_err(|status| status.message));
        }
    }
    Err(Status::internal("field ownership in other versions takes too many conversions"))
}

/// Returns the field manager of a request.
pub(crate) fn manager(call: &Call<'_>) -> String {
    let user_agent = call.headers.get(USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let user_agent = user_agent.unwrap_or_default();
    apply::manager_name(call.query.get("fieldManager").unwrap_or(""), &user_agent)
}

/// Returns the managed fields of a new object.
pub(crate) async fn note_create(call: &Call<'_>, object: &mut Value) -> Result<ManagedFields, Status> {
    note_converted(call, None, object).await
}

/// Returns the managed fields of an updated object.
pub(crate) async fn note_update(
    call: &Call<'_>,
    live: Live<'_>,
    new: &mut Value,
) -> Result<ManagedFields, Status> {
    note_converted(call, Some(live), new).await
}

async fn note_converted(
    call: &Call<'_>,
    live: Option<Live<'_>>,
    new: &mut Value,
) -> Result<ManagedFields, Status> {
    if !call.served.is_converted_by_webhook() {
        return Ok(note(call, live, new));
    }
    let attempt = || {
        let mut noted = new.clone();
        let fields = note(call, live, &mut noted);
        (fields, noted)
    };
    let (fields, noted) = with_versions(call, attempt).await?;
    *new = noted;
    Ok(fields)
}

fn note(call: &Call<'_>, live: Option<Live<'_>>, new: &mut Value) -> ManagedFields {
    if call.served.kind.semantics.hides.is_some() {
        return note_seen(call, live, new);
    }
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

/// The same for a kind with fields that clients do not see, and so do not own.
fn note_seen(call: &Call<'_>, live: Option<Live<'_>>, new: &mut Value) -> ManagedFields {
    let mut seen = call.served.as_seen(new.clone());
    ManagedFields::discard(new);
    let before = live.map(|live| call.served.as_seen(live.object.clone()));
    let live = live.zip(before.as_ref()).map(|(live, object)| Live { object, ..live });
    at(call, |endpoint| apply::update(endpoint, live, &mut seen, &manager(call), call.now))
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
    let endpoint = Endpoint { target, subresource, resets: &resets, transitions, versions: None };
    apply::update(&endpoint, Some(live), new, loopback::NAME, now)
}
