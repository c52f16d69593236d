//! Updates field ownership after a write.

use std::sync::LazyLock;

use serde_json::Value;

use super::ApplyError;
use super::compare::Comparison;
use super::conflict::{Conflict, Conflicts};
use super::fields::fields_of;
use super::last_applied;
use super::managers::{Manager, Managers, Owned};
use super::merge::merge;
use super::remove::remove;
use super::schema_node::SchemaNode;
use super::set::Set;
use super::versions::{Changes, OtherVersions, Unconverted};

/// The managers of an object during a write.
pub(super) struct Updater<'a> {
    pub(super) place: SchemaNode<'a>,
    /// Fields that no one can own here.
    pub(super) ignored: &'a Set,
    pub(super) api_version: String,
    pub(super) managers: Managers,
    pub(super) versions: Option<&'a dyn OtherVersions>,
}

/// Server-owned fields, which belong to no manager.
pub(super) static SERVER_FIELDS: LazyLock<Set> = LazyLock::new(|| {
    Set::of(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

impl Updater<'_> {
    /// Records a write other than an apply: the writer owns what it changes.
    pub(super) fn update(
        &mut self,
        live: &Value,
        object: &Value,
        manager: Manager,
        time: Option<String>,
    ) -> Result<bool, Unconverted> {
        let comparison = Comparison::between_ignoring(self.place, live, object, self.ignored);
        let changes = self.changes(live, object, comparison, None)?;
        Ok(self.record(changes, manager, time))
    }

    /// Records a change. Returns whether its manager gained any fields.
    pub(super) fn record(&mut self, changes: Changes, manager: Manager, time: Option<String>) -> bool {
        self.take_from_others(&changes, None);
        let changed = changes.own.modified.union(changes.own.added).difference(&SERVER_FIELDS);
        if changed.is_empty() {
            return false;
        }
        let before = self.managers.0.remove(&manager).map(|owned| owned.set).unwrap_or_default();
        let owned = Owned { set: before.union(changed), api_version: self.api_version.clone(), time };
        self.managers.0.insert(manager, owned);
        true
    }

    /// Takes added, changed and removed fields from all managers but `except`.
    fn take_from_others(&mut self, changes: &Changes, except: Option<&Manager>) {
        for (manager, owned) in &mut self.managers.0 {
            if Some(manager) != except {
                let comparison = changes.of(&owned.api_version);
                let set = std::mem::take(&mut owned.set);
                let set = set.difference(&comparison.modified).difference(&comparison.added);
                owned.set = set.difference(&comparison.removed);
            }
        }
        self.managers.drop_idle();
    }

    /// Applies for a manager. Fields from kubectl's earlier client-side apply do not conflict.
    pub(super) fn apply_as(
        &mut self,
        live: &Value,
        configuration: &Value,
        who: &Manager,
        name: &str,
        force: bool,
    ) -> Result<Option<Value>, ApplyError> {
        let before = self.managers.clone();
        let refused = match self.apply(live, configuration, who, force, None) {
            Err(refused @ Refused::Conflicts(_)) if name == last_applied::KUBECTL => refused,
            Err(refused) => return Err(refused.into()),
            Ok(applied) => return Ok(applied),
        };
        let Some(own) = last_applied::own_fields(self.place, live, &self.api_version) else {
            return Err(refused.into());
        };
        self.managers = before;
        Ok(self.apply(live, configuration, who, false, Some(&own))?)
    }

    /// Returns the merged object if it differs from the live one. Conflicts on `allowed` fields are ignored.
    fn apply(
        &mut self,
        live: &Value,
        configuration: &Value,
        who: &Manager,
        force: bool,
        allowed: Option<&Set>,
    ) -> Result<Option<Value>, Refused> {
        let merged = merge(self.place, live, configuration);
        let last = self.managers.0.remove(who);
        let time = last.as_ref().and_then(|owned| owned.time.clone());
        let set = fields_of(self.place, configuration).without(self.ignored);
        self.managers.0.insert(who.clone(), Owned { set, api_version: self.api_version.clone(), time });
        let object = match last {
            Some(last) if !last.set.is_empty() => {
                match self.versions.filter(|_| self.has_other_versions(&last)) {
                    Some(versions) => self.prune_versions(versions, merged, last)?,
                    None => self.prune(merged, last.set),
                }
            }
            _ => merged,
        };
        let comparison = Comparison::between_ignoring(self.place, live, &object, self.ignored);
        let changes = self.changes(live, &object, comparison, Some(who))?;
        if !force {
            let conflicting = self.conflicts(&changes, who, allowed);
            if !conflicting.is_empty() {
                return Err(Refused::Conflicts(conflicting));
            }
        }
        self.take_from_others(&changes, Some(who));
        self.strip(who);
        Ok((object != *live).then_some(object))
    }

    /// Whether the last configuration of the manager, or the fields of another one, are of other versions.
    fn has_other_versions(&self, last: &Owned) -> bool {
        let mut all = self.managers.0.values().chain([last]);
        all.any(|owned| owned.api_version != self.api_version)
    }

    fn conflicts(&self, changes: &Changes, who: &Manager, allowed: Option<&Set>) -> Vec<(Manager, Set)> {
        let others = self.managers.0.iter().filter(|(manager, _)| *manager != who);
        let conflicting = others.map(|(manager, owned)| {
            let comparison = changes.of(&owned.api_version);
            let changed = comparison.modified.clone().union(comparison.added.clone());
            let set = owned.set.intersection(&changed);
            let set = match allowed {
                Some(allowed) => set.difference(allowed),
                None => set,
            };
            (manager.clone(), set)
        });
        conflicting.filter(|(_, set)| !set.is_empty()).collect()
    }

    /// Removes what the manager applied before and no longer applies, unless another manager owns it.
    fn prune(&self, merged: Value, last: Set) -> Value {
        let place = self.place;
        let named = |set: Set| set.with_named_fields(place);
        let last = named(last);
        let pruned = remove(place, &merged, last.view());
        // Keep fields that any manager owns, including this one's new configuration.
        let mut owned = Set::default();
        for manager in self.managers.0.values() {
            owned = owned.union(manager.set.clone());
        }
        let of_merged = named(fields_of(place, &merged));
        let of_pruned = named(fields_of(place, &pruned));
        let gone = of_merged.clone().difference(&of_pruned.union(named(owned)));
        let pruned = remove(place, &merged, gone.view());
        // Keep what no one owns, or what this manager did not apply.
        let of_pruned = named(fields_of(place, &pruned));
        let gone = of_merged.difference(&of_pruned).intersection(&last);
        remove(place, &merged, gone.view())
    }

    fn strip(&mut self, who: &Manager) {
        if let Some(owned) = self.managers.0.get_mut(who) {
            owned.set = std::mem::take(&mut owned.set).difference(&SERVER_FIELDS);
        }
        self.managers.drop_idle();
    }

    pub(super) fn stamp(&mut self, who: &Manager, time: Option<String>) {
        if let Some(owned) = self.managers.0.get_mut(who) {
            owned.time = time;
        }
    }
}

/// Why an apply was rejected.
enum Refused {
    Conflicts(Vec<(Manager, Set)>),
    Unconverted(Unconverted),
}

impl From<Unconverted> for Refused {
    fn from(why: Unconverted) -> Self {
        Self::Unconverted(why)
    }
}

impl From<Refused> for ApplyError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Conflicts(conflicting) => Self::Conflict(report(&conflicting)),
            Refused::Unconverted(why) => Self::Internal(why.to_string()),
        }
    }
}

fn report(conflicting: &[(Manager, Set)]) -> Conflicts {
    let mut conflicts: Vec<Conflict> = conflicting
        .iter()
        .flat_map(|(manager, set)| {
            let manager = manager.describe();
            set.paths().into_iter().map(move |field| Conflict { manager: manager.clone(), field })
        })
        .collect();
    conflicts.sort_by(|a, b| a.manager.cmp(&b.manager));
    Conflicts(conflicts)
}
