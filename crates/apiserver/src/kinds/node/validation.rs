//! Validates nodes and their updates.

use serde_json::Value;

use crate::declared;
use crate::field::{Errors, Path, Reason};
use crate::json::Json;
use crate::kinds::resources::amounts;
use crate::names;
use crate::validation::{
    Seen, add_invalid, address, dns_label, dns_subdomain, positive, qualified_name, resources, words,
};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
/// The annotation for taints, which predates the field.
const TAINTS_ANNOTATION: &str = "scheduler.alpha.kubernetes.io/taints";
const AVOID_PODS_ANNOTATION: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";

pub(super) fn check(node: &Value, errors: &mut Errors) {
    check_annotations(node, errors);
    check_taints(node, errors);
    check_amounts(node, errors);
    let swap = node.at("status").at("nodeInfo").at("swap");
    if let Some(capacity) = swap.int("capacity") {
        positive(capacity, &Path::root("metadata").child("nodeSwapStatus").child("capacity"), errors);
    }
    check_pod_cidrs(node, errors);
}

pub(super) fn check_change(new: &Value, old: &Value, errors: &mut Errors) {
    check_annotations(new, errors);
    check_amounts(new, errors);
    check_addresses(new, errors);
    let path = Path::root("spec");
    let (spec, old_spec) = (new.at("spec"), old.at("spec"));
    check_pod_cidr_change(spec.list("podCIDRs"), old_spec.list("podCIDRs"), &path.child("podCIDRs"), errors);
    let provider = old_spec.text("providerID");
    if !provider.is_empty() && provider != spec.text("providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden(&path.child("providerID"), detail);
    }
    if spec.has("configSource") {
        check_config_source(
            spec.at("configSource"),
            ConfigLocation::InSpec,
            &path.child("configSource"),
            errors,
        );
    }
    check_config_status(new.at("status").at("config"), errors);
    check_taints(new, errors);
    if spec.text("externalID") != old_spec.text("externalID") {
        errors.forbidden(&path.child("externalID"), "may not be updated");
    }
}

fn check_annotations(node: &Value, errors: &mut Errors) {
    let annotations = node.at("metadata").at("annotations");
    let path = Path::root("metadata");
    let path = path.child("annotations");
    let text = annotations.text(TAINTS_ANNOTATION);
    if !text.is_empty() {
        match serde_json::from_str::<Vec<Value>>(text) {
            Ok(taints) => check_taint_list(&taints, &path.child(TAINTS_ANNOTATION), errors),
            Err(why) => errors.invalid(&path, TAINTS_ANNOTATION, why.to_string()),
        }
    }
    let text = annotations.text(AVOID_PODS_ANNOTATION);
    if !text.is_empty() {
        match serde_json::from_str::<Value>(text) {
            Ok(avoid) => check_avoided_pods(&avoid, &path.child(AVOID_PODS_ANNOTATION), errors),
            Err(why) => errors.invalid(&path.child("AvoidPods"), AVOID_PODS_ANNOTATION, why.to_string()),
        }
    }
}

fn check_avoided_pods(avoid: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (index, entry) in avoid.list("preferAvoidPods").iter().enumerate() {
        let path = path.index(index);
        let path = path.child("PodSignature");
        match entry.at("podSignature").at("podController") {
            Value::Null => errors.required(&path, ""),
            controller if controller.flag("controller") => {}
            _ => {
                let path = path.child("PodController");
                errors.invalid(&path.child("Controller"), false, "must point to a controller");
            }
        }
    }
}

fn check_taints(node: &Value, errors: &mut Errors) {
    // Under metadata, as in v1.34.
    let path = Path::root("metadata");
    check_taint_list(node.at("spec").list("taints"), &path.child("taints"), errors);
}

fn check_taint_list(taints: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = Seen::new();
    for (index, taint) in taints.iter().enumerate() {
        let path = path.index(index);
        qualified_name(taint.text("key"), &path.child("key"), errors);
        let complaints = names::label_value(taint.text("value"));
        if !complaints.is_empty() {
            errors.invalid(&path.child("value"), taint.text("value"), complaints.join(";"));
        }
        crate::validation::choice(taint.text("effect"), &EFFECTS, &path.child("effect"), errors);
        if seen.again((taint.text("key"), taint.text("effect"))) {
            let detail = "taints must be unique by key and effect pair";
            errors.push(Reason::Duplicate, &path, Some(declared::of(taint, &declared::TAINT)), detail);
        }
    }
}

