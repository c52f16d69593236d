//! Renders the objects that an Application would apply, without a cluster.
//!
//! Components are placed as the workflow's `deploy` and `apply-component` steps say. Other steps are not run: they may
//! read or change the cluster.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::application::app::Application;
use crate::clusters::inventory::Inventory;
use crate::definition::builtin;
use crate::definition::file::BadDefinition;
use crate::definition::model::{ByType, Definition};
use crate::digest;
use crate::model::{Component, Step};
use crate::names::LOCAL_CLUSTER;
use crate::policy::Policies;
use crate::policy::placement::Placement;
use crate::render::component::{Definitions, Renderer};
use crate::render::context::{AppContext, ClusterVersion, Place};
use crate::render::sources::Sources;
use crate::workflow::steps;

/// The rendered objects of an application.
#[derive(Clone, Debug, Default)]
pub struct Preview {
    /// The objects, in apply order.
    pub objects: Vec<Rendered>,
    /// The steps that were not run, as `NAME (TYPE)`.
    pub skipped: Vec<String>,
}

/// A rendered object and its destination.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// The component it belongs to.
    pub component: String,
    /// Its cluster.
    pub cluster: String,
    /// Its namespace, unless its kind is cluster-scoped.
    pub namespace: String,
    /// The object.
    pub object: Value,
}

/// Returns the objects of all built-in definitions.
pub fn builtin_definitions() -> Result<Vec<Value>, BadDefinition> {
    builtin::objects()
}

/// Renders an application with these definitions; of two with the same name, the later one is used. The error names the
/// component, the trait and the path.
///
/// ```
/// let app = serde_json::json!({"metadata": {"name": "shop"}, "spec": {"components": [
///     {"name": "front", "type": "worker", "properties": {"image": "nginx"}}]}});
/// let preview = setpoint_oam::preview(&app, &setpoint_oam::builtin_definitions()?)?;
/// assert_eq!(preview.objects[0].object["kind"], "Deployment");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn preview(app: &Value, definitions: &[Value]) -> Result<Preview, String> {
    let mut app: Application =
        serde_json::from_value(app.clone()).map_err(|error| format!("not an Application: {error}"))?;
    if app.metadata.namespace.is_empty() {
        app.metadata.namespace = "default".to_owned();
    }
    for (index, policy) in app.spec.policies.iter_mut().enumerate() {
        if policy.name.is_empty() {
            policy.name = format!("{}-auto-gen-{index}", policy.kind);
        }
    }
    if let Some(workflow) = &app.spec.workflow
        && !workflow.reference.is_empty()
    {
        return Err(format!("workflow.ref: Workflow {} is not part of the file", workflow.reference));
    }
    let policies = Policies::parse(&app.spec.policies)?;
    let plan = steps::plan(&app.spec, app.spec.workflow.as_ref(), &policies)?;
    let definitions = by_type(definitions)?;
    let context = context(&app);
    let sources = Sources::new();
    let renderer = Renderer { sources: &sources, app: &context, definitions: &definitions };
    let mut preview = Preview::default();
    for step in plan.steps.iter().flat_map(flattened) {
        for (component, place) in placed(&app, &policies, step)? {
            preview.add(&renderer, &component, &place)?;
        }
        if !matches!(step.kind.as_str(), "deploy" | steps::APPLY_COMPONENT | steps::STEP_GROUP) {
            preview.skipped.push(format!("{} ({})", step.name, step.kind));
        }
    }
    Ok(preview)
}

fn flattened(step: &Step) -> impl Iterator<Item = &Step> {
    std::iter::once(step).chain(&step.sub_steps)
}

