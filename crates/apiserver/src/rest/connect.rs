//! Connect requests to pods, services and nodes: logs, exec, attach, port-forward and proxy.
//!
//! The target is resolved as in v1.34. But that is all: nothing here runs an agent to connect to, and the response
//! says so.

use http::header::CONNECTION;
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Call;
use crate::admission::{Operation, Review};
use crate::body::Body;
use crate::field::{Errors, Path};
use crate::header;
use crate::json::{Json, JsonMut};
use crate::kind::Subresource;
use crate::metadata;
use crate::registry::Gvr;
use crate::status::{Named, Status};
use crate::validation::address::parse_ip;

pub(crate) async fn connect(call: &Call<'_>, to: Subresource) -> Result<Response<Body>, Status> {
    if to != Subresource::Log {
        admit(call, to).await?;
    }
    match (to, call.served.kind.kind.as_str()) {
        (Subresource::Proxy, "Service") => service(call).await,
        (Subresource::Proxy, "Node") => node(call).await,
        (Subresource::Proxy, _) => pod_address(call).await,
        (Subresource::Log, _) => log(call).await,
        (to, _) => stream(call, to).await,
    }
}

/// Reviews a connection, before anything is known of what it leads to. Returns the options as admission leaves them.
async fn admit(call: &Call<'_>, to: Subresource) -> Result<Value, Status> {
    let mut options = options(call, to)?;
    let review = Review::new(call, Operation::Connect, call.name()?.to_owned(), false);
    review.mutate(&mut options, None).await?;
    review.check(Some(&options), None).await?;
    Ok(options)
}

/// The options of a connection, as `PodExecOptions` and the like have them: those that are set.
fn options(call: &Call<'_>, to: Subresource) -> Result<Value, Status> {
    let mut options = json!({});
    match to {
        Subresource::Exec | Subresource::Attach => {
            for flag in ["stdin", "stdout", "stderr", "tty"] {
                if call.query.flag(flag) == Some(true) {
                    options.set(flag, true);
                }
            }
            if let Some(container) = call.query.get("container").filter(|container| !container.is_empty()) {
                options.set("container", container);
            }
            let command: Vec<&str> = call.query.all("command").collect();
            if to == Subresource::Exec && !command.is_empty() {
                options.set("command", json!(command));
            }
        }
        Subresource::PortForward => {
            check_ports(call)?;
            let ports = call.query.all("ports").flat_map(|ports| ports.split(','));
            let ports: Vec<u16> = ports.filter_map(|port| port.parse().ok()).collect();
            if !ports.is_empty() {
                options.set("ports", json!(ports));
            }
        }
        _ if !call.subpath.is_empty() => options.set("path", call.subpath),
        _ => {}
    }
    Ok(options)
}

/// Builds the response if there is no agent to connect to.
fn no_agent(what: &str, name: &str) -> Status {
    Status::unavailable(format!("{what} {name:?} has no agent to connect to"))
}

async fn log(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let name = call.name()?;
    check_log_options(call, name)?;
    let pod = call.served.decode_bare(&*call.record().await?)?;
    check_container(call, &pod)?;
    match pod.at("spec").text("nodeName") {
        // Without a node, the pod has no logs yet.
        "" => {
            let mut nothing = Response::new(Body::empty());
            *nothing.status_mut() = StatusCode::NO_CONTENT;
            Ok(nothing)
        }
        node_name => Err(agent(call, node_name).await?),
    }
}

fn check_log_options(call: &Call<'_>, name: &str) -> Result<(), Status> {
    let number = |field: &str| call.query.number(field).map_err(Status::bad_request);
    let mut errors = Errors::default();
    if let Some(lines) = number("tailLines")?.filter(|lines| *lines < 0) {
        errors.invalid(&Path::root("tailLines"), lines, crate::validation::NEGATIVE);
    }
    if let Some(bytes) = number("limitBytes")?.filter(|bytes| *bytes < 1) {
        errors.invalid(&Path::root("limitBytes"), bytes, "must be greater than 0");
    }
    if let Some(time) = call.query.get("sinceTime") {
        check_time(time)?;
    }
    match (number("sinceSeconds")?, call.query.get("sinceTime")) {
        (Some(_), Some(_)) => {
            let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            errors.forbidden(&Path::root(""), detail);
        }
        (Some(seconds), None) if seconds < 1 => {
            errors.invalid(&Path::root("sinceSeconds"), seconds, "must be greater than 0");
        }
        _ => {}
    }
    if call.query.get("stream").is_some() {
        errors.forbidden(&Path::root("stream"), "may not be specified");
    }
    let of = Named { group: "", resource: "PodLogOptions" };
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(of, name, &errors)) }
}

/// Checks a time in a query: empty, `null` or RFC 3339.
fn check_time(text: &str) -> Result<(), Status> {
    let is_time = matches!(text, "" | "null") || text.parse::<Timestamp>().is_ok();
    let why =
        format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\"");
    if is_time { Ok(()) } else { Err(Status::bad_request(why)) }
}

/// Checks that the requested ports are numbers.
fn check_ports(call: &Call<'_>) -> Result<(), Status> {
    let ports = call.query.all("ports").flat_map(|ports| ports.split(','));
    let mut malformed = ports.filter(|port| port.parse::<u16>().is_err() || port.starts_with('+'));
    if let Some(port) = malformed.next() {
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let problem = if is_number { "value out of range" } else { "invalid syntax" };
        let why = format!("cannot convert to []int32: strconv.ParseUint: parsing {port:?}: {problem}");
        return Err(Status::bad_request(why));
    }
    Ok(())
}

