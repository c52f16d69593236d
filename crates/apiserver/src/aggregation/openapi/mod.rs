//! The OpenAPI documents of extension API servers.
//!
//! Version 3: only the list of documents is cached. The documents themselves are forwarded from their servers. If a
//! server has only version 2, its document is converted. Version 2: each document is reduced to the paths of its
//! APIService and merged with this server's own.
//!
//! Invariant: a document of this server is replaced only if an APIService takes over its group version.

mod convert;
mod merge;
mod spec;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};
use tokio::sync::OnceCell;

use super::fetch::{Fetched, Wanted};
use super::services::{ApiService, ApiServices};
use crate::auth::User;
use crate::body::Body;
use crate::openapi::{Document, Form, serve as own};
use crate::query::Query;
use crate::registry::Registry;
use crate::server::Server;
use crate::status::Status;

pub(crate) use self::merge::{Additions, Destination, add_kinds};
pub(crate) use self::spec::Spec;

/// As in v1.34.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The largest list of documents: 10,000 group versions.
const INDEX_BYTES: usize = 1 << 20;
/// The largest version 2 document. All of Kubernetes' own kinds take 4 MiB. Decoded it is about ten times as large, but
/// only until it is reduced to the paths of its APIService.
const SPEC_BYTES: usize = 8 << 20;
const AGGREGATOR: &str = "system:aggregator";

/// The cached documents of an APIService.
#[derive(Clone, Default)]
struct Known {
    group: String,
    version: String,
    group_priority: i64,
    /// The URLs of its version 3 documents; `None` if the server has no version 3, or has not been queried.
    index: Option<Arc<BTreeMap<String, String>>>,
    /// Its version 2 document, reduced to its own paths.
    spec: Option<Arc<Spec>>,
    etag: String,
    /// The version 2 document as version 3, if the server has no other.
    converted: Option<Document>,
}

impl Known {
    /// The path of its own document.
    fn path(&self) -> String {
        format!("apis/{}/{}", self.group, self.version)
    }
}

/// The documents of all APIServices of other servers.
#[derive(Default)]
pub(crate) struct OpenApis {
    /// By APIService: at most one each.
    known: Mutex<BTreeMap<Box<str>, Known>>,
    /// Version 2, by form, of the last requested registry and documents.
    whole: Mutex<[Option<Arc<Whole>>; 2]>,
}

/// Version 2 in one form. Built by the first request for it; others wait without blocking their threads.
struct Whole {
    registry: Arc<Registry>,
    hash: String,
    body: OnceCell<Bytes>,
}

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    paths: BTreeMap<String, IndexEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IndexEntry {
    #[serde(default, rename = "serverRelativeURL")]
    url: String,
}

/// Reads the documents of an APIService. Returns whether that succeeded.
pub(super) async fn read(server: &Server, name: &str) -> bool {
    let found = server.api_services(|services| services.get(name).cloned()).await;
    let Ok(Some(service)) = found else { return true };
    let Some(remote) = &service.remote else { return true };
    match try_read(server, &service).await {
        Ok(known) => {
            // It may have been deleted or become local during the request.
            if server.has_remote(name, remote).await {
                server.aggregation.openapi.known.lock().insert(name.into(), known);
            }
            true
        }
        Err(why) => {
            tracing::debug!(name, why, "cannot read the OpenAPI documents of an APIService");
            false
        }
    }
}

async fn try_read(server: &Server, service: &ApiService) -> Result<Known, String> {
    if !service.is_available {
        return Err("service unavailable".into());
    }
    let before = server.aggregation.openapi.known.lock().get(&service.name).cloned();
    let before = before.filter(|known| (&known.group, &known.version) == (&service.group, &service.version));
    let mut known = Known {
        group: service.group.clone(),
        version: service.version.clone(),
        group_priority: service.group_priority,
        ..before.unwrap_or_default()
    };
    known.index = index(server, service).await?.map(Arc::new);
    known.read_spec(server, service).await?;
    Ok(known)
}

/// Reads a document as the aggregator, unless its ETag is known.
async fn document(
    server: &Server,
    service: &ApiService,
    path: &str,
    known: &str,
    bytes: usize,
) -> Result<Fetched, String> {
    let user = User { name: AGGREGATOR.into(), ..User::default() };
    let wanted = Wanted { path, user: &user, accept: "application/json", known, timeout: TIMEOUT, bytes };
    server.aggregation.fetch(service, &wanted).await
}

