//! The status of a claim: allocated devices, reservations, and device status.

use serde_json::Value;

use super::claim::{MAX_CONFIGS, check_configuration, check_raw, check_request_name, check_request_names};
use super::naming::{check_distinct, check_each, check_pool};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::validation::labels::{Values, node_selector};
use crate::validation::{
    Seen, address, conditions, csi_driver_name, dns_label, immutable, required, too_long, too_many,
};

const MAX_CONSUMERS: usize = 256;
const MAX_RESULTS: usize = 32;
const MAX_CONDITIONS: usize = 8;
const DATA_BYTES: usize = 10 << 10;
const MAX_ADDRESSES: usize = 16;
const INTERFACE_NAME_BYTES: usize = 256;
const HARDWARE_ADDRESS_BYTES: usize = 128;

/// A device: driver, pool and name.
type Device<'a> = [&'a str; 3];

fn device(of: &Value) -> Device<'_> {
    ["driver", "pool", "device"].map(|field| of.text(field))
}

fn results(status: &Value) -> &[Value] {
    status.at("allocation").at("devices").list("results")
}

/// Drops fields of disabled features, and the status of released devices.
pub(super) fn prepare(new: &mut Value, old: &Value) {
    let kept: Vec<Value> = {
        let (status, before) = (new.at("status"), old.at("status"));
        let has = |status: &Value, wanted: Device<'_>| results(status).iter().any(|r| device(r) == wanted);
        let is_given_back = |of: &&Value| !has(before, device(of)) || has(status, device(of));
        status.list("devices").iter().filter(is_given_back).cloned().collect()
    };
    let Some(status) = new.at_mut("status") else { return };
    match kept.is_empty() {
        true => _ = status.unset("devices"),
        false => status.set("devices", kept),
    }
    for device in status.list_mut("devices") {
        device.unset("shareID");
    }
    let Some(allocation) = status.at_mut("allocation") else { return };
    allocation.unset("allocationTimestamp");
    let results =
        allocation.at_mut("devices").map(|devices| devices.list_mut("results")).into_iter().flatten();
    for result in results {
        for field in ["shareID", "consumedCapacity", "bindingConditions", "bindingFailureConditions"] {
            result.unset(field);
        }
    }
}

pub(super) fn check_change(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let (status, before) = (new.at("status"), old.at("status"));
    check_consumers(status.list("reservedFor"), &path.child("reservedFor"), errors);
    check_devices(status, &path.child("devices"), errors);
    check_reservation(new, before, &path.child("reservedFor"), errors);
    let allocation = path.child("allocation");
    match (before.has("allocation"), status.has("allocation")) {
        (true, true) => immutable(status.at("allocation"), before.at("allocation"), &allocation, errors),
        (false, true) => check_allocation(new.at("spec"), status.at("allocation"), &allocation, errors),
        _ => {}
    }
}

fn check_consumers(consumers: &[Value], path: &Path<'_>, errors: &mut Errors) {
    check_each(consumers, MAX_CONSUMERS, path, errors, |consumer, path, errors| {
        for field in ["resource", "name", "uid"] {
            required(consumer, field, path, errors);
        }
    });
    check_distinct(consumers, "uid", |consumer| consumer.text("uid"), path, errors);
}

/// Checks that only an allocated claim is reserved, and not while it is being deleted.
fn check_reservation(claim: &Value, before: &Value, path: &Path<'_>, errors: &mut Errors) {
    let status = claim.at("status");
    let consumers = status.list("reservedFor");
    if consumers.is_empty() {
        return;
    }
    if !status.has("allocation") {
        return errors.forbidden(path, "may not be specified when `allocated` is not set");
    }
    let is_new = |consumer: &Value| !before.list("reservedFor").contains(consumer);
    if claim.at("metadata").has("deletionTimestamp") && consumers.iter().any(is_new) {
        let detail =
            "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        errors.forbidden(path, detail);
    }
}

fn check_allocation(spec: &Value, allocation: &Value, path: &Path<'_>, errors: &mut Errors) {
    let devices = allocation.at("devices");
    let devices_path = path.child("devices");
    let results = devices_path.child("results");
    check_each(devices.list("results"), MAX_RESULTS, &results, errors, |result, path, errors| {
        check_request_name(spec, result.text("request"), &path.child("request"), errors);
        check_device(result, path, errors);
    });
    let configs = devices_path.child("config");
    check_each(devices.list("config"), 2 * MAX_CONFIGS, &configs, errors, |config, path, errors| {
        crate::validation::choice(
            config.text("source"),
            &["FromClaim", "FromClass"],
            &path.child("source"),
            errors,
        );
        check_request_names(spec, config.list("requests"), &path.child("requests"), errors);
        check_configuration(config, path, errors);
    });
    if allocation.has("nodeSelector") {
        let path = path.child("nodeSelector");
        node_selector(allocation.at("nodeSelector"), Values::Checked, &path, errors);
    }
}

fn check_device(device: &Value, path: &Path<'_>, errors: &mut Errors) {
    csi_driver_name(device.text("driver"), &path.child("driver"), errors);
    check_pool(device.text("pool"), &path.child("pool"), errors);
    dns_label(device.text("device"), &path.child("device"), errors);
}

fn check_devices(status: &Value, path: &Path<'_>, errors: &mut Errors) {
    let allocated: Vec<Device<'_>> = results(status).iter().map(device).collect();
    let mut seen = Seen::new();
    for (index, entry) in status.list("devices").iter().enumerate() {
        let path = path.index(index);
        check_device(entry, &path, errors);
        let [driver, pool, name] = device(entry);
        if !allocated.contains(&device(entry)) {
            let shown = format!("{driver}/{pool}/{name}");
            errors.invalid(&path, shown, "must be an allocated device in the claim");
        }
        let list = entry.list("conditions");
        if list.len() > MAX_CONDITIONS {
            too_many(list.len(), MAX_CONDITIONS, &path.child("conditions"), errors);
        }
        conditions(list, &path.child("conditions"), errors);
        if entry.has("data") {
            check_raw(entry.at("data"), DATA_BYTES, &path.child("data"), errors);
        }
        check_network(entry.at("networkData"), &path.child("networkData"), errors);
    }
    for (index, entry) in status.list("devices").iter().enumerate() {
        if seen.again(device(entry)) {
            errors.duplicate(&path.index(index).child("deviceID"), device(entry).join("/"));
        }
    }
}

fn check_network(data: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (field, limit) in
        [("interfaceName", INTERFACE_NAME_BYTES), ("hardwareAddress", HARDWARE_ADDRESS_BYTES)]
    {
        if data.text(field).len() > limit {
            too_long(limit, &path.child(field), errors);
        }
    }
    let path = path.child("ips");
    check_each(data.list("ips"), MAX_ADDRESSES, &path, errors, |ip, path, errors| {
        address::interface(ip.as_str().unwrap_or_default(), path, errors);
    });
    check_distinct(data.list("ips"), "", |ip| ip.as_str().unwrap_or_default(), &path, errors);
}
