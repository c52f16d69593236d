//! From a slice to the service it belongs to, and back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use setpoint::object::DecodeError;
use setpoint::{Cached, Event, Informer, Key, Lister, Object, Queue};

use super::slice::{SERVICE_NAME, Slice, is_managed_by};
use setpoint::own_writes::OwnWrites;

const BY_SERVICE: &str = "by-service";

/// Queues the service of every slice that somebody else changed, if `controller` keeps it or did so, after a
/// delay: often others of the same service follow.
pub(crate) fn follow_slices(
    slices: &Informer,
    queue: &Queue<Key>,
    writes: &Arc<OwnWrites<Key>>,
    controller: &'static str,
    delay: Duration,
) {
    let (queue, writes) = (queue.clone(), writes.clone());
    slices.add_handler(move |event: &Event| {
        for service in services_of(event, controller) {
            if writes.is_news(&service, event) {
                queue.add_after(service, delay);
            }
        }
    });
}

fn services_of(event: &Event, controller: &str) -> BTreeSet<Key> {
    let ours = event.states().any(|slice| is_managed_by(&slice.meta().labels, controller));
    if ours { event.states().filter_map(service_of).collect() } else { BTreeSet::new() }
}

/// The slices of a service that `controller` keeps and nobody has asked to go.
pub(crate) fn slices_of(
    slices: &Lister<Slice>,
    service: &Key,
    controller: &str,
) -> Result<Vec<Cached<Slice>>, DecodeError> {
    let mut found = slices.indexed(BY_SERVICE, &service.to_string())?;
    found.retain(|slice| is_managed_by(&slice.meta().labels, controller) && !slice.meta().is_being_deleted());
    Ok(found)
}

/// Files slices under the service they belong to, if that is not done yet.
pub(crate) fn index_slices(slices: &Informer) {
    slices.add_index(BY_SERVICE, Arc::new(|slice| service_of(slice).iter().map(Key::to_string).collect()));
}

/// The service whose endpoints a slice has.
pub(crate) fn service_of(slice: &Object) -> Option<Key> {
    let name = slice.meta().label(SERVICE_NAME).filter(|name| !name.is_empty())?;
    Some(slice.key().sibling(name))
}
