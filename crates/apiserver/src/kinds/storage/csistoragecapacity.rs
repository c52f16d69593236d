//! CSIStorageCapacities: the available capacity of a storage class, by topology.

use serde_json::Value;

use super::STORAGE;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kind::{Kind, Scope};
use crate::kinds::pod::warnings::old_node_label;
use crate::kinds::{entry, metadata};
use crate::quantity::Quantity;
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::validation::labels::{self, Values};
use crate::validation::{IMMUTABLE, NEGATIVE, dns_subdomain};

pub fn kind() -> Kind {
    Kind {
        semantics: Semantics {
            counts_generations: false,
            unconditional_update: false,
            ..Semantics::default()
        },
        ..entry(&STORAGE, "CSIStorageCapacity", "csistoragecapacities", CSIStorageCapacity)
    }
}

struct CSIStorageCapacity;

impl Lifecycle for CSIStorageCapacity {}

impl Validation for CSIStorageCapacity {
    fn validate(&self, capacity: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(capacity, &mut errors);
        check(capacity, Values::Checked, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::whole(new, Scope::Namespaced, NameRule::Subdomain, &mut errors);
        check(new, leniency(old), &mut errors);
        metadata::change(new, &mut errors);
        for field in ["nodeTopology", "storageClassName"] {
            if new.at(field) != old.at(field) {
                errors.invalid(&Path::root(field), new.at(field).clone(), IMMUTABLE);
            }
        }
        errors
    }

    fn warnings(&self, new: &Value, _: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        let topology = new.at("nodeTopology");
        for (index, expression) in topology.list("matchExpressions").iter().enumerate() {
            let key = expression.text("key");
            if let Some(message) = old_node_label(key) {
                warnings.push(format!("nodeTopology.matchExpressions[{index}].key: {key} is {message}"));
            }
        }
        for key in topology.map("matchLabels").into_iter().flat_map(serde_json::Map::keys) {
            if let Some(message) = old_node_label(key) {
                warnings.push(format!("nodeTopology.matchLabels.{key}: {message}"));
            }
        }
        warnings
    }
}

/// Returns the leniency: a topology that was already invalid may stay.
fn leniency(old: &Value) -> Values {
    let mut errors = Errors::default();
    labels::selector(old.at("nodeTopology"), Values::Checked, &Path::root("nodeTopology"), &mut errors);
    if errors.is_empty() { Values::Checked } else { Values::Unchecked }
}

fn check(capacity: &Value, values: Values, errors: &mut Errors) {
    labels::selector(capacity.at("nodeTopology"), values, &Path::root("nodeTopology"), errors);
    dns_subdomain(capacity.text("storageClassName"), &Path::root("storageClassName"), errors);
    let amount = Quantity::of(capacity.at("capacity")).ok().filter(|amount| amount.sign() < 0);
    if let Some(amount) = amount {
        errors.invalid(&Path::root("capacity"), amount.to_string(), NEGATIVE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check as checking;
    use serde_json::json;

    #[test]
    fn a_capacity_has_a_class_and_a_topology() {
        let here =
            json!({"storageClassName": "a", "capacity": "1Gi", "nodeTopology": {"matchLabels": {"z": "a"}}});
        checking::create(&CSIStorageCapacity, here.clone(), &[]);
        checking::create(
            &CSIStorageCapacity,
            json!({"capacity": "-1", "nodeTopology": {"matchLabels": {"-": "a"}}}),
            &["Invalid nodeTopology.matchLabels", "Invalid storageClassName", "Invalid capacity"],
        );
        checking::update(
            &CSIStorageCapacity,
            json!({"storageClassName": "b", "capacity": "2Gi"}),
            &here,
            &["Invalid nodeTopology", "Invalid storageClassName"],
        );
    }
}
