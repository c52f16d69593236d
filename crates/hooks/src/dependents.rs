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
/// How long a reconcile waits for a cache that has just been requested. Then it does without.
const SYNCED_WITHIN: Duration = Duration::from_secs(1);

/// The watched kinds of dependents of one kind of owners.
pub(crate) struct Dependents {
    informers: SharedInformers,
    queue: Queue<Key>,
    owner: Kind,
    selection: Selection,
    /// Whether new objects change nothing: their owner has just created them.
    ignores_new: bool,
    /// Bounded by [`MAX_KINDS`]. `None` when watching has ended.
    followed: Mutex<Option<BTreeMap<Kind, Followed>>>,
}

/// A watched kind.
struct Followed {
    informer: Informer,
    registration: Registration,
    /// Whether a reconcile has waited for the cache in vain. Others do not, until it has synced.
    is_late: bool,
}

impl Dependents {
    pub(crate) fn new(
        informers: &SharedInformers,
        queue: &Queue<Key>,
        owner: &Kind,
        selection: Selection,
    ) -> Self {
        let (informers, queue, owner) = (informers.clone(), queue.clone(), owner.clone());
        let followed = Mutex::new(Some(BTreeMap::new()));
        Self { informers, queue, owner, selection, ignores_new: false, followed }
    }

    /// Does not report new objects.
    pub(crate) fn ignoring_new(self) -> Self {
        Self { ignores_new: true, ..self }
    }

    /// Watches a kind. Returns its cache, which may not have synced yet, or `None` if there are too many kinds or watching
    /// has ended.
    pub(crate) fn follow(&self, kind: &Kind) -> Option<Informer> {
        let mut followed = self.followed.lock();
        let followed = followed.as_mut()?;
        if let Some(known) = followed.get(kind) {
            return Some(known.informer.clone());
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
        let new = Followed { informer: informer.clone(), registration, is_late: false };
        followed.insert(kind.clone(), new);
        Some(informer)
    }

    /// Returns the cache of a kind when it has synced, or `None` if that takes long. It may never sync, for example
    /// because the kind must not be listed.
    pub(crate) async fn synced(&self, kind: &Kind) -> Option<Informer> {
        let informer = self.follow(kind)?;
        if informer.has_synced() {
            return Some(informer);
        }
        if self.is_late(kind, None) {
            return None;
        }
        let syncing = tokio::time::timeout(SYNCED_WITHIN, informer.wait_for_sync()).await;
        self.is_late(kind, Some(syncing.is_err()));
        syncing.ok().map(|()| informer)
    }

    /// Returns, and sets, whether the cache of a kind is late.
    fn is_late(&self, kind: &Kind, set: Option<bool>) -> bool {
        let mut followed = self.followed.lock();
        let Some(known) = followed.as_mut().and_then(|followed| followed.get_mut(kind)) else { return false };
        known.is_late = set.unwrap_or(known.is_late);
        known.is_late
    }

    /// Stops watching. A program that is just being ended cannot start it again.
    pub(crate) fn end(&self) {
        let followed = self.followed.lock().take().unwrap_or_default();
        self.informers.unfollow(followed.into_values().map(|known| (known.informer, known.registration)));
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
    use std::sync::Arc;

    use futures::future::BoxFuture;
    use futures::stream::BoxStream;
    use serde_json::{Value, json};
    use setpoint::source::{ObjectList, Source, WatchItem};
    use setpoint::{ClientError, Clock, Informers, Rng, Runtime};

    use super::*;

    /// A source that never answers, like one that may not list a kind.
    struct Silent;

    impl Source for Silent {
        fn list<'a>(
            &'a self,
            _: &'a Kind,
            _: &'a Selection,
        ) -> BoxFuture<'a, Result<ObjectList, ClientError>> {
            Box::pin(std::future::pending())
        }

        fn watch<'a>(
            &'a self,
            _: &'a Kind,
            _: &'a Selection,
            _: &'a str,
        ) -> BoxFuture<'a, Result<BoxStream<'static, Result<WatchItem, ClientError>>, ClientError>> {
            Box::pin(std::future::pending())
        }
    }

    fn dependents() -> Dependents {
        let runtime = Runtime { clock: Clock::system(), rng: Rng::seeded(1) };
        let queue = Queue::new("shops", &runtime);
        let informers = SharedInformers::new(Informers::new(Arc::new(Silent), runtime));
        let owner = Kind::new("example.com", "v1", "Shop", "shops", true);
        Dependents::new(&informers, &queue, &owner, Selection::default())
    }

    fn widgets(nth: usize) -> Kind {
        Kind::new("example.com", "v1", "Widget", &format!("widgets-{nth}"), true)
    }

    #[tokio::test(start_paused = true)]
    async fn a_cache_that_never_syncs_is_waited_for_once() {
        let dependents = dependents();
        let kind = widgets(0);
        assert!(dependents.synced(&kind).await.is_none());
        let again = tokio::time::timeout(Duration::from_millis(1), dependents.synced(&kind));
        assert!(again.await.expect("it does not wait again").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn watches_are_bounded_and_do_not_come_back_after_the_end() {
        let dependents = dependents();
        for nth in 0..MAX_KINDS {
            assert!(dependents.follow(&widgets(nth)).is_some());
        }
        assert!(dependents.follow(&widgets(MAX_KINDS)).is_none() && dependents.follow(&widgets(0)).is_some());
        dependents.end();
        assert!(dependents.follow(&widgets(0)).is_none());
        dependents.end();
    }

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
