//! Connect requests to pods, services and nodes: logs, exec, attach, port-forward and proxy.
//!
//! A connection is admitted before its target is known, then the target is resolved as in v1.34. [`crate::kubelet`] and
//! [`crate::proxy`] handle the connection.

mod log;
mod proxy;
mod stream;

use http::Response;
use serde_json::{Value, json};

use super::Call;
use crate::admission::{Operation, Review};
use crate::body::Body;
use crate::json::{Json, JsonMut};
use crate::kind::Subresource;
use crate::kubelet::Kubelet;
use crate::metadata;
use crate::proxy::Original;
use crate::query;
use crate::registry::Gvr;
use crate::status::Status;

pub(crate) async fn connect(call: &Call<'_>, to: Subresource) -> Result<Response<Body>, Status> {
    call.context.while_awaited(connected(call, to)).await
}

async fn connected(call: &Call<'_>, to: Subresource) -> Result<Response<Body>, Status> {
    if to == Subresource::Log {
        return log::read(call).await;
    }
    if call.query.get("dryRun").is_some() {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    let options = admit(call, to).await?;
    match to {
        Subresource::Proxy => proxy::forward(call, options.text("path")).await,
        _ => stream::connect(call, to, &options).await,
    }
}

/// Reviews a connection. Returns the options as admission leaves them.
async fn admit(call: &Call<'_>, to: Subresource) -> Result<Value, Status> {
    let mut options = options(call, to)?;
    let review = Review::new(call, Operation::Connect, call.name()?.to_owned(), false);
    review.mutate(&mut options, None).await?;
    review.check(Some(&options), None).await?;
    Ok(options)
}

/// The options of a connection that are set, as in `PodExecOptions` and its siblings.
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

/// Returns the container of a pod that a request is for: the named one, or the only one.
fn container<'p>(named: &'p str, pod: &'p Value) -> Result<&'p str, Status> {
    let (name, spec) = (metadata::of(pod).text("name"), pod.at("spec"));
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let mut names = lists.iter().flat_map(|list| spec.list(list)).map(|container| container.text("name"));
    let message = match (named, spec.list("containers")) {
        ("", [only]) => return Ok(only.text("name")),
        ("", []) => format!("a container name must be specified for pod {name}"),
        ("", _) => {
            let names = names.collect::<Vec<_>>().join(" ");
            format!("a container name must be specified for pod {name}, choose one of: [{names}]")
        }
        (wanted, _) if names.any(|known| known == wanted) => return Ok(wanted),
        (wanted, _) => format!("container {wanted} is not valid for pod {name}"),
    };
    Err(Status::bad_request(message))
}

/// Finds the kubelet of a node. As in v1.34, a missing node is reported with the request's own resource.
async fn kubelet(call: &Call<'_>, node_name: &str) -> Result<Kubelet, Status> {
    let nodes = call.server.served(&Gvr::new("", "v1", "nodes"))?;
    let of_node = Call { served: &nodes, namespace: None, name: Some(node_name), ..*call };
    let named = |why: Status| match why.is_not_found() {
        true => Status::not_found(call.served.named(), node_name),
        false => why,
    };
    let node = nodes.decode(&*of_node.record().await.map_err(named)?)?;
    call.server.kubelets.find(&node)
}

/// The client's request, to be passed on.
fn original<'a>(call: &Call<'a>) -> Original<'a> {
    let raw = &call.context.raw;
    Original {
        method: &raw.method,
        // Paths that cannot be decoded are rejected earlier.
        path: query::decode(raw.uri.path(), false).unwrap_or_default(),
        query: raw.uri.query().unwrap_or_default(),
        headers: call.headers,
        client: call.context.client,
    }
}
