//! `setpoint app status`: phases, health, and what blocks.

use std::fmt::Write;

use serde_json::Value;

use super::connection::Connection;
use super::output::{Color, Format, age, colored, print, print_objects, table};
use super::{Status, applications};

pub(super) async fn run(arguments: Status) -> anyhow::Result<()> {
    let connection = arguments.target.connect().await?;
    let found = found(&arguments, &connection).await?;
    match (arguments.output, arguments.name.is_some()) {
        (Some(Format::Wide) | None, true) => print(&found.iter().map(described).collect::<String>()),
        (Some(Format::Wide), false) => print(&listed(&found, true)),
        (None, false) if found.is_empty() => {
            eprintln!("No applications found.");
            Ok(())
        }
        (None, false) => print(&listed(&found, arguments.all_namespaces)),
        (Some(format), named) => print_objects(&found, format, !named),
    }
}

async fn found(arguments: &Status, connection: &Connection) -> anyhow::Result<Vec<Value>> {
    if let Some(name) = &arguments.name {
        return Ok(vec![connection.get(&applications(), name).await?]);
    }
    let namespace = (!arguments.all_namespaces).then_some(connection.namespace.as_str());
    connection.list(&applications(), namespace, None).await
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn or_none(text: &str) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text.to_owned() }
}

fn services(app: &Value) -> impl Iterator<Item = &Value> {
    app["status"]["services"].as_array().into_iter().flatten()
}

fn is_healthy(service: &Value) -> bool {
    let mut traits = service["traits"].as_array().into_iter().flatten();
    service["healthy"] == true && traits.all(|attached| attached["healthy"] != false)
}

fn listed(apps: &[Value], with_namespace: bool) -> String {
    let row = |app: &Value| {
        let (all, healthy) = (services(app).count(), services(app).filter(|one| is_healthy(one)).count());
        let mut row = vec![
            text(&app["metadata"]["name"]).to_owned(),
            or_none(text(&app["status"]["status"])),
            format!("{healthy}/{all}"),
            or_none(text(&app["status"]["workflow"]["status"])),
            or_none(text(&app["status"]["latestRevision"]["name"])),
            age(app),
        ];
        if with_namespace {
            row.insert(0, text(&app["metadata"]["namespace"]).to_owned());
        }
        row
    };
    let header = ["NAMESPACE", "NAME", "PHASE", "HEALTHY", "WORKFLOW", "REVISION", "AGE"];
    table(&header[usize::from(!with_namespace)..], &apps.iter().map(row).collect::<Vec<_>>())
}

/// Describes an application as a tree.
fn described(app: &Value) -> String {
    let (meta, status) = (&app["metadata"], &app["status"]);
    let mut out = String::new();
    let _ = writeln!(out, "Application  {}/{}", text(&meta["namespace"]), text(&meta["name"]));
    let _ = writeln!(out, "Phase        {}", or_none(text(&status["status"])));
    let _ = writeln!(out, "Revision     {}", or_none(text(&status["latestRevision"]["name"])));
    let workflow = &status["workflow"];
    let _ = writeln!(out, "Workflow     {} {}", or_none(text(&workflow["status"])), text(&workflow["mode"]));
    if status["observedGeneration"] != meta["generation"] {
        out.push_str("The latest change has not been seen yet.\n");
    }
    out.push_str("\nComponents\n");
    services(app).for_each(|service| add_service(&mut out, service));
    out.push_str("\nSteps\n");
    workflow["steps"].as_array().into_iter().flatten().for_each(|step| add_step(&mut out, step, 1));
    let blocking = blocking(app);
    if !blocking.is_empty() {
        out.push_str("\nBlocked by\n");
        for why in &blocking {
            let _ = writeln!(out, "  {why}");
        }
    }
    out
}

fn mark(healthy: bool) -> String {
    if healthy { colored("healthy", Color::Green) } else { colored("unhealthy", Color::Red) }
}

fn add_service(out: &mut String, service: &Value) {
    let place = format!("{}/{}", text(&service["cluster"]), text(&service["namespace"]));
    let message = text(&service["message"]);
    let _ = writeln!(
        out,
        "  {} ({place}) {} {message}",
        text(&service["name"]),
        mark(service["healthy"] == true)
    );
    for attached in service["traits"].as_array().into_iter().flatten() {
        let (kind, message) = (text(&attached["type"]), text(&attached["message"]));
        let _ = writeln!(out, "    {kind} {} {message}", mark(attached["healthy"] != false));
    }
}

fn add_step(out: &mut String, step: &Value, depth: usize) {
    let (name, kind) = (text(&step["name"]), text(&step["type"]));
    let _ = writeln!(
        out,
        "{}{name} ({kind}) {} {}",
        "  ".repeat(depth),
        text(&step["phase"]),
        text(&step["message"])
    );
    step["subSteps"].as_array().into_iter().flatten().for_each(|sub| add_step(out, sub, depth + 1));
}

/// Says what keeps an application from running.
fn blocking(app: &Value) -> Vec<String> {
    let status = &app["status"];
    let mut found = Vec::new();
    for condition in status["conditions"].as_array().into_iter().flatten() {
        if condition["status"] == "False" {
            found.push(format!("{}: {}", text(&condition["type"]), text(&condition["message"])));
        }
    }
    let steps = status["workflow"]["steps"].as_array().into_iter().flatten();
    let all =
        steps.flat_map(|step| std::iter::once(step).chain(step["subSteps"].as_array().into_iter().flatten()));
    for step in all.filter(|step| ["failed", "suspending", "running"].contains(&text(&step["phase"]))) {
        found.push(format!(
            "step {} is {}: {}",
            text(&step["name"]),
            text(&step["phase"]),
            text(&step["message"])
        ));
    }
    for service in services(app).filter(|service| service["healthy"] == false) {
        let (name, message) = (text(&service["name"]), text(&service["message"]));
        let place = match text(&service["cluster"]) {
            "" | "local" => String::new(),
            cluster => format!(" in cluster {cluster}"),
        };
        found.push(format!("component {name}{place} is not healthy: {message}"));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_blocks_is_named() {
        let app = json!({"metadata": {"name": "shop", "namespace": "trade", "generation": 1}, "status": {
            "status": "runningWorkflow", "observedGeneration": 1,
            "workflow": {"status": "executing", "mode": "DAG-DAG", "steps": [
                {"name": "front", "type": "apply-component", "phase": "running", "message": "wait healthy"}]},
            "services": [{"name": "front", "cluster": "local", "namespace": "trade", "healthy": false, "message": "Ready:0/1",
                "traits": [{"type": "scaler", "healthy": true}]}],
        }});
        let shown = described(&app);
        assert!(shown.contains("front (local/trade) unhealthy Ready:0/1"), "{shown}");
        assert!(shown.contains("step front is running: wait healthy"), "{shown}");
        assert!(shown.contains("component front is not healthy: Ready:0/1"), "{shown}");
        assert!(listed(&[app], true).contains("trade       shop   runningWorkflow   0/1"), "in a table too");
    }
}
