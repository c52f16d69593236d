//! Proxy requests: the address of a node, a pod or a Service.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Response;
use serde_json::Value;
use setpoint_webhook::{Transport, no_body};

use super::{kubelet, original};
use crate::body::Body;
use crate::chain::Payload;
use crate::json::Json;
use crate::kubelet::{is_proxyable, join};
use crate::proxy::{self, Location, escape};
use crate::registry::{Gvr, Served};
use crate::rest::Call;
use crate::status::Status;
use crate::validation::address::parse_ip;

/// Passes a request on to a path of an object.
pub(super) async fn forward(call: &Call<'_>, path: &str) -> Result<Response<Body>, Status> {
    let (scheme, host, transport) = match call.served.kind.kind.as_str() {
        "Service" => service(call).await?,
        "Node" => node(call).await?,
        _ => pod(call).await?,
    };
    let slash = if path.ends_with('/') { "/" } else { "" };
    let joined = escape::join("", path);
    let path = if joined.ends_with('/') { joined } else { joined + slash };
    let location = Location { scheme, host, path, query: String::new() };
    let body = call.context.raw.take_payload().map_or_else(no_body, Payload::streamed);
    proxy::forward(&transport, &original(call), location, body, &call.server.clock).await
}

/// A scheme, host and port, and the connections to it.
type Target = (&'static str, String, Arc<Transport>);

/// The kubelet of a node, or another port of it.
async fn node(call: &Call<'_>) -> Result<Target, Status> {
    let id = call.name()?;
    let id = Id::parse(id).ok_or_else(|| Status::bad_request(format!("invalid node request {id:?}")))?;
    let (kubelets, kubelet) = (&call.server.kubelets, kubelet(call, id.name).await?);
    kubelets.check_node(&kubelet.host).await?;
    if id.port.is_empty() || id.port == kubelet.port.to_string() {
        return Ok(("https", kubelet.authority(), kubelets.transport()?));
    }
    let port = port_number(&kubelet.host, id.port)?;
    Ok((id.scheme, join(&kubelet.host, port), kubelets.to_pods()?))
}

/// A port of a pod: the given one, or the first that it declares.
async fn pod(call: &Call<'_>) -> Result<Target, Status> {
    let id = call.name()?;
    let id = Id::parse(id).ok_or_else(|| Status::bad_request(format!("invalid pod request {id:?}")))?;
    let of_pod = Call { name: Some(id.name), ..*call };
    let pod = call.served.decode_bare(&*of_pod.record().await?)?;
    let declared =
        pod.at("spec").list("containers").iter().find_map(|container| container.list("ports").first());
    let port = match (id.port, declared) {
        ("", Some(port)) => port.count("containerPort").to_string(),
        (port, _) => port.to_owned(),
    };
    let ip = pod.at("status").text("podIP");
    if !parse_ip(ip).is_some_and(is_proxyable) {
        return Err(Status::bad_request("address not allowed"));
    }
    let host = match (port.is_empty(), ip.contains(':')) {
        (true, true) => format!("[{ip}]"),
        (true, false) => ip.to_owned(),
        (false, _) => join(ip, port_number(ip, &port)?),
    };
    Ok((id.scheme, host, call.server.kubelets.to_pods()?))
}

/// Reads the port in a request. Anything but a number would become part of the host, which has been checked without it:
/// `80@intranet.example`. The errors are those of v1.34, whose dialer looks up the two as one name.
fn port_number(host: &str, port: &str) -> Result<u16, Status> {
    let failed = |why: String| Status::unavailable(format!("error trying to reach service: dial tcp: {why}"));
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(failed(format!("lookup {}: no such host", join(host, port))));
    }
    port.parse().map_err(|_| failed(format!("address {port}: invalid port")))
}

/// An endpoint of a Service that is a pod.
async fn service(call: &Call<'_>) -> Result<Target, Status> {
    let whole = call.name()?;
    let id = Id::parse(whole);
    let id = id.ok_or_else(|| Status::bad_request(format!("invalid service request {whole:?}")))?;
    let port_name = port_name(call, &id).await?;
    let served = call.server.served(&Gvr::new("", "v1", "endpoints"))?;
    let endpoints = Call { served: &served, name: Some(id.name), ..*call }.record().await;
    // Missing endpoints are reported as a missing service, as in v1.34.
    let endpoints = endpoints.map_err(|why| match why.is_not_found() {
        true => Status::not_found(call.served.named(), id.name),
        false => why,
    })?;
    let endpoints = served.decode_bare(&endpoints)?;
    let none = |of: &str| Status::unavailable(format!("no endpoints available for service {of:?}"));
    if endpoints.list("subsets").is_empty() {
        return Err(none(id.name));
    }
    let host = endpoint(call, endpoints.list("subsets"), &port_name).await?.ok_or_else(|| none(whole))?;
    Ok((id.scheme, host, call.server.kubelets.to_pods()?))
}

/// The name of a Service's port. A number is that of a port of the Service.
async fn port_name(call: &Call<'_>, id: &Id<'_>) -> Result<String, Status> {
    let Ok(number) = id.port.parse::<i64>() else { return Ok(id.port.to_owned()) };
    let of_service = Call { name: Some(id.name), ..*call };
    let service = call.served.decode_bare(&*of_service.record().await?)?;
    let port = service.at("spec").list("ports").iter().find(|port| port.count("port") == number);
    let missing = || Status::unavailable(format!("no service port {number} found for service {:?}", id.name));
    Ok(port.ok_or_else(missing)?.text("name").to_owned())
}

