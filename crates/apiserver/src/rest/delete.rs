//! Deletes objects: immediately, after a grace period, or once the last finalizer is removed.

use std::borrow::Cow;
use std::sync::Arc;

use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use setpoint_store::{Change, Error, Expect, Record, Write};

use super::{ATTEMPTS, Call, MODIFIED, Outcome, respond};
use crate::admission::Review;
use crate::apply::ManagedFields;
use crate::body::Body;
use crate::decode;
use crate::facts::Facts;
use crate::json::{Json, JsonMut};
use crate::kind::Subresource;
use crate::metadata::{self, FOREGROUND, ORPHAN};
use crate::options::{DeleteOptions, Propagation};
use crate::registry::Served;
use crate::server::Server;
use crate::status::{Named, Status};
use crate::strategy::DefaultPropagation;

pub(crate) async fn delete(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let name = call.name()?;
    let options = options(call)?;
    if let Some(why) = call.served.kind.strategy.refuses_deletion(name) {
        return Err(Status::forbidden(call.served.named(), name, why));
    }
    let record = call.record().await?;
    let deleted = remove(call, name, record, &options).await?;
    respond(call, name, deleted, &options).await
}

/// Reads the delete options from the body or, without one, from the query.
pub(crate) fn options(call: &Call<'_>) -> Result<DeleteOptions, Status> {
    let body = if call.body.is_empty() { None } else { Some(decode::delete_options(call)?) };
    let options = DeleteOptions::parse(body, call.query)?;
    if options.propagation.is_none()
        && options.orphan_dependents.is_none()
        && let Some(warning) = call.served.kind.semantics.deletion.default_warning
    {
        call.context.warnings.add(warning);
    }
    Ok(options)
}

/// The result of a deletion.
pub(crate) enum Deleted {
    /// The object is removed; this was its last state.
    Gone(Outcome),
    /// It waits for its grace period, its finalizers, or its kubelet or controller.
    Waiting(Outcome),
}

async fn respond(
    call: &Call<'_>,
    name: &str,
    deleted: Deleted,
    options: &DeleteOptions,
) -> Result<Response<Body>, Status> {
    match deleted {
        Deleted::Waiting(outcome) => {
            let accepted = options.orphan_dependents == Some(false);
            let code = if accepted { StatusCode::ACCEPTED } else { StatusCode::OK };
            respond::outcome(call, code, outcome).await
        }
        Deleted::Gone(outcome) if call.served.kind.semantics.deletion.returns_object => {
            respond::outcome(call, StatusCode::OK, outcome).await
        }
        Deleted::Gone(outcome) => {
            let uid = match &outcome {
                Outcome::Stored(record) => Facts::of(record, call.served).uid.to_string(),
                Outcome::Unstored(object) => metadata::of(object).text("uid").to_string(),
            };
            Ok(respond::status(call, StatusCode::OK, &Status::deleted(call.served.named(), name, &uid)))
        }
    }
}

/// Deletes an object, retrying if it changes concurrently.
pub(crate) async fn remove(
    call: &Call<'_>,
    name: &str,
    record: Arc<Record>,
    options: &DeleteOptions,
) -> Result<Deleted, Status> {
    let mut current = Some(record);
    for round in 0..ATTEMPTS {
        call.check_retry(round)?;
        let record = current.ok_or_else(|| call.not_found(name))?;
        match attempt(call, name, &record, options).await? {
            Ok(deleted) => return Ok(deleted),
            Err(newer) => current = newer,
        }
    }
    Err(Status::conflict(call.served.named(), name, MODIFIED))
}

/// Attempts the deletion on one state. The inner error is the newer state after a conflict.
async fn attempt(
    call: &Call<'_>,
    name: &str,
    record: &Arc<Record>,
    options: &DeleteOptions,
) -> Result<Result<Deleted, Option<Arc<Record>>>, Status> {
    let old = call.served.decode_bare(&*call.shown(record).await?)?;
    let fields = ManagedFields::of(record);
    check_preconditions(call, name, &old, options)?;
    let mut object = old.clone();
    let plan = plan(call.served, &mut object, options, call.now);
    let reviewed = reviewed_options(call.served, options, &old);
    if plan != Plan::Leave {
        admit(deletion(call, &reviewed, &fields), &old).await?;
    }
    match plan {
        Plan::Leave => Ok(Ok(Deleted::Waiting(Outcome::Stored(record.clone())))),
        Plan::Remove if options.dry_run => Ok(Ok(Deleted::Gone(Outcome::Unstored(fields.inside(object))))),
        Plan::Remove => {
            // v1.34 looks at the finalizers in one step and removes the object in another, and reviews both.
            if metadata::finalizers(&old).next().is_some() {
                admit(deletion(call, &reviewed, &fields), &old).await?;
            }
            Ok(take_out(call, record, &old).await?.map(Deleted::Gone))
        }
        Plan::Mark => Ok(mark(call, record, object, options).await?.map(Deleted::Waiting)),
        Plan::MarkAndRemove => match mark(call, record, object, options).await? {
            Ok(Outcome::Stored(marked)) => {
                let shown = call.served.decode_bare(&*call.shown(&marked).await?)?;
                let fields = ManagedFields::of(&marked);
                admit(deletion(call, &reviewed, &fields).once_started(), &shown).await?;
                Ok(take_out(call, &marked, &old).await?.map(Deleted::Gone))
            }
            Ok(unstored) => Ok(Ok(Deleted::Gone(unstored))),
            Err(newer) => Ok(Err(newer)),
        },
    }
}

