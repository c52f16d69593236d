//! The policies in the cluster, with their bindings.
//!
//! A policy takes effect with the first request after its write was acknowledged, and is compiled when a request first
//! matches it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use setpoint_store::{Record, Resource, Store};

use super::GROUP;
use super::mutating::Mutations;
use super::validating::Validations;
use crate::auth::store_view::{self, StoreView};
use crate::json::Json;
use crate::server::Server;
use crate::status::Status;

/// The policies of both sorts.
pub(crate) struct Policies(StoreView<View>);

/// The compiled form of a policy.
pub(super) trait Compile {
    fn compile(spec: &Value) -> Self;
}

/// A policy and its bindings, by name.
pub(super) struct Hook<C> {
    pub(super) policy: Arc<Policy<C>>,
    pub(super) bindings: Vec<Arc<Binding>>,
}

pub(super) struct Policy<C> {
    pub(super) name: String,
    pub(super) constraints: Value,
    /// The kind of the policy's params.
    pub(super) params: Option<ParamKind>,
    /// Whether failures are ignored (`failurePolicy: Ignore`).
    pub(super) ignores_failures: bool,
    spec: Value,
    compiled: OnceLock<C>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParamKind {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
}

pub(super) struct Binding {
    pub(super) name: String,
    policy: String,
    /// Null if it applies to everything that its policy does.
    pub(super) resources: Value,
    pub(super) params: Value,
    /// The actions of a validating policy.
    pub(super) actions: Value,
}

impl Policies {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self(StoreView::new(store))
    }

    /// Whether any validating policies are bound.
    pub(crate) async fn are_validating(&self, server: &Server) -> Result<bool, Status> {
        Ok(!self.validating(server).await?.is_empty())
    }

    /// Returns the validating policies that are bound, by name.
    pub(super) async fn validating(&self, server: &Server) -> Result<Arc<[Hook<Validations>]>, Status> {
        self.0.with(|view| view.validating.hooks()).await.map_err(|why| server.refusal(why))
    }

    /// Returns the mutating policies that are bound, by name.
    pub(super) async fn mutating(&self, server: &Server) -> Result<Arc<[Hook<Mutations>]>, Status> {
        self.0.with(|view| view.mutating.hooks()).await.map_err(|why| server.refusal(why))
    }
}

impl<C: Compile> Policy<C> {
    fn new(name: &str, policy: &Value) -> Self {
        let spec = policy.at("spec");
        Self {
            name: name.to_owned(),
            constraints: spec.at("matchConstraints").clone(),
            params: ParamKind::of(spec.at("paramKind")),
            ignores_failures: spec.text("failurePolicy") == "Ignore",
            spec: spec.clone(),
            compiled: OnceLock::new(),
        }
    }

    pub(super) fn compiled(&self) -> &C {
        self.compiled.get_or_init(|| C::compile(&self.spec))
    }
}

impl ParamKind {
    pub(super) fn of(kind: &Value) -> Option<Self> {
        if kind.is_null() {
            return None;
        }
        let version = kind.text("apiVersion");
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = kind.text("kind").to_owned();
        Some(Self { group: group.to_owned(), version: version.to_owned(), kind })
    }
}

impl Binding {
    fn new(name: &str, binding: &Value) -> Self {
        let spec = binding.at("spec");
        Self {
            name: name.to_owned(),
            policy: spec.text("policyName").to_owned(),
            resources: spec.at("matchResources").clone(),
            params: spec.at("paramRef").clone(),
            actions: spec.at("validationActions").clone(),
        }
    }
}

/// All policies at the store's newest revision.
#[derive(Default)]
struct View {
    validating: Known<Validations>,
    mutating: Known<Mutations>,
}

struct Known<C> {
    policies: BTreeMap<Box<str>, Arc<Policy<C>>>,
    bindings: BTreeMap<Box<str>, Arc<Binding>>,
    /// Built on first use after a change.
    hooks: OnceLock<Arc<[Hook<C>]>>,
}

impl<C> Default for Known<C> {
    fn default() -> Self {
        Self { policies: BTreeMap::new(), bindings: BTreeMap::new(), hooks: OnceLock::new() }
    }
}

#[derive(Clone, Copy)]
enum Source {
    ValidatingPolicies,
    ValidatingBindings,
    MutatingPolicies,
    MutatingBindings,
}

impl store_view::View for View {
    type Source = Source;

    fn sources() -> Vec<(Source, Resource)> {
        let resource = |plural: &str| Resource::new(format!("{GROUP}/{plural}"));
        vec![
            (Source::ValidatingPolicies, resource("validatingadmissionpolicies")),
            (Source::ValidatingBindings, resource("validatingadmissionpolicybindings")),
            (Source::MutatingPolicies, resource("mutatingadmissionpolicies")),
            (Source::MutatingBindings, resource("mutatingadmissionpolicybindings")),
        ]
    }

    fn apply(&mut self, source: Source, record: &Record, is_there: bool) {
        let name: &str = &record.key.path;
        let object = is_there.then(|| serde_json::from_slice(&record.value).unwrap_or_default());
        match source {
            Source::ValidatingPolicies => self.validating.set_policy(name, object),
            Source::ValidatingBindings => self.validating.set_binding(name, object),
            Source::MutatingPolicies => self.mutating.set_policy(name, object),
            Source::MutatingBindings => self.mutating.set_binding(name, object),
        }
    }
}

impl<C: Compile> Known<C> {
    fn set_policy(&mut self, name: &str, policy: Option<Value>) {
        match policy {
            Some(policy) => _ = self.policies.insert(name.into(), Arc::new(Policy::new(name, &policy))),
            None => _ = self.policies.remove(name),
        }
        self.hooks = OnceLock::new();
    }

    fn set_binding(&mut self, name: &str, binding: Option<Value>) {
        match binding {
            Some(binding) => _ = self.bindings.insert(name.into(), Arc::new(Binding::new(name, &binding))),
            None => _ = self.bindings.remove(name),
        }
        self.hooks = OnceLock::new();
    }

    /// Returns the policies that have a binding.
    fn hooks(&self) -> Arc<[Hook<C>]> {
        let hooks = self.hooks.get_or_init(|| {
            let mut bindings: BTreeMap<&str, Vec<Arc<Binding>>> = BTreeMap::new();
            for binding in self.bindings.values() {
                bindings.entry(&binding.policy).or_default().push(binding.clone());
            }
            let bound = self.policies.values().filter_map(|policy| {
                let bindings = bindings.remove(policy.name.as_str())?;
                Some(Hook { policy: policy.clone(), bindings })
            });
            bound.collect()
        });
        hooks.clone()
    }
}
