//! Validates annotations with a meaning for pods, most of which predate fields.

use serde_json::{Map, Value};

use super::{Rules, each_container, scheduling};
use crate::field::{Errors, Path};
use crate::json::Json;
pub(in crate::kinds) use crate::kinds::pod::references::MIRROR;
use crate::validation::paths;

const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
pub(in crate::kinds::pod) const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
pub(in crate::kinds::pod) const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
pub(in crate::kinds::pod) const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Validates the annotations of a pod or template, under `path`.
pub(in crate::kinds::pod) fn check(
    metadata: &Value,
    spec: &Value,
    path: &Path<'_>,
    rules: &Rules,
    errors: &mut Errors,
) {
    let Some(annotations) = metadata.map("annotations") else { return };
    let path = path.child("annotations");
    if let Some(value) = annotations.get(MIRROR)
        && spec.text("nodeName").is_empty()
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid(&path.key(MIRROR), value.clone(), detail);
    }
    let tolerations = metadata.at("annotations").text(TOLERATIONS);
    if !tolerations.is_empty() {
        match serde_json::from_str::<Vec<Value>>(tolerations) {
            Ok(list) => scheduling::check_tolerations(&list, &path.child(TOLERATIONS), errors),
            Err(why) => errors.invalid(&path, TOLERATIONS, why.to_string()),
        }
    }
    if !rules.allow_bad_deletion_cost && deletion_cost(metadata).is_err() {
        errors.invalid(
            &path.key(DELETION_COST),
            annotations[DELETION_COST].clone(),
            "must be a 32bit integer",
        );
    }
    check_seccomp(annotations, &path, errors);
    check_apparmor(annotations, spec, &path, errors);
}

/// Parses the pod deletion cost: a 32-bit integer without a plus or leading zeros.
pub(super) fn deletion_cost(metadata: &Value) -> Result<i32, ()> {
    let Some(text) = metadata.at("annotations").at(DELETION_COST).as_str() else { return Ok(0) };
    let canonical = !text.starts_with('+') && (!text.starts_with('0') || text == "0");
    text.parse().ok().filter(|_| canonical).ok_or(())
}

fn check_seccomp(annotations: &Map<String, Value>, path: &Path<'_>, errors: &mut Errors) {
    for (key, profile) in annotations {
        if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            let profile = profile.as_str().unwrap_or_default();
            let path = path.child(key);
            match profile.strip_prefix("localhost/") {
                Some(file) => paths::descending(file, &path, errors),
                None if matches!(profile, "runtime/default" | "docker/default" | "unconfined") => {}
                None => errors.invalid(&path, profile, "must be a valid seccomp profile"),
            }
        }
    }
}

fn check_apparmor(annotations: &Map<String, Value>, spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (key, profile) in annotations {
        let Some(container) = key.strip_prefix(APPARMOR) else { continue };
        let path = path.key(key);
        let mut found = false;
        each_container(spec, &Path::root("spec"), |candidate, _| {
            found |= candidate.text("name") == container
        });
        if !found {
            errors.invalid(&path, container, "container not found");
        }
        let profile = profile.as_str().unwrap_or_default();
        let known =
            matches!(profile, "" | "runtime/default" | "unconfined") || profile.starts_with("localhost/");
        if !known {
            errors.invalid(&path, profile, format!("invalid AppArmor profile name: {profile:?}"));
        }
    }
}

