//! The changes in the store that aggregation depends on.

use std::sync::Arc;

use setpoint_store::{Event, Range, Resource, Watch, WatchError};

use super::availability::{service_of_slice, slices_resource};
use super::services::RESOURCE;
use super::trust;
use crate::registry::Served;
use crate::server::Server;

/// A change.
pub(super) enum Change {
    /// Events were missed.
    Everything,
    ApiServices(Vec<Arc<Event>>),
    /// Services or endpoints were missed.
    Backends,
    /// A Service, or its endpoints.
    Backend {
        namespace: String,
        name: String,
    },
    /// The published trust.
    Trust,
}

/// Watches of the store, opened when they are needed.
#[derive(Default)]
pub(super) struct Changes {
    api_services: Option<Watch>,
    trust: Option<Watch>,
    backends: Option<Backends>,
}

struct Backends {
    services: Watch,
    slices: Watch,
    slice_kind: Arc<Served>,
    /// Changes that have been read, but not returned yet.
    pending: Vec<(String, String)>,
}

impl Changes {
    /// Waits for the next change. Services and endpoints are only followed if other servers depend on them. Cancel-safe.
    pub(super) async fn next(&mut self, server: &Server, has_remote: bool) -> Change {
        if self.api_services.is_none() {
            self.api_services = open(server, Resource::new(RESOURCE).all());
            self.trust = open(server, trust::range());
            return match self.api_services {
                Some(_) => Change::Everything,
                None => closed().await,
            };
        }
        match (has_remote, &self.backends) {
            (true, None) => {
                self.backends = Backends::open(server);
                if self.backends.is_some() {
                    return Change::Backends;
                }
            }
            (false, Some(_)) => self.backends = None,
            _ => {}
        }
        tokio::select! {
            biased;
            events = next(&mut self.api_services) => match events {
                Some(events) => Change::ApiServices(events),
                None => Change::Everything,
            },
            change = Backends::next(&mut self.backends) => change,
            _ = next(&mut self.trust) => Change::Trust,
        }
    }
}

impl Backends {
    fn open(server: &Server) -> Option<Self> {
        let slice_kind = server.served(&slices_resource()).ok()?;
        Some(Self {
            services: open(server, Resource::new("services").all())?,
            slices: open(server, slice_kind.resource.all())?,
            slice_kind,
            pending: Vec::new(),
        })
    }

    async fn next(backends: &mut Option<Self>) -> Change {
        let Some(open) = backends else { return std::future::pending().await };
        loop {
            if let Some((namespace, name)) = open.pending.pop() {
                return Change::Backend { namespace, name };
            }
            let (events, are_slices) = tokio::select! {
                biased;
                events = open.services.next() => (events, false),
                events = open.slices.next() => (events, true),
            };
            match events {
                Ok(events) => open.read(&events, are_slices),
                Err(WatchError::Closed) => return closed().await,
                Err(WatchError::FellBehind { .. }) => {
                    *backends = None;
                    return Change::Backends;
                }
            }
        }
    }

    fn read(&mut self, events: &[Arc<Event>], are_slices: bool) {
        for event in events {
            let Some((namespace, name)) = event.record.key.path.split_once('/') else { continue };
            let service = match are_slices {
                true => service_of_slice(&event.record, &self.slice_kind),
                false => Some(name),
            };
            if let Some(service) = service {
                self.pending.push((namespace.to_owned(), service.to_owned()));
            }
        }
        self.pending.dedup();
    }
}

fn open(server: &Server, range: Range) -> Option<Watch> {
    server.store.watch(range, server.store.revision()).ok()
}

/// Returns `None` if events were missed; the watch is over then.
async fn next(watch: &mut Option<Watch>) -> Option<Vec<Arc<Event>>> {
    let Some(open) = watch else { return std::future::pending().await };
    match open.next().await {
        Ok(events) => Some(events),
        Err(WatchError::Closed) => closed().await,
        Err(WatchError::FellBehind { .. }) => {
            *watch = None;
            None
        }
    }
}

/// Watches of a closed store end immediately, so wait before trying again.
async fn closed<T>() -> T {
    std::future::pending().await
}
