//! Definitions, policies and workflows from the caches.

use std::sync::Arc;

use serde_json::Value;
use setpoint::source::Selection;
use setpoint::{Context, Informer, Key};

use crate::crds::{self, Crd};
use crate::definition::model::{ByType, Definition};
use crate::names::SYSTEM_NAMESPACE;

/// Listers for everything that applications refer to by name. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Catalog {
    informers: Vec<(&'static str, Informer)>,
}

const KINDS: &[&Crd] = &[
    &crds::COMPONENT_DEFINITION,
    &crds::TRAIT_DEFINITION,
    &crds::POLICY_DEFINITION,
    &crds::STEP_DEFINITION,
    &crds::WORKLOAD_DEFINITION,
    &crds::DEFINITION_REVISION,
    &crds::POLICY,
    &crds::WORKFLOW,
];

/// Listers for everything that WorkflowRuns refer to.
const OF_WORKFLOWS: &[&Crd] = &[&crds::STEP_DEFINITION, &crds::DEFINITION_REVISION, &crds::WORKFLOW];

impl Catalog {
    pub(crate) fn new(context: &Context) -> Self {
        Self::of_kinds(context, KINDS)
    }

    /// Returns the part for WorkflowRuns.
    pub(crate) fn of_workflows(context: &Context) -> Self {
        Self::of_kinds(context, OF_WORKFLOWS)
    }

    fn of_kinds(context: &Context, kinds: &[&Crd]) -> Self {
        let informer = |crd: &&Crd| (crd.kind, context.informers.select(&crd.kind(), Selection::default()));
        Self { informers: kinds.iter().map(informer).collect() }
    }

    pub(crate) fn informers(&self) -> Vec<Informer> {
        self.informers.iter().map(|(_, informer)| informer.clone()).collect()
    }

    /// Returns an object by kind, namespace and name.
    pub(crate) fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let (_, informer) = self.informers.iter().find(|(known, _)| *known == kind)?;
        let object = informer.objects().get(&Key::namespaced(namespace, name))?;
        object.decode().ok()
    }

    /// Adds the definition of a type, if it is still missing and exists. A definition that cannot be decoded counts as
    /// missing.
    pub(crate) fn complete(&self, known: &mut ByType, kind: &str, namespace: &str, name: &str) {
        if known.contains_key(name) {
            return;
        }
        let found = self.definition(kind, namespace, name).and_then(|found| Definition::of(&found).ok());
        known.extend(found.map(|definition| (name.to_owned(), Arc::new(definition))));
    }

    /// Returns the definition of a type. It is looked up in the application's namespace, then among the shared ones. A
    /// type may name a revision: `webservice@v1`.
    pub(crate) fn definition(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let found = |kind: &str, name: &str| {
            self.get(kind, namespace, name).or_else(|| self.get(kind, SYSTEM_NAMESPACE, name))
        };
        match name.split_once('@') {
            None => found(kind, name),
            Some((name, revision)) => {
                let number = revision.strip_prefix('v').unwrap_or(revision);
                let revision = found("DefinitionRevision", &format!("{name}-v{number}"))?;
                let mut field = kind.to_owned();
                field[..1].make_ascii_lowercase();
                Some(revision["spec"][field].clone()).filter(Value::is_object)
            }
        }
    }
}