fn deletion<'a>(call: &'a Call<'_>, options: &'a DeleteOptions, fields: &ManagedFields) -> Review<'a> {
    Review::of_deletion(call, options).with_fields(&ManagedFields::default(), fields)
}

/// Asks admission about one step of a deletion: marking the object, or removing it. Evictions have been through
/// admission as such.
async fn admit(review: Review<'_>, old: &Value) -> Result<(), Status> {
    match review.subresource {
        Some(Subresource::Eviction) => Ok(()),
        _ => review.admit_deletion(old).await,
    }
}

/// The options as admission sees them: some kinds are only ever deleted by their uid, and those with a grace period have
/// it set.
fn reviewed_options<'o>(served: &Served, options: &'o DeleteOptions, old: &Value) -> Cow<'o, DeleteOptions> {
    let mut reviewed = Cow::Borrowed(options);
    let meta = metadata::of(old);
    if served.kind.semantics.deletion.pins_uid && options.uid.is_none() {
        reviewed.to_mut().uid = Some(meta.text("uid").to_owned());
    }
    let requested = options.grace_period_seconds.map(at_least_a_second);
    let period = match meta.has("deletionTimestamp") {
        false => served.kind.strategy.grace_period(old, requested).or(requested),
        true => requested,
    };
    if period != options.grace_period_seconds {
        reviewed.to_mut().grace_period_seconds = period;
    }
    reviewed
}

async fn mark(
    call: &Call<'_>,
    record: &Arc<Record>,
    object: Value,
    options: &DeleteOptions,
) -> Result<Result<Outcome, Option<Arc<Record>>>, Status> {
    let write_options = crate::options::WriteOptions { dry_run: options.dry_run, ..Default::default() };
    super::update::store(call, &write_options, object, &ManagedFields::of(record), record).await
}

async fn take_out(
    call: &Call<'_>,
    record: &Arc<Record>,
    object: &Value,
) -> Result<Result<Outcome, Option<Arc<Record>>>, Status> {
    let expect = Expect::Revision(record.modified);
    let write = Write { key: record.key.clone(), expect, change: Change::Delete };
    match call.server.store.commit(write).await {
        Ok(removed) => {
            release_allocations(call.server, call.served, object).await;
            Ok(Ok(Outcome::Stored(removed)))
        }
        Err(Error::Conflict { current }) => Ok(Err(current)),
        Err(why) => Err(call.server.refusal(why)),
    }
}

/// Frees the IP addresses and ports of a removed Service.
pub(crate) async fn release_allocations(server: &Server, served: &Served, object: &Value) {
    if server.claims_for(served) {
        server.services.release(server, object).await;
    }
}

pub(crate) fn check_preconditions(
    call: &Call<'_>,
    name: &str,
    object: &Value,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let meta = metadata::of(object);
    let of = Named::kind(&call.served.kind);
    let uid = meta.text("uid");
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have \
             been deleted and then recreated"
        );
        return Err(Status::conflict(of, name, why));
    }
    let version = meta.text("resourceVersion");
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({version}). The object might have been modified"
        );
        return Err(Status::conflict(of, name, why));
    }
    Ok(())
}

/// The effect of a deletion on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// It is already being deleted, and nothing changes.
    Leave,
    Remove,
    /// It gets a deletion timestamp and stays.
    Mark,
    MarkAndRemove,
}

