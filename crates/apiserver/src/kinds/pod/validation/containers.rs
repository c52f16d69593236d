//! Validates containers of all three types.

use serde_json::Value;

use super::Scope;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kinds::pod::is_sidecar;
use crate::validation::{
    Seen, add_invalid, choice, dns_label, not_found, optional_choice, port_number, required, words,
};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
/// Fields that ephemeral containers cannot have, in the order of the type's fields.
const NOT_EPHEMERAL: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

impl Scope<'_> {
    pub(super) fn check_containers(&self, path: &Path<'_>, errors: &mut Errors) {
        let containers = self.spec.list("containers");
        if containers.is_empty() {
            return errors.required(path, "");
        }
        let mut names = Seen::new();
        for (index, container) in containers.iter().enumerate() {
            let path = path.index(index);
            self.check_container(container, &path, errors);
            if names.again(container.text("name")) {
                errors.duplicate(&path.child("name"), container.text("name"));
            }
            self.check_lifecycle(container, &path, errors);
            self.check_probes(container, &path, errors);
        }
        let mut ports = Seen::new();
        for (index, container) in containers.iter().enumerate() {
            check_host_ports(container, &mut ports, &path.index(index), errors);
        }
    }

    pub(super) fn check_init_containers(&self, path: &Path<'_>, errors: &mut Errors) {
        let mut names = Seen::new();
        for container in self.spec.list("containers") {
            names.again(container.text("name"));
        }
        for (index, container) in self.spec.list("initContainers").iter().enumerate() {
            let here = path.index(index);
            self.check_container(container, &here, errors);
            optional_choice(container, "restartPolicy", &["Always"], &here, errors);
            let name = container.text("name");
            if !name.is_empty() && names.again(name) {
                errors.duplicate(&here.child("name"), name);
            }
            // v1.34 checks them one at a time, so each has the index of the first.
            check_host_ports(container, &mut Seen::new(), &path.index(0), errors);
            if is_sidecar(container) {
                self.check_lifecycle(container, &here, errors);
                self.check_probes(container, &here, errors);
            } else {
                forbid_hooks(container, &here, errors);
            }
        }
    }

    pub(super) fn check_ephemeral_containers(&self, path: &Path<'_>, errors: &mut Errors) {
        let containers = self.spec.list("ephemeralContainers");
        if containers.is_empty() {
            return;
        }
        let others = || self.spec.list("containers").iter().chain(self.spec.list("initContainers"));
        let mut names = Seen::new();
        for container in others() {
            names.again(container.text("name"));
        }
        for (index, container) in containers.iter().enumerate() {
            let path = path.index(index);
            self.check_container(container, &path, errors);
            check_image_padding(container, &path, errors);
            if names.again(container.text("name")) {
                errors.duplicate(&path.child("name"), container.text("name"));
            }
            let target = container.text("targetContainerName");
            if !target.is_empty() && !others().any(|other| other.text("name") == target) {
                not_found(target, &path.child("targetContainerName"), errors);
            }
            forbid_services(container, &path, errors);
        }
    }

    /// Validates what applies to every container.
    fn check_container(&self, container: &Value, path: &Path<'_>, errors: &mut Errors) {
        match container.text("name") {
            "" => errors.required(&path.child("name"), ""),
            name => dns_label(name, &path.child("name"), errors),
        }
        required(container, "image", path, errors);
        let policy = container.text("terminationMessagePolicy");
        choice(policy, &["File", "FallbackToLogsOnError"], &path.child("terminationMessagePolicy"), errors);
        check_ports(container.list("ports"), &path.child("ports"), errors);
        self.check_env(container, path, errors);
        self.check_mounts(container, &path.child("volumeMounts"), errors);
        self.check_devices(container, &path.child("volumeDevices"), errors);
        choice(container.text("imagePullPolicy"), &PULL_POLICIES, &path.child("imagePullPolicy"), errors);
        self.requirements().check(container.at("resources"), &path.child("resources"), errors);
        self.check_resize_policy(container.list("resizePolicy"), &path.child("resizePolicy"), errors);
        self.check_security(container.at("securityContext"), &path.child("securityContext"), errors);
    }

    fn check_resize_policy(&self, policies: &[Value], path: &Path<'_>, errors: &mut Errors) {
        let mut seen = Seen::new();
        for (index, policy) in policies.iter().enumerate() {
            let (resource, restart) = (policy.text("resourceName"), policy.text("restartPolicy"));
            if seen.again(resource) {
                errors.duplicate(&path.index(index), resource);
            }
            choice(resource, &["cpu", "memory"], path, errors);
            choice(restart, &["NotRequired", "RestartContainer"], path, errors);
            if self.restart_policy == "Never" && restart != "NotRequired" {
                errors.invalid(path, restart, "must be 'NotRequired' when `restartPolicy` is 'Never'");
            }
        }
    }
}

fn check_ports(ports: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut names = Seen::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            let complaints = words::port_name(name);
            if complaints.is_empty() && names.again(name) {
                errors.duplicate(&path.child("name"), name);
            }
            add_invalid(complaints, name, &path.child("name"), errors);
        }
        match port.count("containerPort") {
            0 => errors.required(&path.child("containerPort"), ""),
            number => port_number(number, &path.child("containerPort"), errors),
        }
        if port.count("hostPort") != 0 {
            port_number(port.count("hostPort"), &path.child("hostPort"), errors);
        }
        choice(port.text("protocol"), &PROTOCOLS, &path.child("protocol"), errors);
    }
}

fn check_host_ports<'a>(
    container: &'a Value,
    seen: &mut Seen<(&'a str, &'a str, i64)>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let path = path.child("ports");
    for (index, port) in container.list("ports").iter().enumerate() {
        let (protocol, ip, number) = (port.text("protocol"), port.text("hostIP"), port.count("hostPort"));
        if number != 0 && seen.again((protocol, ip, number)) {
            errors.duplicate(&path.index(index).child("hostPort"), format!("{protocol}/{ip}/{number}"));
        }
    }
}

/// Rejects probes and lifecycle hooks of init containers, which run to completion.
fn forbid_hooks(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if container.has(field) {
            let detail = "may not be set for init containers without restartPolicy=Always";
            errors.forbidden(&path.child(field), detail);
        }
    }
}

/// Rejects ports, probes and resources of ephemeral containers.
fn forbid_services(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    const DETAIL: &str = "cannot be set for an Ephemeral Container";
    for field in NOT_EPHEMERAL {
        let is_set = match container.at(field) {
            Value::Null => false,
            Value::Array(list) => !list.is_empty(),
            Value::Object(fields) => field != "resources" || !fields.is_empty(),
            _ => true,
        };
        if is_set {
            errors.forbidden(&path.child(field), DETAIL);
        }
    }
    let mounts = path.child("volumeMounts");
    for (index, mount) in container.list("volumeMounts").iter().enumerate() {
        for field in ["subPath", "subPathExpr"] {
            if !mount.text(field).is_empty() {
                errors.forbidden(&mounts.index(index).child(field), DETAIL);
            }
        }
    }
}

/// Checks that images have no surrounding spaces; this applies to pods, not to templates.
pub(super) fn check_image_padding(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let image = container.text("image");
    if image.trim().len() != image.len() {
        errors.invalid(&path.child("image"), image, "must not have leading or trailing whitespace");
    }
}