/// Returns the URLs of the version 3 documents; `None` if the server has none.
async fn index(server: &Server, service: &ApiService) -> Result<Option<BTreeMap<String, String>>, String> {
    let answer = document(server, service, "/openapi/v3", "", INDEX_BYTES).await?;
    match answer.status {
        StatusCode::NOT_FOUND => Ok(None),
        StatusCode::OK => {
            let index: Index = serde_json::from_slice(&answer.body).map_err(|why| why.to_string())?;
            Ok(Some(index.paths.into_iter().map(|(path, entry)| (path, entry.url)).collect()))
        }
        code => Err(format!("Error, could not get list of group versions for APIService: {}", code.as_u16())),
    }
}

impl Known {
    /// Reads the version 2 document, unless the server says that it has not changed.
    async fn read_spec(&mut self, server: &Server, service: &ApiService) -> Result<(), String> {
        let answer = document(server, service, "/openapi/v2", &self.etag, SPEC_BYTES).await?;
        match answer.status {
            StatusCode::NOT_MODIFIED if self.spec.is_some() => {}
            // The server has no version 2.
            StatusCode::NOT_FOUND => (self.spec, self.converted) = (None, None),
            StatusCode::OK => {
                let hash = hex(&Sha512::digest(&answer.body));
                if self.spec.as_ref().is_none_or(|spec| spec.hash != hash) {
                    let prefix = format!("/apis/{}/{}/", service.group, service.version);
                    self.spec = Some(Arc::new(Spec::read(&answer.body, &prefix, hash)?));
                    self.converted = None;
                }
                self.etag = answer.etag().to_owned();
            }
            code => return Err(format!("failed to retrieve openAPI spec, http error: {}", code.as_u16())),
        }
        if self.index.is_some() {
            self.converted = None;
        } else if let (None, Some(spec)) = (&self.converted, &self.spec) {
            let body = Bytes::from(convert::to_v3(spec)?.to_string());
            self.converted = Some(Document { hash: hex(&Sha512::digest(&body)), body });
        }
        Ok(())
    }
}

impl OpenApis {
    pub(super) fn forget(&self, name: &str) {
        let was_known = self.known.lock().remove(name).is_some();
        if was_known {
            *self.whole.lock() = Default::default();
        }
    }

    /// Returns the APIService whose server has a version 3 document.
    pub(super) fn owner(
        &self,
        services: &ApiServices,
        registry: &Registry,
        path: &str,
    ) -> Option<Arc<ApiService>> {
        let known = self.known.lock();
        let has = |known: &Known| known.index.as_ref().is_some_and(|index| index.contains_key(path));
        let of = |name: &str| services.get(name).filter(|service| service.remote.is_some()).cloned();
        let mut owners = known.iter().filter(|(_, known)| has(known));
        // A group version belongs to the server of its APIService.
        if let Some((name, _)) = owners.clone().find(|(_, known)| known.path() == path) {
            return of(name);
        }
        let is_converted = || known.values().any(|known| known.converted.is_some() && known.path() == path);
        if registry.openapi().address(path).is_some() || is_converted() {
            return None;
        }
        owners.find_map(|(name, _)| of(name))
    }

    /// Returns a version 3 document that was converted.
    fn converted(&self, path: &str) -> Option<Document> {
        let known = self.known.lock();
        known.values().find(|known| known.path() == path).and_then(|known| known.converted.clone())
    }

    /// Returns the URLs of all version 3 documents that are not this server's own.
    fn addresses(&self, registry: &Registry) -> BTreeMap<String, String> {
        let mut addresses = BTreeMap::new();
        let known = self.known.lock();
        for one in known.values() {
            let own = one.path();
            for (path, url) in one.index.iter().flat_map(|index| index.iter()) {
                if *path == own {
                    addresses.insert(path.clone(), url.clone());
                } else if registry.openapi().address(path).is_none() {
                    addresses.entry(path.clone()).or_insert_with(|| url.clone());
                }
            }
            if let Some(converted) = &one.converted {
                let url = format!("/openapi/v3/{own}?hash={}", converted.hash);
                addresses.insert(own, url);
            }
        }
        addresses
    }

