//! APIServices: the server and the priority of a group version.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{API_REGISTRATION, entry};
use crate::auth::User;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope, Subresource};
use crate::metadata;
use crate::names;
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;
use crate::validation::{add_invalid, dns_subdomain};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        categories: vec!["api-extensions".into()],
        subresources: vec![Subresource::Status],
        columns: vec![
            Column::name(),
            Column::text("Service", SERVICE, |service, _| shown_service(service).into()),
            Column::text("Available", "Whether this service is available.", |service, _| {
                availability(service).into()
            }),
            Column::age(),
        ],
        semantics: Semantics {
            counts_generations: false,
            unconditional_update: false,
            names: NameRule::PathSegment,
            ..Semantics::with_strict_status(|| json!({}))
        },
        ..entry(&API_REGISTRATION, "APIService", "apiservices", ApiService)
    }
}

const SERVICE: &str = "The reference to the service that hosts this API endpoint.";

/// The versions of v1.34's built-in groups, with the priority of the group and of the version in it.
const PRIORITIES: [(&str, &str, i64, i64); 50] = [
    ("", "v1", 18000, 1),
    ("apps", "v1", 17800, 15),
    ("events.k8s.io", "v1", 17750, 15),
    ("events.k8s.io", "v1beta1", 17750, 5),
    ("authentication.k8s.io", "v1", 17700, 15),
    ("authentication.k8s.io", "v1beta1", 17700, 9),
    ("authentication.k8s.io", "v1alpha1", 17700, 1),
    ("authorization.k8s.io", "v1", 17600, 15),
    ("autoscaling", "v2", 17500, 30),
    ("autoscaling", "v1", 17500, 15),
    ("autoscaling", "v2beta1", 17500, 9),
    ("autoscaling", "v2beta2", 17500, 1),
    ("batch", "v1", 17400, 15),
    ("batch", "v1beta1", 17400, 9),
    ("batch", "v2alpha1", 17400, 9),
    ("certificates.k8s.io", "v1", 17300, 15),
    ("certificates.k8s.io", "v1beta1", 17300, 9),
    ("certificates.k8s.io", "v1alpha1", 17300, 1),
    ("networking.k8s.io", "v1", 17200, 15),
    ("networking.k8s.io", "v1beta1", 17200, 9),
    ("policy", "v1", 17100, 15),
    ("policy", "v1beta1", 17100, 9),
    ("rbac.authorization.k8s.io", "v1", 17000, 15),
    ("storage.k8s.io", "v1", 16800, 15),
    ("storage.k8s.io", "v1beta1", 16800, 9),
    ("storage.k8s.io", "v1alpha1", 16800, 1),
    ("admissionregistration.k8s.io", "v1", 16700, 15),
    ("admissionregistration.k8s.io", "v1beta1", 16700, 12),
    ("admissionregistration.k8s.io", "v1alpha1", 16700, 9),
    ("apiextensions.k8s.io", "v1", 16700, 15),
    ("scheduling.k8s.io", "v1", 16600, 15),
    ("coordination.k8s.io", "v1", 16500, 15),
    ("coordination.k8s.io", "v1beta1", 16500, 13),
    ("coordination.k8s.io", "v1alpha2", 16500, 12),
    ("node.k8s.io", "v1", 16300, 15),
    ("node.k8s.io", "v1beta1", 16300, 9),
    ("node.k8s.io", "v1alpha1", 16300, 1),
    ("discovery.k8s.io", "v1", 16200, 15),
    ("discovery.k8s.io", "v1beta1", 16200, 12),
    ("resource.k8s.io", "v1", 16200, 21),
    ("resource.k8s.io", "v1beta2", 16200, 15),
    ("resource.k8s.io", "v1beta1", 16200, 9),
    ("resource.k8s.io", "v1alpha3", 16200, 1),
    ("flowcontrol.apiserver.k8s.io", "v1", 16100, 21),
    ("flowcontrol.apiserver.k8s.io", "v1beta3", 16100, 18),
    ("flowcontrol.apiserver.k8s.io", "v1beta2", 16100, 15),
    ("flowcontrol.apiserver.k8s.io", "v1beta1", 16100, 12),
    ("flowcontrol.apiserver.k8s.io", "v1alpha1", 16100, 9),
    ("internal.apiserver.k8s.io", "v1alpha1", 16000, 9),
    ("storagemigration.k8s.io", "v1alpha1", 15800, 9),
];
/// The group of APIServices itself has none, and comes before all others.
const OWN_GROUP: (&str, i64) = ("apiregistration.k8s.io", 20001);
/// The version priority of a built-in version that is not in the table.
const UNKNOWN_VERSION: i64 = 15;
/// The priority of a custom group, and of a version in it.
const CUSTOM_GROUP: i64 = 1000;
const CUSTOM_VERSION: i64 = 100;
/// The condition `Available`, and its value for APIs that this server serves.
pub(crate) const AVAILABLE: &str = "Available";
pub(crate) const LOCAL: &str = "Local";
pub(crate) const LOCAL_MESSAGE: &str = "Local APIServices are always available";
/// Marks an APIService that the server manages: when it starts, or all the time.
pub const AUTO_MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
pub(crate) const ON_START: &str = "onstart";
pub(crate) const CONTINUOUSLY: &str = "true";

