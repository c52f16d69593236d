//! Topology-aware hints: each zone gets endpoints in proportion to the capacity of its nodes. Pure.

use std::collections::BTreeMap;

use super::plan::SliceTemplate;
use crate::discovery::changes::Changes;
use crate::discovery::slice::{Endpoint, Hints, Named, Slice};

/// How far an endpoint of a zone may be overloaded.
const OVERLOAD: f64 = 0.2;

/// Each zone's share of the total capacity.
pub(super) type Shares = BTreeMap<String, f64>;

/// The number of endpoints hinted to each zone.
pub(super) type Counts = BTreeMap<String, usize>;

/// The target of a zone.
struct Allocation {
    maximum: usize,
    desired: f64,
}

/// Why there are no hints.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoHints {
    #[error("Insufficient Node information: allocatable CPU or zone not specified on one or more nodes")]
    UnknownNodes,
    #[error("Insufficient number of endpoints ({endpoints} endpoints, {zones} zones)")]
    TooFewEndpoints { endpoints: usize, zones: usize },
    #[error(
        "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold \
         ({endpoints} endpoints, {zones} zones)"
    )]
    Overloaded { endpoints: usize, zones: usize },
    #[error("One or more endpoints do not have a zone specified")]
    NoZone,
    #[error("No hints allocated for zones")]
    NothingAllocated,
}

/// Assigns every ready endpoint of the changed slices to a zone so that each zone gets its share. Slices with unusable
/// hints are changed too. Returns the number of endpoints per zone.
pub(super) fn assign_hints(
    template: &SliceTemplate<'_>,
    shares: Option<&Shares>,
    changes: &mut Changes,
) -> Result<Counts, NoHints> {
    let allocations = allocate(shares.ok_or(NoHints::UnknownNodes)?, ready_endpoints(changes))?;
    let mut counts = Counts::new();
    let slices = std::mem::take(&mut changes.unchanged);
    for slice in slices {
        match usable_hints(&slice, &counts, &allocations) {
            Some(hinted) => {
                hinted.into_iter().for_each(|(zone, count)| *counts.entry(zone).or_default() += count);
                changes.unchanged.push(slice);
            }
            None => changes.update.push(template.edit(slice)),
        }
    }
    hint_own_zones(changes, &mut counts)?;
    let (mut giving, mut receiving) = transfers(&allocations, &counts);
    redistribute(changes, &mut giving, &mut receiving, &mut counts);
    if counts.is_empty() { Err(NoHints::NothingAllocated) } else { Ok(counts) }
}

fn ready_endpoints(changes: &Changes) -> usize {
    let ready = |endpoints: &[Endpoint]| endpoints.iter().filter(|endpoint| endpoint.is_ready()).count();
    let drafts = changes.create.iter().chain(&changes.update).map(|draft| ready(&draft.endpoints));
    drafts.chain(changes.unchanged.iter().map(|slice| ready(&slice.endpoints))).sum()
}

fn allocate(shares: &Shares, endpoints: usize) -> Result<BTreeMap<&str, Allocation>, NoHints> {
    let zones = shares.len();
    if zones > endpoints {
        return Err(NoHints::TooFewEndpoints { endpoints, zones });
    }
    let desired = |share: f64| share * endpoints as f64;
    let least = |share: f64| (desired(share) / (1.0 + OVERLOAD)).ceil() as usize;
    let together: usize = shares.values().map(|share| least(*share)).sum();
    let Some(spare) = endpoints.checked_sub(together) else {
        return Err(NoHints::Overloaded { endpoints, zones });
    };
    let allocation = |share: f64| {
        let minimum = least(share);
        Allocation { maximum: minimum + spare, desired: desired(share).max(minimum as f64) }
    };
    Ok(shares.iter().map(|(zone, share)| (zone.as_str(), allocation(*share))).collect())
}

