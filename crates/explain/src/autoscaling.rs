//! HorizontalPodAutoscalers: missing metrics and requests, missing targets, bounds, disabled scaling.

use crate::creation::MOMENT;
use crate::inquiry::{Inquiry, node_of};
use crate::kinds::{API_SERVICE, GroupKind, LEASE};
use crate::leases;
use crate::model::{Evidence, Node, ObjectRef};
use crate::read::Read;
use crate::snapshot::Item;
use crate::text::duration;

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, scaler: &'a Item) -> Node {
    let conditions = scaler.conditions();
    let node = node_of(scaler).evidence(conditions.iter().map(|condition| condition.evidence()));
    let target = target(scaler);
    if inquiry.get(&target.kind, scaler.namespace(), &target.name).is_missing() {
        let text = format!("its target {target} does not exist");
        return node.blocked(text, "create it, or correct spec.scaleTargetRef").root();
    }
    if conditions.is_empty() {
        return unseen(inquiry, scaler, node);
    }
    if let Some(able) = scaler.condition("AbleToScale").filter(|able| able.is_false()) {
        let text = format!("cannot scale {target} ({}): {}", able.reason, able.message);
        return match able.reason {
            "BackoffBoth" | "BackoffDownscale" | "BackoffUpscale" => node.progressing(text),
            _ => node.blocked(text, "correct spec.scaleTargetRef, or the permissions of the controller"),
        };
    }
    if let Some(active) = scaler.condition("ScalingActive").filter(|active| !active.is_true()) {
        return inactive(inquiry, node, active.reason, active.message, &target);
    }
    bounded(inquiry, scaler, node, &target)
}

fn target(scaler: &Item) -> ObjectRef {
    let target = |field: &str| scaler.text(&format!("/spec/scaleTargetRef/{field}"));
    let kind = GroupKind::of_reference(target("apiVersion"), target("kind"));
    ObjectRef::new(&kind, scaler.namespace(), target("name"))
}

fn unseen<'a>(inquiry: &Inquiry<'a>, scaler: &'a Item, node: Node) -> Node {
    if let Some(down) = leases::component_down(inquiry, "kube-controller-manager") {
        let lease = inquiry.explain_named(&LEASE, Some("kube-system"), "kube-controller-manager");
        return node
            .blocked(format!("has not been evaluated: {down}"), "start kube-controller-manager")
            .children(lease);
    }
    let age = inquiry.age(scaler);
    match age > MOMENT {
        true => node.blocked(
            format!("has not been evaluated for {}", duration(age)),
            "check that the horizontalpodautoscaling controller runs",
        ),
        false => node.progressing("has not been evaluated yet"),
    }
}

/// An autoscaler that cannot compute a number of replicas.
fn inactive<'a>(inquiry: &Inquiry<'a>, node: Node, reason: &str, message: &str, target: &ObjectRef) -> Node {
    let text = format!("does not scale {target} ({reason}): {message}");
    if reason == "ScalingDisabled" {
        let text = format!("does not scale {target}, because it is scaled to 0 (ScalingDisabled)");
        return node.blocked(text, format!("scale {target} to at least 1")).root();
    }
    if message.contains("missing request for") {
        return node
            .blocked(
                text,
                "set resources.requests in the containers of the target: utilization is a share of them",
            )
            .root();
    }
    let api = match reason {
        "FailedGetExternalMetric" => Some("v1beta1.external.metrics.k8s.io"),
        "FailedGetObjectMetric" | "FailedGetPodsMetric" => Some("v1beta1.custom.metrics.k8s.io"),
        "FailedGetResourceMetric" | "FailedGetContainerResourceMetric" => Some("v1beta1.metrics.k8s.io"),
        _ => None,
    };
    let Some(api) = api else {
        return node.blocked(text, "correct the autoscaler's selector and metrics");
    };
    let service = inquiry.get(&API_SERVICE, None, api);
    let node = node.next("the controller tries again every 15 seconds", None);
    if service.is_missing() {
        let text = format!("{text}; no APIService {api} is registered");
        let fix = match api {
            "v1beta1.metrics.k8s.io" => "install metrics-server",
            _ => "install an adapter that serves these metrics",
        };
        return node.blocked(text, fix);
    }
    let service = service.found().map(|service| inquiry.explain(service));
    node.blocked(
        text,
        "check that metrics of the target's pods are collected; they exist a minute after a pod is ready",
    )
    .children(service.filter(|service| service.state.is_stuck()))
}

/// An autoscaler that works, but is at a bound.
fn bounded<'a>(inquiry: &Inquiry<'a>, scaler: &'a Item, node: Node, target: &ObjectRef) -> Node {
    let number = |path: &str| scaler.number(path).unwrap_or_default();
    let (current, desired) = (number("/status/currentReplicas"), number("/status/desiredReplicas"));
    let (most, least) = (number("/spec/maxReplicas"), scaler.number("/spec/minReplicas").unwrap_or(1));
    let limited = scaler.condition("ScalingLimited").filter(|limited| limited.is_true());
    let metrics = scaler.at("/status/currentMetrics");
    let node = node.evidence(metrics.as_array().map(|_| Evidence::field("status.currentMetrics", metrics)));
    match limited.map(|limited| limited.reason) {
        Some("TooManyReplicas") => node.blocked(
            format!("wants more replicas of {target} than its maximum of {most} (TooManyReplicas)"),
            "raise spec.maxReplicas, or give the pods more resources",
        ),
        Some("TooFewReplicas") => {
            node.converged(format!("{target} is at its minimum of {least} replicas (TooFewReplicas)"))
        }
        _ if current != desired => {
            let child = inquiry.explain_named(&target.kind, scaler.namespace(), &target.name);
            node.progressing(format!("scales {target} from {current} to {desired} replicas")).children(child)
        }
        _ => node.converged(format!("{target} has {current} replicas, between {least} and {most}")),
    }
}
