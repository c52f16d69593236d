//! Whether what answers for an APIService can be reached: the condition `Available`, as v1.34's aggregator keeps it.
//!
//! This server does not pass requests on to extension servers. So an APIService whose Service, port and endpoints are
//! all there is not available either, and says why. A condition that is right is not written again.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use setpoint_store::{ListOptions, Record, Watch};

use crate::json::{Json, JsonMut};
use crate::kinds::apiservice::{AVAILABLE, LOCAL, LOCAL_MESSAGE};
use crate::metadata;
use crate::own_objects;
use crate::registry::{Gvr, Served};
use crate::server::Server;
use crate::status::Status;

fn api_services() -> Gvr {
    Gvr::new("apiregistration.k8s.io", "v1", "apiservices")
}

/// Keeps the conditions. There is one beside each server.
#[derive(Default)]
pub(crate) struct Availability {
    watch: Option<Watch>,
}

impl Availability {
    /// Waits until an APIService has changed. Never returns where there are none. Cancel-safe.
    pub(crate) async fn changed(&mut self, server: &Server) {
        if self.watch.is_none()
            && let Ok(served) = server.served(&api_services())
        {
            self.watch = server.store.watch(served.resource.all(), server.store.revision()).ok();
        }
        let has_changed = match &mut self.watch {
            Some(watch) => watch.next().await.is_ok(),
            None => false,
        };
        if !has_changed {
            // Of a store that is closed every watch is over at once: there is nothing to hurry for.
            self.watch = None;
            std::future::pending().await
        }
    }

    /// Writes the conditions that are not right.
    pub(crate) async fn keep(&self, server: &Server) {
        if let Err(why) = keep(server).await {
            tracing::warn!(why = why.message, "cannot keep the availability of APIServices");
        }
    }
}

async fn keep(server: &Server) -> Result<(), Status> {
    let Ok(served) = server.served(&api_services()) else { return Ok(()) };
    let page = server.store.list(&served.resource.all(), ListOptions::default()).await;
    for record in page.map_err(|why| server.refusal(why))?.records {
        let service = served.decode_bare(&record)?;
        if metadata::of(&service).has("deletionTimestamp") {
            continue;
        }
        let wanted = condition(server, service.at("spec")).await?;
        if let Some(conditions) = changed(&service, wanted, &metadata::seconds(server.now())) {
            let name = metadata::of(&service).text("name");
            let path = format!("{}/status", own_objects::path(&api_services(), "", name));
            let status = json!({"status": {"conditions": conditions}});
            // One that is gone needs no condition.
            server.own_request(Method::PATCH, &path, &status, &[404]).await?;
        }
    }
    Ok(())
}

/// All conditions of an APIService with this one; `None` if it is there already.
fn changed(service: &Value, mut wanted: Value, now: &str) -> Option<Vec<Value>> {
    let mut conditions = service.at("status").list("conditions").to_vec();
    let Some(current) = conditions.iter_mut().find(|condition| condition.text("type") == AVAILABLE) else {
        wanted.set("lastTransitionTime", now);
        conditions.push(wanted);
        return Some(conditions);
    };
    let is_same = |field: &&str| current.text(field) == wanted.text(field);
    if ["status", "reason", "message"].iter().all(is_same) {
        return None;
    }
    let since = match is_same(&"status") {
        true => current.text("lastTransitionTime").to_owned(),
        false => now.to_owned(),
    };
    wanted.set("lastTransitionTime", since);
    *current = wanted;
    Some(conditions)
}

async fn condition(server: &Server, spec: &Value) -> Result<Value, Status> {
    let reference = spec.at("service");
    if reference.is_null() {
        return Ok(of("True", LOCAL, LOCAL_MESSAGE.to_owned()));
    }
    let (namespace, name) = (reference.text("namespace"), reference.text("name"));
    let port = reference.int("port").unwrap_or(443);
    let shown = format!("service/{name} in {namespace:?}");
    let Some(service) = object(server, "", "services", namespace, name).await? else {
        return Ok(of("False", "ServiceNotFound", format!("{shown} is not present")));
    };
    if service.at("spec").text("type") == "ClusterIP" {
        let ports = service.at("spec").list("ports");
        let Some(listening) = ports.iter().find(|candidate| candidate.int("port") == Some(port)) else {
            return Ok(of("False", "ServicePortError", format!("{shown} is not listening on port {port}")));
        };
        let slices = slices(server, namespace, name).await?;
        if slices.is_empty() {
            return Ok(of("False", "EndpointsNotFound", format!("cannot find endpointslices for {shown}")));
        }
        let port_name = listening.text("name");
        if !slices.iter().any(|slice| is_ready(slice, port_name)) {
            let message =
                format!("endpointslices for {shown} have no addresses with port name {port_name:?}");
            return Ok(of("False", "MissingEndpoints", message));
        }
    }
    let (group, version) = (spec.text("group"), spec.text("version"));
    let url = format!("https://{name}.{namespace}.svc:{port}/apis/{group}/{version}");
    let why = "this server does not pass requests on to extension servers";
    Ok(of("False", "FailedDiscoveryCheck", format!("failing or missing response from {url}: {why}")))
}

fn of(status: &str, reason: &str, message: String) -> Value {
    json!({"type": AVAILABLE, "status": status, "reason": reason, "message": message})
}

/// Whether a slice has an address that is ready, and the port.
fn is_ready(slice: &Value, port: &str) -> bool {
    let ready = |endpoint: &Value| endpoint.at("conditions").boolean("ready") != Some(false);
    let has_port = |candidate: &Value| {
        candidate.at("name").as_str().is_some_and(|name| name == port) && candidate.has("port")
    };
    slice.list("endpoints").iter().any(ready) && slice.list("ports").iter().any(has_port)
}

async fn object(
    server: &Server,
    group: &str,
    plural: &str,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, Status> {
    let Ok(served) = server.served(&Gvr::new(group, "v1", plural)) else { return Ok(None) };
    let found = server.store.get(&served.key(Some(namespace), name), None).await;
    let found = found.map_err(|why| server.refusal(why))?;
    found.map(|record| served.decode_bare(&record)).transpose()
}

/// The slices of a Service.
async fn slices(server: &Server, namespace: &str, service: &str) -> Result<Vec<Value>, Status> {
    let Ok(served) = server.served(&Gvr::new("discovery.k8s.io", "v1", "endpointslices")) else {
        return Ok(Vec::new());
    };
    let page = server.store.list(&served.range(Some(namespace)), ListOptions::default()).await;
    let records = page.map_err(|why| server.refusal(why))?.records;
    let is_of_service = |record: &&Arc<Record>| label(record, &served).as_deref() == Some(service);
    records.iter().filter(is_of_service).map(|record| served.decode_bare(record)).collect()
}

fn label(record: &Record, served: &Served) -> Option<String> {
    crate::facts::Facts::of(record, served).label("kubernetes.io/service-name").map(ToOwned::to_owned)
}
