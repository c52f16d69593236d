//! Validates pod updates: images, the deadline, additional tolerations and removed gates; ephemeral containers and
//! resources through their own subresources.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::annotations::{self, MIRROR};
use super::{Rules, check_pod, containers, scheduling};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kinds::pod::{is_sidecar, qos};
use crate::validation::{difference, in_range, required};

const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Validates an update of the pod itself.
pub(in crate::kinds::pod) fn check_change(new: &Value, old: &Value, errors: &mut Errors) {
    let rules = Rules::towards(old, true);
    check_pod(new, &rules, errors);
    annotations::check_change(new, old, &rules, errors);
    let path = Path::root("spec");
    let (spec, old_spec) = (new.at("spec"), old.at("spec"));
    for list in ["containers", "initContainers"] {
        if !check_images(spec.list(list), old_spec.list(list), &path.child(list), errors) {
            return;
        }
    }
    if !check_deadline(spec, old_spec, &path.child("activeDeadlineSeconds"), errors) {
        return;
    }
    check_tolerations(spec, old_spec, &path.child("tolerations"), errors);
    check_gates(spec, old_spec, &path.child("schedulingGates"), errors);
    if spec == old_spec {
        return;
    }
    let mut expected = spec.clone();
    restore_updatable(&mut expected, old_spec);
    if !old_spec.list("schedulingGates").is_empty() {
        check_gated(&mut expected, old_spec, &path, errors);
    }
    if expected != *old_spec {
        let difference = difference("PodSpec", &as_declared(old_spec), &as_declared(&expected));
        errors.forbidden(&path, format!("{UPDATABLE}\n{difference}"));
    }
}

/// Returns a spec with the fields that v1.34's Go type has in the security context there.
fn as_declared(spec: &Value) -> Value {
    let mut declared = spec.clone();
    let context = declared.object_mut("securityContext");
    for field in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"] {
        context.restore(field, spec);
    }
    declared
}

/// Returns whether the containers are unchanged apart from their images.
fn check_images(new: &[Value], old: &[Value], path: &Path<'_>, errors: &mut Errors) -> bool {
    if new.len() != old.len() {
        errors.forbidden(path, "pod updates may not add or remove containers");
        return false;
    }
    for (index, container) in new.iter().enumerate() {
        let path = path.index(index);
        required(container, "image", &path, errors);
        containers::check_image_padding(container, &path, errors);
    }
    true
}

/// Checks that a deadline is only set or shortened. Returns whether to continue.
fn check_deadline(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) -> bool {
    let (new, old) = (spec.int("activeDeadlineSeconds"), old.int("activeDeadlineSeconds"));
    let before = errors.0.len();
    match (new, old) {
        (None, None) => {}
        (None, Some(_)) => {
            errors.invalid(path, Value::Null, "must not update from a positive integer to nil value");
            return true;
        }
        (Some(new), old) => {
            in_range(new, 0, i32::MAX.into(), path, errors);
            if errors.0.len() == before && old.is_some_and(|old| old < new) {
                errors.invalid(path, new, "must be less than or equal to previous value");
            }
        }
    }
    errors.0.len() == before
}

/// Returns a toleration without its duration.
fn without_seconds(toleration: &Value) -> [&str; 4] {
    ["key", "operator", "value", "effect"].map(|field| toleration.text(field))
}

/// Checks that tolerations are only added, and that only their duration changes.
fn check_tolerations(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let tolerations = spec.list("tolerations");
    let new: BTreeSet<[&str; 4]> = tolerations.iter().map(without_seconds).collect();
    if !old.list("tolerations").iter().all(|old| new.contains(&without_seconds(old))) {
        return errors
            .forbidden(path, "existing toleration can not be modified except its tolerationSeconds");
    }
    scheduling::check_tolerations(tolerations, path, errors);
}

/// Checks that gates are only removed.
fn check_gates(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let old: BTreeSet<&str> = old.list("schedulingGates").iter().map(|gate| gate.text("name")).collect();
    for (index, gate) in spec.list("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        if !old.contains(name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&path.index(index).child("name"), detail);
        }
    }
}

