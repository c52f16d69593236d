//! Handlers that map events to keys. An update enqueues keys for both the old and the new state: a pod that changes
//! owners concerns both.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::{Event, Handler};
use crate::queue::{Cause, Priority, Trigger};
use crate::reconcile::WorkKey;
use crate::{Key, Kind, Object, Queue};

/// Enqueues the object's own key.
///
/// ```no_run
/// # fn example(informers: setpoint::Informers, queue: setpoint::Queue<setpoint::Key>) {
/// use k8s_openapi::api::apps::v1::ReplicaSet;
/// informers.of::<ReplicaSet>().add_handler(setpoint::handler::enqueue_self(&queue));
/// # }
/// ```
pub fn enqueue_self(queue: &Queue<Key>) -> impl Handler + use<> {
    let map = |event: &Event, add: &mut dyn FnMut(Key)| add(event.object().key().clone());
    Enqueue { queue: queue.clone(), kind: None, priority: None, map }
}

/// Enqueues the key of the object's managing controller, if it is of this kind, in any version.
///
/// ```no_run
/// # fn example(informers: setpoint::Informers, queue: setpoint::Queue<setpoint::Key>) {
/// use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
/// let sets = setpoint::Kind::of::<ReplicaSet>();
/// informers.of::<Pod>().add_handler(setpoint::handler::enqueue_controller(&queue, &sets));
/// # }
/// ```
pub fn enqueue_controller(queue: &Queue<Key>, kind: &Kind) -> impl Handler + use<> {
    let kind = kind.clone();
    enqueue_mapped(queue, move |object| controller_of_kind(object, &kind))
}

/// Enqueues the keys that `map` returns for the object.
///
/// ```no_run
/// # fn example(informers: setpoint::Informers, queue: setpoint::Queue<setpoint::Key>) {
/// use k8s_openapi::api::core::v1::Secret;
/// // Reconcile the Ingress with the same name as every Secret named tls.
/// let by_name = |secret: &setpoint::Object| (secret.key().name() == "tls").then(|| secret.key().clone());
/// informers.of::<Secret>().add_handler(setpoint::handler::enqueue_mapped(&queue, by_name));
/// # }
/// ```
pub fn enqueue_mapped<K, I, F>(queue: &Queue<K>, map: F) -> impl Handler + use<K, I, F>
where
    K: WorkKey,
    I: IntoIterator<Item = K> + 'static,
    F: Fn(&Object) -> I + Send + Sync + 'static,
{
    let map = move |event: &Event, add: &mut dyn FnMut(K)| event.states().flat_map(&map).for_each(add);
    Enqueue { queue: queue.clone(), kind: None, priority: None, map }
}

/// The keys that an object concerns.
pub(crate) enum Mapping {
    /// Its own.
    Itself,
    /// That of its managing controller, if it is of this kind.
    Controller(Kind),
    /// Any.
    Keys(Arc<MapKeys>),
}

/// Calls the function with every key that an object concerns.
type MapKeys = dyn Fn(&Object, &mut dyn FnMut(Key)) + Send + Sync;

/// Enqueues the keys of a mapping, with this priority if something has changed. `admit` returns a key as the queue takes
/// it, if it takes it now.
pub(crate) fn enqueue_with<K, F>(
    queue: &Queue<K>,
    mapping: Mapping,
    priority: Option<Priority>,
    admit: F,
) -> impl Handler + use<K, F>
where
    K: WorkKey,
    F: Fn(Key) -> Option<K> + Send + Sync + 'static,
{
    let map = move |event: &Event, add: &mut dyn FnMut(K)| {
        let mut add = |key: Key| admit(key).into_iter().for_each(&mut *add);
        match &mapping {
            Mapping::Itself => add(event.object().key().clone()),
            Mapping::Controller(kind) => {
                event.states().filter_map(|object| controller_of_kind(object, kind)).for_each(add);
            }
            Mapping::Keys(map) => event.states().for_each(|object| map(object, &mut add)),
        }
    };
    Enqueue { queue: queue.clone(), kind: None, priority, map }
}

/// A handler that adds the keys `map` returns for an event. Objects from the initial list and resyncs get a low
/// priority, so that they wait for changes.
struct Enqueue<K: WorkKey, F> {
    queue: Queue<K>,
    kind: Option<Kind>,
    /// The priority of changes, unless it is normal.
    priority: Option<Priority>,
    map: F,
}

