//! Resolves a port of a Service to an address.
//!
//! v1.34 dials the cluster IP and relies on kube-proxy, or dials an endpoint with `--enable-aggregator-routing`. Here
//! nothing routes cluster IPs, so it always dials an endpoint: a ready one from the Service's EndpointSlices, chosen as
//! in v1.34.

use std::io;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use memchr::memmem;
use serde_json::Value;
use setpoint_clock::Rng;
use setpoint_store::{ListOptions, Resource, Store};
use setpoint_webhook::{Address, Resolve, ServiceReference};

use crate::json::Json;
use crate::metadata;

const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Resolves Services from the current state of the store. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ServiceResolver {
    store: Arc<dyn Store>,
    rng: Rng,
    /// Whether Services of type ExternalName are rejected.
    endpoints_only: bool,
}

impl Resolve for ServiceResolver {
    fn resolve(&self, service: ServiceReference) -> BoxFuture<'static, io::Result<Address>> {
        let resolver = self.clone();
        async move { resolver.find(&service).await.map_err(io::Error::other) }.boxed()
    }
}

impl ServiceResolver {
    pub(crate) fn new(store: Arc<dyn Store>, rng: Rng, endpoints_only: bool) -> Self {
        Self { store, rng, endpoints_only }
    }

    async fn find(&self, reference: &ServiceReference) -> Result<Address, String> {
        let ServiceReference { namespace, name, port } = reference;
        let service = self.get("services", &format!("{namespace}/{name}")).await?;
        let service = service.ok_or_else(|| format!("service {name:?} not found"))?;
        let spec = service.at("spec");
        match spec.text("type") {
            "ClusterIP" | "LoadBalancer" | "NodePort" => {}
            "ExternalName" if !self.endpoints_only => {
                return Ok(Address { host: spec.text("externalName").to_owned(), port: *port });
            }
            other => return Err(format!("unsupported service type {other:?}")),
        }
        let has_number = |candidate: &&Value| candidate.int("port") == Some(i64::from(*port));
        let service_port = spec.list("ports").iter().find(has_number);
        let service_port =
            service_port.ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
        let slices = self.slices(namespace, name, spec).await?;
        let found = slices.iter().find_map(|slice| self.choose(slice, service_port.text("name")));
        let (endpoint, port) = found.ok_or_else(|| format!("no endpoints available for service {name:?}"))?;
        let address = endpoint.list("addresses").first().and_then(Value::as_str).unwrap_or_default();
        Ok(Address { host: address.to_owned(), port })
    }

    /// Returns the EndpointSlices of a Service: those of its first IP family first, otherwise in random order.
    async fn slices(&self, namespace: &str, name: &str, spec: &Value) -> Result<Vec<Value>, String> {
        let range = Resource::new("discovery.k8s.io/endpointslices").under(format!("{namespace}/"));
        let page = self.store.list(&range, ListOptions::default()).await.map_err(|why| why.to_string())?;
        // Every forwarded request comes here, and a namespace may have thousands of slices.
        let label = format!("{SERVICE_NAME:?}:{name:?}");
        let names_it = memmem::Finder::new(&label);
        let records = page.records.iter().filter(|record| names_it.find(&record.value).is_some());
        let slices = records.filter_map(|record| serde_json::from_slice(&record.value).ok());
        let is_own = |slice: &Value| metadata::of(slice).at("labels").text(SERVICE_NAME) == name;
        let slices = slices.filter(is_own);
        let family = spec.list("ipFamilies").first().and_then(Value::as_str).unwrap_or_default();
        let rank = |slice: &Value| (slice.text("addressType") != family, self.rng.next_u64());
        let mut slices: Vec<_> = slices.map(|slice| (rank(&slice), slice)).collect();
        slices.sort_by_key(|(rank, _)| *rank);
        Ok(slices.into_iter().map(|(_, slice)| slice).collect())
    }

    /// Returns a ready endpoint of a slice with a port of this name, and the port's number.
    fn choose<'s>(&self, slice: &'s Value, port_name: &str) -> Option<(&'s Value, u16)> {
        let ports = slice.list("ports").iter().filter(|port| port.text("name") == port_name);
        let port = ports.filter_map(|port| u16::try_from(port.int("port")?).ok()).next()?;
        let endpoints = slice.list("endpoints");
        let count = u64::try_from(endpoints.len()).ok().filter(|count| *count > 0)?;
        let start = usize::try_from(self.rng.below(count)).unwrap_or(0);
        let (before, after) = endpoints.split_at(start);
        let is_ready = |endpoint: &&Value| endpoint.at("conditions").boolean("ready").unwrap_or(true);
        let endpoint = after.iter().chain(before).find(is_ready)?;
        Some((endpoint, port))
    }

    async fn get(&self, resource: &str, path: &str) -> Result<Option<Value>, String> {
        let key = Resource::new(resource).key(path);
        let found = self.store.get(&key, None).await.map_err(|why| why.to_string())?;
        Ok(found.map(|record| serde_json::from_slice(&record.value).unwrap_or_default()))
    }
}
