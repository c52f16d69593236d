//! Assigns endpoints to slices. Pure.
//!
//! All slices here have the same ports and address family. Existing endpoints stay in their slice. New ones first fill
//! slices that change anyway, then one slice with room for all the rest, then new slices.

use setpoint::Cached;

use super::plan::SliceTemplate;
use crate::discovery::changes::{Changes, Draft};
use crate::discovery::slice::{EndpointSet, Port, Slice};

/// Plans the changes that make the `existing` slices list the `wanted` endpoints.
pub(super) fn pack(
    template: &SliceTemplate<'_>,
    ports: &[Port],
    existing: Vec<Cached<Slice>>,
    mut wanted: EndpointSet,
) -> Changes {
    let (max_endpoints, mut changes) = (template.max_endpoints, Changes::default());
    for slice in existing {
        keep(template, slice, &mut wanted, &mut changes);
    }
    // Fullest first.
    changes.update.sort_by_key(|draft| std::cmp::Reverse(draft.endpoints.len()));
    for draft in &mut changes.update {
        fill(draft, &mut wanted, max_endpoints);
    }
    while !wanted.is_empty() {
        let roomy = match wanted.len() < max_endpoints {
            true => roomiest_fit(&changes.unchanged, wanted.len(), max_endpoints),
            false => None,
        };
        match roomy {
            Some(at) => {
                let mut draft = template.edit(changes.unchanged.remove(at));
                fill(&mut draft, &mut wanted, max_endpoints);
                changes.update.push(draft);
            }
            None => {
                let mut draft = template.new_slice(ports.to_vec());
                fill(&mut draft, &mut wanted, max_endpoints);
                changes.create.push(draft);
            }
        }
    }
    changes
}

/// Keeps what is still wanted of a slice, and removes that from `wanted`.
fn keep(template: &SliceTemplate<'_>, slice: Cached<Slice>, wanted: &mut EndpointSet, changes: &mut Changes) {
    let mut kept = Vec::with_capacity(slice.endpoints.len());
    let mut changed = false;
    for endpoint in &slice.endpoints {
        if let Some(desired) = wanted.remove(&endpoint.key()) {
            changed |= !desired.same_state(endpoint);
            kept.push(desired);
        }
    }
    changed |= kept.len() != slice.endpoints.len();
    if changed && kept.is_empty() {
        changes.delete.push(slice);
    } else if changed {
        changes.update.push(Draft { endpoints: kept, ..template.edit(slice) });
    } else if template.labels_differ(&slice) {
        changes.update.push(template.edit(slice));
    } else {
        changes.unchanged.push(slice);
    }
}

fn fill(draft: &mut Draft, wanted: &mut EndpointSet, max_endpoints: usize) {
    while draft.endpoints.len() < max_endpoints {
        let Some((_, endpoint)) = wanted.pop_first() else { return };
        draft.endpoints.push(endpoint);
    }
}

/// Returns the fullest slice that still has room for `more` endpoints.
fn roomiest_fit(slices: &[Cached<Slice>], more: usize, max_endpoints: usize) -> Option<usize> {
    let room = |slice: &Cached<Slice>| max_endpoints.checked_sub(slice.endpoints.len() + more);
    let fitting = slices.iter().enumerate().filter_map(|(at, slice)| Some((room(slice)?, at)));
    fitting.min().map(|(_, at)| at)
}
