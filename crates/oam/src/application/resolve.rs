//! Resolves the references of an application: definitions, policies and workflows.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::app::Application;
use super::reconcile::Applications;
use super::revision::{FIELDS, Recorded, Revisions};
use crate::model::{Policy, Spec, Workflow};
use crate::policy::Policies;

/// The resolved references of an application.
pub(super) struct Resolved {
    /// The spec with the steps of the referenced workflow and the referenced policies.
    pub(super) spec: Spec,
    pub(super) policies: Policies,
}

impl Applications {
    /// Looks up the policies and the workflow that the application refers to.
    pub(super) fn resolve(&self, app: &Application) -> Result<Resolved, String> {
        check_components(&app.spec)?;
        let (mut spec, workflow) = self.with_external_policies(app)?;
        let policies = Policies::parse(&spec.policies)?;
        // The recorded spec is complete: its references are resolved.
        if let (Some(own), Some(found)) = (&mut spec.workflow, workflow) {
            (own.steps, own.mode) = (found.steps, found.mode);
        }
        Ok(Resolved { spec, policies })
    }

    /// Returns the spec with the Policy objects that it refers to, and the workflow that refers to them.
    pub(super) fn with_external_policies(
        &self,
        app: &Application,
    ) -> Result<(Spec, Option<Workflow>), String> {
        let mut spec = app.spec.clone();
        for (index, policy) in spec.policies.iter_mut().enumerate() {
            if policy.name.is_empty() {
                policy.name = format!("{}-auto-gen-{index}", policy.kind);
            }
        }
        let workflow = self.workflow(app, &spec)?;
        self.add_external_policies(app, &mut spec, workflow.as_ref())?;
        Ok((spec, workflow))
    }

    fn workflow(&self, app: &Application, spec: &Spec) -> Result<Option<Workflow>, String> {
        let Some(own) = &spec.workflow else { return Ok(None) };
        if own.reference.is_empty() {
            return Ok(Some(own.clone()));
        }
        let namespace = &app.metadata.namespace;
        let found = self.catalog.get("Workflow", namespace, &own.reference);
        let found =
            found.ok_or_else(|| format!("workflow.ref: Workflow {namespace}/{} not found", own.reference))?;
        let parsed =
            serde_json::from_value::<Workflow>(json!({"mode": found["mode"], "steps": found["steps"]}));
        parsed.map(Some).map_err(|error| format!("Workflow {}: {error}", own.reference))
    }

    /// Adds the Policy objects that deploy steps refer to.
    fn add_external_policies(
        &self,
        app: &Application,
        spec: &mut Spec,
        workflow: Option<&Workflow>,
    ) -> Result<(), String> {
        let steps = workflow.into_iter().flat_map(|workflow| &workflow.steps);
        let steps = steps
            .flat_map(|step| std::iter::once(step).chain(&step.sub_steps))
            .filter(|step| step.kind == "deploy");
        let named: BTreeSet<String> = steps
            .flat_map(|step| step.properties["policies"].as_array().into_iter().flatten())
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect();
        for name in named {
            if spec.policies.iter().any(|policy| policy.name == name) {
                continue;
            }
            let found = self.catalog.get("Policy", &app.metadata.namespace, &name);
            let found = found.ok_or_else(|| format!("policy {name} not found"))?;
            let kind = found["type"].as_str().unwrap_or_default().to_owned();
            spec.policies.push(Policy { name, kind, properties: found["properties"].clone() });
        }
        Ok(())
    }

    /// Returns the definitions of all types in the application, and the first one that only exists in its revisions:
    /// these can still use it, but new revisions cannot.
    pub(super) fn definitions(
        &self,
        app: &Application,
        resolved: &Resolved,
        known: &Revisions,
    ) -> Result<(Recorded, Option<String>), String> {
        let (mut recorded, mut missing) = (Recorded::default(), None);
        for (kind, name, required) in used_types(&resolved.spec) {
            let (_, field) =
                FIELDS.iter().find(|(known, _)| *known == kind).ok_or("unknown kind of definition")?;
            let found = self.catalog.definition(kind, &app.metadata.namespace, &name);
            let not_found = || format!("{kind} {name:?} not found");
            let earlier = || known.definition(field, &name);
            if found.is_none() && missing.is_none() {
                missing = earlier().map(|_| not_found());
            }
            let definition = match found.as_ref().map(bare).or_else(earlier) {
                Some(definition) => definition,
                None if required => return Err(not_found()),
                None => continue,
            };
            recorded.0.entry(field).or_default().insert(name, definition);
        }
        Ok((recorded, missing))
    }
}

/// Component names are unique.
fn check_components(spec: &Spec) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for (index, component) in spec.components.iter().enumerate() {
        if !names.insert(&component.name) {
            return Err(format!(
                "spec.components[{index}].name: duplicate component name {:?}",
                component.name
            ));
        }
    }
    Ok(())
}

/// Returns the types in an application: kind of definition, name, and whether it is required.
fn used_types(spec: &Spec) -> Vec<(&'static str, String, bool)> {
    let mut used = Vec::new();
    for component in &spec.components {
        used.push(("ComponentDefinition", component.kind.clone(), true));
        used.extend(component.traits.iter().map(|attached| ("TraitDefinition", attached.kind.clone(), true)));
    }
    for policy in &spec.policies {
        used.push(("PolicyDefinition", policy.kind.clone(), false));
        for patch in policy.properties["components"].as_array().into_iter().flatten() {
            used.extend(patch["type"].as_str().map(|kind| ("ComponentDefinition", kind.to_owned(), false)));
            let traits = patch["traits"].as_array().into_iter().flatten();
            used.extend(traits.filter_map(|attached| {
                Some(("TraitDefinition", attached["type"].as_str()?.to_owned(), false))
            }));
        }
    }
    let steps = spec.workflow.iter().flat_map(|workflow| &workflow.steps);
    let types =
        steps.flat_map(|step| std::iter::once(&step.kind).chain(step.sub_steps.iter().map(|sub| &sub.kind)));
    used.extend(types.map(|kind| ("WorkflowStepDefinition", kind.clone(), false)));
    // The steps of default workflows.
    used.extend(["apply-component", "deploy"].map(|kind| ("WorkflowStepDefinition", kind.to_owned(), false)));
    used
}

/// Returns a definition without server-set fields.
fn bare(definition: &Value) -> Value {
    let meta = &definition["metadata"];
    json!({
        "apiVersion": definition["apiVersion"], "kind": definition["kind"], "spec": definition["spec"],
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
    })
}