fn check_amounts(node: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    for list in ["capacity", "allocatable"] {
        let path = path.child(list);
        for (resource, amount) in amounts(node.at("status").at(list)) {
            resources::quantity(resource, &amount, &path.child(resource), errors);
        }
    }
}

fn check_pod_cidrs(node: &Value, errors: &mut Errors) {
    let cidrs: Vec<&str> = node.at("spec").list("podCIDRs").iter().filter_map(Value::as_str).collect();
    let path = Path::root("spec");
    let path = path.child("podCIDRs");
    for (index, cidr) in cidrs.iter().enumerate() {
        address::cidr(cidr, |_| false, &path.index(index), errors);
    }
    if cidrs.len() < 2 {
        return;
    }
    let dual_stack = address::is_dual_stack_networks(cidrs.iter().copied());
    if dual_stack.is_none() {
        let detail = "invalid PodCIDRs. failed to check with dual stack";
        errors.push(Reason::Internal, &path, None, detail);
    }
    if dual_stack != Some(true) || cidrs.len() > 2 {
        errors.invalid(&path, cidrs, "may specify no more than one CIDR for each IP family");
    }
}

fn check_pod_cidr_change(new: &[Value], old: &[Value], path: &Path<'_>, errors: &mut Errors) {
    if old.is_empty() {
        return;
    }
    let detail = "node updates may not change podCIDR except from \"\" to valid";
    let changes = match new.len() == old.len() {
        true => new.iter().zip(old).filter(|(new, old)| new != old).count(),
        false => 1,
    };
    for _ in 0..changes {
        errors.forbidden(path, detail);
    }
}

fn check_addresses(node: &Value, errors: &mut Errors) {
    let addresses = node.at("status").list("addresses");
    let path = Path::root("status");
    let path = path.child("addresses");
    let mut seen = Seen::new();
    for (index, address) in addresses.iter().enumerate() {
        if seen.again((address.text("type"), address.text("address"))) {
            errors.duplicate(&path.index(index), address.clone());
        }
    }
}

/// The location of a node's configuration reference.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConfigLocation {
    InSpec,
    InStatus,
}

fn check_config_status(config: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let path = path.child("config");
    for field in ["assigned", "active", "lastKnownGood"] {
        if config.has(field) {
            check_config_source(config.at(field), ConfigLocation::InStatus, &path.child(field), errors);
        }
    }
}

/// Validates a configuration reference. The feature was removed, but existing references must be valid.
fn check_config_source(source: &Value, written: ConfigLocation, path: &Path<'_>, errors: &mut Errors) {
    let map = source.at("configMap");
    if map.is_null() {
        return errors.invalid(path, source.clone(), "exactly one reference subfield must be non-nil");
    }
    let path = path.child("configMap");
    for field in ["uid", "resourceVersion"] {
        match (written, map.text(field)) {
            (ConfigLocation::InStatus, "") => errors.required(&path.child(field), ""),
            (ConfigLocation::InSpec, "") | (ConfigLocation::InStatus, _) => {}
            (ConfigLocation::InSpec, _) => {
                errors.forbidden(&path.child(field), format!("{field} must not be set in spec"))
            }
        }
    }
    check_config_name(map, "namespace", dns_label, &path, errors);
    check_config_name(map, "name", dns_subdomain, &path, errors);
    let key = |key: &str, path: &Path<'_>, errors: &mut Errors| {
        add_invalid(words::config_key(key), key, path, errors)
    };
    check_config_name(map, "kubeletConfigKey", key, &path, errors);
}

fn check_config_name(
    map: &Value,
    field: &str,
    rule: impl Fn(&str, &Path<'_>, &mut Errors),
    path: &Path<'_>,
    errors: &mut Errors,
) {
    match map.text(field) {
        "" => errors.required(&path.child(field), ""),
        text => rule(text, &path.child(field), errors),
    }
}
