//! The taints of a device: from its driver and from rules. Pure.

use setpoint::{Cached, Object};
use setpoint_device::{Rule, Rules, Taint, Target};

use super::view::{Allocated, Device, Slice};

/// Whether the driver taints any device of a slice.
pub(super) fn is_tainted(slice: &Object) -> bool {
    let Ok(view) = slice.view::<Slice>() else { return false };
    view.spec.devices.iter().any(|device| device.taints.iter().any(Taint::evicts))
}

/// Returns the `NoExecute` taints of a device. A device in no slice has none. Calls `failed` if a rule's expression
/// fails for the device.
pub(super) fn taints_of(
    allocated: &Allocated,
    slices: &[Cached<Slice>],
    rules: &Rules,
    failed: impl FnMut(&Cached<Rule>, String),
) -> Vec<Taint> {
    let Some(device) = find(allocated, slices) else { return Vec::new() };
    let target = Target {
        driver: &allocated.driver,
        pool: &allocated.pool,
        name: &allocated.device,
        attributes: &device.attributes,
        capacity: &device.capacity,
    };
    let all = device.taints.iter().chain(rules.taints(&target, failed));
    all.filter(|taint| taint.evicts()).cloned().collect()
}

/// Finds a device in the newest generation of its pool.
fn find<'a>(allocated: &Allocated, slices: &'a [Cached<Slice>]) -> Option<&'a Device> {
    let of_pool = |slice: &&Cached<Slice>| {
        slice.spec.driver == allocated.driver && slice.spec.pool.name == allocated.pool
    };
    let newest = slices.iter().filter(of_pool).map(|slice| slice.spec.pool.generation).max();
    let current = slices.iter().filter(of_pool).filter(|slice| Some(slice.spec.pool.generation) == newest);
    let mut devices = current.flat_map(|slice| &slice.spec.devices);
    devices.find(|device| device.name == allocated.device)
}
