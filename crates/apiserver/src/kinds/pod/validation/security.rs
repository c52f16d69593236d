//! Validates the security contexts of pods and containers.

use serde_json::Value;

use super::{Rules, Scope, each_container, windows};
use crate::declared;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::validation::{Seen, choice, optional_choice, paths, too_long, user_or_group};

const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const SYSCTL_BYTES: usize = 253;
/// Sysctls that are specific to an IPC namespace.
const IPC_SYSCTLS: [&str; 10] = [
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.shm",
    "kernel.msg",
];
const SYSCTL_PATTERN: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

pub(super) fn check_pod(spec: &Value, rules: &Rules, path: &Path<'_>, errors: &mut Errors) {
    let context = spec.at("securityContext");
    check_ids(context, &["fsGroup", "runAsUser", "runAsGroup"], path, errors);
    let groups = path.child("supplementalGroups");
    for (index, group) in context.list("supplementalGroups").iter().enumerate() {
        user_or_group(group.as_i64().unwrap_or(0), &groups.index(index), errors);
    }
    if spec.flag("shareProcessNamespace") && spec.flag("hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&path.child("shareProcessNamespace"), true, detail);
    }
    check_sysctls(spec, rules, &path.child("sysctls"), errors);
    optional_choice(context, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], path, errors);
    check_seccomp(context.at("seccompProfile"), &path.child("seccompProfile"), errors);
    windows::check_options(context.at("windowsOptions"), &path.child("windowsOptions"), errors);
    check_apparmor(context.at("appArmorProfile"), &path.child("appArmorProfile"), errors);
    optional_choice(context, "supplementalGroupsPolicy", &["Merge", "Strict"], path, errors);
    let changes: &[&str] =
        if rules.allow_any_selinux_change { &["MountOption", "Recursive"] } else { &["Recursive"] };
    optional_choice(context, "seLinuxChangePolicy", changes, path, errors);
}

fn check_ids(context: &Value, fields: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for field in fields {
        if let Some(id) = context.int(field) {
            user_or_group(id, &path.child(field), errors);
        }
    }
}

fn check_sysctls(spec: &Value, rules: &Rules, path: &Path<'_>, errors: &mut Errors) {
    let mut names = Seen::new();
    for (index, sysctl) in spec.at("securityContext").list("sysctls").iter().enumerate() {
        let path = path.index(index);
        let path = path.child("name");
        let name = sysctl.text("name");
        let again = names.again(name);
        if name.is_empty() {
            errors.required(&path, "");
        } else if !is_sysctl(name) {
            let detail =
                format!("must have at most {SYSCTL_BYTES} characters and match regex {SYSCTL_PATTERN}");
            errors.invalid(&path, name, detail);
        } else if again {
            errors.duplicate(&path, name);
        }
        if let Some(namespace) = host_namespace(name, spec).filter(|_| !rules.allow_host_sysctls) {
            errors.invalid(&path, name, format!("may not be specified when '{namespace}' is true"));
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let end = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    name.len() <= SYSCTL_BYTES
        && name.split(['.', '/']).all(|segment| {
            let bytes = segment.as_bytes();
            matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if end(*first) && end(*last))
                && bytes.iter().all(|b| end(*b) || b"-_".contains(b))
        })
}

/// Returns the host namespace that a sysctl would change, if the pod shares it.
fn host_namespace(sysctl: &str, spec: &Value) -> Option<&'static str> {
    // Names may use slashes instead of dots.
    let slashed = sysctl.find(['.', '/']).is_some_and(|at| sysctl.as_bytes()[at] == b'/');
    let name = if slashed { sysctl.replace(['.', '/'], ".") } else { sysctl.to_owned() };
    let name = name.split('*').next().unwrap_or_default();
    let below = |prefix: &str| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'));
    let ipc = IPC_SYSCTLS.contains(&name) || below("fs.mqueue");
    match () {
        () if spec.flag("hostNetwork") && below("net") => Some("hostNetwork"),
        () if spec.flag("hostIPC") && ipc => Some("hostIPC"),
        () => None,
    }
}

