//! Validates resource names and quantities.

use std::collections::BTreeSet;

use serde_json::Value;
use setpoint_quota::names::{COMPUTE, HUGE_PAGES, is_requested_huge_pages};
pub use setpoint_quota::names::{is_huge_pages, is_native};

use super::{NEGATIVE, add_invalid};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kinds::resources::{amount, amounts};
use crate::names;
use crate::quantity::Quantity;

/// Unprefixed resources that are allowed besides those of containers and object counts.
const STORAGE: [&str; 2] = ["storage", "requests.storage"];

/// Resources that are counts.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// Whether a resource can be overcommitted.
pub fn can_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Validates the name of any resource.
pub fn name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let complaints = names::qualified_name(name);
    if !complaints.is_empty() {
        return add_invalid(complaints, name, path, errors);
    }
    if !name.contains('/') && !is_standard(name) {
        errors.invalid(path, name, "must be a standard resource type or fully qualified");
    }
}

fn is_standard(name: &str) -> bool {
    COMPUTE.contains(&name)
        || COUNTED.contains(&name)
        || STORAGE.contains(&name)
        || is_huge_pages(name)
        || is_requested_huge_pages(name)
}

/// Whether quotas know the resource; others are counted by their kind.
pub fn is_standard_for_quota(name: &str) -> bool {
    is_standard(name) && name != "storage"
}

/// Validates the name of a resource that a quota can limit.
pub fn quota_name(resource: &str, path: &Path<'_>, errors: &mut Errors) {
    name(resource, path, errors);
    if !resource.contains('/') && !is_standard_for_quota(resource) {
        errors.invalid(path, resource, "must be a standard resource for quota");
    }
}

/// Validates the name of a resource that a container can request.
pub fn container_name(resource: &str, path: &Path<'_>, errors: &mut Errors) {
    if matches!(resource, "cpu" | "memory" | "ephemeral-storage") {
        return;
    }
    name(resource, path, errors);
    if !resource.contains('/') {
        if !is_huge_pages(resource) {
            errors.invalid(path, resource, "must be a standard resource for containers");
        }
    } else if !is_native(resource) && !is_extended(resource) {
        errors.invalid(path, resource, "doesn't follow extended resource name standard");
    }
}

/// Validates the name of a resource that a pod as a whole can request.
pub fn pod_name(resource: &str, path: &Path<'_>, errors: &mut Errors) {
    let before = errors.0.len();
    name(resource, path, errors);
    if errors.0.len() == before && !matches!(resource, "cpu" | "memory") && !is_huge_pages(resource) {
        errors.not_supported(path, resource, &["cpu", HUGE_PAGES, "memory"]);
    }
}

/// Validates the quantity of a resource.
pub fn quantity(resource: &str, amount: &Quantity, path: &Path<'_>, errors: &mut Errors) {
    if amount.sign() < 0 {
        errors.invalid(path, amount.to_string(), NEGATIVE);
    }
    let whole = amount.milli_value() % 1000 == 0;
    if !whole && (COUNTED.contains(&resource) || is_extended(resource)) {
        errors.invalid(path, amount.to_string(), "must be an integer");
    }
}

pub fn positive_quantity(amount: &Quantity, path: &Path<'_>, errors: &mut Errors) {
    if amount.sign() <= 0 {
        errors.invalid(path, amount.to_string(), super::NOT_POSITIVE);
    }
}

/// Requires a non-negative quantity, with another message than [`quantity`].
pub fn basic_quantity(amount: &Quantity, path: &Path<'_>, errors: &mut Errors) {
    if amount.value() < 0 {
        errors.invalid(path, amount.value(), "must be a valid resource quantity");
    }
}

/// The resource requirements of a container or pod.
pub struct Requirements<'a> {
    /// Validates the resource names.
    pub name: fn(&str, &Path<'_>, &mut Errors),
    /// Whether amounts of huge pages need not be whole pages: objects that already have such amounts may keep them.
    pub allow_broken_pages: bool,
    /// The resource claims of the pod.
    pub claims: &'a [Value],
}

