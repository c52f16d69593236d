//! ResourceSlices: the devices that a driver offers.

use jiff::Timestamp;
use serde_json::Value;

use super::RESOURCE;
use super::devicetaintrule::check_taint;
use super::naming::{check_attribute_name, check_distinct, check_each, check_pool};
use crate::auth::User;
use crate::declared;
use crate::features::Features;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{FieldSelector, Kind, Scope};
use crate::kinds::{entry, metadata};
use crate::strategy::{Deletion, Lifecycle, Semantics, Validation};
use crate::table::Column;
use crate::validation::labels::{Values, node_selector};
use crate::validation::{csi_driver_name, dns_label, dns_subdomain, immutable, too_long};

pub fn kind(features: &Features) -> Kind {
    Kind {
        scope: Scope::Cluster,
        columns: vec![
            Column::name(),
            Column::text("Node", NODE, |slice, _| slice.at("spec").text("nodeName").into()),
            Column::text("Driver", DRIVER, |slice, _| slice.at("spec").text("driver").into()),
            Column::text("Pool", POOL, |slice, _| slice.at("spec").at("pool").text("name").into()),
            Column::age(),
        ],
        field_selectors: vec![
            FieldSelector { path: "spec.driver", value: |slice| slice.at("spec").text("driver").to_owned() },
            FieldSelector {
                path: "spec.nodeName",
                value: |slice| slice.at("spec").text("nodeName").to_owned(),
            },
        ],
        semantics: Semantics { deletion: Deletion::RETURNS_OBJECT, ..Semantics::default() },
        ..entry(
            &RESOURCE,
            "ResourceSlice",
            "resourceslices",
            ResourceSlice { taints: features.has("DRADeviceTaints") },
        )
    }
}

const MAX_DEVICES: usize = 128;
const MAX_ATTRIBUTES: usize = 32;
const MAX_TAINTS: usize = 4;
const VALUE_BYTES: usize = 64;
/// Fields of features that v1.34 disables.
const DISABLED: [&str; 2] = ["sharedCounters", "perDeviceNodeSelection"];
const DISABLED_IN_DEVICES: [&str; 8] = [
    "consumesCounters",
    "nodeName",
    "nodeSelector",
    "allNodes",
    "bindingConditions",
    "bindingFailureConditions",
    "bindsToNode",
    "allowMultipleAllocations",
];

const NODE: &str = "NodeName identifies the node which provides the resources in this pool. A field selector can be used to list only ResourceSlice objects belonging to a certain node.\n\nThis field can be used to limit access from nodes to ResourceSlices with the same node name. It also indicates to autoscalers that adding new nodes of the same type as some old node might also make new resources available.\n\nExactly one of NodeName, NodeSelector, AllNodes, and PerDeviceNodeSelection must be set. This field is immutable.";
const DRIVER: &str = "Driver identifies the DRA driver providing the capacity information. A field selector can be used to list only ResourceSlice objects with a certain driver name.\n\nMust be a DNS subdomain and should end with a DNS domain owned by the vendor of the driver. This field is immutable.";
const POOL: &str = "Name is used to identify the pool. For node-local devices, this is often the node name, but this is not required.\n\nIt must not be longer than 253 characters and must consist of one or more DNS sub-domains separated by slashes. This field is immutable.";

struct ResourceSlice {
    /// Whether drivers may taint devices.
    taints: bool,
}

impl Lifecycle for ResourceSlice {
    fn prepare_for_create(&self, slice: &mut Value) {
        drop_disabled(slice.object_mut("spec"), self.taints);
    }

    fn stamp(&self, slice: &mut Value, _: Option<&Value>, _: &User, now: Timestamp) {
        for device in slice.object_mut("spec").list_mut("devices") {
            for taint in device.list_mut("taints") {
                taint.or_insert("timeAdded", crate::metadata::seconds(now));
            }
        }
    }

    fn prepare_for_update(&self, new: &mut Value, _: &Value) {
        drop_disabled(new.object_mut("spec"), self.taints);
    }
}

