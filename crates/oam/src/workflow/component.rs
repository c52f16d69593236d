//! Applies a component, stage by stage, and evaluates its health.

use std::cell::LazyCell;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};
use setpoint_cue::{Errors, Input, Tree};

use crate::apply::cluster::ClusterError;
use crate::definition::model::{Stage, Status};
use crate::digest;
use crate::model::{Component, Service, TraitHealth, bounded};
use crate::names::AUXILIARY;
use crate::policy::placement::Placement;
use crate::render::RenderError;
use crate::render::component::{Auxiliary, Definitions, Rendered};
use crate::render::context::Place;
use crate::render::health::{Health, judge};
use crate::render::kept::Inputs;
use crate::session::Session;

/// Why a step did not continue.
#[derive(Debug)]
pub(crate) enum StepError {
    /// It may work later.
    Retry(String),
    /// It never will.
    Fail(String),
    /// It waits for an unreachable cluster.
    Unreachable(String),
    /// It waits for a response, which triggers a reconcile.
    Await(String),
}

impl StepError {
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Retry(message)
            | Self::Fail(message)
            | Self::Unreachable(message)
            | Self::Await(message) => message,
        }
    }
}

impl From<ClusterError> for StepError {
    fn from(error: ClusterError) -> Self {
        match error {
            // Steps look up clusters before they use them, so this one is not in the cache yet.
            ClusterError::NoCluster { .. } => Self::Unreachable(error.to_string()),
            error if error.is_unreachable() => Self::Unreachable(error.to_string()),
            error => Self::Retry(error.to_string()),
        }
    }
}

impl From<RenderError> for StepError {
    fn from(error: RenderError) -> Self {
        Self::Retry(error.to_string())
    }
}

impl From<String> for StepError {
    fn from(message: String) -> Self {
        Self::Retry(message)
    }
}

/// A component in the cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Applied {
    pub(crate) healthy: bool,
    pub(crate) message: String,
    pub(crate) output: Value,
    pub(crate) outputs: Map<String, Value>,
}

/// Live objects of a component.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveObjects {
    pub(crate) output: Value,
    /// Objects by key, with the type of their trait.
    pub(crate) outputs: Vec<(String, String, Value)>,
}

impl LiveObjects {
    fn by_key(&self) -> Map<String, Value> {
        self.outputs.iter().map(|(key, _, value)| (key.clone(), value.clone())).collect()
    }

    /// Returns the versions of these objects. `None` if one is unknown.
    fn versions(&self) -> Option<Vec<(&str, &str, &str)>> {
        let others = self.outputs.iter().map(|(key, _, object)| version(key, object));
        std::iter::once(version("", &self.output)).chain(others).collect()
    }

    fn put(&mut self, key: Option<(String, String)>, object: Value) {
        match key {
            None => self.output = object,
            Some((key, kind)) => self.outputs.push((key, kind, object)),
        }
    }
}