/// Restores the mutable fields.
fn restore_updatable(spec: &mut Value, old: &Value) {
    for list in ["containers", "initContainers"] {
        for (container, old) in spec.list_mut(list).iter_mut().zip(old.list(list)) {
            container.restore("image", old);
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        spec.restore(field, old);
    }
    if old.count("terminationGracePeriodSeconds") < 0 && spec.count("terminationGracePeriodSeconds") == 1 {
        spec.restore("terminationGracePeriodSeconds", old);
    }
}

/// Checks that the node selection is only narrowed while gates hold a pod.
fn check_gated(spec: &mut Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kept = |(key, value): (&String, &Value)| spec.at("nodeSelector").get(key) == Some(value);
    if !old.map("nodeSelector").into_iter().flatten().all(kept) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.invalid(&path.child("nodeSelector"), spec.at("nodeSelector").clone(), detail);
    }
    spec.restore("nodeSelector", old);
    let node_affinity = |spec: &Value| spec.at("affinity").at("nodeAffinity").clone();
    let (new, before) = (node_affinity(spec), node_affinity(old));
    if new == before {
        return;
    }
    let path = path.child("affinity");
    check_narrowed(&new, &before, &path.child("nodeAffinity"), errors);
    let mut affinity = spec.unset("affinity").unwrap_or(Value::Object(Map::new()));
    affinity.restore("nodeAffinity", old.at("affinity"));
    if old.has("affinity") || affinity.as_object().is_some_and(|fields| !fields.is_empty()) {
        spec.set("affinity", affinity);
    }
}

fn check_narrowed(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let path = path.child(REQUIRED);
    let path = path.child("nodeSelectorTerms");
    let (terms, old_terms) =
        (new.at(REQUIRED).list("nodeSelectorTerms"), old.at(REQUIRED).list("nodeSelectorTerms"));
    if old_terms.is_empty() {
        return;
    }
    if terms.len() != old_terms.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return errors.invalid(&path, terms.to_vec(), detail);
    }
    for (index, (term, old)) in terms.iter().zip(old_terms).enumerate() {
        let lists = ["matchExpressions", "matchFields"];
        let was_empty = lists.iter().all(|list| old.list(list).is_empty());
        let is_empty = lists.iter().all(|list| term.list(list).is_empty());
        let extends = lists.iter().all(|list| term.list(list).starts_with(old.list(list)));
        if was_empty && !is_empty || !extends {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.invalid(&path.index(index), term.clone(), detail);
        }
    }
}

/// Checks that ephemeral containers are only added, not changed.
pub(in crate::kinds::pod) fn check_ephemeral_containers(new: &Value, old: &Value) -> Errors {
    let mut errors = Errors::default();
    let rules = Rules::towards(old, true);
    check_pod(new, &rules, &mut errors);
    annotations::check_change(new, old, &rules, &mut errors);
    if old.at("metadata").at("annotations").has(MIRROR) {
        return only(&Path::root(""), "static pods do not support ephemeral containers");
    }
    let path = Path::root("spec");
    let path = path.child("ephemeralContainers");
    let containers = new.at("spec").list("ephemeralContainers");
    for old in old.at("spec").list("ephemeralContainers") {
        let name = old.text("name");
        match containers.iter().rfind(|container| container.text("name") == name) {
            None => {
                errors
                    .forbidden(&path, format!("existing ephemeral containers {name:?} may not be removed\n"));
            }
            Some(container) if container != old => {
                let difference = difference("EphemeralContainer", old, container);
                let detail =
                    format!("existing ephemeral containers {name:?} may not be changed\n{difference}");
                errors.forbidden(&path, detail);
            }
            Some(_) => {}
        }
    }
    errors
}

fn only(path: &Path<'_>, detail: &str) -> Errors {
    let mut errors = Errors::default();
    errors.forbidden(path, detail);
    errors
}

