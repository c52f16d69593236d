//! Deletes CRDs: their objects first, in the background, like v1.34's finalizer controller.
//!
//! ```text
//!  DELETE ─► marked, Terminating ─► response
//!               └─► clean-up: delete objects ─► wait for their finalizers ─► release the CRD
//! ```
//!
//! Invariants:
//! - there is one clean-up at a time, and only while CRDs are being deleted;
//! - CRDs are cleaned up independently: one whose objects take long, such as with a conversion webhook that hangs, delays
//!   no other;
//! - no state is kept between its rounds: a restarted server continues where another one stopped;
//! - a CRD is removed only after the last of its objects.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_store::{Change, Error, Expect, Record, Write};
use tokio::sync::Notify;

use super::definitions::TerminatingDefinitions;
use super::names::{self, Condition, is_true, set_condition};
use crate::auth::User;
use crate::chain::Context;
use crate::json::{Json, JsonMut};
use crate::metadata;
use crate::negotiate::Output;
use crate::options::DeleteOptions;
use crate::query::Query;
use crate::registry::Served;
use crate::rest::{Call, delete, delete_collection};
use crate::selector::{name_of, namespace_of};
use crate::server::Server;
use crate::status::Status;

/// The finalizer of CRDs being deleted.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The reason for `Terminating` before the clean-up has begun.
pub(crate) const PENDING: &str = "InstanceDeletionPending";

/// Retry interval while objects cannot be removed, as in v1.34.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// How long objects may take before the CRD's status says that they are stuck, as in v1.34.
const STUCK_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// Maximum CRDs to clean up concurrently, as in v1.34.
const WORKERS: usize = 5;
/// Objects to delete before yielding: at about 50 us each, 3 ms.
const OBJECTS_PER_TURN: usize = 64;

/// Whether the clean-up is running, and whether it has new work.
#[derive(Default)]
pub(crate) struct CleanUp {
    state: Mutex<State>,
    again: Arc<Notify>,
}

#[derive(Default)]
struct State {
    is_running: bool,
    is_wanted: bool,
}

impl CleanUp {
    /// Starts a round, which covers all requests so far.
    fn begin(&self) {
        self.state.lock().is_wanted = false;
    }

    /// Whether the clean-up may end: no new request has come since the round started.
    fn end(&self) -> bool {
        let mut state = self.state.lock();
        state.is_running = std::mem::take(&mut state.is_wanted);
        !state.is_running
    }
}

/// Wakes or starts the clean-up: a CRD is being deleted, or an object that one waits for has changed.
pub(super) fn wake(server: &Server) {
    let clean_up = &server.definitions.clean_up;
    let mut state = clean_up.state.lock();
    if state.is_running {
        state.is_wanted = true;
        clean_up.again.notify_one();
        return;
    }
    state.is_running = true;
    tokio::spawn(server.tasks.track_future(run(server.this.clone())));
}

/// Cleans up until no CRD is being deleted, or the server stops.
async fn run(server: Weak<Server>) {
    while let Some(here) = server.upgrade() {
        let (closing, again) = (here.closing.clone(), here.definitions.clean_up.again.clone());
        let clock = here.clock.clone();
        let round = async move {
            here.definitions.clean_up.begin();
            is_done(&here).await && here.definitions.clean_up.end()
        };
        tokio::select! {
            biased;
            () = closing.cancelled() => return,
            ended = AssertUnwindSafe(round).catch_unwind() => match ended {
                Ok(true) => return,
                Ok(false) => {}
                Err(_) => tracing::error!("the clean-up after custom resource definitions panicked"),
            },
        }
        // Without holding the server, which may be dropped meanwhile.
        tokio::select! {
            biased;
            () = closing.cancelled() => return,
            () = again.notified() => {}
            () = clock.sleep(RETRY_INTERVAL) => {}
        }
    }
}

