//! Applications and workflow runs (core.oam.dev): components, workflow steps, policies.

use serde_json::Value;

use crate::inquiry::{Inquiry, behind, node_of};
use crate::kinds::GroupKind;
use crate::model::{Evidence, Node};
use crate::read::Read;
use crate::snapshot::Item;

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, app: &'a Item) -> Node {
    let phase = app.text("/status/status");
    let open = app.conditions().into_iter().filter(|one| !one.is_true() && one.kind != "Ready");
    let node = node_of(app)
        .evidence([Evidence::field("status.status", phase)])
        .evidence(open.map(|condition| condition.evidence()));
    if phase.is_empty() {
        let text = "its controller has not reconciled it";
        return match inquiry.age(app) > crate::creation::MOMENT {
            true => node.blocked(text, "run setpoint application-manager, or setpoint up --applications"),
            false => node.progressing(text),
        };
    }
    let failed = app.conditions().into_iter().find(|one| one.is_false() && !one.message.is_empty());
    let steps = open_steps(app);
    let children = applied(inquiry, app);
    let node = node.evidence(steps.iter().map(|step| step_evidence(step))).children(children);
    if let Some((observed, generation)) = behind(app)
        && matches!(phase, "running" | "succeeded")
    {
        return node.progressing(format!(
            "its controller has not seen generation {generation} yet (observed {observed})"
        ));
    }
    match phase {
        "running" | "succeeded" => node.converged(phase),
        "workflowSuspending" | "suspending" => suspended(app, node, &steps),
        _ => blocked(app, node, phase, &steps, failed.map(|failed| (failed.kind, failed.message))),
    }
}

/// Lists the steps that have not succeeded, including those in groups.
fn open_steps(app: &Item) -> Vec<&Value> {
    let paths = ["/status/workflow/steps", "/status/steps"];
    let steps = paths.iter().flat_map(|path| app.items(path));
    let all = steps.flat_map(|step| step.items("/subSteps").iter().chain(std::iter::once(step)));
    all.filter(|step| !matches!(step.text("/phase"), "succeeded" | "skipped" | "")).collect()
}

fn step_evidence(step: &Value) -> Evidence {
    let value = format!("{}: {} {}", step.text("/phase"), step.text("/reason"), step.text("/message"));
    Evidence::field(&format!("step {} ({})", step.text("/name"), step.text("/type")), value)
}

fn suspended(app: &Item, node: Node, steps: &[&Value]) -> Node {
    let step = steps.iter().find(|step| step.text("/phase") == "suspending").or(steps.first());
    let at = step.map(|step| format!(" at step {}", step.text("/name"))).unwrap_or_default();
    let argument = if &*app.kind.kind == "WorkflowRun" {
        format!("workflowrun/{}", app.name())
    } else {
        app.name().to_owned()
    };
    let fix = format!("setpoint app resume {argument} -n {}", app.namespace().unwrap_or_default());
    node.blocked(format!("its workflow is suspended{at}"), fix).root()
}

fn blocked(app: &Item, node: Node, phase: &str, steps: &[&Value], failed: Option<(&str, &str)>) -> Node {
    let unhealthy =
        app.items("/status/services").iter().find(|service| service.at("/healthy") == &Value::Bool(false));
    let failed_step = steps.iter().find(|step| step.text("/phase") == "failed").or(steps.first());
    if let Some(service) = unhealthy {
        let (name, message) = (service.text("/name"), service.text("/message"));
        let text = format!("is {phase}: component {name} is not healthy: {message}");
        return node.blocked(text, "make the objects of the component ready");
    }
    if let Some(step) = failed_step {
        let (name, state, message) = (step.text("/name"), step.text("/phase"), step.text("/message"));
        let text = format!("is {phase}: step {name} is {state}: {} {message}", step.text("/reason"));
        let node = node.blocked(text, "correct what the step reports");
        return if state == "failed" { node.root() } else { node };
    }
    match failed {
        Some((kind, message)) => {
            let text = format!("is {phase}: {kind}: {message}");
            node.blocked(text, "correct the application as the message says").root()
        }
        None => node.progressing(format!("is {phase}")),
    }
}

/// Explains the unhealthy objects of an application in this cluster.
fn applied<'a>(inquiry: &Inquiry<'a>, app: &'a Item) -> Vec<Node> {
    let is_local = |entry: &&Value| matches!(entry.text("/cluster"), "" | "local");
    let explain = |entry: &Value| {
        let kind = GroupKind::of_reference(entry.text("/apiVersion"), entry.text("/kind"));
        let namespace = Some(entry.text("/namespace")).filter(|namespace| !namespace.is_empty());
        inquiry.explain_named(&kind, namespace, entry.text("/name"))
    };
    let all = app.items("/status/appliedResources").iter().filter(is_local);
    all.take(crate::inquiry::MAX_GROUPS).filter_map(explain).collect()
}
