//! The discovery documents of extension API servers, read in the background and cached.
//!
//! A server with aggregated discovery is read once for all its group versions, with an ETag. From other servers, each
//! group version is read separately. If a document cannot be read, the group version stays in discovery, marked as
//! stale.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::CONTENT_TYPE;
use parking_lot::Mutex;
use setpoint_clock::Instant;
use setpoint_webhook::ServiceReference;

use super::availability::AGGREGATOR;
use super::documents::{self, VersionDocument};
use super::fetch::{Fetched, Wanted};
use super::services::{ApiService, Remote};
use crate::auth::{MASTERS, User};
use crate::discovery::aggregated::Aggregated;
use crate::negotiate;
use crate::registry::Registry;
use crate::server::Server;

/// As in v1.34.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest document. All of Kubernetes' own kinds take 150 KiB.
const BYTES: usize = 4 << 20;
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
const ACCEPT_LEGACY: &str = "application/json";

/// A group version of another server, as discovery shows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RemoteVersion {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) group_priority: i64,
    pub(crate) version_priority: i64,
    pub(crate) document: Arc<VersionDocument>,
    pub(crate) is_stale: bool,
}

/// The documents of a server.
struct Cached {
    versions: BTreeMap<(String, String), Arc<VersionDocument>>,
    etag: String,
    /// Before the request for them was sent.
    since: Instant,
}

#[derive(Default)]
struct State {
    /// By APIService: at most one each.
    versions: BTreeMap<Box<str>, RemoteVersion>,
    /// By Service: several APIServices may have the same.
    cached: BTreeMap<ServiceReference, Cached>,
    /// Grows with every change of `versions`.
    generation: u64,
}

/// The merged document, and its inputs.
struct Merged {
    generation: u64,
    registry: Arc<Registry>,
    document: Arc<Aggregated>,
}

/// The discovery results.
#[derive(Default)]
pub(crate) struct Discovered {
    state: Mutex<State>,
    merged: Mutex<Option<Merged>>,
}

impl Discovered {
    /// Returns the document of all groups except the core group; `None` if there are only this server's own.
    pub(crate) fn document(&self, registry: &Arc<Registry>) -> Option<Arc<Aggregated>> {
        let (generation, versions) = {
            let state = self.state.lock();
            if state.versions.is_empty() {
                return None;
            }
            (state.generation, state.versions.values().cloned().collect::<Vec<_>>())
        };
        let mut merged = self.merged.lock();
        if let Some(known) = &*merged
            && known.generation == generation
            && Arc::ptr_eq(&known.registry, registry)
        {
            return Some(known.document.clone());
        }
        let document = Arc::new(Aggregated::new(registry, false, &versions));
        *merged = Some(Merged { generation, registry: registry.clone(), document: document.clone() });
        Some(document)
    }

    /// Removes an APIService, and the documents of its server if no other APIService uses it.
    pub(super) fn forget(&self, name: &str) {
        let mut state = self.state.lock();
        if state.versions.remove(name).is_some() {
            state.generation += 1;
        }
        if state.versions.is_empty() {
            *self.merged.lock() = None;
        }
    }

    fn set(&self, name: &str, version: RemoteVersion) {
        let mut state = self.state.lock();
        if state.versions.get(name) != Some(&version) {
            state.versions.insert(name.into(), version);
            state.generation += 1;
        }
    }

    /// Removes the documents of Services that no APIService uses.
    fn retain(&self, is_used: impl Fn(&ServiceReference) -> bool) {
        self.state.lock().cached.retain(|service, _| is_used(service));
    }

    fn cached_since(&self, service: &ServiceReference, wanted: Instant) -> Option<Versions> {
        let state = self.state.lock();
        let cached = state.cached.get(service).filter(|cached| cached.since > wanted)?;
        Some(cached.versions.clone())
    }

    fn etag(&self, service: &ServiceReference) -> String {
        self.state.lock().cached.get(service).map(|cached| cached.etag.clone()).unwrap_or_default()
    }

    /// The cached documents are still current.
    fn confirm(&self, service: &ServiceReference, since: Instant) -> Option<Versions> {
        let mut state = self.state.lock();
        let cached = state.cached.get_mut(service)?;
        cached.since = since;
        Some(cached.versions.clone())
    }

    fn keep(&self, service: &ServiceReference, versions: &Versions, etag: &str, since: Instant) {
        let cached = Cached { versions: versions.clone(), etag: etag.to_owned(), since };
        self.state.lock().cached.insert(service.clone(), cached);
    }
}

