//! Hints for `spec.trafficDistribution`. Pure.

use super::plan::SliceTemplate;
use crate::discovery::changes::Changes;
use crate::discovery::slice::{Endpoint, Hints, Named};

/// The requested proximity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proximity {
    SameZone,
    SameNode,
}

impl Proximity {
    /// Parses a traffic distribution. `same` enables `PreferSameZone` and `PreferSameNode`.
    pub(super) fn named(distribution: Option<&str>, same: bool) -> Option<Self> {
        match distribution? {
            "PreferClose" => Some(Self::SameZone),
            "PreferSameZone" if same => Some(Self::SameZone),
            "PreferSameNode" if same => Some(Self::SameNode),
            _ => None,
        }
    }

    /// Returns the hints of a ready endpoint.
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

/// Sets the hints of all changed slices, and changes those with wrong hints.
pub(super) fn set_proximity_hints(template: &SliceTemplate<'_>, proximity: Proximity, changes: &mut Changes) {
    let slices = std::mem::take(&mut changes.unchanged);
    for slice in slices {
        if slice.endpoints.iter().any(|endpoint| proximity.is_wrong(endpoint)) {
            changes.update.push(template.edit(slice));
        } else {
            changes.unchanged.push(slice);
        }
    }
    for draft in changes.drafts() {
        for endpoint in draft.endpoints.iter_mut().filter(|endpoint| endpoint.is_ready()) {
            endpoint.hints = proximity.hints(endpoint);
        }
    }
}

/// Removes all hints.
pub(super) fn remove_hints(template: &SliceTemplate<'_>, changes: &mut Changes) {
    let slices = std::mem::take(&mut changes.unchanged);
    for slice in slices {
        if slice.endpoints.iter().any(|endpoint| endpoint.hints.is_some()) {
            changes.update.push(template.edit(slice));
        } else {
            changes.unchanged.push(slice);
        }
    }
    changes.drafts().for_each(|draft| draft.endpoints.iter_mut().for_each(|endpoint| endpoint.hints = None));
}