impl Validation for ResourceSlice {
    fn validate(&self, slice: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(slice, &mut errors);
        check(slice.at("spec"), None, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        check(new.at("spec"), Some(old.at("spec")), &mut errors);
        errors
    }
}

fn drop_disabled(spec: &mut Value, taints: bool) {
    for field in DISABLED {
        spec.unset(field);
    }
    for device in spec.list_mut("devices") {
        for field in DISABLED_IN_DEVICES {
            device.unset(field);
        }
        if !taints {
            device.unset("taints");
        }
        let capacities = device.at_mut("capacity").and_then(Value::as_object_mut);
        for capacity in capacities.into_iter().flat_map(|map| map.values_mut()) {
            capacity.unset("requestPolicy");
        }
    }
}

fn check(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::root("spec");
    csi_driver_name(spec.text("driver"), &path.child("driver"), errors);
    check_whole_pool(spec.at("pool"), &path.child("pool"), errors);
    if let Some(old) = old {
        let name = |spec: &Value| Value::from(spec.at("pool").text("name"));
        immutable(&name(spec), &name(old), &path.child("pool").child("name"), errors);
        for field in ["driver", "nodeName"] {
            immutable(spec.at(field), old.at(field), &path.child(field), errors);
        }
    }
    check_nodes(spec, &path, errors);
    let devices = path.child("devices");
    check_each(spec.list("devices"), MAX_DEVICES, &devices, errors, check_device);
    check_distinct(spec.list("devices"), "name", |device| device.text("name"), &devices, errors);
}

fn check_whole_pool(pool: &Value, path: &Path<'_>, errors: &mut Errors) {
    check_pool(pool.text("name"), &path.child("name"), errors);
    let count = pool.count("resourceSliceCount");
    if count <= 0 {
        errors.invalid(&path.child("resourceSliceCount"), count, "must be greater than zero");
    }
    let generation = pool.count("generation");
    if generation < 0 {
        errors.invalid(&path.child("generation"), generation, "must be greater than or equal to zero");
    }
}

/// Checks that the location of devices is specified in exactly one way.
fn check_nodes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut said = Vec::new();
    match spec.at("nodeName").as_str() {
        None => {}
        Some("") => {
            let detail = "must be either unset or set to a non-empty string";
            errors.invalid(&path.child("nodeName"), "", detail);
        }
        Some(name) => {
            said.push("`nodeName`");
            dns_subdomain(name, &path.child("nodeName"), errors);
        }
    }
    if spec.has("nodeSelector") {
        said.push("`nodeSelector`");
        check_node_selector(spec.at("nodeSelector"), &path.child("nodeSelector"), errors);
    }
    match spec.boolean("allNodes") {
        None => {}
        Some(true) => said.push("`allNodes`"),
        Some(false) => {
            errors.invalid(&path.child("allNodes"), false, "must be either unset or set to true");
        }
    }
    let one_of =
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match said.len() {
        0 => errors.required(path, one_of),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", said.join(", "));
            errors.invalid(path, shown, format!("{one_of}, but multiple fields are set"));
        }
    }
}

fn check_node_selector(selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    node_selector(selector, Values::Checked, path, errors);
    let terms = selector.list("nodeSelectorTerms");
    if terms.len() != 1 {
        let path = path.child("nodeSelectorTerms");
        errors.invalid(
            &path,
            selector.at("nodeSelectorTerms").clone(),
            "must have exactly one node selector term",
        );
    }
}

fn check_device(device: &Value, path: &Path<'_>, errors: &mut Errors) {
    dns_label(device.text("name"), &path.child("name"), errors);
    let entries = |field: &str| device.map(field).into_iter().flatten();
    let count = entries("attributes").count() + entries("capacity").count();
    if count > MAX_ATTRIBUTES {
        let detail =
            format!("the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES}");
        errors.invalid(path, count, detail);
    }
    let attributes = path.child("attributes");
    for (name, attribute) in entries("attributes") {
        let shown = shortened(name);
        check_attribute_name(name, &attributes.key(&shown), errors);
        check_attribute(attribute, &attributes.key(&shown), errors);
    }
    let taints = path.child("taints");
    check_each(device.list("taints"), MAX_TAINTS, &taints, errors, check_taint);
    let capacities = path.child("capacity");
    for (name, _) in entries("capacity") {
        check_attribute_name(name, &capacities.key(&shortened(name)), errors);
    }
}

/// Truncates the middle of a long key in a path.
fn shortened(key: &str) -> String {
    const SHOWN: usize = 63 + 1 + 32;
    if key.len() <= SHOWN || !key.is_ascii() {
        return key.to_owned();
    }
    let rest = SHOWN - 3;
    format!("{}...{}", &key[..rest.div_ceil(2)], &key[key.len() - rest / 2..])
}

fn check_attribute(attribute: &Value, path: &Path<'_>, errors: &mut Errors) {
    let fields = ["bool", "int", "string", "version"];
    for field in ["string", "version"] {
        let Some(text) = attribute.at(field).as_str() else { continue };
        if field == "version" && !is_semantic_version(text) {
            let detail = "must be a string compatible with semver.org spec 2.0.0";
            errors.invalid(&path.child(field), text, detail);
        }
        if text.len() > VALUE_BYTES {
            too_long(VALUE_BYTES, &path.child(field), errors);
        }
    }
    let detail = "exactly one value must be specified";
    match fields.iter().filter(|field| attribute.has(field)).count() {
        0 => errors.required(path, detail),
        1 => {}
        _ => {
            let given = [
                ("int", "IntValue"),
                ("bool", "BoolValue"),
                ("string", "StringValue"),
                ("version", "VersionValue"),
            ];
            let given: Value =
                given.iter().map(|(field, name)| ((*name).to_owned(), attribute.at(field).clone())).collect();
            errors.invalid(path, declared::of(&given, &declared::DEVICE_ATTRIBUTE), detail);
        }
    }
}

