//! Validates volume mounts and devices of containers.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Scope;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::validation::{Seen, not_found, optional_choice, paths, required};

const PROPAGATIONS: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
const READ_ONLY_KINDS: [&str; 3] = ["Disabled", "Enabled", "IfPossible"];

impl Scope<'_> {
    pub(super) fn check_mounts(&self, container: &Value, path: &Path<'_>, errors: &mut Errors) {
        let devices = container.list("volumeDevices");
        let (device_names, device_paths) = (texts(devices, "name"), texts(devices, "devicePath"));
        let mut mount_points = Seen::new();
        for (index, mount) in container.list("volumeMounts").iter().enumerate() {
            let here = path.index(index);
            let (name, point) = (mount.text("name"), mount.text("mountPath"));
            required(mount, "name", &here, errors);
            if !self.volumes.contains_key(name) {
                not_found(name, &here.child("name"), errors);
            }
            required(mount, "mountPath", &here, errors);
            if mount_points.again(point) {
                errors.invalid(&here.child("mountPath"), point, "must be unique");
            }
            if device_names.contains(name) {
                errors.invalid(&here.child("name"), name, "must not already exist in volumeDevices");
            }
            if device_paths.contains(point) {
                let detail = "must not already exist as a path in volumeDevices";
                errors.invalid(&here.child("mountPath"), point, detail);
            }
            check_sub_paths(mount, path, &here, errors);
            check_propagation(mount, container, path, errors);
            check_read_only(mount, &path.child("recursiveReadOnly"), errors);
        }
    }

    pub(super) fn check_devices(&self, container: &Value, path: &Path<'_>, errors: &mut Errors) {
        let mounts = container.list("volumeMounts");
        let (mount_names, mount_points) = (texts(mounts, "name"), texts(mounts, "mountPath"));
        let (mut names, mut device_paths) = (Seen::new(), Seen::new());
        for (index, device) in container.list("volumeDevices").iter().enumerate() {
            let path = path.index(index);
            let (name, target) = (device.text("name"), device.text("devicePath"));
            let (name_path, target_path) = (path.child("name"), path.child("devicePath"));
            required(device, "name", &path, errors);
            if !name.is_empty() && names.again(name) {
                errors.invalid(&name_path, name, "must be unique");
            }
            match self.volumes.get(name) {
                None => not_found(name, &name_path, errors),
                Some(volume) if volume.has("persistentVolumeClaim") || volume.has("ephemeral") => {}
                Some(_) => {
                    let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                    errors.invalid(&name_path, name, detail);
                }
            }
            required(device, "devicePath", &path, errors);
            if paths::has_backsteps(target) {
                errors.invalid(&target_path, target, "can not contain backsteps ('..')");
            } else if device_paths.again(target) {
                errors.invalid(&target_path, target, "must be unique");
            }
            if mount_names.contains(name) {
                errors.invalid(&name_path, name, "must not already exist in volumeMounts");
            }
            if mount_points.contains(target) {
                errors.invalid(&target_path, target, "must not already exist as a path in volumeMounts");
            }
        }
    }
}

/// Collects one field of every element for lookups.
fn texts<'v>(list: &'v [Value], field: &str) -> BTreeSet<&'v str> {
    list.iter().map(|element| element.text(field)).collect()
}

fn check_sub_paths(mount: &Value, path: &Path<'_>, here: &Path<'_>, errors: &mut Errors) {
    let (sub_path, expression) = (mount.text("subPath"), mount.text("subPathExpr"));
    paths::descending(sub_path, &path.child("subPath"), errors);
    if expression.is_empty() {
        return;
    }
    if !sub_path.is_empty() {
        let detail = "subPathExpr and subPath are mutually exclusive";
        errors.invalid(&here.child("subPathExpr"), expression, detail);
    }
    paths::descending(expression, &path.child("subPathExpr"), errors);
}

fn check_propagation(mount: &Value, container: &Value, path: &Path<'_>, errors: &mut Errors) {
    optional_choice(mount, "mountPropagation", &PROPAGATIONS, path, errors);
    let privileged = container.at("securityContext").flag("privileged");
    if mount.text("mountPropagation") == "Bidirectional" && !privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.forbidden(&path.child("mountPropagation"), detail);
    }
}

fn check_read_only(mount: &Value, path: &Path<'_>, errors: &mut Errors) {
    match mount.at("recursiveReadOnly").as_str() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !mount.flag("readOnly") {
                errors.forbidden(path, "may only be specified when readOnly is true");
            }
            if !matches!(mount.text("mountPropagation"), "" | "None") {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.forbidden(path, detail);
            }
        }
        Some(kind) => errors.not_supported(path, kind, &READ_ONLY_KINDS),
    }
}
