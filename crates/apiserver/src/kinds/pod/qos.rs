//! The QoS class of a pod: determines which pods are evicted first when a node runs short.

use serde_json::Value;

use crate::json::Json;
use crate::kinds::resources::amount;
use crate::quantity::Quantity;

/// The resources that determine the class.
const COUNTED: [&str; 2] = ["cpu", "memory"];

/// Returns `Guaranteed` if every container limits cpu and memory to what it requests, `BestEffort` if none sets
/// anything, `Burstable` otherwise. Pod-level resources take precedence over those of containers.
pub fn class(spec: &Value) -> &'static str {
    let mut demand = Demand::default();
    let mut all_limited = true;
    if let Some(resources) = spec.get("resources").filter(|resources| resources.is_object()) {
        let limited = demand.add(resources);
        all_limited = limited || resources.map("limits").is_none_or(serde_json::Map::is_empty);
    } else {
        for container in spec.list("containers").iter().chain(spec.list("initContainers")) {
            all_limited &= demand.add(container.at("resources"));
        }
    }
    demand.class(all_limited)
}

/// Total requests or limits.
#[derive(Default)]
struct Demand {
    requests: [Option<Quantity>; 2],
    limits: [Option<Quantity>; 2],
}

impl Demand {
    /// Adds a container's resources; returns whether it limits all relevant ones.
    fn add(&mut self, resources: &Value) -> bool {
        sum(&mut self.requests, resources.at("requests"));
        sum(&mut self.limits, resources.at("limits"))
    }

    fn class(&self, all_limited: bool) -> &'static str {
        let asked = self.requests.iter().chain(&self.limits).any(Option::is_some);
        match (asked, all_limited && self.requests == self.limits) {
            (false, _) => "BestEffort",
            (true, true) => "Guaranteed",
            (true, false) => "Burstable",
        }
    }
}

/// Adds the positive amounts in a list; returns whether it has all relevant ones.
fn sum(total: &mut [Option<Quantity>; 2], list: &Value) -> bool {
    let mut complete = true;
    for (total, name) in total.iter_mut().zip(COUNTED) {
        match amount(list, name).filter(|amount| amount.sign() > 0) {
            Some(amount) => total.get_or_insert(Quantity::ZERO).add(&amount),
            None => complete = false,
        }
    }
    complete
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_class_follows_from_requests_and_limits() {
        let full = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}});
        let half = json!({"requests": {"cpu": "1"}});
        for (spec, expected) in [
            (json!({"containers": [{}]}), "BestEffort"),
            (json!({"containers": [{"resources": {"limits": {"x/y": "1"}}}]}), "BestEffort"),
            (json!({"containers": [{"resources": full}]}), "Guaranteed"),
            (json!({"containers": [{"resources": full}, {}]}), "Burstable"),
            (
                json!({"containers": [{"resources": full}], "initContainers": [{"resources": half}]}),
                "Burstable",
            ),
            (json!({"containers": [{"resources": half}]}), "Burstable"),
            (json!({"containers": [{}], "resources": full}), "Guaranteed"),
        ] {
            assert_eq!(class(&spec), expected, "{spec}");
        }
    }
}