impl Session<'_> {
    /// Applies a component at a placement, with the step's patch. Later stages wait until earlier ones are healthy.
    pub(crate) async fn apply_component(
        &mut self,
        component: &Component,
        place: &Placement,
        patch: Option<&Tree>,
    ) -> Result<Applied, StepError> {
        let revision = digest::hash(&json!(component));
        let cluster = self.clusters.get(&place.cluster)?;
        let is_local = cluster.name().is_empty();
        let cluster_version = if is_local { None } else { Some(cluster.version().await?) };
        let at = Place {
            component: &component.name,
            component_type: &component.kind,
            component_revision: &revision,
            namespace: &place.namespace,
            cluster: &place.cluster,
            replica_key: &component.replica_key,
            cluster_version,
        };
        self.complete(component);
        let context = self.context.of_component(&at);
        let rendered = self.rendered(component, &at, &context, patch)?;
        let (mut live, mut service) = (LiveObjects::default(), Service::default());
        let last = last_stage(&rendered);
        for stage in stages(&rendered) {
            self.apply_stage(&rendered, stage, place, &mut live).await?;
            service = self.judge(component, &context, &live, (stage < last).then_some(stage));
            if !service.is_healthy() && stage < last {
                break;
            }
        }
        service.namespace = place.namespace.clone();
        service.cluster = place.cluster.clone();
        let applied = Applied {
            healthy: service.is_healthy(),
            message: service.problem(),
            output: live.output.clone(),
            outputs: live.by_key(),
        };
        self.put_service(service);
        Ok(applied)
    }

    /// Renders a component, unless the result for the same inputs is cached.
    fn rendered(
        &self,
        component: &Component,
        at: &Place<'_>,
        context: &Map<String, Value>,
        patch: Option<&Tree>,
    ) -> Result<Arc<Rendered>, RenderError> {
        let render = || self.renderer().render_patched(component, at, patch).map(Arc::new);
        let (Some(inputs), None) = (self.inputs(component, context), patch) else { return render() };
        let place = format!("{}/{}/{}/{}", at.cluster, at.namespace, component.name, component.replica_key);
        if let Some(known) = self.renders.find(&self.attempts, &place, &inputs) {
            return Ok(known);
        }
        let rendered = render()?;
        self.renders.keep(&self.attempts, place, inputs, &rendered);
        Ok(rendered)
    }

    /// Returns the inputs for rendering a component or evaluating its health. `None` without one of its definitions.
    fn inputs(&self, component: &Component, seen: &impl Serialize) -> Option<Inputs> {
        let Definitions { components, traits, .. } = &self.definitions;
        let own = components.get(&component.kind).cloned();
        let attached = component.traits.iter().map(|attached| traits.get(&attached.kind).cloned());
        let definitions = std::iter::once(own).chain(attached).collect::<Option<_>>()?;
        Some(Inputs { digest: digest::hash(&(component, seen)), definitions })
    }

    async fn apply_stage(
        &mut self,
        rendered: &Rendered,
        stage: Stage,
        place: &Placement,
        live: &mut LiveObjects,
    ) -> Result<(), StepError> {
        let workload = rendered.workload.iter().filter(|_| stage == Stage::Default);
        let others = rendered.others.iter().filter(|other| other.stage == stage);
        let of_other = |other: &'_ Auxiliary| {
            (Some((other.key.clone(), other.trait_type.clone())), other.object.clone())
        };
        let there = workload.map(|workload| (None, workload.clone()));
        let there = there.chain(others.clone().filter(|other| !other.is_local).map(of_other)).collect();
        self.apply_objects(there, place, live).await?;
        let here = others.filter(|other| other.is_local).map(of_other).collect();
        self.apply_objects(here, &Placement::local(&self.app.namespace.clone()), live).await
    }

    /// Applies objects at a placement: the workload, or those with a key and the type of their trait.
    async fn apply_objects(
        &mut self,
        objects: Vec<(Option<(String, String)>, Value)>,
        place: &Placement,
        live: &mut LiveObjects,
    ) -> Result<(), StepError> {
        if objects.is_empty() {
            return Ok(());
        }
        let (keys, manifests): (Vec<_>, Vec<_>) = objects.into_iter().unzip();
        let applied = self.dispatch(manifests, place, "workflow").await?;
        for (key, object) in keys.into_iter().zip(applied) {
            live.put(key, object);
        }
        Ok(())
    }

    /// Evaluates the health of live objects, unless it is cached for the same versions. Before the last stage, traits
    /// of later stages have no objects and are not evaluated.
    pub(crate) fn judge(
        &self,
        component: &Component,
        context: &Map<String, Value>,
        live: &LiveObjects,
        stage: Option<Stage>,
    ) -> Service {
        let judge = || self.judge_again(component, context, live, stage);
        let seen = (context, live.versions(), stage.map(|stage| stage as u8), self.ignores_health);
        let Some(inputs) = self.inputs(component, &seen).filter(|_| seen.1.is_some()) else { return judge() };
        let text = |name: &str| context.get(name).and_then(Value::as_str).unwrap_or_default();
        let (cluster, namespace) = (text("cluster"), text("namespace"));
        let place =
            format!("{} {cluster}/{namespace}/{}/{}", self.attempts, component.name, component.replica_key);
        if let Some(known) = self.judgements.find(&place, &inputs) {
            return known;
        }
        let judged = judge();
        self.judgements.keep(place, inputs, &judged);
        judged
    }

    fn judge_again(
        &self,
        component: &Component,
        context: &Map<String, Value>,
        live: &LiveObjects,
        stage: Option<Stage>,
    ) -> Service {
        let seen = LazyCell::new(|| input(context, live));
        let health = |status: &Status, parameter: &Value| match self.ignores_health || status.is_empty() {
            true => Health::default(),
            false => match &*seen {
                Ok(seen) => judge(self.sources, status, seen, parameter),
                Err(why) => Health { healthy: false, message: bounded(why.to_string()), ..Health::default() },
            },
        };
        let definition = self.definitions.components.get(&component.kind);
        let reached = stage.is_none_or(|stage| stage >= Stage::Default);
        let own = match definition {
            Some(definition) if reached => health(&definition.spec.status, &component.properties),
            _ => Health::default(),
        };
        let mut traits = Vec::new();
        for attached in &component.traits {
            let Some(definition) = self.definitions.traits.get(&attached.kind) else { continue };
            if stage.is_some_and(|stage| definition.spec.stage.unwrap_or_default() > stage) {
                continue;
            }
            let health = health(&definition.spec.status, &attached.properties);
            traits.push(TraitHealth {
                kind: attached.kind.clone(),
                healthy: health.healthy,
                message: health.message,
                details: health.details,
            });
        }
        Service {
            name: component.name.clone(),
            workload_definition: definition
                .and_then(|definition| definition.spec.workload.definition.as_ref())
                .map(|workload| json!(workload)),
            healthy: own.healthy,
            message: own.message,
            details: own.details,
            traits,
            ..Service::default()
        }
    }

    /// Adds a service to the status, replacing an earlier entry.
    pub(crate) fn put_service(&mut self, service: Service) {
        let same = |other: &&mut Service| {
            other.name == service.name
                && other.namespace == service.namespace
                && other.cluster == service.cluster
        };
        match self.services.iter_mut().find(same) {
            Some(known) => *known = service,
            None => self.services.push(service),
        }
    }
}

