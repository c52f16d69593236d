//! Validates a pod's status and its updates.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Rules, annotations};
use crate::declared;
use crate::field::{Errors, Path, Reason};
use crate::json::Json;
use crate::kinds::pod::is_sidecar;
use crate::names;
use crate::validation::{Seen, add_invalid, address, immutable, qualified_name, user_or_group};

pub(in crate::kinds::pod) fn check_change(new: &Value, old: &Value, errors: &mut Errors) {
    annotations::check_change(new, old, &Rules::towards(old, true), errors);
    let path = Path::root("status");
    let (status, old_status) = (new.at("status"), old.at("status"));
    check_conditions(status.list("conditions"), &path.child("conditions"), errors);
    let nominated = status.text("nominatedNodeName");
    if !nominated.is_empty() && nominated != old_status.text("nominatedNodeName") {
        add_invalid(names::dns_subdomain(nominated), nominated, &path.child("nominatedNodeName"), errors);
    }
    let generation = status.count("observedGeneration");
    if generation < 0 {
        errors.invalid(&path.child("observedGeneration"), generation, "must be a non-negative integer");
    }
    immutable(status.at("qosClass"), old_status.at("qosClass"), &path.child("qosClass"), errors);
    check_transitions(new, old, &path, errors);
    check_claims(new, &path.child("resourceClaimStatuses"), errors);
    check_ips(status, old_status, "podIPs", &path, errors);
    if !status.list("hostIPs").is_empty() {
        check_first_host_ip(status, &path.child("hostIPs"), errors);
        check_ips(status, old_status, "hostIPs", &path, errors);
    }
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        check_users(new, list, &path.child(list), errors);
    }
}

fn check_conditions(conditions: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let generation = condition.count("observedGeneration");
        if generation < 0 {
            errors.invalid(&path.child("observedGeneration"), generation, "must be a non-negative integer");
        }
        let of = condition.text("type");
        if !matches!(of, "PodScheduled" | "Ready" | "Initialized") {
            qualified_name(of, &path.child("Type"), errors);
        }
    }
}

/// Checks that a container that ended for good does not run again.
fn check_transitions(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let spec = old.at("spec");
    let policy = spec.text("restartPolicy");
    let sidecar = |name: &str| {
        let container = spec.list("initContainers").iter().find(|container| container.text("name") == name);
        container.is_some_and(is_sidecar)
    };
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        let ephemeral = list == "ephemeralContainerStatuses";
        if policy == "Always" && !ephemeral {
            continue;
        }
        let path = path.child(list);
        let (statuses, old_statuses) = (new.at("status").list(list), old.at("status").list(list));
        for (index, ended) in old_statuses.iter().enumerate() {
            let terminated = ended.at("state").at("terminated");
            let restarts = !ephemeral && terminated.count("exitCode") != 0 && policy == "OnFailure";
            let name = ended.text("name");
            if terminated.is_null() || restarts || list == "initContainerStatuses" && sidecar(name) {
                continue;
            }
            let runs = |status: &&Value| status.text("name") == name && !status.at("state").has("terminated");
            for _ in statuses.iter().filter(runs) {
                let detail = "may not be transitioned to non-terminated state";
                errors.forbidden(&path.index(index).child("state"), detail);
            }
        }
    }
}

fn check_claims(pod: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut names = Seen::new();
    let claims = pod.at("spec").list("resourceClaims").iter();
    let claims: BTreeSet<&str> = claims.map(|claim| claim.text("name")).collect();
    for (index, status) in pod.at("status").list("resourceClaimStatuses").iter().enumerate() {
        let path = path.index(index);
        let path = path.child("name");
        let name = status.text("name");
        if !claims.contains(name) {
            errors.invalid(&path, name, "must match the name of an entry in `spec.resourceClaims`");
        }
        if names.again(name) {
            errors.duplicate(&path, name);
        }
        if let Some(claim) = status.at("resourceClaimName").as_str() {
            add_invalid(names::dns_subdomain(claim), claim, &path, errors);
        }
    }
}

fn check_first_host_ip(status: &Value, path: &Path<'_>, errors: &mut Errors) {
    let first = status.list("hostIPs").first().map_or("", |ip| ip.text("ip"));
    if status.text("hostIP") != first {
        errors.invalid(&path.index(0).child("ip"), first, "must be equal to `hostIP`");
    }
}

/// Allows at most one address per family.
fn check_ips(status: &Value, old: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    let ips = status.list(field);
    let path = path.child(field);
    let old: BTreeSet<&str> = old.list(field).iter().map(|ip| ip.text("ip")).collect();
    let known = |text: &str| old.contains(text);
    for (index, ip) in ips.iter().enumerate() {
        address::ip(ip.text("ip"), known, &path.index(index), errors);
    }
    if ips.len() < 2 {
        return;
    }
    let dual_stack = address::is_dual_stack(ips.iter().map(|ip| ip.text("ip")));
    if dual_stack.is_none() {
        errors.push(Reason::Internal, &path, None, "failed to check for dual stack");
    }
    if dual_stack != Some(true) || ips.len() > 2 {
        let shown: Vec<Value> = ips.iter().map(|ip| declared::of(ip, &declared::ADDRESS)).collect();
        errors.invalid(&path, shown, "may specify no more than one IP for each IP family");
    }
}

fn check_users(pod: &Value, list: &str, path: &Path<'_>, errors: &mut Errors) {
    for (index, status) in pod.at("status").list(list).iter().enumerate() {
        let user = status.at("user").at("linux");
        if user.is_null() {
            continue;
        }
        let path = path.index(index);
        let path = path.child("user");
        let path = path.child("linux");
        if pod.at("spec").at("os").text("name") == "windows" {
            errors.forbidden(&path, "cannot be set for a windows pod");
            continue;
        }
        user_or_group(user.count("uid"), &path.child("uid"), errors);
        user_or_group(user.count("gid"), &path.child("gid"), errors);
        let groups = path.child("supplementalGroups");
        for (index, group) in user.list("supplementalGroups").iter().enumerate() {
            user_or_group(group.as_i64().unwrap_or(0), &groups.index(index), errors);
        }
    }
}