/// Counts a slice's endpoints per hinted zone. `None` if its hints must change.
fn usable_hints(slice: &Slice, counts: &Counts, allocations: &BTreeMap<&str, Allocation>) -> Option<Counts> {
    let mut hinted = Counts::new();
    for endpoint in slice.endpoints.iter().filter(|endpoint| endpoint.is_ready()) {
        let zones =
            endpoint.hints.as_ref().map(|hints| &hints.for_zones).filter(|zones| !zones.is_empty())?;
        for zone in zones {
            *hinted.entry(zone.name.clone()).or_default() += 1;
        }
    }
    let fits = |(zone, count): (&String, &usize)| {
        let known = counts.get(zone).copied().unwrap_or(0);
        allocations.get(zone.as_str()).is_some_and(|allocation| known + count <= allocation.maximum)
    };
    hinted.iter().all(fits).then_some(hinted)
}

/// Initially hints every endpoint to its own zone.
fn hint_own_zones(changes: &mut Changes, counts: &mut Counts) -> Result<(), NoHints> {
    for endpoint in ready_drafts(changes) {
        let zone = endpoint.zone.clone().filter(|zone| !zone.is_empty()).ok_or(NoHints::NoZone)?;
        *counts.entry(zone.clone()).or_default() += 1;
        endpoint.hints = Some(for_zone(zone));
    }
    Ok(())
}

fn ready_drafts(changes: &mut Changes) -> impl Iterator<Item = &mut Endpoint> {
    changes.drafts().flat_map(|draft| &mut draft.endpoints).filter(|endpoint| endpoint.is_ready())
}

fn for_zone(zone: String) -> Hints {
    Hints { for_zones: vec![Named { name: zone }], for_nodes: Vec::new() }
}

/// Returns how many endpoints zones give away, and how many zones receive.
fn transfers(allocations: &BTreeMap<&str, Allocation>, counts: &Counts) -> (Counts, Counts) {
    let mut surplus: BTreeMap<&str, f64> = BTreeMap::new();
    let mut lack: BTreeMap<&str, f64> = BTreeMap::new();
    for (zone, allocation) in allocations {
        let difference = counts.get(*zone).copied().unwrap_or(0) as f64 - allocation.desired;
        if difference > 0.0 {
            surplus.insert(zone, difference);
        } else if difference < 0.0 {
            lack.insert(zone, -difference);
        }
    }
    let (mut giving, mut receiving) = (Counts::new(), Counts::new());
    while let (Some((giver, to_give)), Some((receiver, to_receive))) = (largest(&surplus), largest(&lack)) {
        if (to_give < 1.0 && to_receive < 1.0) || to_give < 0.5 || to_receive < 0.5 {
            break;
        }
        *giving.entry(giver.to_owned()).or_default() += 1;
        *receiving.entry(receiver.to_owned()).or_default() += 1;
        surplus.insert(giver, to_give - 1.0);
        lack.insert(receiver, to_receive - 1.0);
    }
    (giving, receiving)
}

fn largest<'a>(zones: &BTreeMap<&'a str, f64>) -> Option<(&'a str, f64)> {
    let positive = zones.iter().filter(|(_, amount)| **amount > 0.0);
    positive.max_by(|one, other| one.1.total_cmp(other.1)).map(|(zone, amount)| (*zone, *amount))
}

fn redistribute(changes: &mut Changes, giving: &mut Counts, receiving: &mut Counts, counts: &mut Counts) {
    for endpoint in ready_drafts(changes) {
        let Some(giver) = endpoint.zone.clone().filter(|zone| giving.contains_key(zone)) else { continue };
        let Some(receiver) = receiving.keys().next().cloned() else { return };
        take_one(giving, &giver);
        take_one(receiving, &receiver);
        take_one(counts, &giver);
        *counts.entry(receiver.clone()).or_default() += 1;
        endpoint.hints = Some(for_zone(receiver));
    }
}

fn take_one(counts: &mut Counts, zone: &str) {
    if let Some(count) = counts.get_mut(zone) {
        *count -= 1;
        if *count == 0 {
            counts.remove(zone);
        }
    }
}

/// Whether a zone has too few of a Service's endpoints.
pub(super) fn is_overloaded(counts: &Counts, shares: Option<&Shares>) -> bool {
    let Some(shares) = shares else { return !counts.is_empty() };
    let total = counts.values().sum::<usize>() as f64;
    let least = |share: f64| (total * share / (1.0 + OVERLOAD)).ceil() as usize;
    let lacks = |(zone, share): (&String, &f64)| counts.get(zone).is_none_or(|count| *count < least(*share));
    !counts.is_empty() && shares.iter().any(lacks)
}
