//! Kinds by version and plural name, from discovery.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint::discovery::{Discovered, discover};
use setpoint::{Client, Clock, Instant, Kind, ReconcileError};

/// The minimum interval between two discoveries for a missing kind.
const LEAST_AGE: Duration = Duration::from_secs(1);

/// The kinds that the API server serves. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Kinds {
    client: Client,
    clock: Clock,
    known: Arc<Mutex<Option<Found>>>,
}

/// The discovery result and its time.
#[derive(Clone)]
struct Found {
    at: Instant,
    kinds: Arc<Discovered>,
}

impl Kinds {
    pub(crate) fn new(client: &Client, clock: &Clock) -> Self {
        Self { client: client.clone(), clock: clock.clone(), known: Arc::default() }
    }

    /// Clears the cache after CustomResourceDefinitions have changed.
    pub(crate) fn forget(&self) {
        *self.known.lock() = None;
    }

    /// Returns a kind by its plural name, or an error with that name.
    pub(crate) async fn resolve(&self, api_version: &str, resource: &str) -> Result<Kind, ReconcileError> {
        let is_it = |kind: &Kind| kind.plural() == resource && kind.api_version() == api_version;
        self.find(api_version, resource, is_it).await
    }

    /// Returns a kind by its name in objects, or an error with that name.
    pub(crate) async fn resolve_kind(&self, api_version: &str, kind: &str) -> Result<Kind, ReconcileError> {
        self.find(api_version, kind, |served| served.is_named(api_version, kind)).await
    }

    async fn find(
        &self,
        api_version: &str,
        resource: &str,
        is_it: impl Fn(&Kind) -> bool,
    ) -> Result<Kind, ReconcileError> {
        let found = |discovered: &Discovered| {
            discovered.resources().iter().map(|resource| &resource.kind).find(|kind| is_it(kind)).cloned()
        };
        let known = self.known.lock().clone();
        if let Some(Found { at, kinds: known }) = known {
            let is_fresh = self.clock.instant().saturating_duration_since(at) < LEAST_AGE;
            match found(&known) {
                Some(kind) => return Ok(kind),
                None if is_fresh => return Err(missing(api_version, resource, &known)),
                None => {}
            }
        }
        let discovered = discover(&self.client).await;
        let discovered = discovered.map_err(|error| error.into_reconcile_error("discover kinds".into()))?;
        let discovered = Arc::new(discovered);
        *self.known.lock() = Some(Found { at: self.clock.instant(), kinds: discovered.clone() });
        found(&discovered).ok_or_else(|| missing(api_version, resource, &discovered))
    }
}

fn missing(api_version: &str, resource: &str, known: &Discovered) -> ReconcileError {
    let failures = match known.failures().is_empty() {
        true => String::new(),
        false => format!(" ({})", known.failures()),
    };
    ReconcileError::retry(format!("can't find resource {resource:?} in apiVersion {api_version:?}{failures}"))
}
