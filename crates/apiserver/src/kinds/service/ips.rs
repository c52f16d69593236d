//! Validates the addresses of a service and their families.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::json::Json;
use crate::validation::{address, choice};

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
const FIXED: &str = "may not change once set";

/// Whether a service has no address of its own.
pub(super) fn is_headless(spec: &Value) -> bool {
    matches!(spec.list("clusterIPs"), [only] if only == "None")
}

/// Checks that addresses, families and policy agree; `old` is null for a new service.
pub(super) fn check(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    if spec.text("type") == "ExternalName" {
        return;
    }
    let ips_path = path.child("clusterIPs");
    check_first(spec, &ips_path, errors);
    check_families(spec, &path.child("ipFamilies"), errors);
    if let Some(policy) = spec.at("ipFamilyPolicy").as_str() {
        choice(policy, &POLICIES, &path.child("ipFamilyPolicy"), errors);
    }
    let well_formed = check_each(spec, old, &ips_path, errors);
    let ips = spec.list("clusterIPs");
    if ips.len() > 2 {
        errors.invalid(&ips_path, ips.to_vec(), "may only hold up to 2 values");
    }
    if !well_formed {
        return;
    }
    if ips.len() > 1 && address::is_dual_stack(ips.iter().filter_map(Value::as_str)) != Some(true) {
        errors.invalid(&ips_path, ips.to_vec(), "may specify no more than one IP for each IP family");
    }
    if !is_headless(spec) {
        check_against_families(spec, &ips_path, errors);
    }
}

/// Checks that `clusterIP` is the first of `clusterIPs`.
fn check_first(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let ips = spec.list("clusterIPs");
    match (spec.text("clusterIP"), ips) {
        ("", []) => {}
        ("", _) => errors.invalid(path, ips.to_vec(), "must be empty when `clusterIP` is not specified"),
        (_, []) => errors.required(path, ""),
        (single, [first, ..]) if first != single => {
            errors.invalid(path, ips.to_vec(), "first value must match `clusterIP`");
        }
        _ => {}
    }
}

fn check_families(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let families = spec.list("ipFamilies");
    let mut seen = BTreeSet::new();
    for (index, family) in families.iter().enumerate() {
        let name = family.as_str().unwrap_or_default();
        if !FAMILIES.contains(&name) {
            errors.not_supported(&path.index(index), name, &FAMILIES);
        }
        if !seen.insert(name) {
            errors.duplicate(&path.index(index), name);
        }
    }
}

/// Returns whether each address is valid.
fn check_each(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) -> bool {
    let ips = spec.list("clusterIPs");
    let mut well_formed = true;
    for (index, ip) in ips.iter().enumerate() {
        let before = errors.0.len();
        if index == 0 && ip == "None" {
            if ips.len() > 1 {
                errors.invalid(path, ips.to_vec(), "'None' must be the first and only value");
            }
        } else {
            let known = |_: &str| old.list("clusterIPs").contains(ip);
            address::ip(ip.as_str().unwrap_or_default(), known, &path.index(index), errors);
        }
        well_formed &= errors.0.len() == before;
    }
    well_formed
}

fn check_against_families(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let pairs = spec.list("clusterIPs").iter().zip(spec.list("ipFamilies"));
    for (index, (ip, family)) in pairs.enumerate() {
        let text = ip.as_str().unwrap_or_default();
        let is_v6 = address::parse_ip(text).is_some_and(|ip| ip.is_ipv6());
        let expected = match family.as_str() {
            Some("IPv4") if is_v6 => "an IPv4",
            Some("IPv6") if !is_v6 => "an IPv6",
            _ => continue,
        };
        let detail = format!("expected {expected} value as indicated by `ipFamilies[{index}]`");
        errors.invalid(&path.index(index), text, detail);
    }
}

/// Validates an update: a second family may be added and removed; the first address and its family are immutable.
pub(super) fn check_change(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    if spec.text("type") == "ExternalName" || old.text("type") == "ExternalName" {
        return;
    }
    let (headless, was_headless) = (is_headless(spec), is_headless(old));
    if !(headless && was_headless) {
        check_ip_change(spec, old, path, errors);
    }
    if !headless && !was_headless {
        check_family_change(spec, old, path, errors);
    }
}

fn check_ip_change(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let ips_path = path.child("clusterIPs");
    let (ips, old_ips) = (spec.list("clusterIPs"), old.list("clusterIPs"));
    if ips.len() == old_ips.len() {
        for (index, _) in ips.iter().zip(old_ips).enumerate().filter(|(_, (ip, old))| ip != old) {
            errors.invalid(&ips_path.index(index), ips.to_vec(), FIXED);
        }
        return;
    }
    match (ips.first(), old_ips.first()) {
        (None, _) => errors.invalid(&ips_path.index(0), ips.to_vec(), "primary clusterIP can not be unset"),
        (Some(ip), Some(old)) if ip != old => errors.invalid(&ips_path.index(0), ips.to_vec(), FIXED),
        _ => {}
    }
    if old_ips.len() > ips.len() && ips.len() == 1 {
        check_released(spec, "clusterIP", path, errors);
    }
}

fn check_family_change(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let families_path = path.child("ipFamilies");
    let first = families_path.index(0);
    let (families, old_families) = (spec.list("ipFamilies"), old.list("ipFamilies"));
    let ips = || Value::from(spec.list("clusterIPs").to_vec());
    if families.len() == old_families.len() {
        for _ in families.iter().zip(old_families).filter(|(family, old)| family != old) {
            errors.invalid(&first, families.to_vec(), FIXED);
        }
        return;
    }
    let released = old_families.len() > families.len();
    if released && spec.list("clusterIPs").is_empty() {
        errors.invalid(&first, families.to_vec(), "primary ipFamily can not be unset");
    }
    if let (Some(family), Some(old)) = (families.first(), old_families.first())
        && family != old
    {
        errors.invalid(&first, ips(), FIXED);
    }
    if released && families.len() == 1 {
        check_released(spec, "ipFamily", path, errors);
    }
}

/// Checks that the second family is released explicitly.
fn check_released(spec: &Value, what: &str, path: &Path<'_>, errors: &mut Errors) {
    if spec.text("ipFamilyPolicy") != "SingleStack" {
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {what}");
        errors.invalid(&path.child("ipFamilyPolicy"), spec.at("ipFamilyPolicy").clone(), detail);
    }
}
