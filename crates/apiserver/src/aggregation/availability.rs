//! Whether extension API servers can be reached: the condition `Available`, as v1.34's aggregator maintains it.
//!
//! Invariant: an unchanged condition is not written again.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::{Method, Request, Uri};
use serde_json::{Value, json};
use setpoint_clock::Instant;
use setpoint_store::{ListOptions, Record};
use setpoint_webhook::{RequestBody, Transport, no_body};
use tokio::time::timeout_at;

use super::headers::of_system_user;
use super::registration::api_services;
use super::services::{ApiService, Remote};
use crate::auth::{MASTERS, User};
use crate::facts::Facts;
use crate::json::{Json, JsonMut};
use crate::kinds::apiservice::{AVAILABLE, LOCAL, LOCAL_MESSAGE};
use crate::metadata;
use crate::registry::{Gvr, Served};
use crate::server::Server;
use crate::status::Status;
use crate::system_objects;

/// Concurrent probes per check, as in v1.34. One success is enough, so a single broken endpoint of
/// several is tolerated.
const ATTEMPTS: usize = 5;
/// How long a probe may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A condition, without its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    message: String,
}

impl Condition {
    fn local() -> Self {
        Self { status: "True", reason: LOCAL, message: LOCAL_MESSAGE.into() }
    }

    fn passed() -> Self {
        Self { status: "True", reason: "Passed", message: "all checks passed".into() }
    }

    fn failed(reason: &'static str, message: String) -> Self {
        Self { status: "False", reason, message }
    }

    fn unknown(reason: &'static str, shown: &str, why: &Status) -> Self {
        let message = format!("{shown} cannot be checked due to: {}", why.message);
        Self { status: "Unknown", reason, message }
    }

    fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// The result of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Checked {
    /// Whether to check again soon.
    pub(super) again: bool,
    /// The current condition; `None` if it could not be written, or the APIService was deleted.
    pub(super) is_available: Option<bool>,
}

/// Checks an APIService and writes its condition.
pub(super) async fn check(server: &Server, name: &str) -> Checked {
    match try_check(server, name).await {
        Ok(checked) => checked,
        Err(why) => {
            tracing::warn!(name, why = why.message, "cannot keep the availability of an APIService");
            Checked { again: true, is_available: None }
        }
    }
}

async fn try_check(server: &Server, name: &str) -> Result<Checked, Status> {
    let Ok(served) = server.served(&api_services()) else { return Ok(Checked::default()) };
    let found = server.store.get(&served.key(None, name), None).await;
    let Some(record) = found.map_err(|why| server.refusal(why))? else { return Ok(Checked::default()) };
    let object = served.decode_bare(&record)?;
    let service = ApiService::read(name, &object);
    let condition = match &service.remote {
        None => Condition::local(),
        Some(remote) => remote_condition(server, &service, remote).await,
    };
    match write(server, &object, &condition).await? {
        Written::Conflict => return Ok(Checked { again: true, is_available: None }),
        Written::Yes => note(server, &service, &condition),
        Written::Unchanged => {}
    }
    Ok(Checked { again: condition.reason == FAILED_DISCOVERY, is_available: Some(condition.is_true()) })
}

fn note(server: &Server, service: &ApiService, condition: &Condition) {
    let Condition { status, reason, message } = condition;
    tracing::info!(
        name = &*service.name,
        status,
        reason,
        message,
        "changed the availability of an APIService"
    );
    if service.is_available && !condition.is_true() {
        server.aggregation.metrics.ceased(&service.name, reason);
    }
}

const FAILED_DISCOVERY: &str = "FailedDiscoveryCheck";

/// The result of writing a condition.
enum Written {
    Yes,
    Unchanged,
    /// The object was changed or deleted in the meantime.
    Conflict,
}

/// Writes a condition unless it is unchanged.
async fn write(server: &Server, object: &Value, condition: &Condition) -> Result<Written, Status> {
    let now = metadata::seconds(server.now());
    let Some(conditions) = changed(object, condition, &now) else { return Ok(Written::Unchanged) };
    let meta = metadata::of(object);
    let path = format!("{}/status", system_objects::path(&api_services(), "", meta.text("name")));
    let patch = json!({
        "metadata": {"uid": meta.at("uid"), "resourceVersion": meta.at("resourceVersion")},
        "status": {"conditions": conditions},
    });
    let is_written = server.loopback_request(Method::PATCH, &path, &patch, &[404, 409]).await?;
    Ok(if is_written { Written::Yes } else { Written::Conflict })
}

/// Returns all conditions of an APIService including this one; `None` if it is unchanged.
fn changed(service: &Value, wanted: &Condition, now: &str) -> Option<Vec<Value>> {
    let Condition { status, reason, message } = wanted;
    let mut new = json!({"type": AVAILABLE, "status": status, "reason": reason, "message": message});
    let mut conditions = service.at("status").list("conditions").to_vec();
    let Some(current) = conditions.iter_mut().find(|condition| condition.text("type") == AVAILABLE) else {
        new.set("lastTransitionTime", now);
        conditions.push(new);
        return Some(conditions);
    };
    let is_same = |field: &&str| current.text(field) == new.text(field);
    if ["status", "reason", "message"].iter().all(is_same) {
        return None;
    }
    let since = match is_same(&"status") {
        true => current.text("lastTransitionTime").to_owned(),
        false => now.to_owned(),
    };
    new.set("lastTransitionTime", since);
    *current = new;
    Some(conditions)
}

