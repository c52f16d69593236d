//! A component and its traits, rendered to objects.

use serde_json::{Map, Value, json};
use setpoint_cue::{ErrorKind, Input, Instance, Source, Tree};

use super::context::{AppContext, Place};
use super::sources::Sources;
use super::{RenderError, patch};
use crate::apply::shape;
use crate::definition::model::{ByType, Definition, Stage};
use crate::digest::short_hash;
use crate::model::{Component, Trait};
use crate::names;

/// The definitions that an application uses, by type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definitions {
    pub(crate) components: ByType,
    pub(crate) traits: ByType,
    pub(crate) policies: ByType,
    pub(crate) steps: ByType,
}

/// A rendered component.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rendered {
    /// The workload. `None` if the component only has other objects, or a trait manages the workload.
    pub(crate) workload: Option<Value>,
    /// The other objects, in the order of component and traits.
    pub(crate) others: Vec<Auxiliary>,
    /// The workload as templates see it, even if a trait manages it.
    pub(crate) output: Option<Value>,
}

/// An object other than the workload.
#[derive(Clone, Debug)]
pub(crate) struct Auxiliary {
    pub(crate) object: Value,
    /// The key in `outputs`.
    pub(crate) key: String,
    /// The type of the trait, or [`names::AUXILIARY`].
    pub(crate) trait_type: String,
    pub(crate) stage: Stage,
    /// Whether it goes to the local cluster, regardless of the component's placement.
    pub(crate) is_local: bool,
}

/// Renders components of one application.
pub(crate) struct Renderer<'a> {
    pub(crate) sources: &'a Sources,
    pub(crate) app: &'a AppContext,
    pub(crate) definitions: &'a Definitions,
}

impl Renderer<'_> {
    /// Renders a component at a place.
    pub(crate) fn render(&self, component: &Component, place: &Place<'_>) -> Result<Rendered, RenderError> {
        self.render_patched(component, place, None)
    }

    /// Renders a component at a place. The patch of a workflow step is applied after its traits: `workload` to the
    /// workload, and `traits` to other objects by their keys.
    pub(crate) fn render_patched(
        &self,
        component: &Component,
        place: &Place<'_>,
        patch: Option<&Tree>,
    ) -> Result<Rendered, RenderError> {
        let at = format!("component {}", component.name);
        let definition = self.definitions.components.get(&component.kind);
        let definition = definition.ok_or_else(|| {
            RenderError::new(&at, format!("ComponentDefinition {:?} not found", component.kind))
        })?;
        let context = self.app.of_component(place);
        let input = input(&json!(context)).map_err(|why| RenderError::new(&at, why))?;
        let mut building = Building {
            renderer: self,
            context,
            input,
            output: None,
            others: Vec::new(),
            manages_workload: false,
        };
        building.component(component, definition).map_err(|message| RenderError::new(&at, message))?;
        for attached in &component.traits {
            let at = format!("{at}, trait {}", attached.kind);
            building.attach(attached).map_err(|message| RenderError::new(at, message))?;
        }
        let patched = patch.map_or(Ok(()), |patch| building.patch(patch));
        patched.and_then(|()| building.finish(component)).map_err(|message| RenderError::new(&at, message))
    }

    fn instance(&self, source: &Source, parameter: &Value, context: &Input) -> Result<Instance, String> {
        let parameter = if parameter.is_null() { &json!({}) } else { parameter };
        Instance::builder()
            .source(source)
            .packages(self.sources.packages.clone())
            .fill("parameter", parameter)
            .input("context", context)
            .build()
            .map_err(|errors| errors.to_string())
    }

    fn evaluate(
        &self,
        definition: &Definition,
        parameter: &Value,
        context: &Input,
    ) -> Result<Instance, String> {
        let name = format!("{}.cue", definition.metadata.name);
        let source =
            self.sources.parse(&name, definition.template()?).map_err(|errors| errors.to_string())?;
        let instance = self.instance(&source, parameter, context)?;
        let checked = instance.lookup("parameter").and_then(|parameter| parameter.validate());
        checked.map_err(|errors| errors.to_string())?;
        Ok(instance)
    }
}

/// A component while its traits are applied.
struct Building<'a> {
    renderer: &'a Renderer<'a>,
    context: Map<String, Value>,
    /// The context for templates.
    input: Input,
    output: Option<Value>,
    others: Vec<Auxiliary>,
    manages_workload: bool,
}