impl Requirements<'_> {
    pub fn check(&self, requirements: &Value, path: &Path<'_>, errors: &mut Errors) {
        let (limits, requests) = (requirements.at("limits"), requirements.at("requests"));
        self.check_list(limits, &path.child("limits"), errors);
        let requests_path = path.child("requests");
        for (resource, requested) in amounts(requests) {
            self.check_amount(resource, &requested, &requests_path.key(resource), errors);
            self.check_against_limit(resource, &requested, limits, path, errors);
        }
        let has = |wanted: fn(&str) -> bool| {
            let names =
                [limits, requests].into_iter().filter_map(Value::as_object).flat_map(|list| list.keys());
            names.into_iter().any(|name| wanted(name))
        };
        if has(is_huge_pages) && !has(|name| matches!(name, "cpu" | "memory")) {
            errors.forbidden(path, "HugePages require cpu or memory");
        }
        self.check_claims(requirements.list("claims"), &path.child("claims"), errors);
    }

    /// Validates a single list of quantities.
    pub fn check_list(&self, list: &Value, path: &Path<'_>, errors: &mut Errors) {
        for (resource, amount) in amounts(list) {
            self.check_amount(resource, &amount, &path.key(resource), errors);
        }
    }

    fn check_amount(&self, resource: &str, amount: &Quantity, path: &Path<'_>, errors: &mut Errors) {
        (self.name)(resource, path, errors);
        quantity(resource, amount, path, errors);
        if is_huge_pages(resource) && !self.allow_broken_pages && !is_whole_pages(resource, amount) {
            let detail = format!("{amount} is not positive integer multiple of {resource}");
            errors.invalid(path, amount.to_string(), detail);
        }
    }

    fn check_against_limit(
        &self,
        resource: &str,
        requested: &Quantity,
        limits: &Value,
        path: &Path<'_>,
        errors: &mut Errors,
    ) {
        let Some(limit) = amount(limits, resource) else {
            if !can_overcommit(resource) {
                errors.required(&path.child("limits"), "Limit must be set for non overcommitable resources");
            }
            return;
        };
        let requests = path.child("requests");
        if *requested != limit && !can_overcommit(resource) {
            let detail = format!("must be equal to {resource} limit of {limit}");
            errors.invalid(&requests, requested.to_string(), detail);
        } else if *requested > limit {
            let detail = format!("must be less than or equal to {resource} limit of {limit}");
            errors.invalid(&requests, requested.to_string(), detail);
        }
    }

    /// Checks that each claim is referred to once, as a whole or request by request.
    fn check_claims(&self, claims: &[Value], path: &Path<'_>, errors: &mut Errors) {
        let known = self.claims.iter().map(|claim| claim.text("name")).filter(|name| !name.is_empty());
        let known: BTreeSet<&str> = known.collect();
        let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
        for (index, claim) in claims.iter().enumerate() {
            let path = path.index(index);
            let (name, request) = (claim.text("name"), claim.text("request"));
            if name.is_empty() {
                errors.required(&path, "");
                continue;
            }
            if seen.contains(&(name, "")) {
                errors.duplicate(&path, name);
            } else {
                if !request.is_empty() {
                    super::dns_label(request, &path.child("request"), errors);
                }
                if seen.contains(&(name, request)) {
                    errors.duplicate(&path, format!("{name}/{request}"));
                } else if request.is_empty() {
                    for _ in seen.range((name, "")..).take_while(|(known, _)| *known == name) {
                        errors.duplicate(&path, name);
                    }
                }
                seen.insert((name, request));
            }
            check_claim_exists(name, &known, &path, errors);
        }
    }
}

fn check_claim_exists(name: &str, known: &BTreeSet<&str>, path: &Path<'_>, errors: &mut Errors) {
    // The error shows all claims of the pod.
    if known.contains(name) || errors.is_full() {
        return;
    }
    let detail = match known.is_empty() {
        true => "must be one of the names in pod.spec.resourceClaims which is empty".to_owned(),
        false => {
            let known: Vec<&str> = known.iter().copied().collect();
            format!("must be one of the names in pod.spec.resourceClaims: {}", known.join(", "))
        }
    };
    errors.push(crate::field::Reason::NotFound, path, Some(name.into()), detail);
}

/// Whether an amount of huge pages is made of whole pages.
pub fn is_whole_pages(resource: &str, amount: &Quantity) -> bool {
    let size = resource.strip_prefix(HUGE_PAGES).and_then(|size| Quantity::parse(size).ok());
    size.is_some_and(|size| {
        size.sign() > 0 && size.milli_value() % 1000 == 0 && amount.value() % size.value() == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(requirements: Value, expected: &[&str]) {
        let rules =
            Requirements { name: container_name, allow_broken_pages: false, claims: &[json!({"name": "c"})] };
        let mut errors = Errors::default();
        rules.check(&requirements, &Path::root("r"), &mut errors);
        let found: Vec<String> =
            errors.0.iter().map(|error| format!("{} {}", error.field, error.detail)).collect();
        assert_eq!(found, expected, "{requirements}");
    }

    #[test]
    fn requirements_are_consistent() {
        check(json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}), &[]);
        check(
            json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
            &["r.requests must be less than or equal to cpu limit of 1"],
        );
        check(
            json!({"requests": {"x.io/y": "1"}}),
            &["r.limits Limit must be set for non overcommitable resources"],
        );
        check(
            json!({"limits": {"x.io/y": "2"}, "requests": {"x.io/y": "1"}}),
            &["r.requests must be equal to x.io/y limit of 2"],
        );
        check(
            json!({"limits": {"x.io/y": "1500m"}, "requests": {"x.io/y": "1500m"}}),
            &["r.limits[x.io/y] must be an integer", "r.requests[x.io/y] must be an integer"],
        );
        check(json!({"limits": {"cpu": "-1"}}), &["r.limits[cpu] must be greater than or equal to 0"]);
        check(
            json!({"limits": {"foo": "1"}}),
            &[
                "r.limits[foo] must be a standard resource type or fully qualified",
                "r.limits[foo] must be a standard resource for containers",
            ],
        );
        check(
            json!({"limits": {"hugepages-2Mi": "3Mi"}}),
            &[
                "r.limits[hugepages-2Mi] 3Mi is not positive integer multiple of hugepages-2Mi",
                "r HugePages require cpu or memory",
            ],
        );
    }

    #[test]
    fn claims_exist_and_are_unique() {
        check(json!({"claims": [{"name": "c"}]}), &[]);
        check(json!({"claims": [{"name": "c", "request": "a"}, {"name": "c", "request": "b"}]}), &[]);
        check(json!({"claims": [{"name": "c", "request": "a"}, {"name": "c"}]}), &["r.claims[1] "]);
        check(
            json!({"claims": [{"name": "d"}]}),
            &["r.claims[0] must be one of the names in pod.spec.resourceClaims: c"],
        );
    }
}
