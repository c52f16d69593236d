//! The background work of aggregation: probes, discovery and OpenAPI documents, each with its own workers and
//! intervals.
//!
//! Without APIServices of extension servers, it only waits for changes of APIServices.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, OptionFuture};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use setpoint_clock::Instant;
use setpoint_store::{Event, EventKind};
use tokio_util::sync::CancellationToken;

use super::availability::{self, Checked};
use super::changes::{Change, Changes};
use super::services::{ApiService, Remote};
use super::work::{Pauses, Work};
use super::{groups, openapi, trust};
use crate::server::Server;

/// Concurrent checks, and pauses between those that fail, as in v1.34.
const CHECKERS: usize = 5;
const CHECK_PAUSES: Pauses = Pauses { first: Duration::from_millis(5), longest: Duration::from_secs(30) };
/// The maximum time between two checks of an APIService.
const CHECK_EVERY: Duration = Duration::from_secs(30);
/// Concurrent reads of discovery documents, and how often they are read.
const DISCOVERERS: usize = 2;
const DISCOVER_EVERY: Duration = Duration::from_secs(60);
/// The same for OpenAPI documents. The first is read a moment after the APIService has appeared.
const READERS: usize = 1;
const READ_EVERY: Duration = Duration::from_secs(60);
const READ_PAUSES: Pauses = Pauses { first: READ_EVERY, longest: Duration::from_secs(3600) };
const READ_SOON: Duration = Duration::from_secs(1);
/// How often the published trust is compared with the current one.
const PUBLISH_EVERY: Duration = Duration::from_secs(60);

/// A completed task, and its APIService.
enum Done {
    Checked(Box<str>, Checked),
    Discovered(Box<str>),
    /// Whether its documents could be read.
    Read(Box<str>, bool),
    Published,
}

/// The fields of an APIService that the work depends on.
#[derive(PartialEq)]
struct Known {
    remote: Option<Arc<Remote>>,
    priorities: (i64, i64),
    is_available: bool,
}

/// The work schedule.
#[derive(Default)]
struct Plan {
    checks: Work,
    discoveries: Work,
    documents: Work,
    known: BTreeMap<Box<str>, Known>,
    /// The results of the last checks.
    checked: BTreeMap<Box<str>, bool>,
    publish_at: Option<Instant>,
}

impl Server {
    /// Keeps availability, documents and the APIServices of this server's own groups up to date until `stop`. Run it
    /// once, alongside the server.
    pub(crate) async fn run_aggregation(&self, stop: CancellationToken) {
        let publish_at = self.aggregation.trust.as_ref().map(|_| self.clock.instant());
        let mut plan = Plan { publish_at, ..Plan::default() };
        let mut changes = Changes::default();
        let mut running: FuturesUnordered<BoxFuture<'_, Done>> = FuturesUnordered::new();
        loop {
            while let Some(work) = plan.next_work(self) {
                running.push(work);
            }
            let timer = OptionFuture::from(plan.next_time().map(|at| self.clock.sleep_until(at)));
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some(done) = running.next(), if !running.is_empty() => plan.done(self, done),
                change = changes.next(self, plan.has_remote()) => plan.changed(self, change).await,
                Some(()) = timer => {}
            }
        }
    }
}

async fn check(server: &Server, name: Box<str>) -> Done {
    let checked = availability::check(server, &name).await;
    Done::Checked(name, checked)
}

async fn discover(server: &Server, name: Box<str>) -> Done {
    groups::discover(server, &name).await;
    Done::Discovered(name)
}

async fn read(server: &Server, name: Box<str>) -> Done {
    let is_read = openapi::read(server, &name).await;
    Done::Read(name, is_read)
}

impl Plan {
    fn has_remote(&self) -> bool {
        self.known.values().any(|known| known.remote.is_some())
    }

