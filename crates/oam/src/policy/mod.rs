//! Parsed policies of an application. Policies of the same type are merged: lists are concatenated, booleans or-ed.
//!
//! ```text
//!  selector.rs   which objects a rule is about
//!  placement.rs  where components are deployed: topology, replication
//!  overrides.rs  changes to components where they are deployed
//! ```

pub(crate) mod overrides;
pub(crate) mod placement;
pub(crate) mod selector;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::apply::ownership::Permissions;
use crate::model::Policy;
use overrides::Override;
use placement::{Replication, Topology};
use selector::{Selector, Subject};

/// The policies of an application.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policies {
    apply_once: Option<Vec<Rule<Kept>>>,
    pub(crate) garbage: GarbageCollect,
    updates: Vec<Rule<Update>>,
    shared: Vec<Rule<()>>,
    read_only: Vec<Rule<()>>,
    take_over: Vec<Rule<()>>,
    pub(crate) topologies: Vec<(String, Topology)>,
    pub(crate) overrides: Vec<(String, Override)>,
    pub(crate) replications: Vec<(String, Replication)>,
    /// Whether objects without an application may be written, regardless of the rules.
    takes_over_all: bool,
    /// Policies of other types: their definitions render objects.
    pub(crate) custom: Vec<Policy>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Rule<S> {
    selector: Selector,
    #[serde(flatten)]
    rest: S,
}

/// The fields of an object that keep changes by others.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Kept {
    strategy: KeptStrategy,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct KeptStrategy {
    path: Vec<String>,
    affect: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Update {
    strategy: UpdateStrategy,
}

/// How an object is updated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct UpdateStrategy {
    op: String,
    pub(crate) recreate_fields: Vec<String>,
}

impl UpdateStrategy {
    pub(crate) fn replaces(&self) -> bool {
        self.op == "replace"
    }
}

/// When objects are deleted.
#[derive(Clone, Debug, Default)]
pub(crate) struct GarbageCollect {
    pub(crate) keep_legacy: bool,
    pub(crate) continue_on_failure: bool,
    pub(crate) revision_limit: Option<usize>,
    pub(crate) by_dependency: bool,
    rules: Vec<Rule<Collected>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Collected {
    strategy: Lifetime,
    propagation: Option<Propagation>,
}

/// The lifetime of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Lifetime {
    /// Until an update drops it.
    #[default]
    OnAppUpdate,
    /// As long as the application.
    OnAppDelete,
    /// Forever.
    Never,
}

/// The fate of an object in garbage collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Propagation {
    /// It is kept, without an application.
    Orphan,
    /// It is deleted with its dependents, which are deleted first.
    Cascading,
}

