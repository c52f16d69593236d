//! Pods that specify an operating system must not have fields of the other.

use serde_json::Value;

use super::each_container;
use crate::field::{Errors, Path};
use crate::json::Json;

/// Fields of a pod's security context that Windows does not support, in reporting order; the flag marks fields of the
/// spec itself.
const NOT_ON_WINDOWS: [(&str, bool); 15] = [
    ("appArmorProfile", false),
    ("seLinuxOptions", false),
    ("hostUsers", true),
    ("hostPID", true),
    ("hostIPC", true),
    ("seccompProfile", false),
    ("fsGroup", false),
    ("fsGroupChangePolicy", false),
    ("sysctls", false),
    ("shareProcessNamespace", true),
    ("runAsUser", false),
    ("runAsGroup", false),
    ("supplementalGroups", false),
    ("supplementalGroupsPolicy", false),
    ("seLinuxChangePolicy", false),
];
/// The same for containers.
const NOT_IN_WINDOWS_CONTAINERS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

pub(super) fn check(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !spec.has("os") {
        return;
    }
    let os_path = path.child("os");
    match spec.at("os").text("name") {
        "" => errors.required(&os_path.child("name"), ""),
        "linux" => check_linux(spec, path, errors),
        "windows" => check_windows(spec, path, errors),
        name => errors.not_supported(&os_path, name, &["linux", "windows"]),
    }
}

fn check_linux(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut check = |object: &Value, path: &Path<'_>| {
        if object.at("securityContext").has("windowsOptions") {
            let path = path.child("securityContext");
            errors.forbidden(&path.child("windowsOptions"), "windows options cannot be set for a linux pod");
        }
    };
    check(spec, path);
    each_container(spec, path, check);
}

fn check_windows(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const DETAIL: &str = "cannot be set for a windows pod";
    let context = spec.at("securityContext");
    let context_path = path.child("securityContext");
    for (field, in_spec) in NOT_ON_WINDOWS {
        let value = if in_spec { spec.at(field) } else { context.at(field) };
        let is_set = match field {
            "hostPID" | "hostIPC" => *value == true,
            "sysctls" => value.as_array().is_some_and(|list| !list.is_empty()),
            _ => !value.is_null(),
        };
        if is_set {
            let parent = if in_spec { path } else { &context_path };
            errors.forbidden(&parent.child(field), DETAIL);
        }
    }
    each_container(spec, path, |container, path| {
        let path = path.child("securityContext");
        for field in NOT_IN_WINDOWS_CONTAINERS {
            if container.at("securityContext").has(field) {
                errors.forbidden(&path.child(field), DETAIL);
            }
        }
    });
}
