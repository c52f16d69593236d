//! CSINodes: the volume drivers on a node.

use serde_json::Value;

use super::STORAGE;
use crate::declared;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kind::{Kind, Scope};
use crate::kinds::{entry, metadata};
use crate::strategy::{Deletion, Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;
use crate::validation::{Seen, csi_driver_name, immutable, nonnegative, qualified_name};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        columns: vec![
            Column::name(),
            Column::integer("Drivers", DRIVERS, |node, _| node.at("spec").list("drivers").len().into()),
            Column::age(),
        ],
        semantics: Semantics {
            counts_generations: false,
            unconditional_update: false,
            deletion: Deletion::RETURNS_OBJECT,
            ..Semantics::default()
        },
        ..entry(&STORAGE, "CSINode", "csinodes", CSINode)
    }
}

const DRIVERS: &str = "Drivers indicates the number of CSI drivers registered on the node";
const NODE_ID_LENGTH: usize = 256;

struct CSINode;

impl Lifecycle for CSINode {}

impl Validation for CSINode {
    fn validate(&self, node: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(node, &mut errors);
        check_drivers(node, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        // Twice, as v1.34 does.
        for _ in 0..2 {
            metadata::whole(new, Scope::Cluster, NameRule::Subdomain, &mut errors);
            check_drivers(new, &mut errors);
        }
        let spec = Path::root("spec");
        for before in old.at("spec").list("drivers") {
            let now = new.at("spec").list("drivers").iter();
            for driver in now.filter(|driver| driver.text("name") == before.text("name")) {
                let shown = |driver: &Value| declared::of(driver, &declared::DRIVER_OF_NODE);
                immutable(&shown(driver), &shown(before), &spec.child("drivers"), &mut errors);
            }
        }
        errors
    }
}

fn check_drivers(node: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let path = path.child("drivers");
    let mut names = Seen::new();
    for (index, driver) in node.at("spec").list("drivers").iter().enumerate() {
        let path = path.index(index);
        let name = driver.text("name");
        csi_driver_name(name, &path.child("name"), errors);
        check_node_id(driver.text("nodeID"), &path.child("nodeID"), errors);
        if let Some(count) = driver.at("allocatable").int("count") {
            nonnegative(count, &path.child("allocatable").child("count"), errors);
        }
        if names.again(name) {
            errors.duplicate(&path.child("name"), name);
        }
        check_topology_keys(driver, &path, errors);
    }
}

fn check_node_id(id: &str, path: &Path<'_>, errors: &mut Errors) {
    if id.is_empty() {
        errors.required(path, "");
    }
    if id.len() > NODE_ID_LENGTH {
        errors.invalid(path, id, format!("must be {NODE_ID_LENGTH} characters or less"));
    }
}

fn check_topology_keys(driver: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut keys = Seen::new();
    for key in driver.list("topologyKeys").iter().filter_map(Value::as_str) {
        if key.is_empty() {
            errors.required(path, "");
        }
        if keys.again(key) {
            errors.duplicate(path, key);
        }
        qualified_name(key, path, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;
    use serde_json::json;

    #[test]
    fn drivers_are_unique_and_immutable() {
        let node = |drivers: Value| json!({"spec": {"drivers": drivers}});
        let one = json!({"name": "a.io", "nodeID": "x"});
        check::create(&CSINode, node(json!([one])), &[]);
        check::create(
            &CSINode,
            node(
                json!([one, {"name": "a.io", "nodeID": "", "topologyKeys": ["z", "z"], "allocatable": {"count": -1}}]),
            ),
            &[
                "Required spec.drivers[1].nodeID",
                "Invalid spec.drivers[1].allocatable.count",
                "Duplicate spec.drivers[1].name",
                "Duplicate spec.drivers[1]",
            ],
        );
        let other = node(json!([{"name": "a.io", "nodeID": "y"}]));
        check::update(&CSINode, other, &node(json!([one])), &["Invalid spec.drivers"]);
        check::update(&CSINode, node(json!([])), &node(json!([one])), &[]);
    }
}
