//! The IP families of a service, on a single-stack or dual-stack cluster.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::allocator::has_cluster_ip;
use super::range::Family;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::metadata;
use crate::status::{Named, Status};

const SINGLE: &str = "SingleStack";
const REQUIRE_DUAL: &str = "RequireDualStack";
const PREFER_DUAL: &str = "PreferDualStack";

/// Synchronizes `clusterIPs` with `clusterIP`, which older clients use.
pub(super) fn normalize_cluster_ips(new: &mut Value, old: Option<&Value>) {
    let spec = new.object_mut("spec");
    let single = spec.text("clusterIP").to_string();
    let Some(old) = old.map(|old| old.at("spec")) else {
        if !single.is_empty() && spec.list("clusterIPs").is_empty() {
            spec.set("clusterIPs", json!([single]));
        }
        return;
    };
    let same_single = single == old.text("clusterIP");
    if same_single && spec.list("clusterIPs").is_empty() && !old.list("clusterIPs").is_empty() {
        spec.restore("clusterIPs", old);
    }
    if !same_single && spec.list("clusterIPs") == old.list("clusterIPs") {
        match single.as_str() {
            "" => _ = spec.unset("clusterIPs"),
            single => spec.set("clusterIPs", json!([single])),
        }
    }
}

/// Sets the default families and policy, or fails if the cluster does not support them.
pub(super) fn set_families(
    new: &mut Value,
    old: Option<&Value>,
    configured: &[Family],
) -> Result<(), Status> {
    let usual = configured.first().copied().unwrap_or(Family::V4);
    if !has_cluster_ip(new.at("spec")) {
        return Ok(());
    }
    if old.is_some_and(|old| stays_dual(new.at("spec"), old.at("spec"))) {
        return Ok(());
    }
    default_policy(new, old);
    let mut errors = Errors::default();
    if let Some(old) = old {
        reduce_families(new, old.at("spec"), &mut errors);
    }
    check_policy(new.at("spec"), &mut errors);
    infer_families(new, configured, &mut errors);
    refuse(new, &errors)?;
    let spec = new.object_mut("spec");
    if spec.text("clusterIP") == "None" && spec.map("selector").is_none_or(serde_json::Map::is_empty) {
        normalize_headless_without_selector(spec, usual);
        return Ok(());
    }
    check_configured(new.at("spec"), configured, &mut errors);
    refuse(new, &errors)?;
    let spec = new.object_mut("spec");
    let mut families = spec.list("ipFamilies").to_vec();
    if families.is_empty() {
        families.push(usual.name().into());
    }
    if configured.len() == 2 {
        add_other(spec, &mut families);
    }
    spec.set("ipFamilies", families);
    Ok(())
}

/// Adds the second family to a dual-stack service that names only one.
fn add_other(spec: &Value, families: &mut Vec<Value>) {
    if let [only] = families.as_slice()
        && spec.text("ipFamilyPolicy") != SINGLE
    {
        let first = Family::named(only).unwrap_or(Family::V4);
        families.push(first.other().name().into());
    }
}

fn refuse(service: &Value, errors: &Errors) -> Result<(), Status> {
    let of = Named { group: "", resource: "Service" };
    let name = metadata::of(service).text("name");
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(of, name, errors)) }
}

fn parsed(ip: &Value) -> Option<IpAddr> {
    ip.as_str().and_then(|ip| ip.parse().ok())
}

/// Whether addresses and families are consistent. Validation reports errors.
pub(super) fn is_well_formed(spec: &Value) -> bool {
    let ips = spec.list("clusterIPs");
    let first = ips.first().and_then(Value::as_str).unwrap_or("");
    let well_formed_ips =
        ips.iter().enumerate().all(|(at, ip)| parsed(ip).is_some() || at == 0 && ip == "None");
    let known = |family: &Value| family == Family::V4.name() || family == Family::V6.name();
    let families = spec.list("ipFamilies");
    // There are only two families, so a longer list has duplicates.
    let distinct = || matches!(families, [] | [_]) || matches!(families, [first, second] if first != second);
    let agree = ips
        .iter()
        .zip(families)
        .all(|(ip, family)| parsed(ip).is_none_or(|ip| family == Family::of(ip).name()));
    let policy = spec.text("ipFamilyPolicy");
    let known_policy = ["", SINGLE, REQUIRE_DUAL, PREFER_DUAL].contains(&policy);
    spec.text("clusterIP") == first
        && ips.len() <= 2
        && well_formed_ips
        && families.iter().all(known)
        && distinct()
        && agree
        && known_policy
}

