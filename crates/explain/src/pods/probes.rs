//! Failing probes, and readiness gates that are not met.

use super::containers::Container;
use crate::inquiry::Inquiry;
use crate::model::{Evidence, Node};
use crate::read::Read;
use crate::snapshot::{Event, Item};
use crate::text::duration;

/// How long a container without a failing probe may take to become ready.
const MOMENT: i64 = 60;

/// Explains a running container that is not ready.
pub(super) fn explain<'a>(
    inquiry: &Inquiry<'a>,
    pod: &'a Item,
    node: Node,
    container: Container<'a>,
) -> Node {
    let since = container.status.time("/state/running/startedAt");
    let seconds = since.map_or(0, |since| inquiry.now.duration_since(since).as_secs());
    let title = container.title();
    if !container.status.flag("/started") && container.spec.has("/startupProbe") {
        return failing(inquiry, pod, node, container, "startup");
    }
    if container.spec.has("/readinessProbe") {
        return failing(inquiry, pod, node, container, "readiness");
    }
    let text = format!("{title} has been running for {} and is not ready", duration(seconds));
    match seconds < MOMENT {
        true => node.progressing(text),
        false => node.blocked(text, "check the log of the container"),
    }
}

/// A container whose startup or readiness probe has not succeeded.
fn failing<'a>(
    inquiry: &Inquiry<'a>,
    pod: &'a Item,
    node: Node,
    container: Container<'a>,
    probe: &str,
) -> Node {
    let spec = container.spec.at(&format!("/{probe}Probe"));
    let how = probe_target(spec);
    let since = container.status.time("/state/running/startedAt");
    let seconds = since.map_or(0, |since| inquiry.now.duration_since(since).as_secs());
    let event = unhealthy(inquiry, pod, probe);
    let delay = spec.number("/initialDelaySeconds").unwrap_or_default();
    let title = container.title();
    let evidence = event.as_ref().map(|event| inquiry.evidence(event));
    let period = spec.number("/periodSeconds").unwrap_or(10).max(1);
    let node = node.evidence(evidence).next(format!("the probe runs every {period}s"), None);
    match event {
        Some(event) => {
            let text = format!("the {probe} probe of {title} fails ({how}): {}", event.message());
            node.blocked(text, "make the container answer the probe, or correct the probe")
        }
        None if seconds <= delay + MOMENT => {
            node.progressing(format!("the {probe} probe of {title} has not succeeded yet ({how})"))
        }
        None => {
            let text =
                format!("the {probe} probe of {title} has not succeeded for {} ({how})", duration(seconds));
            node.blocked(text, "make the container answer the probe, or correct the probe")
        }
    }
}

/// Explains a container that was restarted because of its liveness or startup probe. `None` if it was not.
pub(super) fn killed<'a>(
    inquiry: &Inquiry<'a>,
    pod: &'a Item,
    node: Node,
    container: Container<'a>,
) -> Option<Node> {
    let name = container.name();
    let kinds =
        ["liveness", "startup"].into_iter().filter(|kind| container.spec.has(&format!("/{kind}Probe")));
    for probe in kinds {
        let killing = format!("Container {name} failed {probe} probe");
        let event = inquiry.events(pod).into_iter().find(|event| event.message().starts_with(&killing));
        let why = unhealthy(inquiry, pod, probe);
        if event.is_none() && !(why.is_some() && was_stopped(container)) {
            continue;
        }
        let how = probe_target(container.spec.at(&format!("/{probe}Probe")));
        let said = why.as_ref().map(|event| format!(": {}", event.message())).unwrap_or_default();
        let restarts = container.status.number("/restartCount").unwrap_or_default();
        let title = container.title();
        let state = match container.status.text("/state/waiting/reason") {
            "CrashLoopBackOff" => " (CrashLoopBackOff)",
            _ => "",
        };
        let text = format!(
            "the {probe} probe of {title} fails ({how}), so the kubelet restarts it{state}, {restarts} times so far{said}"
        );
        let evidence = [event, why].into_iter().flatten().map(|event| inquiry.evidence(&event));
        let fix = "make the container answer the probe, or give it more time (initialDelaySeconds, failureThreshold, a \
                   startupProbe)";
        return Some(node.blocked(text, fix).evidence(evidence));
    }
    None
}

/// Whether the container was stopped from outside, as the kubelet does: SIGTERM, then SIGKILL.
fn was_stopped(container: Container<'_>) -> bool {
    let codes = ["/state/terminated/exitCode", "/lastState/terminated/exitCode"];
    codes.iter().any(|path| matches!(container.status.number(path), Some(137 | 143)))
}

fn unhealthy<'a>(inquiry: &Inquiry<'a>, pod: &Item, probe: &str) -> Option<Event<'a>> {
    let is_about = |event: &Event<'_>| {
        event.reason() == "Unhealthy" && event.message().to_lowercase().starts_with(&format!("{probe} probe"))
    };
    inquiry.events(pod).into_iter().find(is_about)
}

/// Describes a probe: `GET :8080/healthz`.
fn probe_target(probe: &serde_json::Value) -> String {
    let port = |path: &str| match probe.at(path) {
        serde_json::Value::String(name) => name.clone(),
        port => port.to_string(),
    };
    if probe.has("/httpGet") {
        return format!("GET :{}{}", port("/httpGet/port"), probe.text("/httpGet/path"));
    }
    if probe.has("/tcpSocket") {
        return format!("TCP :{}", port("/tcpSocket/port"));
    }
    if probe.has("/grpc") {
        return format!("gRPC :{}", port("/grpc/port"));
    }
    let command: Vec<&str> = probe.items("/exec/command").iter().filter_map(|word| word.as_str()).collect();
    format!("exec {}", command.join(" "))
}

/// Explains a pod that is not ready although its containers are.
pub(super) fn gates(pod: &Item, node: Node) -> Node {
    let gates = pod.items("/spec/readinessGates").iter().map(|gate| gate.text("/conditionType"));
    let closed: Vec<&str> =
        gates.filter(|gate| !pod.condition(gate).is_some_and(|condition| condition.is_true())).collect();
    let ready = pod.condition("Ready").map(|ready| ready.evidence());
    match closed.is_empty() {
        true => node.progressing("its containers are ready, its condition is not yet").evidence(ready),
        false => {
            let all = closed.join(", ");
            let text = format!("its containers are ready, but its readiness gates are closed: {all}");
            let fix = format!("the controller behind {all} has to set the condition to True");
            node.blocked(text, fix).evidence(ready).evidence([Evidence::field("spec.readinessGates", &all)])
        }
    }
}
