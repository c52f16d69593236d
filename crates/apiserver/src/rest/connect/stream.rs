//! Exec, attach and port-forward: finds the pod's kubelet, and builds the request to it.

use http::Response;
use serde_json::Value;

use super::{container, kubelet, original};
use crate::body::Body;
use crate::json::Json;
use crate::kind::Subresource;
use crate::kubelet::streams::{self, Channels, Request, Wanted};
use crate::metadata;
use crate::proxy::{Location, escape};
use crate::rest::Call;
use crate::status::Status;

pub(super) async fn connect(
    call: &Call<'_>,
    to: Subresource,
    options: &Value,
) -> Result<Response<Body>, Status> {
    let pod = call.served.decode_bare(&*call.record().await?)?;
    let (metadata, server) = (metadata::of(&pod), call.server);
    let (namespace, name) = (metadata.text("namespace"), metadata.text("name"));
    let path = match to {
        Subresource::PortForward => format!("/portForward/{namespace}/{name}"),
        to => {
            let container = container(options.text("container"), &pod)?;
            let endpoint = if to == Subresource::Exec { "exec" } else { "attach" };
            format!("/{endpoint}/{namespace}/{name}/{container}")
        }
    };
    let host = match pod.at("spec").text("nodeName") {
        "" => return Err(Status::bad_request(format!("pod {name} does not have a host assigned"))),
        node_name => kubelet(call, node_name).await?.authority(),
    };
    let wanted = wanted(to, options);
    let request = Request {
        original: original(call),
        location: Location { scheme: "https", host, path, query: query(options, wanted) },
        kubelets: &server.kubelets,
        metrics: &server.measured.streams,
        clock: &server.clock,
        features: &server.features,
    };
    streams::connect(request, wanted).await
}

fn wanted(to: Subresource, options: &Value) -> Wanted {
    let is_on = |option: &str| options.boolean(option) == Some(true);
    match to {
        Subresource::PortForward => Wanted::Ports,
        _ => Wanted::Process(Channels {
            stdin: is_on("stdin"),
            stdout: is_on("stdout"),
            stderr: is_on("stderr"),
            tty: is_on("tty"),
        }),
    }
}

/// The options by the kubelet's names.
fn query(options: &Value, wanted: Wanted) -> String {
    match wanted {
        Wanted::Ports => {
            let ports: Vec<String> = options.list("ports").iter().map(Value::to_string).collect();
            let ports = ports.join(",");
            escape::query((!ports.is_empty()).then_some(("port", ports.as_str())))
        }
        Wanted::Process(channels) => {
            let Channels { stdin, stdout, stderr, tty } = channels;
            let flags = [("input", stdin), ("output", stdout), ("error", stderr), ("tty", tty)];
            let flags = flags.into_iter().filter(|(_, is_on)| *is_on).map(|(name, _)| (name, "1"));
            let command = options.list("command").iter().filter_map(Value::as_str);
            escape::query(flags.chain(command.map(|part| ("command", part))))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_are_renamed_for_the_kubelet() {
        let asked = |to, options: Value| query(&options, wanted(to, &options));
        let exec = json!({"command": ["sh", "-c", "echo hi"], "stdout": true, "stderr": true});
        assert_eq!(asked(Subresource::Exec, exec), "command=sh&command=-c&command=echo+hi&error=1&output=1");
        let attach = json!({"stdin": true, "tty": true, "container": "c"});
        assert_eq!(asked(Subresource::Attach, attach), "input=1&tty=1");
        assert_eq!(asked(Subresource::PortForward, json!({"ports": [80, 81]})), "port=80%2C81");
        assert_eq!(asked(Subresource::PortForward, json!({})), "");
    }
}