async fn remote_condition(server: &Server, service: &ApiService, remote: &Arc<Remote>) -> Condition {
    let reference = &remote.service;
    let shown = format!("service/{} in {:?}", reference.name, reference.namespace);
    let found = match object(server, "services", &reference.namespace, &reference.name).await {
        Ok(Some(found)) => found,
        Ok(None) => return Condition::failed("ServiceNotFound", format!("{shown} is not present")),
        Err(why) => return Condition::unknown("ServiceAccessError", &shown, &why),
    };
    if found.at("spec").text("type") == "ClusterIP"
        && let Err(condition) = endpoints(server, remote, &found, &shown).await
    {
        return condition;
    }
    match probe(server, service, remote).await {
        Ok(()) => Condition::passed(),
        Err(why) => Condition::failed(FAILED_DISCOVERY, why),
    }
}

/// Checks that a Service has the port, and a ready endpoint with it.
async fn endpoints(server: &Server, remote: &Remote, service: &Value, shown: &str) -> Result<(), Condition> {
    let reference = &remote.service;
    let has_number = |candidate: &&Value| candidate.int("port") == Some(i64::from(reference.port));
    let Some(port) = service.at("spec").list("ports").iter().find(has_number) else {
        let message = format!("{shown} is not listening on port {}", reference.port);
        return Err(Condition::failed("ServicePortError", message));
    };
    let slices = slices(server, &reference.namespace, &reference.name).await;
    let slices = slices.map_err(|why| Condition::unknown("EndpointsAccessError", shown, &why))?;
    if slices.is_empty() {
        let message = format!("cannot find endpointslices for {shown}");
        return Err(Condition::failed("EndpointsNotFound", message));
    }
    let port_name = port.text("name");
    match slices.iter().any(|slice| is_ready(slice, port_name)) {
        true => Ok(()),
        false => {
            let message =
                format!("endpointslices for {shown} have no addresses with port name {port_name:?}");
            Err(Condition::failed("MissingEndpoints", message))
        }
    }
}

/// Whether a slice has an address that is ready, and the port.
fn is_ready(slice: &Value, port: &str) -> bool {
    let ready = |endpoint: &Value| endpoint.at("conditions").boolean("ready") != Some(false);
    let has_port = |candidate: &Value| {
        candidate.at("name").as_str().is_some_and(|name| name == port) && candidate.has("port")
    };
    slice.list("endpoints").iter().any(ready) && slice.list("ports").iter().any(has_port)
}

/// Requests the server's discovery document several times concurrently. Returns the first success, or the last failure.
async fn probe(server: &Server, service: &ApiService, remote: &Arc<Remote>) -> Result<(), String> {
    let transport = server.aggregation.backends.probing(remote)?;
    let end = server.clock.instant() + PROBE_TIMEOUT;
    let attempt = || attempt(server, service, remote, &transport, end);
    let mut attempts: FuturesUnordered<_> = (0..ATTEMPTS).map(|_| attempt()).collect();
    let mut last = Err(String::new());
    while let Some(outcome) = attempts.next().await {
        last = outcome;
        if last.is_ok() {
            break;
        }
    }
    last
}

async fn attempt(
    server: &Server,
    service: &ApiService,
    remote: &Remote,
    transport: &Transport,
    end: Instant,
) -> Result<(), String> {
    let host = server.aggregation.backends.resolve(remote).await.map_err(|why| why.to_string())?;
    let url = format!("https://{host}{}", service.path());
    let failed = |why: String| format!("failing or missing response from {url}: {why}");
    let request = probe_request(&url).map_err(failed)?;
    let outcome = match timeout_at(end, transport.send_as_client(request)).await {
        Ok(outcome) => outcome.map_err(|why| why.0),
        Err(_) => Err("context deadline exceeded (Client.Timeout exceeded while awaiting headers)".into()),
    };
    let response = outcome.map_err(|why| failed(format!("Get {url:?}: {why}")))?;
    match response.status().as_u16() {
        200..300 => Ok(()),
        code => Err(failed(format!("bad status from {url}: {code}"))),
    }
}

/// A probe is sent as a member of `system:masters`, so that it is always allowed.
fn probe_request(url: &str) -> Result<Request<RequestBody>, String> {
    let user = User { name: AGGREGATOR.into(), groups: vec![MASTERS.into()], ..User::default() };
    let mut request = Request::new(no_body());
    *request.uri_mut() = url.parse::<Uri>().map_err(|why| why.to_string())?;
    *request.headers_mut() = of_system_user(&user)?;
    Ok(request)
}

/// The user as which this server calls extension API servers.
pub(super) const AGGREGATOR: &str = "system:kube-aggregator";

async fn object(server: &Server, plural: &str, namespace: &str, name: &str) -> Result<Option<Value>, Status> {
    let Ok(served) = server.served(&Gvr::new("", "v1", plural)) else { return Ok(None) };
    let found = server.store.get(&served.key(Some(namespace), name), None).await;
    let found = found.map_err(|why| server.refusal(why))?;
    found.map(|record| served.decode_bare(&record)).transpose()
}

/// The slices of a Service.
async fn slices(server: &Server, namespace: &str, service: &str) -> Result<Vec<Value>, Status> {
    let Ok(served) = server.served(&slices_resource()) else { return Ok(Vec::new()) };
    let page = server.store.list(&served.range(Some(namespace)), ListOptions::default()).await;
    let records = page.map_err(|why| server.refusal(why))?.records;
    let is_of_service = |record: &&Arc<Record>| service_of_slice(record, &served) == Some(service);
    records.iter().filter(is_of_service).map(|record| served.decode_bare(record)).collect()
}

pub(super) fn slices_resource() -> Gvr {
    Gvr::new("discovery.k8s.io", "v1", "endpointslices")
}

/// Returns the Service of a slice.
pub(super) fn service_of_slice<'a>(record: &'a Record, served: &Served) -> Option<&'a str> {
    Facts::of(record, served).label(SERVICE_NAME)
}
