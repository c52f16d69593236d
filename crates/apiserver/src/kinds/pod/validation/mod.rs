//! Validates pod specs, with one file per concept.
//!
//! ```text
//!  volumes ─► containers (env, mounts, probes, resources, security) ─► the pod itself
//! ```
//!
//! Errors are in v1.34's order.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::json::Json;
use crate::names;
use crate::validation::labels::labels;
use crate::validation::{add_invalid, choice, dns_label, in_range, resources};

pub(super) mod annotations;
mod containers;
mod env;
mod mounts;
mod network;
mod os;
mod probes;
mod projected;
mod resource_claims;
mod rules;
pub(in crate::kinds) mod scheduling;
mod security;
pub(in crate::kinds) mod sources;
pub(super) mod status;
mod totals;
pub(super) mod update;
mod volumes;
mod windows;

pub(super) use rules::Rules;

/// Properties of the whole pod that its parts depend on.
struct Scope<'a> {
    spec: &'a Value,
    rules: &'a Rules,
    /// The volumes without errors, by name.
    volumes: BTreeMap<&'a str, &'a Value>,
    claims: &'a [Value],
    grace_period: Option<i64>,
    /// Whether the pod uses the host's user namespace.
    host_users: bool,
    restart_policy: &'a str,
}

/// Validates a pod: its annotations, its spec, and what applies only to pods.
pub(super) fn check_pod(pod: &Value, rules: &Rules, errors: &mut Errors) {
    let path = Path::root("spec");
    let (metadata, spec) = (pod.at("metadata"), pod.at("spec"));
    annotations::check(metadata, spec, &Path::root("metadata"), rules, errors);
    check_spec(spec, metadata, &path, rules, errors);
    if spec.text("serviceAccountName").is_empty() {
        projected::forbid_tokens(spec, &path, errors);
    }
    for list in ["containers", "initContainers"] {
        let path = path.child(list);
        for (index, container) in spec.list(list).iter().enumerate() {
            containers::check_image_padding(container, &path.index(index), errors);
        }
    }
}

/// Rejects what a new pod may not have yet.
pub(super) fn check_new_pod(pod: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = pod.at("spec");
    if !spec.list("ephemeralContainers").is_empty() {
        errors.forbidden(&path.child("ephemeralContainers"), "cannot be set on create");
    }
    if !spec.text("nodeName").is_empty() && !spec.list("schedulingGates").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden(&path.child("nodeName"), detail);
    }
    annotations::check_against_fields(pod.at("metadata"), spec, &path, errors);
}

/// Validates a pod spec, of a pod with this metadata or of a template (null).
pub(super) fn check_spec(
    spec: &Value,
    metadata: &Value,
    path: &Path<'_>,
    rules: &Rules,
    errors: &mut Errors,
) {
    let grace_period = spec.int("terminationGracePeriodSeconds");
    if grace_period.is_none() {
        errors.required(&path.child("terminationGracePeriodSeconds"), "");
    }
    let scope = Scope {
        spec,
        rules,
        volumes: volumes::check(spec, metadata, rules, &path.child("volumes"), errors),
        claims: spec.list("resourceClaims"),
        grace_period,
        host_users: spec.boolean("hostUsers") != Some(false),
        restart_policy: spec.text("restartPolicy"),
    };
    resource_claims::check(spec, metadata, &path.child("resourceClaims"), errors);
    scope.check_containers(&path.child("containers"), errors);
    scope.check_init_containers(&path.child("initContainers"), errors);
    scope.check_ephemeral_containers(&path.child("ephemeralContainers"), errors);
    totals::check(spec, rules, path, errors);
    scope.check_policies(path, errors);
    security::check_pod(spec, rules, &path.child("securityContext"), errors);
    network::check_pull_secrets(spec, &path.child("imagePullSecrets"), errors);
    scheduling::check_affinity(spec.at("affinity"), rules, &path.child("affinity"), errors);
    network::check_dns(spec, &path.child("dnsConfig"), errors);
    scheduling::check_gates(spec, path, errors);
    scheduling::check_spread(spec, rules, &path.child("topologySpreadConstraints"), errors);
    windows::check_host_process(spec, path, errors);
    security::check_host_users(spec, rules, path, errors);
    check_names(spec, path, errors);
    scope.check_runtime(path, errors);
    os::check(spec, path, errors);
}

impl Scope<'_> {
    fn check_policies(&self, path: &Path<'_>, errors: &mut Errors) {
        network::check_host_ports(self.spec, self.rules, &path.child("containers"), errors);
        let restart = ["Always", "OnFailure", "Never"];
        choice(self.restart_policy, &restart, &path.child("restartPolicy"), errors);
        let dns = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
        choice(self.spec.text("dnsPolicy"), &dns, &path.child("dnsPolicy"), errors);
        labels(self.spec, "nodeSelector", path, errors);
    }

    fn check_runtime(&self, path: &Path<'_>, errors: &mut Errors) {
        let spec = self.spec;
        scheduling::check_tolerations(spec.list("tolerations"), &path.child("tolerations"), errors);
        network::check_host_aliases(spec.list("hostAliases"), &path.child("hostAliases"), errors);
        check_subdomain(spec, "priorityClassName", path, errors);
        if let Some(name) = spec.at("runtimeClassName").as_str() {
            add_invalid(names::dns_subdomain(name), name, &path.child("runtimeClassName"), errors);
        }
        if let Some(policy) = spec.at("preemptionPolicy").as_str() {
            choice(policy, &["PreemptLowerPriority", "Never"], &path.child("preemptionPolicy"), errors);
        }
        if spec.has("overhead") {
            let path = path.child("overhead");
            let requirements = serde_json::json!({"limits": spec.at("overhead")});
            self.requirements().check(&requirements, &path, errors);
        }
    }

    fn requirements(&self) -> resources::Requirements<'_> {
        resources::Requirements {
            name: resources::container_name,
            allow_broken_pages: self.rules.allow_broken_pages,
            claims: self.claims,
        }
    }
}

fn check_names(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    check_subdomain(spec, "serviceAccountName", path, errors);
    check_subdomain(spec, "nodeName", path, errors);
    if let Some(seconds) = spec.int("activeDeadlineSeconds") {
        in_range(seconds, 1, i32::MAX.into(), &path.child("activeDeadlineSeconds"), errors);
    }
    for field in ["hostname", "subdomain"] {
        let name = spec.text(field);
        if !name.is_empty() {
            dns_label(name, &path.child(field), errors);
        }
    }
}

fn check_subdomain(spec: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    let name = spec.text(field);
    if !name.is_empty() {
        add_invalid(names::dns_subdomain(name), name, &path.child(field), errors);
    }
}

/// Visits every container of a pod with its path.
fn each_container(spec: &Value, path: &Path<'_>, mut visit: impl FnMut(&Value, &Path<'_>)) {
    for list in super::CONTAINER_LISTS {
        let path = path.child(list);
        for (index, container) in spec.list(list).iter().enumerate() {
            visit(container, &path.index(index));
        }
    }
}