/// Returns a group's priority: groups with higher priority are listed first.
pub fn group_priority(group: &str) -> i64 {
    let known = PRIORITIES.iter().find(|(known, ..)| *known == group);
    match known {
        _ if group == OWN_GROUP.0 => OWN_GROUP.1,
        Some((_, _, priority, _)) => *priority,
        None => CUSTOM_GROUP,
    }
}

/// Returns the priority of a version in its group.
pub(crate) fn version_priority(group: &str, version: &str, is_custom: bool) -> i64 {
    match known(group, version) {
        _ if is_custom => CUSTOM_VERSION,
        Some((_, _, _, priority)) => *priority,
        None => UNKNOWN_VERSION,
    }
}

/// Whether a built-in version has an APIService. As in v1.34, one that is not in the table has none.
pub(crate) fn is_registered(group: &str, version: &str) -> bool {
    known(group, version).is_some()
}

fn known(group: &str, version: &str) -> Option<&'static (&'static str, &'static str, i64, i64)> {
    PRIORITIES.iter().find(|known| (known.0, known.1) == (group, version))
}

/// Returns the APIService of a built-in version, which the server handles itself.
pub fn local_service(group: &str, version: &str) -> Option<Value> {
    let (_, _, of_group, of_version) = known(group, version)?;
    let mut spec =
        json!({"version": version, "groupPriorityMinimum": of_group, "versionPriority": of_version});
    if !group.is_empty() {
        spec.set("group", group);
    }
    let labels = json!({AUTO_MANAGED: ON_START});
    Some(json!({"metadata": {"name": format!("{version}.{group}"), "labels": labels}, "spec": spec}))
}

/// Returns the APIService of a version defined by CRDs.
pub fn custom_service(group: &str, version: &str) -> Value {
    json!({
        "metadata": {"name": format!("{version}.{group}"), "labels": {AUTO_MANAGED: CONTINUOUSLY}},
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": CUSTOM_GROUP,
            "versionPriority": CUSTOM_VERSION,
        },
    })
}

fn shown_service(service: &Value) -> String {
    let reference = service.at("spec").at("service");
    match reference.is_null() {
        true => "Local".into(),
        false => format!("{}/{}", reference.text("namespace"), reference.text("name")),
    }
}

fn availability(service: &Value) -> String {
    let mut conditions = service.at("status").list("conditions").iter();
    match conditions.find(|condition| condition.text("type") == AVAILABLE) {
        None => "Unknown".into(),
        Some(condition) => match (condition.text("status"), condition.text("reason")) {
            (status @ "True", _) | (status, "") => status.into(),
            (status, reason) => format!("{status} ({reason})"),
        },
    }
}

struct ApiService;

impl Lifecycle for ApiService {
    fn default(&self, service: &mut Value) {
        if let Some(reference) = service.at_mut("spec").and_then(|spec| spec.at_mut("service")) {
            reference.or_insert("port", 443);
        }
    }

    /// Marks local APIServices as available immediately.
    fn stamp(&self, service: &mut Value, old: Option<&Value>, _: &User, now: Timestamp) {
        if old.is_some() || service.at("spec").has("service") {
            return;
        }
        let available = json!({
            "type": AVAILABLE,
            "status": "True",
            "lastTransitionTime": metadata::seconds(now),
            "reason": LOCAL,
            "message": LOCAL_MESSAGE,
        });
        service.set("status", json!({"conditions": [available]}));
    }

    fn resets(&self, subresource: Option<Subresource>) -> Option<&'static [&'static [&'static str]]> {
        Some(match subresource {
            None => &[&["status"]],
            Some(_) => &[&["spec"], &["metadata"]],
        })
    }
}