/// Runs one round: tries every CRD at least once. As long as one is under way, the others are tried again when it is
/// time. Returns whether no CRDs are left to delete.
async fn is_done(server: &Server) -> bool {
    let again = server.definitions.clean_up.again.clone();
    let (mut attempts, mut under_way) = (Attempts::default(), FuturesUnordered::new());
    loop {
        let reconciled = server.try_reconcile_definitions();
        let mut is_outdated = false;
        let ended = |name: String| {
            attempts.ended(&name);
            is_outdated = true;
        };
        let ending = alongside(reconciled, &mut under_way, ended).await;
        let is_left = match &ending {
            Ok(None) => false,
            Ok(Some(ending)) => !ending.records.is_empty(),
            Err(why) => {
                tracing::warn!(%why, "cannot reconcile custom resource definitions");
                true
            }
        };
        if let Some(ending) = ending.ok().flatten().map(Arc::new) {
            let due = attempts.due(&ending.records).into_iter();
            under_way.extend(due.map(|record| finish(server, ending.clone(), record).boxed()));
        }
        // What was read may still show the CRDs that were removed meanwhile. Only attempts that began before come to
        // this, so it repeats at most once for each.
        if is_outdated {
            continue;
        }
        if under_way.is_empty() {
            return !is_left;
        }
        tokio::select! {
            biased;
            // Removing a CRD frees its names for others, so process all CRDs again.
            Some(name) = under_way.next() => attempts.ended(&name),
            () = again.notified() => attempts.repeat(),
            () = server.clock.sleep(RETRY_INTERVAL) => attempts.repeat(),
        }
    }
}

/// Awaits a future while others make progress, so that none keeps what another one waits for.
async fn alongside<T, O>(
    work: impl Future<Output = T>,
    others: &mut FuturesUnordered<impl Future<Output = O>>,
    mut ended: impl FnMut(O),
) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            Some(other) = others.next() => ended(other),
        }
    }
}

/// The CRDs that a round has tried, as long as they exist.
#[derive(Default)]
struct Attempts {
    /// By name, with the number of the last attempt.
    last: BTreeMap<String, Attempt>,
    count: u64,
}

struct Attempt {
    number: u64,
    is_under_way: bool,
    /// Whether it is not tried again for now.
    is_over: bool,
}

impl Attempts {
    /// Begins to try as many CRDs as possible, those that have waited longest first.
    fn due(&mut self, records: &[Arc<Record>]) -> Vec<Arc<Record>> {
        let left: BTreeSet<&str> = records.iter().map(|record| name_of(record)).collect();
        self.last.retain(|name, attempt| attempt.is_under_way || left.contains(name.as_str()));
        let busy = self.last.values().filter(|attempt| attempt.is_under_way).count();
        let is_due = |record: &&Arc<Record>| {
            self.last.get(name_of(record)).is_none_or(|last| !last.is_under_way && !last.is_over)
        };
        let mut due: Vec<Arc<Record>> = records.iter().filter(is_due).cloned().collect();
        due.sort_by_key(|record| self.last.get(name_of(record)).map(|last| last.number));
        due.truncate(WORKERS.saturating_sub(busy));
        for record in &due {
            self.count += 1;
            let attempt = Attempt { number: self.count, is_under_way: true, is_over: false };
            self.last.insert(name_of(record).to_owned(), attempt);
        }
        due
    }

    fn ended(&mut self, name: &str) {
        if let Some(attempt) = self.last.get_mut(name) {
            (attempt.is_under_way, attempt.is_over) = (false, true);
        }
    }

    /// Lets all CRDs be tried again.
    fn repeat(&mut self) {
        self.last.values_mut().for_each(|attempt| attempt.is_over = false);
    }
}

/// Continues with a CRD. Returns its name.
async fn finish(server: &Server, ending: Arc<TerminatingDefinitions>, record: Arc<Record>) -> String {
    let name = name_of(&record);
    if let Err(why) = try_finish(server, &ending, &record).await {
        tracing::warn!(%why, name, "cannot clean up after a custom resource definition");
    }
    name.to_owned()
}

