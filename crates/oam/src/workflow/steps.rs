//! The steps of an application.

use std::collections::BTreeSet;

use serde_json::json;

use crate::dependency::ordered;
use crate::model::{Component, Mode, Spec, Step, Workflow};
use crate::policy::Policies;

pub(crate) const APPLY_COMPONENT: &str = "apply-component";
pub(crate) const STEP_GROUP: &str = "step-group";
pub(crate) const SUSPEND: &str = "suspend";

/// The execution mode of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Modes {
    /// Whether steps run as soon as their dependencies are done.
    pub(crate) dag: bool,
    pub(crate) sub_dag: bool,
}

impl Modes {
    pub(crate) fn name(self) -> String {
        let name = |dag: bool| if dag { "DAG" } else { "StepByStep" };
        format!("{}-{}", name(self.dag), name(self.sub_dag))
    }

    fn of(mode: Option<&Mode>, given: bool) -> Self {
        let (steps, subs) = mode.map_or(("", ""), |mode| (mode.steps.as_str(), mode.sub_steps.as_str()));
        Self { dag: if steps.is_empty() { !given } else { steps == "DAG" }, sub_dag: subs != "StepByStep" }
    }
}

/// The steps of an application, and their execution mode.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) modes: Modes,
}

/// Plans the workflow. `workflow` is the application's own or the one it refers to.
pub(crate) fn plan(spec: &Spec, workflow: Option<&Workflow>, policies: &Policies) -> Result<Plan, String> {
    let given = workflow.filter(|workflow| !workflow.steps.is_empty());
    let modes = Modes::of(workflow.and_then(|workflow| workflow.mode.as_ref()), workflow.is_some());
    let mut steps = match given {
        Some(workflow) => workflow.steps.clone(),
        None => default_steps(spec, policies),
    };
    for step in steps.iter_mut().flat_map(|step| {
        std::iter::once(&mut step.name).chain(step.sub_steps.iter_mut().map(|sub| &mut sub.name))
    }) {
        *step = step.trim().to_owned();
    }
    name_unnamed(&mut steps);
    check(&steps, spec)?;
    Ok(Plan { steps, modes })
}

fn name_unnamed(steps: &mut [Step]) {
    for (index, step) in steps.iter_mut().enumerate() {
        if step.name.is_empty() {
            step.name = format!("{}-{index}", step.kind);
        }
        name_unnamed(&mut step.sub_steps);
    }
}

fn default_steps(spec: &Spec, policies: &Policies) -> Vec<Step> {
    let deploy = |name: String, topology: Option<&String>| {
        let overrides = policies.overrides.iter().map(|(name, _)| name);
        let replications = policies.replications.iter().map(|(name, _)| name);
        let named: Vec<&String> = topology.into_iter().chain(overrides).chain(replications).collect();
        Step { name, kind: "deploy".into(), properties: json!({"policies": named}), ..Step::default() }
    };
    if !policies.topologies.is_empty() {
        let topologies = policies.topologies.iter().map(|(name, _)| name);
        return topologies.map(|name| deploy(format!("deploy-{name}"), Some(name))).collect();
    }
    let refers = spec.components.iter().any(|component| component.kind == "ref-objects");
    if !policies.overrides.is_empty() || !policies.replications.is_empty() || refers {
        return vec![deploy("deploy".into(), None)];
    }
    spec.components.iter().map(of_component).collect()
}

fn of_component(component: &Component) -> Step {
    Step {
        name: component.name.clone(),
        kind: APPLY_COMPONENT.into(),
        properties: json!({"component": component.name}),
        depends_on: component.depends_on.clone(),
        ..Step::default()
    }
}

/// Checks names, references and cycles. The error is shown as the reason why the workflow cannot start.
fn check(steps: &[Step], spec: &Spec) -> Result<(), String> {
    let all: Vec<&Step> =
        steps.iter().flat_map(|step| std::iter::once(step).chain(&step.sub_steps)).collect();
    let components: BTreeSet<&str> =
        spec.components.iter().map(|component| component.name.as_str()).collect();
    let mut names = BTreeSet::new();
    for step in &all {
        if !names.insert(step.name.as_str()) {
            return Err(format!("steps: duplicate name {:?}", step.name));
        }
    }
    for step in &all {
        if let Some(component) = applied_component(step).filter(|name| !components.contains(name)) {
            return Err(format!("step {}: component {component} not found in application", step.name));
        }
        for name in &step.depends_on {
            if !names.contains(name.as_str()) {
                return Err(format!("step {}: dependsOn names {name:?}, which is no step", step.name));
            }
        }
        if !step.timeout.is_empty() {
            super::duration::parse(&step.timeout)
                .map_err(|why| format!("step {}: timeout: {why}", step.name))?;
        }
    }
    let order = ordered(&all, |step| &step.name, |step| &step.depends_on);
    match order.cycle(|step| &step.name, |step| &step.depends_on) {
        Some(step) => Err(format!("step {} depends on itself", step.name)),
        None => Ok(()),
    }
}

/// Returns the component that a step applies by name.
pub(crate) fn applied_component(step: &Step) -> Option<&str> {
    (step.kind == APPLY_COMPONENT).then(|| step.properties["component"].as_str()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str, depends_on: &[&str]) -> Step {
        Step {
            name: name.into(),
            kind: "suspend".into(),
            depends_on: depends_on.iter().map(|name| (*name).to_owned()).collect(),
            ..Step::default()
        }
    }

    fn planned(steps: Vec<Step>) -> Result<Plan, String> {
        let workflow = Workflow { steps, ..Workflow::default() };
        plan(&Spec::default(), Some(&workflow), &Policies::default())
    }

    #[test]
    fn an_application_without_a_workflow_applies_its_components_in_any_order() {
        let component = Component { name: "a".into(), depends_on: vec![], ..Component::default() };
        let spec = Spec { components: vec![component], ..Spec::default() };
        let plan = plan(&spec, None, &Policies::default()).unwrap();
        assert_eq!((plan.steps[0].name.as_str(), plan.modes.name().as_str()), ("a", "DAG-DAG"));
    }

    #[test]
    fn given_steps_follow_each_other() {
        assert_eq!(planned(vec![step("a", &[])]).unwrap().modes.name(), "StepByStep-DAG");
    }

    #[test]
    fn cycles_and_unknown_names_are_refused() {
        assert!(
            planned(vec![step("a", &["b"]), step("b", &["a"])]).unwrap_err().contains("depends on itself")
        );
        assert!(planned(vec![step("a", &["c"])]).unwrap_err().contains("no step"));
        assert!(planned(vec![step("a", &[]), step("a", &[])]).unwrap_err().contains("duplicate"));
    }
}