impl Building<'_> {
    fn component(&mut self, component: &Component, definition: &Definition) -> Result<(), String> {
        let instance = self.renderer.evaluate(definition, &component.properties, &self.input)?;
        self.output = field(&instance, "output")?;
        self.add_outputs(&instance, names::AUXILIARY, Stage::Default, "")
    }

    fn attach(&mut self, attached: &Trait) -> Result<(), String> {
        let definition = self.renderer.definitions.traits.get(&attached.kind);
        let definition =
            definition.ok_or_else(|| format!("TraitDefinition {:?} not found", attached.kind))?;
        let output = input(self.output.as_ref().unwrap_or(&Value::Null))?;
        let context = self.input.with("output", &output).with("outputs", &input(&self.outputs_by_key())?);
        let instance = self.renderer.evaluate(definition, &attached.properties, &context)?;
        self.check_unsupported(&instance)?;
        raised(&instance)?;
        if let Some(patch) = tree(&instance, "patch")? {
            let output = self.output.get_or_insert_with(|| json!({}));
            patch::apply(output, &patch)?;
        }
        self.patch_outputs(&instance)?;
        let stage = definition.spec.stage.unwrap_or_default();
        self.manages_workload |= definition.spec.manage_workload;
        let before = self.others.len();
        self.add_outputs(&instance, &attached.kind, stage, &definition.spec.workload_ref_path)?;
        let added = &mut self.others[before..];
        added.iter_mut().for_each(|other| other.is_local = definition.spec.control_plane_only);
        Ok(())
    }

    fn patch(&mut self, step: &Tree) -> Result<(), String> {
        if let (Some(patch), Some(output)) = (step.field("workload"), &mut self.output) {
            patch::apply(output, patch).map_err(|why| format!("patch of the step: workload: {why}"))?;
        }
        let Some(traits) = step.field("traits") else { return Ok(()) };
        for other in &mut self.others {
            if let Some(patch) = traits.field(&other.key) {
                patch::apply(&mut other.object, patch)
                    .map_err(|why| format!("patch of the step: traits.{}: {why}", other.key))?;
            }
        }
        Ok(())
    }

    fn check_unsupported(&self, instance: &Instance) -> Result<(), String> {
        match instance.root().has("processing.http") {
            true => Err("processing.http is not supported: a template cannot send requests".to_owned()),
            false => Ok(()),
        }
    }

    fn outputs_by_key(&self) -> Value {
        self.others
            .iter()
            .map(|other| (other.key.clone(), other.object.clone()))
            .collect::<Map<_, _>>()
            .into()
    }

    fn patch_outputs(&mut self, instance: &Instance) -> Result<(), String> {
        if !declares(instance, "patchOutputs") {
            return Ok(());
        }
        let patches = instance.lookup("patchOutputs").map_err(|errors| errors.to_string())?;
        for (key, _, value) in patches.fields() {
            let patch = value.to_tree().map_err(|errors| errors.to_string())?;
            for other in self.others.iter_mut().filter(|other| other.key == key) {
                patch::apply(&mut other.object, &patch)
                    .map_err(|why| format!("patchOutputs.{key}: {why}"))?;
            }
        }
        Ok(())
    }

    fn add_outputs(
        &mut self,
        instance: &Instance,
        trait_type: &str,
        stage: Stage,
        reference: &str,
    ) -> Result<(), String> {
        if !declares(instance, "outputs") {
            return Ok(());
        }
        let outputs = instance.lookup("outputs").map_err(|errors| errors.to_string())?;
        // A loop over an unset optional parameter gives nothing. The other outputs are kept.
        if let Some(error) = outputs.error().filter(|error| error.kind != ErrorKind::Absent) {
            return Err(error.to_string());
        }
        for (key, _, value) in outputs.fields() {
            let mut object = value.to_json().map_err(|errors| errors.to_string())?;
            if !reference.is_empty() {
                self.refer(&mut object, reference);
            }
            let trait_type = names::without_revision(trait_type).to_owned();
            self.others.push(Auxiliary { object, key, trait_type, stage, is_local: false });
        }
        Ok(())
    }

    /// Sets the reference to the workload in an object of a trait.
    fn refer(&self, object: &mut Value, path: &str) {
        let Some(workload) = &self.output else { return };
        let name =
            workload["metadata"]["name"].as_str().map_or_else(|| self.context["name"].clone(), Value::from);
        let reference = json!({"apiVersion": workload["apiVersion"], "kind": workload["kind"], "name": name});
        let mut target = object;
        for name in path.split('.') {
            if !target.is_object() {
                *target = json!({});
            }
            target = &mut target[name];
        }
        *target = reference;
    }

    fn finish(self, component: &Component) -> Result<Rendered, String> {
        let (renderer, context, manages) = (self.renderer, self.context, self.manages_workload);
        let text = |name: &str| context.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let labels = CommonLabels {
            app: renderer.app,
            component: &component.name,
            revision: &text("revision"),
            replica: &text("replicaKey"),
        };
        let is_empty = |output: &Value| output.is_null() || output.as_object().is_some_and(Map::is_empty);
        let mut output = self.output.filter(|output| !is_empty(output));
        if let Some(workload) = &mut output {
            shape::check(workload).map_err(|why| format!("output: {why}"))?;
            name_if_missing(workload, &component.name);
            labels.mark(
                workload,
                &[
                    (names::RESOURCE_TYPE, "WORKLOAD"),
                    (names::WORKLOAD_TYPE, names::without_revision(&component.kind)),
                ],
            );
        }
        let mut others = self.others;
        for other in &mut others {
            shape::check(&other.object).map_err(|why| format!("outputs.{}: {why}", other.key))?;
            name_other(other, &component.name);
            let (kind, key) = (other.trait_type.clone(), other.key.clone());
            labels.mark(
                &mut other.object,
                &[(names::RESOURCE_TYPE, "TRAIT"), (names::TRAIT_TYPE, &kind), (names::TRAIT_RESOURCE, &key)],
            );
        }
        Ok(Rendered { workload: output.clone().filter(|_| !manages), others, output })
    }
}