/// Checks that annotations and fields agree if both are set.
pub(in crate::kinds::pod) fn check_against_fields(
    metadata: &Value,
    spec: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let annotations = metadata.at("annotations");
    if annotations.is_null() {
        return;
    }
    let pod_profile = spec.at("securityContext").at("seccompProfile");
    let seccomp_path = path.child("securityContext");
    let seccomp_path = seccomp_path.child("seccompProfile");
    check_match(annotations.at(SECCOMP_POD), pod_profile, "seccomp", &seccomp_path, errors);
    each_container(spec, path, |container, path| {
        let path = path.child("securityContext");
        let key = format!("{SECCOMP_CONTAINER}{}", container.text("name"));
        let profile = container.at("securityContext").at("seccompProfile");
        check_match(annotations.at(&key), profile, "seccomp", &path.child("seccompProfile"), errors);
    });
    if spec.at("os").text("name") == "windows" {
        return;
    }
    each_container(spec, path, |container, path| {
        let path = path.child("securityContext");
        let key = format!("{APPARMOR}{}", container.text("name"));
        let own = container.at("securityContext").at("appArmorProfile");
        let profile = if own.is_null() { spec.at("securityContext").at("appArmorProfile") } else { own };
        check_match(annotations.at(&key), profile, "apparmor", &path.child("appArmorProfile"), errors);
    });
}

fn check_match(annotation: &Value, profile: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let Some(annotation) = annotation.as_str().filter(|_| !profile.is_null()) else { return };
    let matches = match profile.text("type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => {
            annotation == "runtime/default" || kind == "seccomp" && annotation == "docker/default"
        }
        "Localhost" => match annotation.strip_prefix("localhost/") {
            Some(file) if profile.at("localhostProfile").as_str() != Some(file) => {
                let detail = format!("{kind} profile in annotation and field must match");
                return errors.forbidden(&path.child("localhostProfile"), detail);
            }
            file => file.is_some(),
        },
        _ => true,
    };
    if !matches {
        errors.forbidden(&path.child("type"), format!("{kind} type in annotation and field must match"));
    }
}

/// Validates changes to annotations.
pub(super) fn check_change(new: &Value, old: &Value, rules: &Rules, errors: &mut Errors) {
    let path = Path::root("metadata");
    let annotations_path = path.child("annotations");
    let (new_annotations, old_annotations) =
        (new.at("metadata").at("annotations"), old.at("metadata").at("annotations"));
    let fixed = |key: &str| match key {
        MIRROR => Some("mirror pod annotation"),
        key if key.starts_with(APPARMOR) => Some("AppArmor annotations"),
        _ => None,
    };
    for (key, value) in old_annotations.as_object().into_iter().flatten() {
        if let Some(what) = fixed(key).filter(|_| new_annotations.get(key) != Some(value)) {
            errors.forbidden(&annotations_path.key(key), format!("may not remove or update {what}"));
        }
    }
    for key in new_annotations.as_object().into_iter().flat_map(|annotations| annotations.keys()) {
        if let Some(what) = fixed(key).filter(|_| old_annotations.get(key).is_none()) {
            errors.forbidden(&annotations_path.key(key), format!("may not add {what}"));
        }
    }
    check(new.at("metadata"), new.at("spec"), &path, rules, errors);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_deletion_cost_is_a_plain_number() {
        for (text, fine) in
            [("0", true), ("-5", true), ("2147483647", true), ("+1", false), ("01", false), ("x", false)]
        {
            let metadata = json!({"annotations": {DELETION_COST: text}});
            assert_eq!(deletion_cost(&metadata).is_ok(), fine, "{text}");
        }
    }

    #[test]
    fn annotations_and_fields_agree() {
        let check = |annotation: &str, profile: Value| {
            let metadata = json!({"annotations": {SECCOMP_POD: annotation}});
            let spec = json!({"securityContext": {"seccompProfile": profile}});
            let mut errors = Errors::default();
            check_against_fields(&metadata, &spec, &Path::root("spec"), &mut errors);
            errors.0.into_iter().map(|error| error.field).collect::<Vec<_>>()
        };
        assert!(check("runtime/default", json!({"type": "RuntimeDefault"})).is_empty());
        assert!(check("localhost/a", json!({"type": "Localhost", "localhostProfile": "a"})).is_empty());
        let path = "spec.securityContext.seccompProfile";
        assert_eq!(check("unconfined", json!({"type": "RuntimeDefault"})), [format!("{path}.type")]);
        let other = json!({"type": "Localhost", "localhostProfile": "a"});
        assert_eq!(check("localhost/b", other), [format!("{path}.localhostProfile")]);
    }
}
