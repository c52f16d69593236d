//! The devices accessible from a node. Pure.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use setpoint::Cached;
use setpoint_cel::device::Device as Facts;
use setpoint_device::{Rules, Taint, Target};

use super::view::{Device, DeviceId, Slice, SliceSpec};
use crate::ledger::NodeInfo;

/// The slices of one pool generation.
pub(super) struct Pool<'a> {
    pub(super) driver: &'a str,
    pub(super) name: &'a str,
    /// Whether slices of the pool are missing.
    pub(super) is_incomplete: bool,
    /// A device listed twice. Such a pool is invalid and cannot be allocated from.
    pub(super) twice: Option<&'a str>,
    slices: Vec<&'a Cached<Slice>>,
}

/// A device available to a node.
pub(super) struct Offer<'a> {
    pub(super) id: DeviceId,
    pub(super) device: &'a Device,
    pub(super) slice: &'a SliceSpec,
    /// The index of its pool.
    pub(super) pool: usize,
    facts: OnceCell<Result<Facts, String>>,
    taints: OnceCell<Vec<Taint>>,
}

/// Returns the pools accessible from a node, sorted by driver and name.
pub(super) fn pools<'a>(slices: &'a [Cached<Slice>], node: &NodeInfo) -> Vec<Pool<'a>> {
    let mut pools: BTreeMap<(&str, &str), Pool<'a>> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| slice.spec.is_reached_by(node)) {
        let (driver, name) = (&*slice.spec.driver, &*slice.spec.pool.name);
        let pool = pools.entry((driver, name)).or_insert_with(|| Pool {
            driver,
            name,
            is_incomplete: false,
            twice: None,
            slices: Vec::new(),
        });
        let generation = pool.slices.first().map_or(i64::MIN, |first| first.spec.pool.generation);
        if slice.spec.pool.generation > generation {
            pool.slices.clear();
        }
        if slice.spec.pool.generation >= generation {
            pool.slices.push(slice);
        }
    }
    pools.into_values().map(Pool::checked).collect()
}

/// Lists the devices of all pools, in order.
pub(super) fn offers<'a>(pools: &[Pool<'a>]) -> Vec<Offer<'a>> {
    let mut offers = Vec::new();
    for (index, pool) in pools.iter().enumerate() {
        for slice in &pool.slices {
            let slice: &'a Cached<Slice> = slice;
            let slice = &slice.spec;
            offers.extend(slice.devices.iter().map(|device| Offer {
                id: DeviceId {
                    driver: pool.driver.into(),
                    pool: pool.name.into(),
                    device: device.name.clone(),
                },
                device,
                slice,
                pool: index,
                facts: OnceCell::new(),
                taints: OnceCell::new(),
            }));
        }
    }
    offers
}

impl Offer<'_> {
    /// The device as CEL expressions see it.
    pub(super) fn facts(&self) -> &Result<Facts, String> {
        let read = || Facts::new(&self.id.driver, &self.device.attributes, &self.device.capacity);
        self.facts.get_or_init(read)
    }

    /// Returns the taints from the driver and from rules. Invalid rules are reported by the eviction controller.
    pub(super) fn taints(&self, rules: &Rules) -> &[Taint] {
        self.taints.get_or_init(|| {
            let target = Target {
                driver: &self.id.driver,
                pool: &self.id.pool,
                name: &self.id.device,
                attributes: &self.device.attributes,
                capacity: &self.device.capacity,
            };
            let of_rules = rules.taints(&target, |_, _| ());
            self.device.taints.iter().chain(of_rules).cloned().collect()
        })
    }
}

impl Pool<'_> {
    fn checked(mut self) -> Self {
        let count = self.slices.first().map_or(0, |first| first.spec.pool.resource_slice_count);
        self.is_incomplete = self.slices.len() != count;
        let mut names = BTreeSet::new();
        let mut devices = self.slices.iter().flat_map(|slice| &slice.spec.devices);
        self.twice = devices.find(|device| !names.insert(&*device.name)).map(|device| &*device.name);
        self
    }
}

impl std::fmt::Display for Pool<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.driver, self.name)
    }
}

impl SliceSpec {
    /// Whether a node can access the slice. Per-device node selection belongs to a feature that is off by default in
    /// v1.34.
    fn is_reached_by(&self, node: &NodeInfo) -> bool {
        if self.per_device_node_selection.is_some() {
            return false;
        }
        match (&self.node_name, self.all_nodes, &self.node_selector) {
            (Some(name), ..) if !name.is_empty() => **name == *node.name,
            (_, Some(true), _) => true,
            (_, _, Some(selector)) => selector.matches(&node.name, &node.labels),
            _ => false,
        }
    }
}