impl<K, F> Handler for Enqueue<K, F>
where
    K: WorkKey,
    F: Fn(&Event, &mut dyn FnMut(K)) + Send + Sync + 'static,
{
    fn handle(&self, event: &Event) {
        let (cause, priority) = significance(event);
        let priority = self.priority.filter(|_| priority == Priority::Normal).unwrap_or(priority);
        (self.map)(event, &mut |key| {
            let object = || Some(event.object().key().clone());
            self.queue.add_because(key, priority, || Trigger {
                cause,
                kind: self.kind.clone(),
                object: object(),
            });
        });
    }

    fn informs_of(&mut self, kind: &Kind) {
        self.kind = Some(kind.clone());
    }

    fn room(&self) -> Option<BoxFuture<'_, ()>> {
        self.queue.is_bounded().then(|| Box::pin(self.queue.room()) as _)
    }
}

fn significance(event: &Event) -> (Cause, Priority) {
    match event {
        Event::Added { initial: true, .. } => (Cause::ObjectList, Priority::Low),
        Event::Added { .. } => (Cause::Created, Priority::Normal),
        Event::Updated { old, new } if old.same_version(new) => (Cause::Resync, Priority::Low),
        Event::Updated { .. } => (Cause::Updated, Priority::Normal),
        Event::Deleted { .. } => (Cause::Deleted, Priority::Normal),
    }
}

fn controller_of_kind(object: &Object, kind: &Kind) -> Option<Key> {
    let owner = object.meta().controller()?;
    if &*owner.kind != kind.kind() || owner.group() != kind.group() {
        return None;
    }
    Some(match kind.namespaced() {
        true => object.key().sibling(&*owner.name),
        false => Key::cluster(&*owner.name),
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{Clock, Metadata, OwnerRef, Rng, Runtime};

    fn owned(api_version: &str, kind: &str, controller: bool) -> Object {
        let owner = OwnerRef {
            api_version: api_version.into(),
            kind: kind.into(),
            name: "web".into(),
            uid: "u".into(),
            controller: Some(controller),
            block_owner_deletion: None,
        };
        let owner_references = [owner].into();
        let meta = Metadata {
            name: "pod".into(),
            namespace: Some("shop".into()),
            owner_references,
            ..Metadata::default()
        };
        Object::with_metadata(meta, Bytes::new())
    }

    #[test]
    fn a_controller_reference_matches_in_any_version() {
        let sets = Kind::new("apps", "v1", "ReplicaSet", "replicasets", true);
        let web = Some(Key::namespaced("shop", "web"));
        let check =
            |object: Object, expected: Option<Key>| assert_eq!(controller_of_kind(&object, &sets), expected);
        check(owned("apps/v1", "ReplicaSet", true), web.clone());
        check(owned("apps/v1beta1", "ReplicaSet", true), web);
        check(owned("apps/v1", "ReplicaSet", false), None);
        check(owned("apps/v1", "DaemonSet", true), None);
        check(owned("extensions/v1", "ReplicaSet", true), None);
        check(owned("v1", "ReplicaSet", true), None);
    }

    #[test]
    fn a_cluster_scoped_controller_has_no_namespace() {
        let nodes = Kind::new("", "v1", "Node", "nodes", false);
        assert_eq!(controller_of_kind(&owned("v1", "Node", true), &nodes), Some(Key::cluster("web")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_keeps_its_trigger_and_listed_objects_have_low_priority() {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
        let queue = Queue::new("pods", &Runtime { clock, rng: Rng::seeded(1) });
        let mut handler = enqueue_self(&queue);
        handler.informs_of(&Kind::new("", "v1", "Pod", "pods", true));
        let pod = |name: &str, version: &str| {
            let meta =
                Metadata { name: name.into(), resource_version: version.into(), ..Metadata::default() };
            Object::with_metadata(meta, Bytes::new())
        };
        handler.handle(&Event::Added { object: pod("old", "1"), initial: true });
        handler.handle(&Event::Updated { old: pod("same", "1"), new: pod("same", "1") });
        handler.handle(&Event::Added { object: pod("new", "1"), initial: false });
        handler.handle(&Event::Updated { old: pod("changed", "1"), new: pod("changed", "2") });
        handler.handle(&Event::Deleted { last: pod("gone", "2"), missed: false });
        let mut triggers = Vec::new();
        while !queue.is_empty() {
            triggers.push(queue.take_work().await.expect("a key").trigger.to_string());
        }
        assert_eq!(
            triggers,
            [
                "created Pod new",
                "updated Pod changed",
                "deleted Pod gone",
                "listed Pod old",
                "resync Pod same"
            ]
        );
    }
}
