//! Warnings about pod specs that are valid but probably not intended.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ports::Definitions;
use super::validation::annotations::{APPARMOR, SECCOMP_CONTAINER, SECCOMP_POD};
use super::{CONTAINER_LISTS, apparmor, overlaps};
use crate::field::Path;
use crate::json::Json;
use crate::kinds::persistentvolumeclaim::warn_of_fractions;
use crate::kinds::resources::amount;
use crate::names;
use crate::server::MAX_WARNINGS;
use crate::validation::Seen;
use crate::validation::address::warn_of_ip;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
/// Annotations that are no longer used.
const DEAD_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];
/// Removed and deprecated volume types.
const DEAD_VOLUMES: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];
/// Deprecated node labels.
const OLD_NODE_LABELS: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

/// Returns the warning for a deprecated node label.
pub(in crate::kinds) fn old_node_label(key: &str) -> Option<&'static str> {
    OLD_NODE_LABELS.iter().find(|(old, _)| *old == key).map(|(_, message)| *message)
}

/// Warns about a name that is unsuitable for what is derived from it.
pub(in crate::kinds) fn of_name(object: &Value, used_in: &str, warnings: &mut Vec<String>) {
    let complaints = names::dns_label(object.at("metadata").text("name"));
    if !complaints.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in {used_in}, which can result in surprising behavior; a DNS label is recommended: [{}]",
            complaints.join(" ")
        ));
    }
}

/// Collects warnings about a pod, or about a template at a path.
pub(in crate::kinds) fn of_spec(pod: &Value, template: Option<&Path<'_>>, warnings: &mut Vec<String>) {
    let (metadata_root, spec_root) = (Path::root("metadata"), Path::root("spec"));
    let (metadata_path, path) = match template {
        Some(path) => (path.child("metadata"), path.child("spec")),
        None => (metadata_root, spec_root),
    };
    let (metadata, spec) = (pod.at("metadata"), pod.at("spec"));
    let mut warn = Warnings { spec, path: &path, warnings };
    warn.node_labels();
    warn.spread();
    warn.annotations(metadata, &metadata_path);
    warn.volumes();
    warn.repeated("hostAliases", "ip");
    warn.repeated("imagePullSecrets", "name");
    warn.unnamed_secrets();
    warn.fractions(spec.at("overhead"), &path.child("overhead"));
    warn.security_annotations(metadata, &metadata_path, template.is_some());
    warn.containers();
    warn.ports();
    warn.port_names();
    warn.grace_period();
    warn.affinity();
    warn.addresses();
}

/// The warnings about a spec, in v1.34's order.
struct Warnings<'a, 'p> {
    spec: &'a Value,
    path: &'a Path<'p>,
    warnings: &'a mut Vec<String>,
}

impl Warnings<'_, '_> {
    fn add(&mut self, path: &Path<'_>, message: impl std::fmt::Display) {
        if !self.is_full() {
            self.warnings.push(format!("{path}: {message}"));
        }
    }

    /// Whether more warnings would not be sent.
    fn is_full(&self) -> bool {
        self.warnings.len() >= MAX_WARNINGS
    }

    fn node_labels(&mut self) {
        let path = self.path.child("nodeSelector");
        for key in self.spec.map("nodeSelector").into_iter().flat_map(|selector| selector.keys()) {
            if let Some(message) = old_node_label(key) {
                self.add(&path.key(key), message);
            }
        }
        let affinity = self.spec.at("affinity").at("nodeAffinity");
        if affinity.is_null() {
            return;
        }
        let path = self.path.child("affinity");
        let path = path.child("nodeAffinity");
        let required = path.child(REQUIRED);
        let required = required.child("nodeSelectorTerms");
        for (index, term) in affinity.at(REQUIRED).list("nodeSelectorTerms").iter().enumerate() {
            self.node_term(term, false, &required.index(index));
        }
        let preferred = path.child(PREFERRED);
        for (index, term) in affinity.list(PREFERRED).iter().enumerate() {
            self.node_term(term.at("preference"), true, &preferred.index(index).child("preference"));
        }
    }

    fn node_term(&mut self, term: &Value, check_values: bool, path: &Path<'_>) {
        let path = path.child("matchExpressions");
        for (index, expression) in term.list("matchExpressions").iter().enumerate() {
            let path = path.index(index);
            let key = expression.text("key");
            if let Some(message) = old_node_label(key) {
                self.add(&path.child("key"), format_args!("{key} is {message}"));
            }
            let values = expression.list("values").iter().filter_map(Value::as_str).enumerate();
            for (index, value) in values.filter(|_| check_values) {
                for complaint in names::label_value(value) {
                    let message = format!("{value} is invalid, {complaint}");
                    self.add(&path.child("values").index(index), message);
                }
            }
        }
    }

    fn spread(&mut self) {
        let path = self.path.child("topologySpreadConstraints");
        for (index, constraint) in self.spec.list("topologySpreadConstraints").iter().enumerate() {
            let path = path.index(index);
            let key = constraint.text("topologyKey");
            if let Some(message) = old_node_label(key) {
                self.add(&path.child("topologyKey"), format_args!("{key} is {message}"));
            }
            self.selects_nothing(constraint, &path);
        }
    }