    /// Takes due work while workers are available.
    fn next_work<'s>(&mut self, server: &'s Server) -> Option<BoxFuture<'s, Done>> {
        let now = server.clock.instant();
        if self.publish_at.is_some_and(|at| at <= now) {
            self.publish_at = None;
            return Some(trust::publish(server).map(|()| Done::Published).boxed());
        }
        let take =
            |work: &mut Work, workers: usize| (work.busy() < workers).then(|| work.take(now)).flatten();
        if let Some(name) = take(&mut self.checks, CHECKERS) {
            return Some(check(server, name).boxed());
        }
        if let Some(name) = take(&mut self.discoveries, DISCOVERERS) {
            return Some(discover(server, name).boxed());
        }
        take(&mut self.documents, READERS).map(|name| read(server, name).boxed())
    }

    /// When the next work is due, if a worker is idle.
    fn next_time(&self) -> Option<Instant> {
        let of = |work: &Work, workers: usize| (work.busy() < workers).then(|| work.next()).flatten();
        let times = [
            of(&self.checks, CHECKERS),
            of(&self.discoveries, DISCOVERERS),
            of(&self.documents, READERS),
            self.publish_at,
        ];
        times.into_iter().flatten().min()
    }

    fn done(&mut self, server: &Server, done: Done) {
        let now = server.clock.instant();
        match done {
            Done::Checked(name, checked) => {
                let is_remote = self.is_remote(&name);
                // It may have been deleted while it was checked.
                match checked.is_available.filter(|_| self.known.contains_key(&name)) {
                    Some(is_available) => {
                        server.aggregation.metrics.set(&name, is_available);
                        self.checked.insert(name.clone(), is_available);
                    }
                    None => _ = self.checked.remove(&name),
                }
                match checked.again && self.known.contains_key(&name) {
                    true => self.checks.failed(&name, now, CHECK_PAUSES),
                    false => self.checks.done(&name, is_remote.then(|| now + CHECK_EVERY)),
                }
            }
            Done::Discovered(name) => {
                let then = self.is_remote(&name).then(|| now + DISCOVER_EVERY);
                self.discoveries.done(&name, then);
            }
            Done::Read(name, is_read) => match self.is_remote(&name) && !is_read {
                true => self.documents.failed(&name, now, READ_PAUSES),
                false => {
                    let then = self.is_remote(&name).then(|| now + READ_EVERY);
                    self.documents.done(&name, then);
                }
            },
            Done::Published => self.publish_at = Some(now + PUBLISH_EVERY),
        }
    }

    fn is_remote(&self, name: &str) -> bool {
        self.known.get(name).is_some_and(|known| known.remote.is_some())
    }

    async fn changed(&mut self, server: &Server, change: Change) {
        let now = server.clock.instant();
        match change {
            Change::Everything => {
                self.reload(server).await;
                server.reconcile_definitions().await;
            }
            Change::ApiServices(events) => {
                events.iter().for_each(|event| self.follow(server, event));
                // A CRD may have lost the APIService of its group version.
                server.reconcile_definitions().await;
            }
            Change::Backends => {
                let remote = self.known.iter().filter(|(_, known)| known.remote.is_some());
                remote.for_each(|(name, _)| self.checks.add(name, now));
            }
            Change::Backend { namespace, name } => {
                let is_of = |known: &Known| {
                    let service = known.remote.as_ref().map(|remote| &remote.service);
                    service.is_some_and(|service| service.namespace == namespace && service.name == name)
                };
                let concerned = self.known.iter().filter(|(_, known)| is_of(known));
                concerned.for_each(|(name, _)| self.checks.add(name, now));
            }
            Change::Trust => self.publish_at = self.publish_at.map(|_| now),
        }
    }

    fn follow(&mut self, server: &Server, event: &Event) {
        let name = &*event.record.key.path;
        let object = (event.kind != EventKind::Deleted).then(|| &*event.record.value);
        let object = object.and_then(|bytes| serde_json::from_slice(bytes).ok());
        let service = object.map(|object| ApiService::read(name, &object));
        self.observe(server, name, service.as_ref());
    }

    /// Compares everything with what is stored: at the start, and when events were missed.
    async fn reload(&mut self, server: &Server) {
        let all = server.api_services(|services| services.all().cloned().collect::<Vec<_>>()).await;
        let Ok(all) = all else { return };
        let is_gone = |name: &str| all.iter().all(|service| *service.name != *name);
        let gone: Vec<Box<str>> = self.known.keys().filter(|name| is_gone(name)).cloned().collect();
        for name in gone {
            self.observe(server, &name, None);
        }
        for service in all {
            self.observe(server, &service.name, Some(&service));
        }
    }

    /// Schedules the work for a changed APIService. A change of only its condition needs none.
    fn observe(&mut self, server: &Server, name: &str, service: Option<&ApiService>) {
        let now = server.clock.instant();
        let Some(service) = service else { return self.forget(server, name) };
        let new = Known {
            remote: service.remote.clone(),
            priorities: (service.group_priority, service.version_priority),
            is_available: service.is_available,
        };
        let old = self.known.get(name);
        let is_other = old.is_none_or(|old| old.remote != new.remote);
        let has_changed = old != Some(&new);
        if is_other || (self.checked.contains_key(name) && self.checked.get(name) != Some(&new.is_available))
        {
            self.checks.reset_failures(name);
            self.checks.add(name, now);
        }
        if new.remote.is_none() {
            self.forget_documents(server, name);
        } else {
            if has_changed {
                self.discoveries.add(name, now);
            }
            if is_other || self.documents.has_failed(name) {
                self.documents.reset_failures(name);
                self.documents.add(name, now + READ_SOON);
            }
        }
        self.known.insert(name.into(), new);
    }

    fn forget(&mut self, server: &Server, name: &str) {
        self.known.remove(name);
        self.checked.remove(name);
        self.checks.forget(name);
        server.aggregation.metrics.forget(name);
        self.forget_documents(server, name);
    }

    fn forget_documents(&mut self, server: &Server, name: &str) {
        self.discoveries.forget(name);
        self.documents.forget(name);
        server.aggregation.discovered.forget(name);
        server.aggregation.openapi.forget(name);
    }
}