/// Whether a text is a semantic version: `1.2.3-alpha.1+build.5`.
fn is_semantic_version(text: &str) -> bool {
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, release) = rest.split_once('-').map_or((rest, None), |(core, release)| (core, Some(release)));
    let is_number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let is_word =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let is_release =
        |part: &str| is_number(part) || is_word(part) && part.bytes().any(|b| !b.is_ascii_digit());
    core.split('.').count() == 3
        && core.split('.').all(is_number)
        && release.is_none_or(|release| release.split('.').all(is_release))
        && build.is_none_or(|build| build.split('.').all(is_word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check as checking;
    use serde_json::json;

    fn slice(change: impl FnOnce(&mut Value)) -> Value {
        let mut slice = json!({"spec": {"driver": "d.io", "nodeName": "n", "pool": {"name": "p", "resourceSliceCount": 1},
            "devices": [{"name": "a", "attributes": {"x": {"version": "1.0.0"}}}]}});
        change(slice.object_mut("spec"));
        slice
    }

    #[test]
    fn a_slice_has_exactly_one_node_selection() {
        checking::create(&ResourceSlice { taints: false }, slice(|_| ()), &[]);
        checking::create(
            &ResourceSlice { taints: false },
            slice(|spec| spec.set("allNodes", true)),
            &["Invalid spec"],
        );
        checking::create(
            &ResourceSlice { taints: false },
            slice(|spec| _ = spec.unset("nodeName")),
            &["Required spec"],
        );
        checking::create(
            &ResourceSlice { taints: false },
            json!({"spec": {"nodeName": "", "allNodes": false}}),
            &[
                "Required spec.driver",
                "Invalid spec.driver",
                "Required spec.pool.name",
                "Invalid spec.pool.resourceSliceCount",
                "Invalid spec.nodeName",
                "Invalid spec.allNodes",
                "Required spec",
            ],
        );
    }

    #[test]
    fn devices_have_names_and_attributes_one_value() {
        let path = "spec.devices[0]";
        let devices = |devices: Value| slice(|spec| spec.set("devices", devices));
        checking::create(
            &ResourceSlice { taints: false },
            devices(
                json!([{"name": "A", "attributes": {"a/b": {}, "1": {"version": "1"}}, "capacity": {"": {"value": "1"}}}]),
            ),
            &[
                &format!("Invalid {path}.name"),
                &format!("Invalid {path}.attributes[1]"),
                &format!("Invalid {path}.attributes[1].version"),
                &format!("Required {path}.attributes[a/b]"),
                &format!("Required {path}.capacity[]"),
            ],
        );
        checking::create(
            &ResourceSlice { taints: false },
            devices(json!([{"name": "a"}, {"name": "a"}])),
            &["Duplicate spec.devices[1].name"],
        );
    }

    #[test]
    fn the_driver_and_pool_of_a_slice_are_immutable() {
        let other = slice(|spec| {
            spec.set("driver", "e.io");
            spec.set("nodeName", "m");
        });
        checking::update(
            &ResourceSlice { taints: false },
            other,
            &slice(|_| ()),
            &["Invalid spec.driver", "Invalid spec.nodeName"],
        );
    }

    #[test]
    fn disabled_features_have_no_effect() {
        let mut new = slice(|spec| {
            spec.set("perDeviceNodeSelection", true);
            spec.set(
                "devices",
                json!([{"name": "a", "taints": [], "capacity": {"m": {"value": "1", "requestPolicy": {}}}}]),
            );
        });
        ResourceSlice { taints: false }.prepare_for_create(&mut new);
        assert_eq!(new["spec"]["devices"], json!([{"name": "a", "capacity": {"m": {"value": "1"}}}]));
        assert!(!new["spec"].has("perDeviceNodeSelection"));
    }

    #[test]
    fn versions_are_semantic() {
        for (text, fine) in [
            ("1.2.3", true),
            ("1.2.3-alpha.1+b.5", true),
            ("1.2", false),
            ("01.2.3", false),
            ("1.2.3-01", false),
            ("1.2.3-a_b", false),
            ("1.2.3+", false),
        ] {
            assert_eq!(is_semantic_version(text), fine, "{text}");
        }
    }
}
