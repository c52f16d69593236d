//! Updates field ownership after a write.

use std::sync::LazyLock;

use serde_json::Value;

use super::compare::Comparison;
use super::conflict::{Conflict, Conflicts};
use super::fields::fields_of;
use super::last_applied;
use super::managers::{Manager, Managers, Owned};
use super::merge::merge;
use super::place::Place;
use super::remove::remove;
use super::set::Set;

/// The managers of an object during a write.
pub(super) struct Updater<'a> {
    pub(super) place: Place<'a>,
    /// Fields that no one can own here.
    pub(super) ignored: &'a Set,
    pub(super) api_version: String,
    pub(super) managers: Managers,
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
    pub(super) fn update(&mut self, live: &Value, object: &Value, manager: Manager, time: Option<String>) {
        let comparison = Comparison::between_ignoring(self.place, live, object, self.ignored);
        self.record(comparison, manager, time);
    }

    /// Records a change. Returns whether its manager gained any fields.
    pub(super) fn record(&mut self, comparison: Comparison, manager: Manager, time: Option<String>) -> bool {
        self.take_from_others(&comparison, None);
        let changed = comparison.modified.union(comparison.added).difference(&SERVER_FIELDS);
        if changed.is_empty() {
            return false;
        }
        let before = self.managers.0.remove(&manager).map(|owned| owned.set).unwrap_or_default();
        let owned = Owned { set: before.union(changed), api_version: self.api_version.clone(), time };
        self.managers.0.insert(manager, owned);
        true
    }

    /// Takes added, changed and removed fields from all managers but `except`.
    fn take_from_others(&mut self, comparison: &Comparison, except: Option<&Manager>) {
        for (manager, owned) in &mut self.managers.0 {
            if Some(manager) != except {
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
    ) -> Result<Option<Value>, Conflicts> {
        let before = self.managers.clone();
        let conflicting = match self.apply(live, configuration, who, force, None) {
            Err(conflicting) if name == last_applied::KUBECTL => conflicting,
            Err(conflicting) => return Err(report(&conflicting)),
            Ok(applied) => return Ok(applied),
        };
        let Some(own) = last_applied::own_fields(self.place, live, &self.api_version) else {
            return Err(report(&conflicting));
        };
        self.managers = before;
        self.apply(live, configuration, who, false, Some(&own)).map_err(|conflicting| report(&conflicting))
    }

    /// Returns the merged object if it differs from the live one. Conflicts on `allowed` fields are ignored.
    fn apply(
        &mut self,
        live: &Value,
        configuration: &Value,
        who: &Manager,
        force: bool,
        allowed: Option<&Set>,
    ) -> Result<Option<Value>, Vec<(Manager, Set)>> {
        let merged = merge(self.place, live, configuration);
        let last = self.managers.0.remove(who);
        let time = last.as_ref().and_then(|owned| owned.time.clone());
        let set = fields_of(self.place, configuration).without(self.ignored);
        self.managers.0.insert(who.clone(), Owned { set, api_version: self.api_version.clone(), time });
        let object = match last {
            Some(last) if !last.set.is_empty() => self.prune(merged, last.set),
            _ => merged,
        };
        let comparison = Comparison::between_ignoring(self.place, live, &object, self.ignored);
        if !force {
            let conflicting = self.conflicts(&comparison, who, allowed);
            if !conflicting.is_empty() {
                return Err(conflicting);
            }
        }
        self.take_from_others(&comparison, Some(who));
        self.strip(who);
        Ok((object != *live).then_some(object))
    }

    fn conflicts(
        &self,
        comparison: &Comparison,
        who: &Manager,
        allowed: Option<&Set>,
    ) -> Vec<(Manager, Set)> {
        let changed = comparison.modified.clone().union(comparison.added.clone());
        let others = self.managers.0.iter().filter(|(manager, _)| *manager != who);
        let conflicting = others.map(|(manager, owned)| {
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