pub(super) fn uses_host_sysctls(spec: &Value) -> bool {
    spec.at("securityContext")
        .list("sysctls")
        .iter()
        .any(|sysctl| host_namespace(sysctl.text("name"), spec).is_some())
}

/// Checks that a pod with its own user namespace does not share other host namespaces.
pub(super) fn check_host_users(spec: &Value, rules: &Rules, path: &Path<'_>, errors: &mut Errors) {
    const DETAIL: &str = "when `hostUsers` is false";
    if spec.boolean("hostUsers") != Some(false) {
        return;
    }
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.flag(field) {
            errors.forbidden(&path.child(shown), DETAIL);
        }
    }
    if !rules.allow_user_namespace_devices {
        each_container(spec, path, |container, path| {
            if !container.list("volumeDevices").is_empty() {
                errors.forbidden(&path.child("volumeDevices"), DETAIL);
            }
        });
    }
}

impl Scope<'_> {
    /// Validates a container's security context.
    pub(super) fn check_security(&self, context: &Value, path: &Path<'_>, errors: &mut Errors) {
        if context.is_null() {
            return;
        }
        check_ids(context, &["runAsUser", "runAsGroup"], path, errors);
        optional_choice(context, "procMount", &["Default", "Unmasked"], path, errors);
        if self.host_users && context.text("procMount") == "Unmasked" {
            let detail = "`hostUsers` must be false to use `Unmasked`";
            errors.invalid(&path.child("procMount"), "Unmasked", detail);
        }
        check_seccomp(context.at("seccompProfile"), &path.child("seccompProfile"), errors);
        if context.boolean("allowPrivilegeEscalation") == Some(false) {
            check_no_escalation(context, path, errors);
        }
        windows::check_options(context.at("windowsOptions"), &path.child("windowsOptions"), errors);
        check_apparmor(context.at("appArmorProfile"), &path.child("appArmorProfile"), errors);
    }
}

/// Checks that a fully privileged container does not disallow privilege escalation.
fn check_no_escalation(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    if context.flag("privileged") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.invalid(path, declared::of(context, &declared::SECURITY_CONTEXT), detail);
    }
    let added = context.at("capabilities").list("add").iter();
    for _ in added.filter(|capability| *capability == "CAP_SYS_ADMIN") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        errors.invalid(path, declared::of(context, &declared::SECURITY_CONTEXT), detail);
    }
}

fn check_seccomp(profile: &Value, path: &Path<'_>, errors: &mut Errors) {
    if profile.is_null() {
        return;
    }
    let of = profile.text("type");
    match of {
        "" => errors.required(&path.child("type"), "type is required when seccompProfile is set"),
        of => choice(of, &PROFILES, &path.child("type"), errors),
    }
    let path = path.child("localhostProfile");
    match (of, profile.at("localhostProfile").as_str()) {
        ("Localhost", None) => errors.required(&path, "must be set when seccomp type is Localhost"),
        ("Localhost", Some(file)) => paths::descending(file, &path, errors),
        (_, Some(_)) => {
            let shown = declared::of(profile, &declared::SECCOMP);
            errors.invalid(&path, shown, "can only be set when seccomp type is Localhost")
        }
        (_, None) => {}
    }
}

fn check_apparmor(profile: &Value, path: &Path<'_>, errors: &mut Errors) {
    const MISSING: &str = "must be set when AppArmor type is Localhost";
    if profile.is_null() {
        return;
    }
    let file_path = path.child("localhostProfile");
    match (profile.text("type"), profile.at("localhostProfile").as_str()) {
        ("Localhost", None) => errors.required(&file_path, MISSING),
        ("Localhost", Some(file)) => {
            if file.trim() != file {
                errors.invalid(&file_path, file, "must not be padded with whitespace");
            } else if file.is_empty() {
                errors.required(&file_path, MISSING);
            }
            if file.len() > 4095 {
                too_long(4095, &file_path, errors);
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(file)) => {
            errors.invalid(&file_path, file, "can only be set when AppArmor type is Localhost");
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => errors.required(&path.child("type"), "type is required when appArmorProfile is set"),
        (of, _) => errors.not_supported(&path.child("type"), of, &PROFILES),
    }
}