/// Whether a CRD is being deleted and waits for the clean-up.
pub(super) fn is_due(definition: &Value) -> bool {
    let is_deleted = metadata::of(definition).has("deletionTimestamp");
    is_deleted && metadata::finalizers(definition).any(|finalizer| finalizer == CLEANUP)
}

async fn try_finish(
    server: &Server,
    ending: &TerminatingDefinitions,
    record: &Arc<Record>,
) -> Result<(), Status> {
    let served = &*ending.served;
    let definition = served.decode_bare(record)?;
    let Some((record, definition)) = begin(server, served, record, definition).await? else {
        return Ok(());
    };
    let spec = definition.at("spec");
    let stored_as = format!("{}/{}", spec.text("group"), spec.at("names").text("plural"));
    let (reason, message) = if ending.built_in.all().any(|served| served.kind.stored_as == stored_as) {
        ("OverlappingBuiltInResource", "instances overlap with built-in resources in storage")
    } else if !is_true(&definition, "Established") {
        ("NeverEstablished", "resource was never established")
    } else {
        match delete_objects(server, &stored_as, &definition).await {
            Ok(true) => ("InstanceDeletionCompleted", "removed all instances"),
            Ok(false) => return wait(server, served, &record, &definition).await,
            Err(why) => {
                let message = format!("could not issue all deletes: {}", why.message);
                let failed = terminating("True", "InstanceDeletionFailed", &message);
                note(server, served, &record, &definition, &failed).await?;
                return Err(why);
            }
        }
    };
    release(server, served, &record, &definition, &terminating("False", reason, message)).await
}

/// Sets the condition that the clean-up has begun; `None` if the CRD has changed in the meantime.
async fn begin(
    server: &Server,
    served: &Served,
    record: &Arc<Record>,
    definition: Value,
) -> Result<Option<(Arc<Record>, Value)>, Status> {
    if names::reason(&definition, "Terminating").is_some_and(|reason| reason != PENDING) {
        return Ok(Some((record.clone(), definition)));
    }
    match note(server, served, record, &definition, &IN_PROGRESS).await? {
        ConditionResult::Already => Ok(Some((record.clone(), definition))),
        ConditionResult::Written(record) => Ok(Some((record.clone(), served.decode_bare(&record)?))),
        ConditionResult::Changed => Ok(None),
    }
}

/// Sets the condition that objects remain, and after a while that they are stuck.
async fn wait(server: &Server, served: &Served, record: &Record, definition: &Value) -> Result<(), Status> {
    let message = "could not confirm zero CustomResources remaining: context deadline exceeded";
    let stuck = terminating("True", "InstanceDeletionCheck", message);
    let condition = if is_overdue(server, definition) { &stuck } else { &IN_PROGRESS };
    note(server, served, record, definition, condition).await.map(drop)
}

/// Whether the objects of a CRD have been pending for too long.
fn is_overdue(server: &Server, definition: &Value) -> bool {
    let since = metadata::of(definition).text("deletionTimestamp").parse::<Timestamp>();
    since.is_ok_and(|since| server.now().duration_since(since) >= STUCK_AFTER)
}

const IN_PROGRESS: Condition<'static> =
    terminating("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress");

const fn terminating<'a>(status: &'a str, reason: &'a str, message: &'a str) -> Condition<'a> {
    Condition { kind: "Terminating", status, reason, message }
}