    fn selects_nothing(&mut self, term: &Value, path: &Path<'_>) {
        if !term.has("labelSelector") {
            self.add(&path.child("labelSelector"), "a null labelSelector results in matching no pod");
        }
    }

    fn annotations(&mut self, metadata: &Value, path: &Path<'_>) {
        let annotations = metadata.at("annotations");
        if annotations.is_null() {
            return;
        }
        let path = path.child("annotations");
        for (key, message) in DEAD_ANNOTATIONS {
            if annotations.has(key) {
                self.add(&path.key(key), message);
            }
        }
    }

    fn volumes(&mut self) {
        let path = self.path.child("volumes");
        for (index, volume) in self.spec.list("volumes").iter().enumerate() {
            let path = path.index(index);
            for (field, shown, message) in DEAD_VOLUMES {
                if volume.has(field) {
                    self.add(&path.child(shown), message);
                }
            }
            let claim = volume.at("ephemeral").at("volumeClaimTemplate");
            if !claim.is_null() {
                let path = path.child("ephemeral");
                let path = path.child("volumeClaimTemplate");
                warn_of_fractions(&path.child("spec"), claim.at("spec"), self.warnings);
            }
        }
        for volume in self.spec.list("volumes") {
            overlaps::of_volume(volume, self.warnings);
        }
    }

    fn repeated(&mut self, list: &str, field: &str) {
        let path = self.path.child(list);
        let mut seen = Seen::new();
        for (index, item) in self.spec.list(list).iter().enumerate() {
            let value = item.text(field);
            if seen.again(value) {
                self.add(&path.index(index).child(field), format_args!("duplicate {field} {value:?}"));
            }
        }
    }

    fn unnamed_secrets(&mut self) {
        let path = self.path.child("imagePullSecrets");
        for (index, secret) in self.spec.list("imagePullSecrets").iter().enumerate() {
            if secret.text("name").is_empty() {
                self.add(&path.index(index).child("name"), "invalid empty name \"\"");
            }
        }
    }

    /// Warns about fractional bytes of memory and storage.
    fn fractions(&mut self, list: &Value, path: &Path<'_>) {
        for resource in ["memory", "ephemeral-storage"] {
            if let Some(amount) = amount(list, resource).filter(|amount| amount.milli_value() % 1000 != 0) {
                let amount = amount.to_string();
                let message = format!("fractional byte value {amount:?} is invalid, must be an integer");
                self.add(&path.key(resource), message);
            }
        }
    }

    fn security_annotations(&mut self, metadata: &Value, path: &Path<'_>, is_template: bool) {
        let annotations = metadata.at("annotations");
        if annotations.is_null() {
            return;
        }
        const NO_SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
        const OLD_APPARMOR: &str = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
        let path = path.child("annotations");
        let context = self.spec.at("securityContext");
        if !context.has("seccompProfile") && annotations.has(SECCOMP_POD) {
            self.add(&path.key(SECCOMP_POD), NO_SECCOMP);
        }
        let spec = self.spec;
        for container in CONTAINER_LISTS.iter().flat_map(|list| spec.list(list)) {
            let own = container.at("securityContext");
            let key = format!("{SECCOMP_CONTAINER}{}", container.text("name"));
            if !own.has("seccompProfile") && annotations.has(&key) {
                self.add(&path.key(&key), NO_SECCOMP);
            }
            let key = format!("{APPARMOR}{}", container.text("name"));
            let profile = apparmor::of_annotation(annotations.text(&key));
            let said = profile.is_some_and(|profile| profile == *context.at("appArmorProfile"));
            if is_template && !own.has("appArmorProfile") && annotations.has(&key) && !said {
                self.add(&path.key(&key), OLD_APPARMOR);
            }
        }
    }

    fn containers(&mut self) {
        let (spec, root) = (self.spec, self.path);
        for list in CONTAINER_LISTS {
            let path = root.child(list);
            for (index, container) in spec.list(list).iter().enumerate() {
                let path = path.index(index);
                let resources = path.child("resources");
                for list in ["limits", "requests"] {
                    self.fractions(container.at("resources").at(list), &resources.child(list));
                }
                self.hidden_variables(container.list("env"), &path.child("env"));
            }
        }
    }

    /// Warns if a second definition hides the first, unless it refers to it.
    fn hidden_variables(&mut self, variables: &[Value], path: &Path<'_>) {
        let mut seen = Seen::new();
        for (index, variable) in variables.iter().enumerate() {
            let (name, value) = (variable.text("name"), variable.text("value"));
            if !seen.again(name) {
                continue;
            }
            let reference = format!("$({name})");
            if variable.has("valueFrom") || value == reference || !value.contains(&reference) {
                let message =
                    format!("hides previous definition of {name:?}, which may be dropped when using apply");
                self.add(&path.index(index), message);
            }
        }
    }

