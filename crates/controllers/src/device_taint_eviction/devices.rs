//! Which taints a device has: its driver's, and those of rules. Pure.

use setpoint::{Cached, Object};

use super::view::{Allocated, Rule, Selector, Slice, Taint};

const MAKES_GO: &str = "NoExecute";

impl Taint {
    fn makes_go(&self) -> bool {
        self.effect == MAKES_GO
    }
}

/// Whether some device of a slice is tainted by its driver.
pub(super) fn is_tainted(slice: &Object) -> bool {
    let Ok(view) = slice.view::<Slice>() else { return false };
    view.spec.devices.iter().any(|device| device.taints.iter().any(Taint::makes_go))
}

/// The taints of a device that make pods go. A device that is in no slice is not known, and has none.
pub(super) fn taints_of(
    allocated: &Allocated,
    slices: &[Cached<Slice>],
    rules: &[Cached<Rule>],
) -> Vec<Taint> {
    let of_pool = |slice: &&Cached<Slice>| {
        slice.spec.driver == allocated.driver && slice.spec.pool.name == allocated.pool
    };
    let newest = slices.iter().filter(of_pool).map(|slice| slice.spec.pool.generation).max();
    let current = slices.iter().filter(of_pool).filter(|slice| Some(slice.spec.pool.generation) == newest);
    let mut devices = current.flat_map(|slice| &slice.spec.devices);
    let Some(device) = devices.find(|device| device.name == allocated.device) else { return Vec::new() };
    let ruled = rules.iter().filter(|rule| is_about(rule.spec.device_selector.as_ref(), allocated));
    let all = device.taints.iter().chain(ruled.map(|rule| &rule.spec.taint));
    all.filter(|taint| taint.makes_go()).cloned().collect()
}

/// Whether a rule is about a device. One that says nothing is about none; classes and expressions are not
/// looked at, so that a rule with such is about none either.
fn is_about(selector: Option<&Selector>, device: &Allocated) -> bool {
    let Some(selector) = selector else { return false };
    if selector.needs_more() {
        return false;
    }
    let is = |wanted: &Option<String>, actual: &str| wanted.as_deref().is_none_or(|wanted| wanted == actual);
    is(&selector.driver, &device.driver)
        && is(&selector.pool, &device.pool)
        && is(&selector.device, &device.device)
}

impl Selector {
    /// Whether it selects by what is not looked at here.
    pub(super) fn needs_more(&self) -> bool {
        self.device_class_name.is_some() || !self.selectors.is_empty()
    }
}
