//! The state of one reconcile of an application.

use std::sync::Arc;

use jiff::Timestamp;
use setpoint::Key;

use crate::application::catalog::Catalog;
use crate::apply::cluster::{Cluster, ClusterError};
use crate::apply::dispatch::Dispatcher;
use crate::apply::tracker::{AppRef, Trackers};
use crate::clusters::Clusters;
use crate::definition::builtin;
use crate::definition::model::Definition;
use crate::model::{Component, Service, Spec};
use crate::policy::Policies;
use crate::policy::placement::Placement;
use crate::render::component::{Definitions, Renderer};
use crate::render::context::AppContext;
use crate::render::judged::Judgements;
use crate::render::kept::Renders;
use crate::render::sources::Sources;
use crate::workflow::exchanges::Exchanges;
use crate::workflow::steps::APPLY_COMPONENT;
use crate::workflow::variables::{Owner, Variables};

/// An application by name and uid.
pub(crate) struct SessionKey {
    pub(crate) key: Key,
    pub(crate) uid: String,
}

/// An application in one reconcile.
pub(crate) struct Session<'a> {
    pub(crate) clusters: &'a Clusters,
    pub(crate) sources: &'a Sources,
    /// Definitions that the revision has not recorded: steps may add components and traits of other types.
    pub(crate) catalog: &'a Catalog,
    /// The components rendered in earlier rounds.
    pub(crate) renders: &'a Renders,
    pub(crate) judgements: &'a Judgements,
    /// Requests of steps.
    pub(crate) exchanges: &'a Exchanges,
    pub(crate) app: AppRef,
    /// The key for attempts of steps and for rendered components.
    pub(crate) attempts: String,
    pub(crate) context: AppContext,
    pub(crate) spec: Spec,
    pub(crate) definitions: Definitions,
    pub(crate) policies: Policies,
    pub(crate) trackers: Trackers,
    pub(crate) variables: Variables,
    pub(crate) services: Vec<Service>,
    /// Whether the application turns health checks off.
    pub(crate) ignores_health: bool,
    pub(crate) now: Timestamp,
}

impl Session<'_> {
    /// The cluster of the application.
    pub(crate) fn local(&self) -> &Cluster {
        self.clusters.local()
    }

    /// Looks up the definitions of a component that the revision does not have.
    pub(crate) fn complete(&mut self, component: &Component) {
        let Definitions { components, traits, .. } = &mut self.definitions;
        let (catalog, namespace) = (self.catalog, &self.app.namespace);
        catalog.complete(components, "ComponentDefinition", namespace, &component.kind);
        for attached in &component.traits {
            catalog.complete(traits, "TraitDefinition", namespace, &attached.kind);
        }
    }

    /// Returns the definition of a step. For `apply-component` it is always the built-in one: KubeVela's has no
    /// template, because its controller applies components itself.
    pub(crate) fn step(&mut self, kind: &str) -> Option<&Definition> {
        if kind == APPLY_COMPONENT {
            return builtin::apply_component();
        }
        let steps = &mut self.definitions.steps;
        self.catalog.complete(steps, "WorkflowStepDefinition", &self.app.namespace, kind);
        steps.get(kind).map(Arc::as_ref)
    }

    pub(crate) fn renderer(&self) -> Renderer<'_> {
        Renderer { sources: self.sources, app: &self.context, definitions: &self.definitions }
    }

    /// Records and applies manifests of the application.
    pub(crate) async fn dispatch(
        &mut self,
        manifests: Vec<serde_json::Value>,
        place: &Placement,
        creator: &str,
    ) -> Result<Vec<serde_json::Value>, ClusterError> {
        let app = match self.context.of_run {
            // An application may have the same name.
            Some(_) => format!("WorkflowRun {}", self.app.key()),
            None => self.app.key(),
        };
        let dispatcher = Dispatcher { clusters: self.clusters, policies: &self.policies, app: &app };
        dispatcher.dispatch(&mut self.trackers, manifests, place, creator).await
    }

    /// Identifies this application, also among earlier ones of the same name.
    pub(crate) fn session_key(&self) -> SessionKey {
        SessionKey { key: self.key(), uid: self.app.uid.clone() }
    }

    pub(crate) fn key(&self) -> Key {
        Key::namespaced(&self.app.namespace, &self.app.name)
    }

    /// The object whose workflow this is.
    pub(crate) fn owner(&self) -> Owner {
        Owner { key: self.key(), uid: self.app.uid.clone(), is_run: self.context.of_run.is_some() }
    }
}