    fn ports(&mut self) {
        let (spec, root) = (self.spec, self.path);
        let mut known: BTreeMap<(i64, &str), Definitions<'_>> = BTreeMap::new();
        each_port(spec, root, |port, path| {
            if self.is_full() {
                return;
            }
            let host @ (host_ip, host_port) = (port.text("hostIP"), port.count("hostPort"));
            if !host_ip.is_empty() && host_port == 0 {
                self.add(path, format_args!("hostIP set without hostPort: {port}"));
            }
            let others = known.entry((port.count("containerPort"), port.text("protocol"))).or_default();
            for (clash, other_path) in others.clashes(host) {
                self.add(path, format_args!("{clash} port definition with {other_path}"));
            }
            others.add(path.to_string(), host);
        });
    }

    fn port_names(&mut self) {
        let (spec, root) = (self.spec, self.path);
        let mut known: BTreeMap<&str, String> = BTreeMap::new();
        each_port(spec, root, |port, path| {
            let name = port.text("name");
            match known.get(name) {
                _ if name.is_empty() => {}
                Some(other) => self.add(
                    path,
                    format_args!(
                        "duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}"
                    ),
                ),
                None => _ = known.insert(name, path.to_string()),
            }
        });
    }

    fn grace_period(&mut self) {
        if self.spec.count("terminationGracePeriodSeconds") < 0 {
            let path = self.path.child("terminationGracePeriodSeconds");
            self.add(&path, "must be >= 0; negative values are invalid and will be treated as 1");
        }
    }

    fn affinity(&mut self) {
        let affinity = self.spec.at("affinity");
        let path = self.path.child("affinity");
        for kind in ["podAffinity", "podAntiAffinity"] {
            let (affinity, path) = (affinity.at(kind), path.child(kind));
            for (index, term) in affinity.list(REQUIRED).iter().enumerate() {
                self.selects_nothing(term, &path.child(REQUIRED).index(index));
            }
            for (index, weighted) in affinity.list(PREFERRED).iter().enumerate() {
                let path = path.child(PREFERRED);
                let path = path.index(index);
                self.selects_nothing(weighted.at("podAffinityTerm"), &path.child("podAffinityTerm"));
            }
        }
    }

    fn addresses(&mut self) {
        let path = self.path.child("dnsConfig");
        let path = path.child("nameservers");
        for (index, server) in self.spec.at("dnsConfig").list("nameservers").iter().enumerate() {
            warn_of_ip(server.as_str().unwrap_or_default(), &path.index(index), self.warnings);
        }
        let path = self.path.child("hostAliases");
        for (index, alias) in self.spec.list("hostAliases").iter().enumerate() {
            warn_of_ip(alias.text("ip"), &path.index(index).child("ip"), self.warnings);
        }
    }
}

fn each_port<'a>(spec: &'a Value, path: &Path<'_>, mut visit: impl FnMut(&'a Value, &Path<'_>)) {
    for list in CONTAINER_LISTS {
        let path = path.child(list);
        for (index, container) in spec.list(list).iter().enumerate() {
            let path = path.index(index);
            let path = path.child("ports");
            for (index, port) in container.list("ports").iter().enumerate() {
                visit(port, &path.index(index));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(spec: Value, expected: &[&str]) {
        let mut warnings = Vec::new();
        of_spec(&json!({"spec": spec}), None, &mut warnings);
        assert_eq!(warnings, expected);
    }

    #[test]
    fn a_plain_pod_raises_no_warnings() {
        check(
            json!({"containers": [{"name": "c", "env": [{"name": "A"}], "ports": [{"containerPort": 80}]}]}),
            &[],
        );
    }

    #[test]
    fn likely_mistakes_are_warned_about() {
        check(
            json!({"nodeSelector": {"beta.kubernetes.io/os": "linux"}, "containers": [
                {"name": "c", "resources": {"limits": {"memory": "100m"}},
                 "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, {"name": "A", "value": "3"}],
                 "ports": [{"containerPort": 80, "name": "p"}, {"containerPort": 80, "hostPort": 1, "name": "p"}]}],
                "volumes": [{"name": "v", "rbd": {}}],
                "imagePullSecrets": [{"name": ""}], "hostAliases": [{"ip": "01.2.3.4"}]}),
            &[
                "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
                "spec.volumes[0].rbd: deprecated in v1.28, non-functional in v1.31+",
                "spec.imagePullSecrets[0].name: invalid empty name \"\"",
                "spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, must be an integer",
                "spec.containers[0].env[2]: hides previous definition of \"A\", which may be dropped when using apply",
                "spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]",
                "spec.containers[0].ports[1]: duplicate port name \"p\" with spec.containers[0].ports[0], services and probes that select ports by name will use spec.containers[0].ports[0]",
                "spec.hostAliases[0].ip: non-standard IP address \"01.2.3.4\" will be considered invalid in a future Kubernetes release: use \"1.2.3.4\"",
            ],
        );
    }

    #[test]
    fn warnings_about_a_template_have_its_path() {
        let path = Path::root("spec");
        let path = path.child("template");
        let mut warnings = Vec::new();
        of_spec(&json!({"spec": {"terminationGracePeriodSeconds": -1}}), Some(&path), &mut warnings);
        let expected = "spec.template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1";
        assert_eq!(warnings, [expected]);
    }
}