/// When live values of others are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Update,
    StateKeep,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ApplyOnceProperties {
    enable: bool,
    rules: Vec<Rule<Kept>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GarbageProperties {
    keep_legacy_resource: bool,
    continue_on_failure: bool,
    application_revision_limit: Option<usize>,
    order: String,
    rules: Vec<Rule<Collected>>,
}

#[derive(Deserialize)]
#[serde(default, bound = "S: DeserializeOwned + Default")]
struct Rules<S> {
    rules: Vec<Rule<S>>,
}

impl<S> Default for Rules<S> {
    fn default() -> Self {
        Self { rules: Vec::new() }
    }
}

impl Policies {
    /// Parses policies. The error names the policy and the field.
    pub(crate) fn parse(all: &[Policy]) -> Result<Self, String> {
        let mut parsed = Self::default();
        for policy in all {
            parsed.add(policy)?;
        }
        Ok(parsed)
    }

    /// Parses only the policies for garbage collection.
    pub(crate) fn garbage_of(all: &[Policy]) -> Result<GarbageCollect, String> {
        let relevant: Vec<Policy> =
            all.iter().filter(|policy| policy.kind == "garbage-collect").cloned().collect();
        Self::parse(&relevant).map(|policies| policies.garbage)
    }

    fn add(&mut self, policy: &Policy) -> Result<(), String> {
        match policy.kind.as_str() {
            "apply-once" => {
                let once: ApplyOnceProperties = properties(policy)?;
                if once.enable {
                    self.apply_once.get_or_insert_default().extend(once.rules);
                }
            }
            "garbage-collect" => self.garbage.add(properties(policy)?),
            "resource-update" => self.updates.extend(properties::<Rules<Update>>(policy)?.rules),
            "shared-resource" => self.shared.extend(properties::<Rules<()>>(policy)?.rules),
            "read-only" => self.read_only.extend(properties::<Rules<()>>(policy)?.rules),
            "take-over" => self.take_over.extend(properties::<Rules<()>>(policy)?.rules),
            "topology" => self.topologies.push((policy.name.clone(), properties(policy)?)),
            "override" => self.overrides.push((policy.name.clone(), properties(policy)?)),
            "replication" => self.replications.push((policy.name.clone(), properties(policy)?)),
            "debug" => {}
            _ => self.custom.push(policy.clone()),
        }
        Ok(())
    }

    /// Returns the policies of a WorkflowRun: it owns nothing, and writes objects without an application.
    pub(crate) fn of_run() -> Self {
        Self { takes_over_all: true, ..Self::default() }
    }

    /// Returns whether the object is only read.
    pub(crate) fn is_read_only(&self, subject: &Subject<'_>) -> bool {
        matching(&self.read_only, subject).is_some()
    }

    /// Returns whether all objects are written by the application, and not only read or shared.
    pub(crate) fn owns_all(&self) -> bool {
        self.read_only.is_empty() && self.shared.is_empty()
    }

    /// Returns the permitted use of an existing object.
    pub(crate) fn permissions(&self, subject: &Subject<'_>) -> Permissions {
        Permissions {
            take_over: self.takes_over_all || matching(&self.take_over, subject).is_some(),
            shared: matching(&self.shared, subject).is_some(),
        }
    }

    pub(crate) fn update_strategy(&self, subject: &Subject<'_>) -> UpdateStrategy {
        matching(&self.updates, subject).map(|rule| rule.strategy.clone()).unwrap_or_default()
    }

    /// Returns whether objects are applied once and never restored.
    pub(crate) fn applies_once(&self) -> bool {
        self.apply_once.as_ref().is_some_and(Vec::is_empty)
    }

    /// Returns the paths whose live values are kept. `*` is all.
    pub(crate) fn kept_paths(&self, subject: &Subject<'_>, moment: Moment) -> Vec<String> {
        let rules = self.apply_once.iter().flatten().filter(|rule| rule.selector.matches(subject));
        let rules = rules.filter(|rule| match rule.rest.strategy.affect.as_str() {
            "onUpdate" => moment == Moment::Update,
            "onStateKeep" => moment == Moment::StateKeep,
            _ => true,
        });
        rules.flat_map(|rule| rule.rest.strategy.path.iter().cloned()).collect()
    }
}

impl GarbageCollect {
    fn add(&mut self, more: GarbageProperties) {
        self.keep_legacy |= more.keep_legacy_resource;
        self.continue_on_failure |= more.continue_on_failure;
        self.revision_limit = self.revision_limit.or(more.application_revision_limit);
        self.by_dependency |= more.order == "dependency";
        self.rules.extend(more.rules);
    }

    /// Returns whether all objects have the same lifetime.
    pub(crate) fn is_uniform(&self) -> bool {
        self.rules.is_empty()
    }

    pub(crate) fn lifetime(&self, subject: &Subject<'_>) -> Lifetime {
        matching(&self.rules, subject).map(|rule| rule.strategy).unwrap_or_default()
    }

    pub(crate) fn propagation(&self, subject: &Subject<'_>) -> Option<Propagation> {
        self.rules
            .iter()
            .find(|rule| rule.selector.matches(subject) && rule.rest.propagation.is_some())?
            .rest
            .propagation
    }
}

fn matching<'a, S>(rules: &'a [Rule<S>], subject: &Subject<'_>) -> Option<&'a S> {
    rules.iter().find(|rule| rule.selector.matches(subject)).map(|rule| &rule.rest)
}

fn properties<T: DeserializeOwned + Default>(policy: &Policy) -> Result<T, String> {
    if policy.properties.is_null() {
        return Ok(T::default());
    }
    let parsed = serde_json::from_value::<T>(Value::clone(&policy.properties));
    parsed.map_err(|error| format!("policy {} ({}): {error}", policy.name, policy.kind))
}