/// Checks that the pod has the requested container; if it has several, one must be named.
fn check_container(call: &Call<'_>, pod: &Value) -> Result<(), Status> {
    let (name, spec) = (metadata::of(pod).text("name"), pod.at("spec"));
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let mut names = lists.iter().flat_map(|list| spec.list(list)).map(|container| container.text("name"));
    let message = match (call.query.get("container").unwrap_or_default(), spec.list("containers").len()) {
        ("", 1) => return Ok(()),
        ("", 0) => format!("a container name must be specified for pod {name}"),
        ("", _) => {
            let names = names.collect::<Vec<_>>().join(" ");
            format!("a container name must be specified for pod {name}, choose one of: [{names}]")
        }
        (wanted, _) if names.any(|known| known == wanted) => return Ok(()),
        (wanted, _) => format!("container {wanted} is not valid for pod {name}"),
    };
    Err(Status::bad_request(message))
}

/// Handles exec and attach to a container, and port-forward to a pod.
async fn stream(call: &Call<'_>, to: Subresource) -> Result<Response<Body>, Status> {
    let name = call.name()?;
    let pod = call.served.decode_bare(&*call.record().await?)?;
    if to != Subresource::PortForward {
        check_container(call, &pod)?;
    }
    let no_agent = match pod.at("spec").text("nodeName") {
        "" => return Err(Status::bad_request(format!("pod {name} does not have a host assigned"))),
        node_name => agent(call, node_name).await?,
    };
    let is_upgrade =
        header::all(call.headers, &CONNECTION).any(|value| value.to_lowercase().contains("upgrade"));
    Err(if is_upgrade { no_agent } else { Status::bad_request("Upgrade request required") })
}

/// Returns the error for connecting to the kubelet of a pod's node; fails if the node does not exist or has no
/// addresses. As in v1.34, a missing node is reported with the request's own resource.
async fn agent(call: &Call<'_>, node_name: &str) -> Result<Status, Status> {
    let nodes = call.server.served(&Gvr::new("", "v1", "nodes"))?;
    let of_node = Call { served: &nodes, namespace: None, name: Some(node_name), ..*call };
    let named = |why: Status| match why.is_not_found() {
        true => Status::not_found(call.served.named(), node_name),
        false => why,
    };
    let node = nodes.decode(&*of_node.record().await.map_err(named)?)?;
    match node.at("status").list("addresses") {
        [] => Err(Status::unknown("no preferred addresses found; known addresses: []")),
        _ => Ok(no_agent("node", node_name)),
    }
}

/// Handles a proxy request to a node.
async fn node(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let id = call.name()?;
    let (name, _) =
        name_and_port(id).ok_or_else(|| Status::bad_request(format!("invalid node request {id:?}")))?;
    Err(agent(call, name).await?)
}

/// Handles a proxy request to a pod.
async fn pod_address(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let id = call.name()?;
    let (name, _) =
        name_and_port(id).ok_or_else(|| Status::bad_request(format!("invalid pod request {id:?}")))?;
    let of_pod = Call { name: Some(name), ..*call };
    let pod = call.served.decode_bare(&*of_pod.record().await?)?;
    match parse_ip(pod.at("status").text("podIP")) {
        Some(address) if !address.is_loopback() && !address.is_unspecified() && !address.is_multicast() => {
            Err(no_agent("pod", name))
        }
        _ => Err(Status::bad_request("address not allowed")),
    }
}

/// Handles a proxy request to a service.
async fn service(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let id = call.name()?;
    let (name, port) =
        name_and_port(id).ok_or_else(|| Status::bad_request(format!("invalid service request {id:?}")))?;
    let of_service = Call { name: Some(name), ..*call };
    let service = call.served.decode_bare(&*of_service.record().await?)?;
    if let Ok(number) = port.parse::<i64>()
        && !service.at("spec").list("ports").iter().any(|port| port.count("port") == number)
    {
        return Err(Status::unavailable(format!("no service port {number} found for service {name:?}")));
    }
    let served = call.server.served(&Gvr::new("", "v1", "endpoints"))?;
    let endpoints = Call { served: &served, name: Some(name), ..*call }.record().await;
    // Missing endpoints are reported as a missing service, as in v1.34.
    let endpoints = endpoints.map_err(|why| match why.is_not_found() {
        true => Status::not_found(call.served.named(), name),
        false => why,
    })?;
    match served.decode_bare(&endpoints)?.list("subsets") {
        [] => Err(Status::unavailable(format!("no endpoints available for service {id:?}"))),
        _ => Err(no_agent("service", name)),
    }
}

/// Parses `name`, `name:port`, `scheme:name:port`.
fn name_and_port(id: &str) -> Option<(&str, &str)> {
    let parts: Vec<&str> = id.split(':').collect();
    let (name, port) = match parts[..] {
        [name] => (name, ""),
        [name, port] => (name, port),
        ["" | "http" | "https", name, port] => (name, port),
        _ => return None,
    };
    (!name.is_empty()).then_some((name, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_come_with_a_scheme_and_a_port() {
        for (id, expected) in [
            ("a", Some(("a", ""))),
            ("a:80", Some(("a", "80"))),
            ("https:a:web", Some(("a", "web"))),
            ("ftp:a:21", None),
            (":80", None),
            ("a:b:c:d", None),
        ] {
            assert_eq!(name_and_port(id), expected, "{id}");
        }
    }
}
