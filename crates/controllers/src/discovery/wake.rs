//! Maps slices to their Services.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use setpoint::object::DecodeError;
use setpoint::{Cached, Event, Informer, Key, Lister, Object, Queue};

use super::slice::{SERVICE_NAME, Slice, is_managed_by};
use setpoint::write_tracker::WriteTracker;

const BY_SERVICE: &str = "by-service";

/// Enqueues the Service of every slice that is, or was, managed by `controller` and was changed by someone else, after
/// a delay: other slices of the Service often change soon after.
pub(crate) fn follow_slices(
    slices: &Informer,
    queue: &Queue<Key>,
    writes: &Arc<WriteTracker<Key>>,
    controller: &'static str,
    delay: Duration,
) {
    let (queue, writes) = (queue.clone(), writes.clone());
    slices.add_handler(move |event: &Event| {
        for service in services_of(event, controller) {
            if writes.should_reconcile(&service, event) {
                queue.add_after(service, delay);
            }
        }
    });
}

fn services_of(event: &Event, controller: &str) -> BTreeSet<Key> {
    let ours = event.states().any(|slice| is_managed_by(&slice.meta().labels, controller));
    if ours { event.states().filter_map(service_of).collect() } else { BTreeSet::new() }
}

/// Lists the slices of a Service that `controller` manages and that are not being deleted.
pub(crate) fn slices_of(
    slices: &Lister<Slice>,
    service: &Key,
    controller: &str,
) -> Result<Vec<Cached<Slice>>, DecodeError> {
    let mut found = slices.indexed(BY_SERVICE, &service.to_string())?;
    found.retain(|slice| is_managed_by(&slice.meta().labels, controller) && !slice.meta().is_being_deleted());
    Ok(found)
}

/// Adds the index of slices by Service, if it does not exist yet.
pub(crate) fn index_slices(slices: &Informer) {
    slices.add_index(BY_SERVICE, Arc::new(|slice| service_of(slice).iter().map(Key::to_string).collect()));
}

/// Returns the Service of a slice.
pub(crate) fn service_of(slice: &Object) -> Option<Key> {
    let name = slice.meta().label(SERVICE_NAME).filter(|name| !name.is_empty())?;
    Some(slice.key().sibling(name))
}