impl Validation for ApiService {
    fn validate(&self, service: &Value) -> Errors {
        let mut errors = Errors::default();
        check(service, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = metadata::validate(new, false, NameRule::PathSegment);
        check(new, &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        let path = Path::root("status");
        let path = path.child("conditions");
        for (index, condition) in new.at("status").list("conditions").iter().enumerate() {
            let status = condition.text("status");
            if !["True", "False", "Unknown"].contains(&status) {
                let path = path.index(index);
                errors.not_supported(&path.child("status"), status, &["True", "False", "Unknown"]);
            }
        }
        errors
    }
}

fn check(service: &Value, errors: &mut Errors) {
    let (spec, path) = (service.at("spec"), Path::root("spec"));
    let (group, version) = (spec.text("group"), spec.text("version"));
    check_name(service.at("metadata").text("name"), &format!("{version}.{group}"), errors);
    let group_path = path.child("group");
    match group {
        "" if version == "v1" => {}
        "" => errors.required(&group_path, "only v1 may have an empty group and it better be legacy kube"),
        group => dns_subdomain(group, &group_path, errors),
    }
    add_invalid(names::dns_1035_label(version), version, &path.child("version"), errors);
    for (field, limit) in [("groupPriorityMinimum", 20000), ("versionPriority", 1000)] {
        let priority = spec.count(field);
        if !(1..=limit).contains(&priority) {
            let detail = format!("must be positive and less than {limit}");
            errors.invalid(&path.child(field), priority, detail);
        }
    }
    match spec.has("service") {
        true => check_remote(spec, &path, errors),
        false => check_local(spec, &path, errors),
    }
}

/// Checks that the name consists of version and group.
fn check_name(name: &str, expected: &str, errors: &mut Errors) {
    if !name.is_empty() && names::path_segment(name).is_empty() && name != expected {
        let path = Path::root("metadata");
        let detail = format!("must be `spec.version+\".\"+spec.group`: {expected:?}");
        errors.invalid(&path.child("name"), name, detail);
    }
}

fn check_local(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let bundle = spec.text("caBundle");
    if !bundle.is_empty() {
        let padding = bundle.bytes().rev().take_while(|byte| *byte == b'=').count();
        let size = format!("{} bytes", bundle.len() / 4 * 3 - padding);
        errors.invalid(&path.child("caBundle"), size, "local APIServices may not have a caBundle");
    }
    if spec.flag("insecureSkipTLSVerify") {
        let detail = "local APIServices may not have insecureSkipTLSVerify";
        errors.invalid(&path.child("insecureSkipTLSVerify"), true, detail);
    }
}

fn check_remote(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (reference, reference_path) = (spec.at("service"), path.child("service"));
    for field in ["namespace", "name"] {
        if reference.text(field).is_empty() {
            errors.required(&reference_path.child(field), "");
        }
    }
    let port = reference.count("port");
    if !(1..=65535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.invalid(&reference_path.child("port"), port, detail);
    }
    if spec.flag("insecureSkipTLSVerify") && !spec.text("caBundle").is_empty() {
        let detail = "may not be true if caBundle is present";
        errors.invalid(&path.child("insecureSkipTLSVerify"), true, detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(service: &Value) -> Vec<String> {
        let errors = ApiService.validate(service);
        errors.0.iter().map(|error| format!("{:?} {}", error.reason, error.field)).collect()
    }

    fn service(change: impl FnOnce(&mut Value)) -> Value {
        let mut service = json!({"metadata": {"name": "v1.a.io"}, "spec": {
            "group": "a.io", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}});
        change(service.object_mut("spec"));
        service
    }

    #[test]
    fn local_api_services_are_valid() {
        for (group, version, ..) in PRIORITIES {
            let service = local_service(group, version).unwrap();
            assert!(complaints(&service).is_empty(), "{service}");
        }
        assert_eq!(local_service("metrics.k8s.io", "v1beta1"), None);
    }

    #[test]
    fn a_service_is_named_by_version_and_group() {
        assert!(complaints(&service(|_| ())).is_empty());
        assert_eq!(complaints(&service(|spec| spec.set("version", "v2"))), ["Invalid metadata.name"]);
        assert_eq!(
            complaints(&service(|spec| {
                spec.set("group", "");
                spec.set("version", "2");
                spec.set("groupPriorityMinimum", 20001);
                spec.set("versionPriority", 0);
            })),
            [
                "Invalid metadata.name",
                "Required spec.group",
                "Invalid spec.version",
                "Invalid spec.groupPriorityMinimum",
                "Invalid spec.versionPriority",
            ]
        );
    }

    #[test]
    fn trust_is_for_services_elsewhere() {
        let local = service(|spec| {
            spec.set("caBundle", "eHg=");
            spec.set("insecureSkipTLSVerify", true);
        });
        assert_eq!(complaints(&local), ["Invalid spec.caBundle", "Invalid spec.insecureSkipTLSVerify"]);
        let remote = service(|spec| spec.set("service", json!({"port": 0})));
        assert_eq!(
            complaints(&remote),
            ["Required spec.service.namespace", "Required spec.service.name", "Invalid spec.service.port"]
        );
    }

    #[test]
    fn a_local_service_is_available_at_once() {
        let mut local = service(|_| ());
        ApiService.stamp(&mut local, None, &User::default(), Timestamp::UNIX_EPOCH);
        assert_eq!((shown_service(&local), availability(&local)), ("Local".into(), "True".into()));
        let remote = service(|spec| spec.set("service", json!({"namespace": "n", "name": "s"})));
        assert_eq!((shown_service(&remote), availability(&remote)), ("n/s".into(), "Unknown".into()));
    }
}