/// Deletes all objects of a CRD. Returns whether none is left: finalizers may keep some.
async fn delete_objects(server: &Server, stored_as: &str, definition: &Value) -> Result<bool, Status> {
    let kinds = server.registry.snapshot();
    let mut of_definition = kinds.all().filter(|served| served.kind.stored_as == stored_as);
    // The storage version, as in v1.34: objects that were written in it need no conversion.
    let is_stored = |served: &&Arc<Served>| {
        served.kind.custom.as_ref().is_some_and(|custom| custom.is_stored_in_this_version())
    };
    let kind = of_definition.find(is_stored).cloned();
    let Some(kind) = kind.or_else(|| super::definitions::unserved_kind(definition)) else { return Ok(true) };
    let range = kind.range(None);
    let all = || server.store.list(&range, setpoint_store::ListOptions::default());
    let found = all().await.map_err(|why| server.refusal(why))?;
    let delete = |record| delete_object(server, &kind, Arc::clone(record)).boxed();
    for records in found.records.chunks(OBJECTS_PER_TURN) {
        delete_collection::delete_all(records, delete_collection::CONCURRENCY, delete).await?;
        tokio::task::yield_now().await;
    }
    Ok(all().await.map_err(|why| server.refusal(why))?.records.is_empty())
}

/// Skips admission, as in v1.34: the delete of the definition went through it.
async fn delete_object(server: &Server, kind: &Arc<Served>, record: Arc<Record>) -> Result<(), Status> {
    let context = Context { bypasses_admission: true, ..Context::default() };
    let (name, namespace) = (name_of(&record).to_owned(), namespace_of(&record).to_owned());
    let (user, query, headers, body) =
        (User::system("system:apiserver"), Query::default(), HeaderMap::new(), Bytes::new());
    let call = Call {
        server,
        user: &user,
        served: kind,
        subresource: None,
        namespace: Some(namespace.as_str()).filter(|_| kind.kind.is_namespaced()),
        name: Some(&name),
        subpath: "",
        query: &query,
        headers: &headers,
        body: &body,
        output: Output::JSON,
        context: &context,
        now: server.now(),
    };
    match delete::remove(&call, &name, record, &DeleteOptions::default()).await {
        Err(status) if !status.is_not_found() => Err(status),
        _ => Ok(()),
    }
}

/// The result of setting a condition.
enum ConditionResult {
    Already,
    Written(Arc<Record>),
    /// The CRD has changed in the meantime: it will be processed again.
    Changed,
}

async fn note(
    server: &Server,
    served: &Served,
    record: &Record,
    definition: &Value,
    condition: &Condition<'_>,
) -> Result<ConditionResult, Status> {
    let mut noted = definition.clone();
    set_condition(&mut noted, condition, server.now());
    if noted == *definition {
        return Ok(ConditionResult::Already);
    }
    let written = server.write_definition(served, record, definition, noted).await?;
    Ok(written.map_or(ConditionResult::Changed, ConditionResult::Written))
}

/// Removes the finalizer, and with the last one the CRD. On a conflict does nothing: the CRD will be processed again.
async fn release(
    server: &Server,
    served: &Served,
    record: &Record,
    definition: &Value,
    condition: &Condition<'_>,
) -> Result<(), Status> {
    let mut released = definition.clone();
    set_condition(&mut released, condition, server.now());
    let left: Vec<&str> =
        metadata::finalizers(definition).filter(|finalizer| *finalizer != CLEANUP).collect();
    if !left.is_empty() {
        released.object_mut("metadata").set("finalizers", left);
        return server.write_definition(served, record, definition, released).await.map(drop);
    }
    let expect = Expect::Revision(record.modified);
    match server.store.commit(Write { key: record.key.clone(), expect, change: Change::Delete }).await {
        Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
        Err(why) => Err(server.refusal(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clean_ups_progress_while_definitions_are_reconciled() {
        let (release, released) = tokio::sync::oneshot::channel();
        let mut others: FuturesUnordered<_> = std::iter::once(async { release.send("done") }).collect();
        let mut ended = Vec::new();
        let got = alongside(released, &mut others, |other| ended.push(other)).await;
        assert_eq!((got, ended.len()), (Ok("done"), 1));
    }
}
