//! The quality of service of a pod: who is evicted first when a node runs short.

use serde_json::Value;

use crate::json::Json;
use crate::kinds::resources::amount;
use crate::quantity::Quantity;

/// The resources that count.
const COUNTED: [&str; 2] = ["cpu", "memory"];

/// `Guaranteed` where every container limits cpu and memory to what it requests, `BestEffort` where none
/// says anything, `Burstable` otherwise. Resources of the pod as a whole stand above those of its containers.
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

/// What is asked for in all.
#[derive(Default)]
struct Demand {
    requests: [Option<Quantity>; 2],
    limits: [Option<Quantity>; 2],
}

impl Demand {
    /// Adds one container's resources; whether it limits all that count.
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

/// Adds the positive amounts of a list; whether all that count are among them.
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
