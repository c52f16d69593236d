//! Writes of the live controllers that no intention explains yet.
//!
//! A write is attributed by `metadata.managedFields`: the entries of the live controllers' field manager have changed.
//! Deletions are not attributed, because the API does not record who deletes.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hasher};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use setpoint::{Instant, Metadata, Object};

use crate::family::Family;
use crate::fields::Comparison;
use crate::intention::Input;
use crate::target::ObjectId;

/// The maximum number of unexplained live creations. At 4 KB each, mostly pods, that is 16 MB.
const MAX_CREATED: usize = 4_096;
/// The same for changes, at about 300 bytes each.
const MAX_CHANGED: usize = 10_000;

/// The maximum number of known objects. At about 100 bytes each that is 50 MB. Objects deleted while no watch was open
/// stay. Writes to further objects are not attributed.
const MAX_KNOWN: usize = 500_000;

/// The known state of the live objects.
#[derive(Default)]
pub(crate) struct Observed {
    known: BTreeMap<Box<str>, Known>,
    created: BTreeMap<Family, VecDeque<LiveCreate>>,
    created_count: usize,
    changed: BTreeMap<ObjectId, LiveWrite>,
    /// Unintended deletions, by the owner of the deleted object.
    deleted: BTreeMap<String, BTreeMap<ObjectId, Instant>>,
    deleted_count: usize,
}

struct Known {
    generation: i64,
    revision: u64,
    is_being_deleted: bool,
    /// Digests of the fields managed by the live controllers and by others. `None` if unknown.
    digest: Option<(u64, u64)>,
}

/// An object with a generated name, created by the live controllers.
pub(crate) struct LiveCreate {
    uid: Box<str>,
    pub(crate) name: String,
    /// Without its name.
    pub(crate) object: Value,
    pub(crate) at: Instant,
    pub(crate) time: Timestamp,
    is_claimed: bool,
}

/// A change by the live controllers.
#[derive(Clone, Debug)]
pub(crate) struct LiveWrite {
    pub(crate) is_creation: bool,
    pub(crate) subresource: Option<String>,
    pub(crate) at: Instant,
    pub(crate) time: Timestamp,
}

/// The live write that an event shows, if any.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Attributed {
    /// Not by the live controllers, or already seen.
    No,
    /// Times have a resolution of a second: the second write within one cannot be attributed.
    Perhaps,
    Creation,
    Change {
        subresource: Option<String>,
    },
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    metadata: Managed<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Managed<'a> {
    #[serde(borrow, default)]
    managed_fields: Option<Vec<Entry<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    #[serde(default)]
    manager: String,
    #[serde(default)]
    time: Option<Timestamp>,
    #[serde(default)]
    subresource: Option<String>,
    #[serde(borrow, default)]
    fields_v1: Option<&'a RawValue>,
}

impl Observed {
    /// Records a listed object. Returns whether it is new.
    pub(crate) fn learn(&mut self, meta: &Metadata) -> bool {
        let before = self.known.len();
        if before >= MAX_KNOWN {
            return false;
        }
        self.known.entry(meta.uid.clone()).or_insert_with(|| Known::of(meta, None));
        self.known.len() > before
    }