/// Returns the components that a step applies, and their placements.
fn placed(
    app: &Application,
    policies: &Policies,
    step: &Step,
) -> Result<Vec<(Component, Placement)>, String> {
    let (own, given) = (&app.metadata.namespace, &step.properties);
    let text = |field: &str| given[field].as_str().unwrap_or_default().to_owned();
    match step.kind.as_str() {
        "deploy" => {
            let named = given["policies"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let named: Vec<String> = named.map(str::to_owned).collect();
            let components = policies.overridden(&named, &app.spec.components);
            let places = policies.placements(&named, own, &Inventory::unknown())?;
            Ok(places
                .iter()
                .flat_map(|place| components.iter().map(|component| (component.clone(), place.clone())))
                .collect())
        }
        steps::APPLY_COMPONENT => {
            let (name, namespace, cluster) = (text("component"), text("namespace"), text("cluster"));
            let place = Placement {
                cluster: if cluster.is_empty() { LOCAL_CLUSTER.to_owned() } else { cluster },
                namespace: if namespace.is_empty() { own.clone() } else { namespace },
            };
            let found = app.spec.components.iter().filter(|component| component.name == name);
            Ok(found.map(|component| (component.clone(), place.clone())).collect())
        }
        _ => Ok(Vec::new()),
    }
}

impl Preview {
    fn add(
        &mut self,
        renderer: &Renderer<'_>,
        component: &Component,
        place: &Placement,
    ) -> Result<(), String> {
        let revision = digest::hash(&json!(component));
        let at = Place {
            component: &component.name,
            component_type: &component.kind,
            component_revision: &revision,
            namespace: &place.namespace,
            cluster: &place.cluster,
            replica_key: &component.replica_key,
            ..Place::default()
        };
        let rendered = renderer.render(component, &at).map_err(|error| error.to_string())?;
        let objects =
            rendered.workload.into_iter().chain(rendered.others.into_iter().map(|other| other.object));
        self.objects.extend(objects.map(|object| Rendered {
            component: component.name.clone(),
            cluster: place.cluster.clone(),
            namespace: place.namespace.clone(),
            object,
        }));
        Ok(())
    }
}

/// An application that has not been applied has the first revision.
fn context(app: &Application) -> AppContext {
    let reference = app.reference();
    AppContext {
        revision: format!("{}-v1", reference.name),
        revision_number: 1,
        name: reference.name,
        namespace: reference.namespace,
        labels: app.metadata.labels.clone(),
        annotations: app.metadata.annotations.clone(),
        publish_version: reference.publish_version,
        workflow_name: String::new(),
        components: json!(app.spec.components),
        cluster_version: ClusterVersion::default(),
        of_run: None,
    }
}

fn by_type(definitions: &[Value]) -> Result<Definitions, String> {
    let mut all = Definitions::default();
    for object in definitions {
        let definition = Definition::of(object).map_err(|error| format!("definition: {error}"))?;
        let of_kind: &mut ByType = match object["kind"].as_str().unwrap_or_default() {
            "ComponentDefinition" => &mut all.components,
            "TraitDefinition" => &mut all.traits,
            "PolicyDefinition" => &mut all.policies,
            "WorkflowStepDefinition" => &mut all.steps,
            _ => continue,
        };
        of_kind.insert(definition.metadata.name.clone(), Arc::new(definition));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shop(spec: Value) -> Value {
        json!({"metadata": {"name": "shop", "namespace": "trade"}, "spec": spec})
    }

    #[test]
    fn components_traits_and_overrides_are_rendered_where_they_go() {
        let front = json!({"name": "front", "type": "webservice", "properties": {"image": "nginx"},
            "traits": [{"type": "scaler", "properties": {"replicas": 2}}]});
        let policies = json!([
            {"name": "place", "type": "topology", "properties": {"namespace": "north"}},
            {"name": "more", "type": "override", "properties": {"components": [{"name": "front", "properties": {"image": "other"}}]}},
        ]);
        let app = shop(json!({"components": [front], "policies": policies}));
        let preview = preview(&app, &builtin_definitions().unwrap()).unwrap();
        let found = &preview.objects[0];
        assert_eq!((found.namespace.as_str(), &found.object["spec"]["replicas"]), ("north", &json!(2)));
        assert_eq!(found.object["spec"]["template"]["spec"]["containers"][0]["image"], "other");
        assert!(preview.skipped.is_empty());
    }

    #[test]
    fn an_error_names_the_component() {
        let app = shop(
            json!({"components": [{"name": "front", "type": "webservice", "properties": {"image": 3}}]}),
        );
        let error = preview(&app, &builtin_definitions().unwrap()).unwrap_err();
        assert!(error.starts_with("component front"), "{error}");
    }

    #[test]
    fn steps_with_effects_are_not_run() {
        let app =
            shop(json!({"components": [], "workflow": {"steps": [{"name": "wait", "type": "suspend"}]}}));
        let preview = preview(&app, &builtin_definitions().unwrap()).unwrap();
        assert_eq!((preview.objects.len(), preview.skipped), (0, vec!["wait (suspend)".to_owned()]));
    }
}