/// The labels of all objects of a component.
struct CommonLabels<'a> {
    app: &'a AppContext,
    component: &'a str,
    revision: &'a str,
    replica: &'a str,
}

impl CommonLabels<'_> {
    /// Adds the labels and annotations of the application, of the component, and `own`.
    fn mark(&self, object: &mut Value, own: &[(&str, &str)]) {
        let labels = self.app.passed_on(names::FILTER_LABELS, &self.app.labels);
        let annotations = self.app.passed_on(names::FILTER_ANNOTATIONS, &self.app.annotations);
        add_missing(object, "labels", &labels);
        add_missing(object, "annotations", &annotations);
        let mut set = |name: &str, value: &str| set_label(object, name, value);
        set(names::APP_COMPONENT, self.component);
        set(names::COMPONENT_REVISION, self.revision);
        if !self.replica.is_empty() {
            set(names::REPLICA_KEY, self.replica);
        }
        own.iter().for_each(|(name, value)| set(name, value));
        self.app.mark(object);
    }
}

impl AppContext {
    /// Adds the labels that identify the owner of an object.
    pub(crate) fn mark(&self, object: &mut Value) {
        if self.of_run.is_some() {
            set_label(object, names::RUN_NAME, &self.name);
            set_label(object, names::RUN_NAMESPACE, &self.namespace);
            return;
        }
        set_label(object, names::APP_NAME, &self.name);
        set_label(object, names::APP_NAMESPACE, &self.namespace);
        set_label(object, names::APP_REVISION, &self.revision);
    }

    /// Returns the labels or annotations of the application that are copied to its objects.
    fn passed_on(&self, filter: &str, all: &Map<String, Value>) -> Map<String, Value> {
        let dropped = self.annotations.get(filter).and_then(Value::as_str).unwrap_or_default();
        let dropped: Vec<&str> = dropped.split(',').map(str::trim).collect();
        let is_own = |name: &str| {
            name.contains("oam.dev/") || name == "kubectl.kubernetes.io/last-applied-configuration"
        };
        let kept = all.iter().filter(|(name, _)| !is_own(name) && !dropped.contains(&name.as_str()));
        kept.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

/// Sets a label of a checked object.
pub(crate) fn set_label(object: &mut Value, name: &str, value: &str) {
    if !object["metadata"]["labels"].is_object() {
        object["metadata"]["labels"] = json!({});
    }
    object["metadata"]["labels"][name] = value.into();
}

fn add_missing(object: &mut Value, part: &str, values: &Map<String, Value>) {
    if values.is_empty() {
        return;
    }
    if !object["metadata"][part].is_object() {
        object["metadata"][part] = json!({});
    }
    for (name, value) in values {
        if object["metadata"][part].get(name).is_none() {
            object["metadata"][part][name] = value.clone();
        }
    }
}

fn name_if_missing(object: &mut Value, name: &str) {
    if object["metadata"]["name"].as_str().unwrap_or_default().is_empty() {
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        object["metadata"]["name"] = name.into();
    }
}

fn name_other(other: &mut Auxiliary, component: &str) {
    let middle = if other.trait_type == names::AUXILIARY { "trait" } else { other.trait_type.as_str() };
    let name = format!("{component}-{}-{}", middle.to_lowercase(), short_hash(&other.object));
    name_if_missing(&mut other.object, &name);
}

/// Converts data for templates.
pub(crate) fn input(data: &Value) -> Result<Input, String> {
    Input::new(data).map_err(|errors| errors.to_string())
}

/// Returns whether a template has a top-level field.
pub(crate) fn declares(instance: &Instance, name: &str) -> bool {
    instance.root().declares(name)
}

fn field(instance: &Instance, name: &str) -> Result<Option<Value>, String> {
    if !declares(instance, name) {
        return Ok(None);
    }
    let value = instance.lookup(name).and_then(|value| value.to_json());
    value.map(Some).map_err(|errors| errors.to_string())
}

fn tree(instance: &Instance, name: &str) -> Result<Option<Tree>, String> {
    if !declares(instance, name) {
        return Ok(None);
    }
    let value = instance.lookup(name).and_then(|value| value.to_tree());
    value.map(Some).map_err(|errors| errors.to_string())
}

/// A template can reject its parameters with a list of messages.
fn raised(instance: &Instance) -> Result<(), String> {
    let errors = field(instance, "errs")?;
    let messages: Vec<&str> =
        errors.as_ref().and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    if messages.is_empty() { Ok(()) } else { Err(messages.join("; ")) }
}