    /// Records a change. Returns whether the live controllers made it.
    pub(crate) fn attribute(&mut self, object: &Object, manager: &str) -> Attributed {
        let meta = object.meta();
        let known = self.known.get(&meta.uid);
        if known.is_some_and(|known| known.revision >= meta.revision()) {
            return Attributed::No;
        }
        if known.is_none() && self.known.len() >= MAX_KNOWN {
            return Attributed::No;
        }
        let (is_new, before) = (known.is_none(), known.and_then(|known| known.digest));
        let managed = serde_json::from_slice::<Envelope<'_>>(object.raw()).ok();
        let entries = managed.and_then(|one| one.metadata.managed_fields).unwrap_or_default();
        let (own, others): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| entry.manager == manager);
        let now = (digest(&own), digest(&others));
        self.known.insert(meta.uid.clone(), Known::of(meta, Some(now)));
        match before {
            _ if own.is_empty() => return Attributed::No,
            Some(before) if before == now => return Attributed::Perhaps,
            Some((before, _)) if before == now.0 => return Attributed::No,
            _ => {}
        }
        let newest = own.iter().max_by_key(|entry| entry.time);
        let others = others.iter().filter_map(|entry| entry.time).max();
        // The first change of a listed object: attributed to its last writer.
        if !is_new && before.is_none() && others >= newest.and_then(|entry| entry.time) {
            return Attributed::No;
        }
        match is_new {
            true if others.is_none() => Attributed::Creation,
            true => Attributed::No,
            false => Attributed::Change { subresource: newest.and_then(|entry| entry.subresource.clone()) },
        }
    }

    /// Whether it is new that an object is being deleted, or is gone.
    pub(crate) fn marks_deletion(&self, meta: &Metadata) -> bool {
        self.known.get(&meta.uid).is_some_and(|known| !known.is_being_deleted)
    }

    pub(crate) fn deleted(&mut self, owner: &str, id: &ObjectId, now: Instant) {
        if self.deleted_count < MAX_CHANGED {
            let before = self.deleted.entry(owner.to_owned()).or_default().insert(id.clone(), now);
            self.deleted_count += usize::from(before.is_none());
        }
    }

    /// Records that the deletion of this object was intended.
    pub(crate) fn explain_deletion(&mut self, owner: &str, id: &ObjectId) {
        let removed = self.deleted.get_mut(owner).and_then(|deleted| deleted.remove(id));
        self.deleted_count -= usize::from(removed.is_some());
    }

    /// Takes the deletion of another object of this owner.
    pub(crate) fn take_deletion(&mut self, owner: &str) -> bool {
        let taken = self.deleted.get_mut(owner).and_then(BTreeMap::pop_first).is_some();
        self.deleted_count -= usize::from(taken);
        taken
    }

    pub(crate) fn gone(&mut self, meta: &Metadata) {
        self.known.remove(&meta.uid);
    }

    /// Returns the current state of an owner.
    pub(crate) fn input(&self, uid: &str) -> Option<Input> {
        let known = self.known.get(uid)?;
        Some(Input { uid: uid.to_owned(), generation: known.generation })
    }

    pub(crate) fn is_unchanged(&self, input: &Input) -> bool {
        self.known
            .get(input.uid.as_str())
            .is_some_and(|known| known.generation == input.generation && !known.is_being_deleted)
    }

    pub(crate) fn created(&mut self, family: Family, create: LiveCreate) {
        if self.created_count < MAX_CREATED {
            self.created_count += 1;
            self.created.entry(family).or_default().push_back(create);
        }
    }

    pub(crate) fn changed(&mut self, id: ObjectId, write: LiveWrite) {
        if self.changed.len() < MAX_CHANGED {
            self.changed.entry(id).or_insert(write);
        }
    }

    /// Records an intention about the object.
    pub(crate) fn explain(&mut self, id: &ObjectId) {
        self.changed.remove(id);
    }

    pub(crate) fn is_unexplained(&self, id: &ObjectId) -> bool {
        self.changed.contains_key(id)
    }

    /// Whether a wanted object explains a creation, which is then used up, unless there can be only one such object:
    /// that may be wanted again before it is seen.
    pub(crate) fn claim(&mut self, family: &Family, wanted: &Value, comparison: Comparison) -> bool {
        let fits = |one: &LiveCreate| comparison.of_object(wanted, &one.object).is_empty();
        if !family.is_unique() {
            return self.take_created(family, fits).is_some();
        }
        let found = self.created.get_mut(family).and_then(|created| created.iter_mut().find(|one| fits(one)));
        found.map(|one| one.is_claimed = true).is_some()
    }

    /// Takes any creation of the family.
    pub(crate) fn take_any(&mut self, family: &Family) -> Option<LiveCreate> {
        self.take_created(family, |_| true)
    }

    /// Returns the last creation of the family.
    pub(crate) fn last_created(&self, family: &Family) -> Option<&LiveCreate> {
        self.created.get(family)?.back()
    }

    fn take_created(&mut self, family: &Family, fits: impl Fn(&LiveCreate) -> bool) -> Option<LiveCreate> {
        let created = self.created.get_mut(family)?;
        let taken = created.iter().position(fits).and_then(|place| created.remove(place));
        if created.is_empty() {
            self.created.remove(family);
        }
        self.created_count -= usize::from(taken.is_some());
        taken
    }

    pub(crate) fn is_unclaimed(&self, family: &Family, uid: &str) -> bool {
        let is_open = |one: &LiveCreate| &*one.uid == uid && !one.is_claimed;
        self.created.get(family).is_some_and(|created| created.iter().any(is_open))
    }

    /// Takes the creations seen before `limit` that nothing has claimed.
    pub(crate) fn unclaimed_before(&mut self, limit: Instant) -> Vec<(Family, LiveCreate)> {
        let mut over = Vec::new();
        for (family, created) in &mut self.created {
            while created.front().is_some_and(|one| one.at <= limit) {
                over.extend(created.pop_front().map(|one| (family.clone(), one)));
            }
        }
        self.created.retain(|_, created| !created.is_empty());
        self.created_count -= over.len();
        for deleted in self.deleted.values_mut() {
            let before = deleted.len();
            deleted.retain(|_, at| *at > limit);
            self.deleted_count -= before - deleted.len();
        }
        self.deleted.retain(|_, deleted| !deleted.is_empty());
        over.retain(|(_, one): &(Family, LiveCreate)| !one.is_claimed);
        over
    }

    /// Takes the changes seen before `limit`.
    pub(crate) fn unexplained_before(&mut self, limit: Instant) -> Vec<(ObjectId, LiveWrite)> {
        let over: Vec<_> = self
            .changed
            .iter()
            .filter(|(_, write)| write.at <= limit)
            .map(|(id, write)| (id.clone(), write.clone()))
            .collect();
        over.iter().for_each(|(id, _)| drop(self.changed.remove(id)));
        over
    }
}

