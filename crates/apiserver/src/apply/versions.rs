//! Other versions of a kind. A manager owns fields of the version that it wrote, so a change is compared in each of these
//! versions if they differ in more than their names.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::compare::Comparison;
use super::fields::fields_of;
use super::managers::{Manager, Owned};
use super::remove::remove;
use super::schema_node::SchemaNode;
use super::set::Set;
use super::updater::Updater;
use super::{ManagedFields, Resets};
use crate::schema::Schema;

/// The versions of a kind whose objects are converted by more than changing their version.
pub trait OtherVersions {
    /// Converts an object.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, Unconverted>;

    /// Returns the types of a version, and the fields that a write resets in it. `None` if there is no such version.
    fn version(&self, api_version: &str) -> Option<(&Schema, Resets)>;
}

/// Why an object is not in another version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unconverted {
    /// It has yet to be converted. The result is to be discarded, and the write repeated.
    #[error("the object has yet to be converted")]
    Wanted,
    #[error("{0}")]
    Failed(String),
}

impl Unconverted {
    /// Adds what was attempted.
    fn during(self, what: &str) -> Self {
        match self {
            Self::Failed(why) => Self::Failed(format!("{what}: {why}")),
            Self::Wanted => Self::Wanted,
        }
    }
}

/// A change, as it looks in the version of each manager.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) own: Comparison,
    others: BTreeMap<String, Comparison>,
}

impl Changes {
    pub(super) fn of(&self, api_version: &str) -> &Comparison {
        self.others.get(api_version).unwrap_or(&self.own)
    }
}

fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    ManagedFields::discard(&mut object);
    object
}

impl Updater<'_> {
    /// Compares two states in the versions of all managers but `except`. Managers of versions that no longer exist are
    /// dropped.
    pub(super) fn changes(
        &mut self,
        live: &Value,
        object: &Value,
        own: Comparison,
        except: Option<&Manager>,
    ) -> Result<Changes, Unconverted> {
        let mut others = BTreeMap::new();
        let Some(versions) = self.versions else { return Ok(Changes { own, others }) };
        let of_others = self.managers.0.iter().filter(|(manager, _)| Some(*manager) != except);
        let wanted: BTreeSet<String> = of_others.map(|(_, owned)| owned.api_version.clone()).collect();
        for version in wanted.into_iter().filter(|version| *version != self.api_version) {
            let Some((schema, resets)) = versions.version(&version) else {
                self.managers.0.retain(|_, owned| owned.api_version != version);
                continue;
            };
            // Asks for both, so that they are converted together.
            let (before, after) =
                (versions.convert(&bare(live), &version), versions.convert(&bare(object), &version));
            let before = before.map_err(|why| why.during("failed to convert old object"))?;
            let after = after.map_err(|why| why.during("failed to convert new object"))?;
            let place = SchemaNode::root(schema);
            let comparison = Comparison::between_ignoring(place, &before, &after, resets.set());
            others.insert(version, comparison);
        }
        Ok(Changes { own, others })
    }

    /// Like [`prune`](Self::prune), if the manager or others have written other versions.
    pub(super) fn prune_versions(
        &self,
        versions: &dyn OtherVersions,
        merged: Value,
        last: Owned,
    ) -> Result<Value, Unconverted> {
        let Some((schema, _)) = versions.version(&last.api_version) else { return Ok(merged) };
        let place = SchemaNode::root(schema);
        let merged = versions.convert(&bare(&merged), &last.api_version).map_err(|why| {
            why.during("failed to prune fields: failed to convert merged object to last applied version")
        })?;
        let of_last = last.set.with_named_fields(place);
        let pruned = remove(place, &merged, of_last.view());
        let pruned = self.add_back_owned(versions, &merged, pruned, &last.api_version)?;
        // Keep what no one owns, or what this manager did not apply.
        let of_pruned = fields_of(place, &pruned).with_named_fields(place);
        let of_merged = fields_of(place, &merged).with_named_fields(place);
        let gone = of_merged.difference(&of_pruned).intersection(&of_last);
        let pruned = remove(place, &merged, gone.view());
        versions.convert(&pruned, &self.api_version).map_err(|why| why.during("failed to prune fields"))
    }

    /// Adds back fields that any manager owns, version by version: first the one that the object was pruned in, so that
    /// fields which its conversion needs are back. Returns the object in that version.
    fn add_back_owned(
        &self,
        versions: &dyn OtherVersions,
        merged: &Value,
        pruned: Value,
        pruned_in: &str,
    ) -> Result<Value, Unconverted> {
        let mut owned: BTreeMap<&str, Set> = BTreeMap::new();
        for manager in self.managers.0.values() {
            let set = owned.entry(&manager.api_version).or_default();
            *set = std::mem::take(set).union(manager.set.clone());
        }
        let first = owned.remove(pruned_in).map(|set| (pruned_in, set));
        let (mut merged, mut pruned) = (merged.clone(), pruned);
        for (version, set) in first.into_iter().chain(owned) {
            let Some((schema, _)) = versions.version(version) else { continue };
            let place = SchemaNode::root(schema);
            let what = format!(
                "failed to prune fields: failed add back owned items: failed to convert merged object at version {version}"
            );
            merged = versions.convert(&merged, version).map_err(|why| why.during(&what))?;
            pruned = versions.convert(&pruned, version).map_err(|why| why.during(&what))?;
            let of_merged = fields_of(place, &merged).with_named_fields(place);
            let of_pruned = fields_of(place, &pruned).with_named_fields(place);
            let gone = of_merged.difference(&of_pruned.union(set.with_named_fields(place)));
            pruned = remove(place, &merged, gone.view());
        }
        versions.convert(&pruned, pruned_in).map_err(|why| why.during("failed to prune fields"))
    }
}