/// Plans a deletion, and marks the object if it is to stay for now.
fn plan(served: &Served, object: &mut Value, options: &DeleteOptions, now: Timestamp) -> Plan {
    let strategy = &*served.kind.strategy;
    let is_first = !metadata::of(object).has("deletionTimestamp");
    if is_first {
        object.object_mut("metadata").set("deletionTimestamp", metadata::seconds(now));
        if strategy.terminate(object) {
            normalize_finalizers(object, options, false);
            return Plan::Mark;
        }
        object.object_mut("metadata").unset("deletionTimestamp");
    }
    if strategy.holds_deletion(object) {
        return Plan::Leave;
    }
    let grace = start_grace_period(served, object, options, now);
    if grace == Grace::Pending {
        return Plan::Leave;
    }
    let orphans_by_default = served.kind.semantics.deletion.propagation == DefaultPropagation::Orphan;
    normalize_finalizers(object, options, orphans_by_default);
    let has_finalizers = metadata::finalizers(object).next().is_some();
    match grace {
        Grace::Pending => Plan::Leave,
        Grace::None if has_finalizers => {
            mark_without_grace(object, now);
            Plan::Mark
        }
        Grace::None => Plan::Remove,
        Grace::Started(seconds) if has_finalizers || seconds > 0 => Plan::Mark,
        Grace::Started(_) => Plan::MarkAndRemove,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grace {
    /// The kind has no grace period, or the object needs none now.
    None,
    /// The object has been marked, with this grace period in seconds.
    Started(i64),
    /// An earlier deletion is pending and this one does not shorten it.
    Pending,
}

fn start_grace_period(served: &Served, object: &mut Value, options: &DeleteOptions, now: Timestamp) -> Grace {
    let requested = options.grace_period_seconds.map(at_least_a_second);
    let Some(period) = served.kind.strategy.grace_period(object, requested) else { return Grace::None };
    let meta = metadata::of(object);
    let Some(deadline) = meta.text("deletionTimestamp").parse::<Timestamp>().ok() else {
        let end = now.saturating_add(SignedDuration::from_secs(period)).unwrap_or(now);
        bump_generation(object);
        set_deletion(object, end, period);
        return Grace::Started(period);
    };
    let remaining = meta.int("deletionGracePeriodSeconds").map(at_least_a_second).unwrap_or(0);
    if remaining == 0 {
        return Grace::None;
    }
    let Some(requested) = requested.filter(|requested| *requested < remaining) else { return Grace::Pending };
    let shorter = SignedDuration::from_secs(requested - remaining);
    let mut end = deadline.saturating_add(shorter).unwrap_or(now);
    let mut period = requested;
    if end < now {
        end = now;
        period = requested.min(1);
    }
    set_deletion(object, end, period);
    Grace::Started(requested)
}

/// Turns a negative grace period into one second.
fn at_least_a_second(seconds: i64) -> i64 {
    if seconds < 0 { 1 } else { seconds }
}

fn set_deletion(object: &mut Value, end: Timestamp, period: i64) {
    let meta = object.object_mut("metadata");
    meta.set("deletionTimestamp", metadata::seconds(end));
    meta.set("deletionGracePeriodSeconds", period);
}

fn bump_generation(object: &mut Value) {
    let generation = metadata::of(object).count("generation");
    if generation > 0 {
        object.object_mut("metadata").set("generation", generation.wrapping_add(1));
    }
}

/// Marks an object that only its finalizers keep.
fn mark_without_grace(object: &mut Value, now: Timestamp) {
    let deadline = metadata::of(object).text("deletionTimestamp").parse::<Timestamp>().ok();
    if deadline.is_none() {
        bump_generation(object);
    }
    let end = deadline.filter(|deadline| *deadline <= now).unwrap_or(now);
    set_deletion(object, end, 0);
}

/// Adds or removes the finalizers that tell the garbage collector what to do with dependents.
fn normalize_finalizers(object: &mut Value, options: &DeleteOptions, orphans_by_default: bool) {
    let before: Vec<String> = metadata::finalizers(object).map(Into::into).collect();
    let has = |name: &str| before.iter().any(|finalizer| finalizer == name);
    let (orphan, foreground) = match (options.orphan_dependents, options.propagation) {
        (Some(orphan), _) => (orphan, false),
        (None, Some(policy)) => (policy == Propagation::Orphan, policy == Propagation::Foreground),
        (None, None) if has(ORPHAN) => (true, false),
        (None, None) if has(FOREGROUND) => (false, true),
        (None, None) => (orphans_by_default, false),
    };
    if has(ORPHAN) == orphan && has(FOREGROUND) == foreground {
        return;
    }
    let mut after: Vec<String> =
        before.into_iter().filter(|name| name != ORPHAN && name != FOREGROUND).collect();
    after.extend(orphan.then(|| ORPHAN.to_string()));
    after.extend(foreground.then(|| FOREGROUND.to_string()));
    let meta = object.object_mut("metadata");
    match after.is_empty() {
        true => _ = meta.unset("finalizers"),
        false => meta.set("finalizers", after),
    }
}