/// Returns the context of status templates.
fn input(context: &Map<String, Value>, live: &LiveObjects) -> Result<Input, Errors> {
    let context = Input::new(&json!(context))?;
    let outputs = Input::new(&live.by_key().into())?;
    Ok(context.with("output", &Input::new(&live.output)?).with("outputs", &outputs))
}

/// Returns the identity and version of an object: empty if it does not exist.
fn version<'o>(key: &'o str, object: &'o Value) -> Option<(&'o str, &'o str, &'o str)> {
    let meta = &object["metadata"];
    match object.is_null() {
        true => Some((key, "", "")),
        false => Some((key, meta["uid"].as_str()?, meta["resourceVersion"].as_str()?)),
    }
}

/// Returns the stages in which a component has objects, and the workload's stage.
fn stages(rendered: &Rendered) -> impl Iterator<Item = Stage> {
    let is_used = |stage: &Stage| rendered.others.iter().any(|other| other.stage == *stage);
    let last = last_stage(rendered);
    let used = [Stage::Pre, Stage::Default, Stage::Post]
        .map(|stage| (stage == Stage::Default || stage == last || is_used(&stage)).then_some(stage));
    used.into_iter().flatten()
}

fn last_stage(rendered: &Rendered) -> Stage {
    let others =
        rendered.others.iter().filter(|other| other.trait_type != AUXILIARY).map(|other| other.stage);
    others.max().unwrap_or_default().max(Stage::Default)
}

impl Service {
    pub(crate) fn is_healthy(&self) -> bool {
        self.healthy && self.traits.iter().all(|attached| attached.healthy)
    }

    /// Describes what is unhealthy.
    fn problem(&self) -> String {
        if !self.healthy {
            return format!("component {} is not healthy: {}", self.name, self.message);
        }
        let sick = self.traits.iter().find(|attached| !attached.healthy);
        sick.map_or_else(String::new, |sick| {
            format!("trait {} of component {} is not healthy: {}", sick.kind, self.name, sick.message)
        })
    }
}