/// Finds an endpoint with a port of this name, starting anywhere.
async fn endpoint(call: &Call<'_>, subsets: &[Value], port_name: &str) -> Result<Option<String>, Status> {
    let mut pods = Pods::new(call)?;
    for subset in from_random_start(call, subsets) {
        let ports = subset.list("ports").iter().filter(|port| port.text("name") == port_name);
        for port in ports {
            for address in from_random_start(call, subset.list("addresses")) {
                if pods.have(address).await? {
                    return Ok(Some(join(address.text("ip"), port.count("port"))));
                }
            }
        }
    }
    Ok(None)
}

/// All items, starting with a random one.
fn from_random_start<'a>(call: &Call<'_>, items: &'a [Value]) -> impl Iterator<Item = &'a Value> + use<'a> {
    let count = u64::try_from(items.len()).unwrap_or(0);
    let start = if count == 0 { 0 } else { usize::try_from(call.server.rng.below(count)).unwrap_or(0) };
    let (before, after) = items.split_at(start);
    after.iter().chain(before)
}

/// The pods that addresses of Endpoints name. Requests are only proxied to pods.
struct Pods<'c> {
    call: &'c Call<'c>,
    served: Arc<Served>,
    /// The addresses of each. Thousands of endpoints may name one pod, and each is read once.
    addresses: BTreeMap<String, Vec<String>>,
}

impl<'c> Pods<'c> {
    fn new(call: &'c Call<'c>) -> Result<Self, Status> {
        let served = call.server.served(&Gvr::new("", "v1", "pods"))?;
        Ok(Self { call, served, addresses: BTreeMap::new() })
    }

    /// Whether an address of Endpoints is that of the pod it names.
    async fn have(&mut self, address: &Value) -> Result<bool, Status> {
        let target = address.at("targetRef");
        let name = target.text("name");
        if name.is_empty() || Some(target.text("namespace")) != self.call.namespace {
            return Ok(false);
        }
        if !self.addresses.contains_key(name) {
            let found = self.read(name).await?;
            self.addresses.insert(name.to_owned(), found);
        }
        let known = self.addresses.get(name);
        Ok(known.is_some_and(|known| known.iter().any(|own| own == address.text("ip"))))
    }

    async fn read(&self, name: &str) -> Result<Vec<String>, Status> {
        // Yields between pods; the request may be cancelled.
        tokio::task::yield_now().await;
        let (server, key) = (self.call.server, self.served.key(self.call.namespace, name));
        let found = server.store.get(&key, None).await.map_err(|why| server.refusal(why))?;
        let Some(record) = found else { return Ok(Vec::new()) };
        let pod = self.served.decode_bare(&record)?;
        let addresses = pod.at("status").list("podIPs").iter();
        Ok(addresses.map(|address| address.text("ip").to_owned()).collect())
    }
}

/// An object in a path, with what follows it: `name`, `name:port`, `scheme:name:port`.
#[derive(Debug, PartialEq, Eq)]
struct Id<'a> {
    scheme: &'static str,
    name: &'a str,
    port: &'a str,
}

impl<'a> Id<'a> {
    fn parse(id: &'a str) -> Option<Self> {
        let parts: Vec<&str> = id.split(':').collect();
        let (scheme, name, port) = match parts[..] {
            [name] => ("http", name, ""),
            [name, port] => ("http", name, port),
            ["" | "http", name, port] => ("http", name, port),
            ["https", name, port] => ("https", name, port),
            _ => return None,
        };
        (!name.is_empty()).then_some(Self { scheme, name, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_number_and_never_part_of_the_host() {
        assert_eq!(port_number("10.0.0.1", "8080").unwrap(), 8080);
        assert_eq!(port_number("10.0.0.1", "080").unwrap(), 80, "as in v1.34");
        for (port, why) in [
            ("80@intranet.example", "lookup 10.0.0.1:80@intranet.example: no such host"),
            ("http", "lookup 10.0.0.1:http: no such host"),
            ("+80", "lookup 10.0.0.1:+80: no such host"),
            ("80/x", "lookup 10.0.0.1:80/x: no such host"),
            ("99999", "address 99999: invalid port"),
        ] {
            let refused = port_number("10.0.0.1", port).unwrap_err();
            let message = format!("error trying to reach service: dial tcp: {why}");
            assert_eq!((refused.code, &*refused.message), (503, &*message), "{port}");
        }
    }

    #[test]
    fn a_proxied_name_may_have_a_scheme_and_a_port() {
        let id = |scheme, name, port| Some(Id { scheme, name, port });
        for (text, expected) in [
            ("a", id("http", "a", "")),
            ("a:80", id("http", "a", "80")),
            ("https:a:web", id("https", "a", "web")),
            (":a:", id("http", "a", "")),
            ("ftp:a:21", None),
            (":80", None),
            ("a:b:c:d", None),
        ] {
            assert_eq!(Id::parse(text), expected, "{text}");
        }
    }
}