/// Validates a resize: it may change the containers' cpu and memory, but neither add or remove them nor change the QoS
/// class.
pub(in crate::kinds::pod) fn check_resize(new: &Value, old: &Value) -> Errors {
    let mut errors = Errors::default();
    check_pod(new, &Rules::towards(old, true), &mut errors);
    let (spec, old_spec) = (new.at("spec"), old.at("spec"));
    let has_own = |spec: &Value| {
        ["requests", "limits"]
            .iter()
            .any(|list| spec.at("resources").map(list).is_some_and(|list| !list.is_empty()))
    };
    let root = Path::root("");
    if has_own(spec) || has_own(old_spec) {
        return only(&root, "pods with pod-level resources cannot be resized");
    }
    if old.at("metadata").at("annotations").has(MIRROR) {
        return only(&root, "static pods cannot be resized");
    }
    if old_spec.at("os").text("name") == "windows" {
        return only(&root, "windows pods cannot be resized");
    }
    let path = Path::root("spec");
    if class(old) != qos::class(spec) {
        let shown = new.at("status").text("qosClass");
        errors.invalid(&path, shown, "Pod QOS Class may not change as a result of resizing");
    }
    if !is_resizable(old.at("status")) {
        errors.forbidden(&path, "Pod running on node without support for resize");
    }
    if !check_order(spec, old_spec, &path, &mut errors) {
        return errors;
    }
    check_removals(spec, old_spec, &path, &mut errors);
    check_resized(spec, old_spec, &path, &mut errors);
    errors
}

fn class(pod: &Value) -> &str {
    match pod.at("status").text("qosClass") {
        "" => qos::class(pod.at("spec")),
        class => class,
    }
}

/// Whether the pod's node supports resizing: it then reports the resources of running containers.
fn is_resizable(status: &Value) -> bool {
    let mut statuses = status.list("containerStatuses").iter();
    let running = statuses.find(|status| status.at("state").has("running"));
    running.is_none_or(|status| status.has("resources"))
}

fn check_order(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) -> bool {
    let before = errors.0.len();
    for list in ["containers", "initContainers"] {
        let path = path.child(list);
        let (new, old) = (spec.list(list), old.list(list));
        if new.len() != old.len() {
            errors.forbidden(&path, format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (index, _) in
            new.iter().zip(old).enumerate().filter(|(_, (new, old))| new.text("name") != old.text("name"))
        {
            let detail = format!("{list} may not be renamed or reordered on resize");
            errors.forbidden(&path.index(index).child("name"), detail);
        }
    }
    errors.0.len() == before
}

fn check_removals(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    for list in ["initContainers", "containers"] {
        let path = path.child(list);
        for (index, (new, old)) in spec.list(list).iter().zip(old.list(list)).enumerate() {
            if list == "initContainers" && !is_sidecar(old) {
                continue;
            }
            let path = path.index(index);
            let path = path.child("resources");
            for amounts in ["requests", "limits"] {
                let kept = |name: &String| new.at("resources").at(amounts).has(name);
                if !old.at("resources").map(amounts).into_iter().flat_map(|list| list.keys()).all(kept) {
                    let detail = format!("resource {amounts} cannot be removed");
                    errors.forbidden(&path.child(amounts), detail);
                }
            }
        }
    }
}

/// Rejects changes to anything but cpu and memory.
fn check_resized(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut expected = spec.clone();
    for (new, old) in expected.list_mut("containers").iter_mut().zip(old.list("containers")) {
        restore_cpu_and_memory(new, old);
        if new != old {
            errors.forbidden(path, "only cpu and memory resources are mutable");
        }
    }
    for (new, old) in expected.list_mut("initContainers").iter_mut().zip(old.list("initContainers")) {
        if is_sidecar(new) {
            restore_cpu_and_memory(new, old);
            if new != old {
                errors.forbidden(path, "only cpu and memory resources for sidecar containers are mutable");
            }
        } else if new != old {
            errors.forbidden(path, "resources for non-sidecar init containers are immutable");
        }
    }
    if errors.is_empty() && expected != *old {
        errors.forbidden(path, "only cpu and memory resources are mutable");
    }
}

fn restore_cpu_and_memory(container: &mut Value, old: &Value) {
    let old = old.at("resources");
    let resources = container.object_mut("resources");
    for list in ["limits", "requests"] {
        if old.has(list) {
            let amounts = resources.object_mut(list);
            amounts.restore("cpu", old.at(list));
            amounts.restore("memory", old.at(list));
        } else {
            resources.unset(list);
        }
    }
    resources.restore("claims", old);
}