impl LiveCreate {
    pub(crate) fn new(object: &Object, live: Value, is_claimed: bool, at: Instant, time: Timestamp) -> Self {
        let (uid, name) = (object.meta().uid.clone(), object.meta().name.to_string());
        Self { uid, name, object: live, at, time, is_claimed }
    }
}

impl Known {
    fn of(meta: &Metadata, digest: Option<(u64, u64)>) -> Self {
        Self {
            generation: meta.generation,
            revision: meta.revision(),
            is_being_deleted: meta.is_being_deleted(),
            digest,
        }
    }
}

/// Returns a digest that changes with the entries.
fn digest(entries: &[&Entry<'_>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for entry in entries {
        hasher.write(entry.subresource.as_deref().unwrap_or_default().as_bytes());
        hasher.write_i128(entry.time.map_or(0, Timestamp::as_nanosecond));
        hasher.write(entry.fields_v1.map_or("", RawValue::get).as_bytes());
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(version: &str, managers: &[(&str, &str)]) -> Object {
        let entries: Vec<_> = managers
            .iter()
            .map(|(manager, time)| {
                json!({"manager": manager, "operation": "Update", "time": time, "fieldsV1": {"f:a": {}}})
            })
            .collect();
        let metadata = json!({"name": "a", "uid": "u", "resourceVersion": version, "managedFields": entries});
        Object::from_json(json!({"metadata": metadata}).to_string().into()).expect("an object")
    }

    #[test]
    fn a_write_is_attributed_to_the_manager_whose_entry_has_changed() {
        let (kcm, user) = ("kube-controller-manager", "kubectl");
        let [early, late] = ["2025-01-01T00:00:00Z", "2025-01-01T00:00:09Z"];
        let mut seen = Observed::default();
        let mut check = |version: &str, managers: &[(&str, &str)], expected: Attributed| {
            assert_eq!(seen.attribute(&object(version, managers), kcm), expected, "version {version}");
        };
        check("1", &[(user, early)], Attributed::No);
        check("2", &[(user, early), (kcm, late)], Attributed::Change { subresource: None });
        check("2", &[(user, early), (kcm, late)], Attributed::No);
        check("3", &[(user, late), (kcm, late)], Attributed::No);
        check("4", &[(user, late), (kcm, late)], Attributed::Perhaps);
        let mut seen = Observed::default();
        assert_eq!(seen.attribute(&object("1", &[(kcm, early)]), kcm), Attributed::Creation);
        let mut listed = Observed::default();
        listed.learn(object("1", &[]).meta());
        assert_eq!(listed.attribute(&object("2", &[(kcm, early), (user, late)]), kcm), Attributed::No);
    }
}