type Versions = BTreeMap<(String, String), Arc<VersionDocument>>;

/// Reads the discovery document of an APIService's server and adds it to discovery.
pub(super) async fn discover(server: &Server, name: &str) {
    let wanted = server.clock.instant();
    let Some(service) = find(server, name).await else { return };
    let Some(remote) = &service.remote else { return };
    let fetched = fetch(server, &service, remote, wanted).await;
    if let Err(why) = &fetched {
        tracing::debug!(
            name,
            service = remote.shown(),
            why,
            "cannot read the discovery document of an APIService"
        );
    }
    let is_stale = fetched.is_err();
    let key = (service.group.clone(), service.version.clone());
    let document = fetched.unwrap_or_default().get(&key).cloned();
    let version = RemoteVersion {
        group: service.group.clone(),
        version: service.version.clone(),
        group_priority: service.group_priority,
        version_priority: service.version_priority,
        document: document.unwrap_or_default(),
        is_stale,
    };
    // It may have been deleted or become local during the request.
    if server.has_remote(name, remote).await {
        server.aggregation.discovered.set(name, version);
    }
}

/// Finds an APIService, and removes the documents of unused Services.
async fn find(server: &Server, name: &str) -> Option<Arc<ApiService>> {
    let found = server.api_services(|services| {
        let used: Vec<_> = services.all_remote().filter_map(|one| one.remote.clone()).collect();
        let is_used = |service: &ServiceReference| used.iter().any(|one| one.service == *service);
        server.aggregation.discovered.retain(is_used);
        services.get(name).cloned()
    });
    found.await.ok().flatten()
}

/// Returns the documents of a server, read after `wanted`.
async fn fetch(
    server: &Server,
    service: &ApiService,
    remote: &Remote,
    wanted: Instant,
) -> Result<Versions, String> {
    let discovered = &server.aggregation.discovered;
    if let Some(versions) = discovered.cached_since(&remote.service, wanted) {
        return Ok(versions);
    }
    let etag = discovered.etag(&remote.service);
    let since = server.clock.instant();
    let groups = vec![MASTERS.into()];
    let answer = document(server, service, "/apis", groups, (ACCEPT, &etag)).await?;
    match answer.status {
        StatusCode::NOT_MODIFIED => discovered
            .confirm(&remote.service, since)
            .ok_or_else(|| "the server has not sent a document, but says that it has not changed".into()),
        StatusCode::SERVICE_UNAVAILABLE => Err(format!(
            "service {} returned non-success response code: {}",
            remote.shown(),
            answer.status.as_u16()
        )),
        StatusCode::OK if is_aggregated(&answer) => {
            let versions = documents::aggregated(&answer.body)?;
            discovered.keep(&remote.service, &versions, answer.etag(), since);
            Ok(versions)
        }
        _ => legacy(server, service).await,
    }
}

/// Reads a document as the aggregator, in a form, unless its ETag is known.
async fn document(
    server: &Server,
    service: &ApiService,
    path: &str,
    groups: Vec<String>,
    (accept, known): (&'static str, &str),
) -> Result<Fetched, String> {
    let user = User { name: AGGREGATOR.into(), groups, ..User::default() };
    let request = Wanted { path, user: &user, accept, known, timeout: TIMEOUT, bytes: BYTES };
    server.aggregation.fetch(service, &request).await
}

/// Reads the document of a single group version.
async fn legacy(server: &Server, service: &ApiService) -> Result<Versions, String> {
    let path = service.path();
    let answer = document(server, service, &path, Vec::new(), (ACCEPT_LEGACY, "")).await?;
    if answer.status != StatusCode::OK {
        return Err(format!("failed to download legacy discovery for {path}: {}", answer.status.as_u16()));
    }
    let document = Arc::new(documents::legacy(&answer.body)?);
    Ok(Versions::from([((service.group.clone(), service.version.clone()), document)]))
}

/// Whether a response is aggregated discovery.
fn is_aggregated(answer: &Fetched) -> bool {
    let clause = negotiate::Clause::parse(answer.header(&CONTENT_TYPE));
    let parameters = ["g", "v", "as"].map(|name| clause.parameter(name).unwrap_or_default());
    clause.accepts("json")
        && matches!(parameters, ["apidiscovery.k8s.io", "v2" | "v2beta1", "APIGroupDiscoveryList"])
}
