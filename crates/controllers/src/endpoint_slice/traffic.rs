//! Hints by which traffic stays close, as `spec.trafficDistribution` asks for it. Pure.

use super::plan::Sketch;
use crate::discovery::changes::Changes;
use crate::discovery::slice::{Endpoint, Hints, Named};

/// How close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Close {
    SameZone,
    SameNode,
}

impl Close {
    /// What a service asks for, if it is something that is known; `same` says whether the newer names are.
    pub(super) fn named(distribution: Option<&str>, same: bool) -> Option<Self> {
        match distribution? {
            "PreferClose" => Some(Self::SameZone),
            "PreferSameZone" if same => Some(Self::SameZone),
            "PreferSameNode" if same => Some(Self::SameNode),
            _ => None,
        }
    }

    /// The hints of a ready endpoint.
    fn hints(self, endpoint: &Endpoint) -> Option<Hints> {
        let named = |name: &Option<String>| -> Vec<Named> {
            name.iter().map(|name| Named { name: name.clone() }).collect()
        };
        let for_nodes = if self == Self::SameNode { named(&endpoint.node_name) } else { Vec::new() };
        let hints = Hints { for_zones: named(&endpoint.zone), for_nodes };
        (hints != Hints::default()).then_some(hints)
    }

    fn is_wrong(self, endpoint: &Endpoint) -> bool {
        let present = endpoint.hints.clone().unwrap_or_default();
        endpoint.is_ready() && self.hints(endpoint).unwrap_or_default() != present
    }
}

/// Sets the hints of all slices that change; what has wrong ones changes too.
pub(super) fn keep_close(sketch: &Sketch<'_>, close: Close, changes: &mut Changes) {
    let slices = std::mem::take(&mut changes.unchanged);
    for slice in slices {
        if slice.endpoints.iter().any(|endpoint| close.is_wrong(endpoint)) {
            changes.update.push(sketch.edit(slice));
        } else {
            changes.unchanged.push(slice);
        }
    }
    for draft in changes.drafts() {
        for endpoint in draft.endpoints.iter_mut().filter(|endpoint| endpoint.is_ready()) {
            endpoint.hints = close.hints(endpoint);
        }
    }
}

/// Removes all hints.
pub(super) fn remove_hints(sketch: &Sketch<'_>, changes: &mut Changes) {
    let slices = std::mem::take(&mut changes.unchanged);
    for slice in slices {
        if slice.endpoints.iter().any(|endpoint| endpoint.hints.is_some()) {
            changes.update.push(sketch.edit(slice));
        } else {
            changes.unchanged.push(slice);
        }
    }
    changes.drafts().for_each(|draft| draft.endpoints.iter_mut().for_each(|endpoint| endpoint.hints = None));
}
