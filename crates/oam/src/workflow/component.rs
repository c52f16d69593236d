//! Applies a component, stage by stage, and judges its health.

use serde_json::{Map, Value, json};
use setpoint_cue::Tree;

use crate::apply::cluster::ClusterError;
use crate::definition::model::Stage;
use crate::digest;
use crate::model::{Component, Service, TraitHealth};
use crate::names::AUXILIARY;
use crate::policy::placement::Placement;
use crate::render::RenderError;
use crate::render::component::{Auxiliary, Rendered};
use crate::render::context::Place;
use crate::render::health::{Health, judge};
use crate::session::Session;

/// Why a step did not go on.
#[derive(Debug)]
pub(crate) enum StepError {
    /// It may work later.
    Retry(String),
    /// It never will.
    Fail(String),
    /// It waits for a cluster to be reachable.
    Unreachable(String),
    /// It waits for a response, which wakes the application.
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

    fn put(&mut self, key: Option<(String, String)>, object: Value) {
        match key {
            None => self.output = object,
            Some((key, kind)) => self.outputs.push((key, kind, object)),
        }
    }
}

impl Session<'_> {
    /// Applies a component at a place, with the patch of the step. Later stages wait until earlier ones are healthy.
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
        let rendered = self.renderer().render_patched(component, &at, patch)?;
        let context = self.context.of_component(&at);
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

    /// Applies objects at a place: the workload, or those with a key and the type of their trait.
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

    /// Judges live objects. Before the last stage, traits of later stages have no objects and are not judged.
    pub(crate) fn judge(
        &self,
        component: &Component,
        context: &Map<String, Value>,
        live: &LiveObjects,
        stage: Option<Stage>,
    ) -> Service {
        let mut context = context.clone();
        context.insert("output".into(), live.output.clone());
        context.insert("outputs".into(), live.by_key().into());
        let definition = self.definitions.components.get(&component.kind);
        let reached = stage.is_none_or(|stage| stage >= Stage::Default);
        let health = match definition {
            Some(definition) if reached && !self.ignores_health => {
                judge(self.sources, &definition.spec.status, &context, &component.properties)
            }
            _ => Health::default(),
        };
        let mut traits = Vec::new();
        for attached in &component.traits {
            let Some(definition) = self.definitions.traits.get(&attached.kind) else { continue };
            if stage.is_some_and(|stage| definition.spec.stage.unwrap_or_default() > stage) {
                continue;
            }
            let health = match self.ignores_health {
                true => Health::default(),
                false => judge(self.sources, &definition.spec.status, &context, &attached.properties),
            };
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
            healthy: health.healthy,
            message: health.message,
            details: health.details,
            traits,
            ..Service::default()
        }
    }

    /// Puts a service into the status, in place of an earlier one.
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

/// Returns the stages in which a component has objects, and that of the workload.
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

    /// Says what is not healthy.
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