/// Whether a service that prefers dual-stack keeps its current families: it neither gains nor loses one implicitly.
pub(super) fn stays_dual(new: &Value, old: &Value) -> bool {
    let prefers = |spec: &Value| spec.text("ipFamilyPolicy") == PREFER_DUAL;
    prefers(new)
        && (prefers(old) || !old.has("ipFamilyPolicy"))
        && new.text("type") == old.text("type")
        && new.list("clusterIPs") == old.list("clusterIPs")
        && new.list("ipFamilies") == old.list("ipFamilies")
}

fn default_policy(new: &mut Value, old: Option<&Value>) {
    let spec = new.object_mut("spec");
    if spec.has("ipFamilyPolicy") {
        return;
    }
    let before = old.map_or("", |old| old.at("spec").text("ipFamilyPolicy"));
    let headless_without_selector =
        spec.text("clusterIP") == "None" && spec.map("selector").is_none_or(serde_json::Map::is_empty);
    let policy = match before {
        "" if headless_without_selector => REQUIRE_DUAL,
        "" => SINGLE,
        before => before,
    };
    spec.set("ipFamilyPolicy", policy);
}

/// Keeps the first family when switching to single-stack; releasing a family without that policy is an error.
fn reduce_families(new: &mut Value, old: &Value, errors: &mut Errors) {
    let is_single = new.at("spec").text("ipFamilyPolicy") == SINGLE;
    let spec_path = Path::root("spec");
    let path = spec_path.child("ipFamilyPolicy");
    for (field, word) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let now = new.at("spec").list(field).to_vec();
        if is_single && now == old.list(field) && now.len() > 1 {
            new.object_mut("spec").set(field, vec![now[0].clone()]);
        } else if !is_single && !now.is_empty() && now.len() < old.list(field).len() {
            let policy = new.at("spec").text("ipFamilyPolicy");
            errors.invalid(&path, policy, format!("must be 'SingleStack' to release the secondary {word}"));
        }
    }
}

fn check_policy(spec: &Value, errors: &mut Errors) {
    if spec.text("ipFamilyPolicy") != SINGLE {
        return;
    }
    let spec_path = Path::root("spec");
    let path = spec_path.child("ipFamilyPolicy");
    for (field, words) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if spec.list(field).len() == 2 {
            let detail = format!(
                "must be 'RequireDualStack' or 'PreferDualStack' when multiple {words} are specified"
            );
            errors.invalid(&path, SINGLE, detail);
        }
    }
}

/// Infers the families from the requested addresses.
fn infer_families(new: &mut Value, configured: &[Family], errors: &mut Errors) {
    let spec = new.object_mut("spec");
    let ips = spec.list("clusterIPs").to_vec();
    let mut families = spec.list("ipFamilies").to_vec();
    for (at, ip) in ips.iter().enumerate() {
        let Some(address) = parsed(ip) else { break };
        if at < families.len() {
            continue;
        }
        let found = Family::of(address);
        if configured.contains(&found) {
            families.push(found.name().into());
        } else {
            let spec_path = Path::root("spec");
            let path = spec_path.child("clusterIPs");
            let detail = format!("{} is not configured on this cluster", found.name());
            errors.invalid(&path.index(at), Value::Array(ips.clone()), detail);
        }
    }
    if !families.is_empty() {
        spec.set("ipFamilies", families);
    }
}

fn normalize_headless_without_selector(spec: &mut Value, family: Family) {
    let mut families = spec.list("ipFamilies").to_vec();
    if families.is_empty() {
        families.push(family.name().into());
    }
    add_other(spec, &mut families);
    spec.set("ipFamilies", families);
}

fn check_configured(spec: &Value, configured: &[Family], errors: &mut Errors) {
    let path = Path::root("spec");
    if spec.text("ipFamilyPolicy") == REQUIRE_DUAL && configured.len() < 2 {
        let detail = "this cluster is not configured for dual-stack services";
        errors.invalid(&path.child("ipFamilyPolicy"), REQUIRE_DUAL, detail);
    }
    let families = path.child("ipFamilies");
    for (at, wanted) in spec.list("ipFamilies").iter().enumerate() {
        if configured.iter().all(|family| wanted != family.name()) {
            errors.invalid(&families.index(at), wanted.clone(), "not configured on this cluster");
        }
    }
}
