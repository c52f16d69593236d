//! The objects that programs create for an object: their kinds are found out at run time, and watched from then on.
//!
//! An object belongs to the owner in its owner references, or in the annotations of the Operator SDK.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint::handler::{Handler, enqueue_mapped, predicate};
use setpoint::informer::Registration;
use setpoint::source::Selection;
use setpoint::{Event, Informer, Key, Kind, Object, Queue};

use crate::names::{PRIMARY_RESOURCE, PRIMARY_RESOURCE_TYPE};
use crate::parents::{SharedInformers, annotations, is_about_status_only};

/// The most kinds that are watched for one operator.
const MAX_KINDS: usize = 256;
/// How long a reconcile waits for a cache that has just been requested. Then it is requeued.
const SYNCED_WITHIN: Duration = Duration::from_secs(1);

/// The watched kinds of dependents of one kind of owners.
pub(crate) struct Dependents {
    informers: SharedInformers,
    queue: Queue<Key>,
    owner: Kind,
    selection: Selection,
    /// Whether new objects change nothing: their owner has just created them.
    ignores_new: bool,
    /// Bounded by [`MAX_KINDS`].
    followed: Mutex<BTreeMap<Kind, (Informer, Registration)>>,
}

impl Dependents {
    pub(crate) fn new(
        informers: &SharedInformers,
        queue: &Queue<Key>,
        owner: &Kind,
        selection: Selection,
    ) -> Self {
        let (informers, queue, owner) = (informers.clone(), queue.clone(), owner.clone());
        Self { informers, queue, owner, selection, ignores_new: false, followed: Mutex::default() }
    }

    /// Does not report new objects.
    pub(crate) fn ignoring_new(self) -> Self {
        Self { ignores_new: true, ..self }
    }

    /// Watches a kind. Returns its cache, which may not have synced yet, or `None` if there are too many kinds.
    pub(crate) fn follow(&self, kind: &Kind) -> Option<Informer> {
        let mut followed = self.followed.lock();
        if let Some((informer, _)) = followed.get(kind) {
            return Some(informer.clone());
        }
        if followed.len() >= MAX_KINDS {
            return None;
        }
        let owner = self.owner.clone();
        let handler = enqueue_mapped(&self.queue, move |object: &Object| owners_of(&owner, object));
        let ignores_new = self.ignores_new;
        let is_news = move |event: &Event| match event {
            Event::Added { .. } => !ignores_new,
            event => !is_noise(event),
        };
        let handler = handler.when(predicate::version_changed()).when(is_news);
        let (informer, registration) = self.informers.change(|informers| {
            let informer = informers.select(kind, self.selection.clone());
            let registration = informer.add_handler(handler);
            (informer, registration)
        });
        followed.insert(kind.clone(), (informer.clone(), registration));
        Some(informer)
    }

    /// Returns the cache of a kind when it has synced, or `None` if that takes long.
    pub(crate) async fn synced(&self, kind: &Kind) -> Option<Informer> {
        let informer = self.follow(kind)?;
        let syncing = tokio::time::timeout(SYNCED_WITHIN, informer.wait_for_sync()).await;
        syncing.ok().map(|()| informer)
    }

    /// Stops watching.
    pub(crate) fn end(&self) {
        let followed = std::mem::take(&mut *self.followed.lock());
        self.informers.unfollow(followed.into_values());
    }
}

/// Whether an event is only about the status of an object whose kind counts generations.
fn is_noise(event: &Event) -> bool {
    event.object().meta().generation > 0 && is_about_status_only(event)
}

/// Returns the owner of an object, if it is of this kind.
fn owners_of(owner: &Kind, object: &Object) -> Vec<Key> {
    let meta = object.meta();
    let is_owner = |reference: &&setpoint::OwnerRef| {
        &*reference.kind == owner.kind() && reference.group() == owner.group()
    };
    let referenced = meta.owner_references.iter().filter(is_owner).map(|reference| {
        let namespace = meta.namespace.as_deref().filter(|_| owner.namespaced());
        Key::in_namespace(namespace, &*reference.name)
    });
    let mut keys: Vec<Key> = referenced.collect();
    if keys.is_empty() {
        keys.extend(annotated_owner(owner, object));
    }
    keys
}

fn annotated_owner(owner: &Kind, object: &Object) -> Option<Key> {
    if !object.contains_text(PRIMARY_RESOURCE_TYPE) {
        return None;
    }
    let annotations = annotations(object);
    let (kind, group) = annotations.get(PRIMARY_RESOURCE_TYPE)?.split_once('.').unwrap_or_default();
    let (namespace, name) = annotations.get(PRIMARY_RESOURCE)?.split_once('/')?;
    let is_owner = (kind, group) == (owner.kind(), owner.group());
    is_owner.then(|| Key::in_namespace(Some(namespace).filter(|_| owner.namespaced()), name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn owners_are_in_references_or_annotations() {
        let owner = Kind::new("example.com", "v1", "Shop", "shops", true);
        let check = |metadata: Value, expected: Option<Key>| {
            let object =
                Object::from_json(json!({"metadata": metadata}).to_string().into()).expect("an object");
            assert_eq!(owners_of(&owner, &object), Vec::from_iter(expected), "{metadata}");
        };
        let reference = |kind: &str, group: &str| json!([{"apiVersion": format!("{group}/v1"), "kind": kind, "name": "a", "uid": "u"}]);
        let named = |owners: Value| json!({"name": "x", "namespace": "n", "ownerReferences": owners});
        check(named(reference("Shop", "example.com")), Some(Key::namespaced("n", "a")));
        check(named(reference("Shop", "example.org")), None);
        check(named(json!([])), None);
        let annotated = |kind: &str| json!({"name": "x", "annotations": {PRIMARY_RESOURCE: "m/a", PRIMARY_RESOURCE_TYPE: kind}});
        check(annotated("Shop.example.com"), Some(Key::namespaced("m", "a")));
        check(annotated("Shop"), None);
    }
}