    /// Returns the version 2 documents, in the order in which they are merged: by the priority of their groups.
    fn specs(&self) -> Vec<Arc<Spec>> {
        let known = self.known.lock();
        let mut all: Vec<_> =
            known.iter().filter_map(|(name, known)| Some((name, known, known.spec.clone()?))).collect();
        let of_group =
            |group: &str| known.values().filter(|one| one.group == group).map(|one| one.group_priority).max();
        all.sort_by_key(|(name, known, _)| (std::cmp::Reverse(of_group(&known.group)), (*name).clone()));
        all.into_iter().map(|(_, _, spec)| spec).collect()
    }

    /// Returns the hash of version 2.
    fn hash(own: &str, specs: &[Arc<Spec>]) -> String {
        let mut digest = Sha512::new();
        digest.update(own);
        specs.iter().for_each(|spec| digest.update(&spec.hash));
        hex(&digest.finalize())
    }

    async fn whole(&self, registry: &Arc<Registry>, specs: &[Arc<Spec>], form: Form) -> Document {
        let hash = Self::hash(&registry.openapi().hash_of_whole(), specs);
        let whole = self.current(registry, hash, form);
        let build = || async { registry.openapi().merged(form, specs) };
        let body = whole.body.get_or_init(build).await.clone();
        Document { body, hash: whole.hash.clone() }
    }

    /// Returns the slot of an encoding, built or not.
    fn current(&self, registry: &Arc<Registry>, hash: String, form: Form) -> Arc<Whole> {
        let place = &mut self.whole.lock()[form as usize];
        let is_current = |known: &&Arc<Whole>| Arc::ptr_eq(&known.registry, registry) && known.hash == hash;
        match place.as_ref().filter(is_current) {
            Some(known) => known.clone(),
            None => {
                let new = Whole { registry: registry.clone(), hash, body: OnceCell::new() };
                place.insert(Arc::new(new)).clone()
            }
        }
    }
}

/// Responds to a request for `/openapi/PATH`, whatever its method.
pub(crate) async fn serve(
    server: &Server,
    path: &str,
    query: &Query<'_>,
    headers: &HeaderMap,
) -> Result<Response<Body>, Status> {
    let registry = server.registry.snapshot();
    let documents = &server.aggregation.openapi;
    if documents.known.lock().is_empty() {
        return Ok(own::respond(registry.openapi(), path, query, headers).await);
    }
    let specs = documents.specs();
    let converted = path.strip_prefix("v3/").and_then(|path| documents.converted(path));
    Ok(match (path, converted) {
        ("v2", _) if !specs.is_empty() => {
            let hash = OpenApis::hash(&registry.openapi().hash_of_whole(), &specs);
            let make = async |form| documents.whole(&registry, &specs, form).await;
            own::whole(headers, hash, make).await
        }
        ("v3", _) => own::index(Bytes::from(index_document(documents, &registry).to_string())),
        (path, Some(document)) => {
            let address = format!("/openapi/{path}?hash={}", document.hash);
            own::one(&address, query, headers, || Some(document))
        }
        (path, None) => own::respond(registry.openapi(), path, query, headers).await,
    })
}

fn index_document(documents: &OpenApis, registry: &Registry) -> Value {
    let mut paths: Map<String, Value> = registry.openapi().addresses().map(entry).collect();
    paths.extend(documents.addresses(registry).into_iter().map(entry));
    json!({"paths": paths})
}

fn entry((path, url): (String, String)) -> (String, Value) {
    (path, json!({"serverRelativeURL": url}))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    #[tokio::test]
    async fn version_2_is_built_once_per_form() {
        let registry = Arc::new(Registry::new(kinds::all()).unwrap());
        let documents = OpenApis::default();
        let requests = [Form::Json, Form::Protobuf, Form::Json, Form::Protobuf];
        let built =
            futures::future::join_all(requests.map(|form| documents.whole(&registry, &[], form))).await;
        let at = |document: &Document| document.body.as_ptr();
        assert_eq!((at(&built[0]), at(&built[1])), (at(&built[2]), at(&built[3])));
        assert_ne!(at(&built[0]), at(&built[1]));
    }
}
