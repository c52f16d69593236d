//! Writes that steer a workflow: the same changes of the status that KubeVela's command line makes.

use anyhow::{Context, bail};
use serde_json::{Value, json};
use setpoint::client::{Patch, Subresource};
use setpoint::{Key, Kind};

use super::connection::Connection;
use super::output::print;
use super::revisions;
use super::{Named, Rollback, applications};

fn key(connection: &Connection, name: &str) -> Key {
    Key::namespaced(&connection.namespace, name)
}

/// What has a workflow: an Application, or a WorkflowRun.
struct Target<'a> {
    kind: Kind,
    name: &'a str,
    is_run: bool,
}

impl<'a> Target<'a> {
    /// Reads `NAME` or `TYPE/NAME`.
    fn of(text: &'a str) -> anyhow::Result<Self> {
        let run = || Kind::new("core.oam.dev", "v1alpha1", "WorkflowRun", "workflowruns", true);
        match text.split_once('/') {
            None => Ok(Self { kind: applications(), name: text, is_run: false }),
            Some(("application" | "applications" | "app", name)) => Self::of(name),
            Some(("workflowrun" | "workflowruns" | "wr", name)) => {
                Ok(Self { kind: run(), name, is_run: true })
            }
            Some((other, _)) => bail!("{other:?} has no workflow: expected application or workflowrun"),
        }
    }

    fn workflow<'v>(&self, object: &'v Value) -> &'v Value {
        if self.is_run { &object["status"] } else { &object["status"]["workflow"] }
    }

    fn status(&self, workflow: Value) -> Value {
        if self.is_run { workflow } else { json!({"workflow": workflow}) }
    }
}

/// Changes the workflow of an application or a run that has begun.
async fn change(
    named: &Named,
    done: &str,
    change: impl Fn(&Value) -> anyhow::Result<Value>,
) -> anyhow::Result<()> {
    let target = Target::of(&named.name)?;
    let (kind, name) = (target.kind.kind().to_lowercase(), target.name);
    let connection = named.connect().await?;
    let object = connection.get(&target.kind, name).await?;
    let workflow = target.workflow(&object);
    if !workflow.is_object() {
        bail!("{kind} {name} has no workflow yet");
    }
    // The version makes sure that nothing the controller writes meanwhile is lost.
    let patch = json!({
        "metadata": {"resourceVersion": object["metadata"]["resourceVersion"]},
        "status": target.status(change(workflow)?),
    });
    let (key, patch) = (key(&connection, name), Patch::merge(&patch));
    let patched = connection.client.patch(&target.kind, &key, Subresource::Status, patch).await;
    patched.with_context(|| format!("cannot change the workflow of {kind} {name}"))?;
    print(&format!("{kind}.core.oam.dev/{name} {done}\n"))
}

fn is_done(step: &Value) -> bool {
    ["succeeded", "failed", "skipped"].contains(&step["phase"].as_str().unwrap_or_default())
}

/// Changes every step and every step in a group.
fn each_step(workflow: &mut Value, change: impl Fn(&mut Value)) {
    for step in list(workflow, "steps") {
        change(step);
        list(step, "subSteps").for_each(&change);
    }
}

/// Returns the objects in a list, if there is one.
fn list<'a>(of: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    let items = of.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten();
    items.filter(|item| item.is_object())
}

pub(super) async fn suspend(named: &Named) -> anyhow::Result<()> {
    let suspended = |workflow: &Value| match workflow["finished"] == true {
        true => bail!("the workflow has ended"),
        false => Ok(json!({"suspend": true})),
    };
    change(named, "suspended", suspended).await
}

pub(super) async fn resume(named: &Named) -> anyhow::Result<()> {
    change(named, "resumed", |workflow| {
        if workflow["suspend"] != true {
            bail!("the workflow is not suspended");
        }
        Ok(resumed(workflow))
    })
    .await
}

fn resumed(workflow: &Value) -> Value {
    let mut next = workflow.clone();
    next["suspend"] = false.into();
    each_step(&mut next, |step| {
        if step["phase"] == "suspending" {
            step["phase"] = "running".into();
        }
    });
    next
}

pub(super) async fn terminate(named: &Named) -> anyhow::Result<()> {
    change(named, "terminated", |workflow| match workflow["finished"] == true {
        true => bail!("the workflow has ended"),
        false => Ok(terminated(workflow)),
    })
    .await
}

fn terminated(workflow: &Value) -> Value {
    let mut next = workflow.clone();
    (next["terminated"], next["suspend"]) = (true.into(), false.into());
    each_step(&mut next, |step| {
        if !is_done(step) {
            (step["phase"], step["reason"]) = ("failed".into(), "Terminate".into());
        }
    });
    next
}

pub(super) async fn restart(named: &Named) -> anyhow::Result<()> {
    change(named, "restarted", |_| Ok(Value::Null)).await
}

pub(super) async fn rollback(arguments: &Rollback) -> anyhow::Result<()> {
    let named = &arguments.app;
    let connection = named.connect().await?;
    let mut app = connection.get(&applications(), &named.name).await?;
    let all = revisions::of(&connection, &named.name).await?;
    let current = app["status"]["latestRevision"]["name"].clone();
    let revision = match &arguments.to_revision {
        Some(name) => all.iter().find(|revision| revision["metadata"]["name"] == name.as_str()),
        None => {
            all.iter().find(|one| one["metadata"]["name"] != current && one["status"]["succeeded"] == true)
        }
    };
    let Some(revision) = revision else {
        bail!("application {} has no revision to return to", named.name);
    };
    let recorded = &revision["spec"]["application"];
    app["spec"] = recorded["spec"].clone();
    let version = &recorded["metadata"]["annotations"]["app.oam.dev/publishVersion"];
    if !version.is_null() {
        app["metadata"]["annotations"]["app.oam.dev/publishVersion"] = version.clone();
    }
    let (key, name) =
        (key(&connection, &named.name), revision["metadata"]["name"].as_str().unwrap_or_default());
    let updated = connection.client.update(&applications(), &key, Subresource::None, &app).await;
    updated.with_context(|| format!("cannot return application {} to {name}", named.name))?;
    print(&format!("application.core.oam.dev/{} rolled back to {name}\n", named.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workflow() -> Value {
        json!({"suspend": true, "steps": [
            {"name": "a", "phase": "succeeded"},
            {"name": "b", "phase": "suspending", "subSteps": [{"name": "c", "phase": "pending"}]},
        ]})
    }

    #[test]
    fn a_resumed_workflow_goes_on_where_it_was_suspended() {
        let next = resumed(&workflow());
        assert_eq!((&next["suspend"], &next["steps"][1]["phase"]), (&json!(false), &json!("running")));
        assert_eq!(next["steps"][0]["phase"], "succeeded");
    }

    #[test]
    fn unfinished_steps_of_a_terminated_workflow_fail() {
        let next = terminated(&workflow());
        assert_eq!((&next["terminated"], &next["steps"][0]["phase"]), (&json!(true), &json!("succeeded")));
        assert_eq!(next["steps"][1]["subSteps"][0]["reason"], "Terminate");
    }
}
