//! FlowSchemas: assign requests to priority levels.

use serde_json::{Value, json};

use super::{EXEMPT, FLOW_CONTROL, bootstrap, check_status, is_same};
use crate::declared;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope, Subresource};
use crate::kinds::{entry, metadata};
use crate::names;
use crate::strategy::{Lifecycle, NameRule, Presentation, Semantics, Validation};
use crate::table::Column;
use crate::validation::{add_invalid, dns_label, dns_subdomain, required};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::Status],
        columns: vec![
            Column::name(),
            Column::text("PriorityLevel", LEVEL, |schema, _| {
                schema.at("spec").at("priorityLevelConfiguration").text("name").into()
            }),
            Column::text("MatchingPrecedence", PRECEDENCE, |schema, _| {
                schema.at("spec").count("matchingPrecedence").into()
            }),
            Column::text("DistinguisherMethod", DISTINGUISHER, |schema, _| distinguisher(schema).into()),
            Column::age(),
            Column::text("MissingPL", MISSING, |schema, _| missing_level(schema).into()),
        ],
        semantics: Semantics::with_strict_status(|| json!({})),
        presentation: Presentation {
            row_order: Some(|schema| schema.at("spec").count("matchingPrecedence")),
            ..Presentation::default()
        },
        ..entry(&FLOW_CONTROL, "FlowSchema", "flowschemas", FlowSchema)
    }
}

const LEVEL: &str = "`name` is the name of the priority level configuration being referenced Required.";
const PRECEDENCE: &str = "`matchingPrecedence` is used to choose among the FlowSchemas that match a given request. The chosen FlowSchema is among those with the numerically lowest (which we take to be logically highest) MatchingPrecedence.  Each MatchingPrecedence value must be ranged in [1,10000]. Note that if the precedence is not specified, it will be set to 1000 as default.";
const DISTINGUISHER: &str = "`distinguisherMethod` defines how to compute the flow distinguisher for requests that match this schema. `nil` specifies that the distinguisher is disabled and thus will always be the empty string.";
const MISSING: &str = "references a broken or non-existent PriorityLevelConfiguration";
const MAX_PRECEDENCE: i64 = 10000;
const VERBS: [&str; 9] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

fn distinguisher(schema: &Value) -> &str {
    match schema.at("spec").at("distinguisherMethod").text("type") {
        "" => "<none>",
        method => method,
    }
}

fn missing_level(schema: &Value) -> &str {
    let conditions = schema.at("status").list("conditions").iter();
    let mut dangling = conditions.filter(|condition| condition.text("type") == "Dangling");
    dangling.next().map_or("?", |condition| condition.text("status"))
}

struct FlowSchema;

impl Lifecycle for FlowSchema {
    fn default(&self, schema: &mut Value) {
        schema.object_mut("spec").or_int("matchingPrecedence", 1000);
    }

    fn resets(&self, subresource: Option<Subresource>) -> Option<&'static [&'static [&'static str]]> {
        Some(match subresource {
            None => &[&["status"]],
            Some(_) => &[&["metadata"], &["spec"]],
        })
    }
}

impl Validation for FlowSchema {
    fn validate(&self, schema: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(schema, &mut errors);
        check(schema, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::whole(new, Scope::Cluster, NameRule::Subdomain, &mut errors);
        check(new, &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        check_status(new, &mut errors);
        errors
    }
}

fn check(schema: &Value, errors: &mut Errors) {
    let (spec, path) = (schema.at("spec"), Path::root("spec"));
    let name = schema.at("metadata").text("name");
    check_precedence(spec.count("matchingPrecedence"), name, &path.child("matchingPrecedence"), errors);
    let method = spec.at("distinguisherMethod");
    if method.is_object() && !["ByNamespace", "ByUser"].contains(&method.text("type")) {
        let path = path.child("distinguisherMethod");
        let shown = declared::of(method, &declared::DISTINGUISHER);
        errors.not_supported(&path.child("type"), shown, &["ByNamespace", "ByUser"]);
    }
    let level = path.child("priorityLevelConfiguration");
    match spec.at("priorityLevelConfiguration").text("name") {
        "" => errors.required(&level.child("name"), "must reference a priority level"),
        level_name => dns_subdomain(level_name, &level.child("name"), errors),
    }
    let rules = path.child("rules");
    for (index, rule) in spec.list("rules").iter().enumerate() {
        check_rule(rule, &rules.index(index), errors);
    }
    if let Some(fixed) = bootstrap::fixed(bootstrap::flow_schemas(), name)
        && !is_same(&fixed, spec)
    {
        errors.invalid(&path, spec.clone(), format!("spec of '{name}' must equal the fixed value"));
    }
    check_status(schema, errors);
}

fn check_precedence(precedence: i64, name: &str, path: &Path<'_>, errors: &mut Errors) {
    if precedence <= 0 {
        errors.invalid(path, precedence, "must be a positive value");
    }
    if precedence > MAX_PRECEDENCE {
        errors.invalid(path, precedence, format!("must not be greater than {MAX_PRECEDENCE}"));
    }
    if precedence == 1 && name != EXEMPT {
        let detail = "only the schema named 'exempt' may have matchingPrecedence 1";
        errors.invalid(path, precedence, detail);
    }
}

fn check_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let subjects = path.child("subjects");
    if rule.list("subjects").is_empty() {
        errors.required(&subjects, "subjects must contain at least one value");
    }
    for (index, subject) in rule.list("subjects").iter().enumerate() {
        check_subject(subject, &subjects.index(index), errors);
    }
    let (resources, others) = (rule.list("resourceRules"), rule.list("nonResourceRules"));
    if resources.is_empty() && others.is_empty() {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.required(path, detail);
    }
    let resources_path = path.child("resourceRules");
    for (index, rule) in resources.iter().enumerate() {
        check_resource_rule(rule, &resources_path.index(index), errors);
    }
    let others_path = path.child("nonResourceRules");
    for (index, rule) in others.iter().enumerate() {
        check_other_rule(rule, &others_path.index(index), errors);
    }
}

/// Checks that a subject has exactly the field for its kind.
fn check_subject(subject: &Value, path: &Path<'_>, errors: &mut Errors) {
    const KINDS: [(&str, &str); 3] =
        [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = subject.text("kind");
    let Some((_, field)) = KINDS.iter().find(|(known, _)| *known == kind) else {
        return errors.not_supported(&path.child("kind"), kind, &["Group", "ServiceAccount", "User"]);
    };
    match subject.has(field) {
        false => {
            errors.required(&path.child(field), format!("{field} is required when subject kind is '{kind}'"))
        }
        true if kind == "ServiceAccount" => check_account(subject.at(field), &path.child(field), errors),
        true => required(subject.at(field), "name", &path.child(field), errors),
    }
    for (other, field) in KINDS.iter().filter(|(other, field)| *other != kind && subject.has(field)) {
        errors.forbidden(
            &path.child(field),
            format!("{field} is forbidden when subject kind is not '{other}'"),
        );
    }
}

fn check_account(account: &Value, path: &Path<'_>, errors: &mut Errors) {
    match account.text("name") {
        "" => errors.required(&path.child("name"), ""),
        "*" => {}
        name => dns_subdomain(name, &path.child("name"), errors),
    }
    match account.text("namespace") {
        "" => errors.required(&path.child("namespace"), "must specify namespace for service account"),
        namespace => dns_label(namespace, &path.child("namespace"), errors),
    }
}

fn has_wildcard(rule: &Value, field: &str) -> bool {
    rule.list(field).iter().any(|item| item == "*")
}

/// Checks that a list is not empty, and has no other entries besides `*`.
fn check_list(rule: &Value, field: &str, missing: &str, others: &str, path: &Path<'_>, errors: &mut Errors) {
    let list = rule.list(field);
    if list.is_empty() {
        errors.required(&path.child(field), missing);
    } else if list.len() > 1 && has_wildcard(rule, field) {
        let detail = format!("if '*' is present, must not specify other {others}");
        errors.invalid(&path.child(field), list.to_vec(), detail);
    }
}

fn check_verbs(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    check_list(rule, "verbs", "verbs must contain at least one value", "verbs", path, errors);
    let verbs = rule.list("verbs");
    let known = |verb: &Value| verb.as_str().is_some_and(|verb| VERBS.contains(&verb));
    if !has_wildcard(rule, "verbs") && !verbs.iter().all(known) {
        errors.not_supported(&path.child("verbs"), verbs.to_vec(), &VERBS);
    }
}

fn check_resource_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    check_verbs(rule, path, errors);
    let missing = "resource rules must supply at least one api group";
    check_list(rule, "apiGroups", missing, "api groups", path, errors);
    let missing = "resource rules must supply at least one resource";
    check_list(rule, "resources", missing, "resources", path, errors);
    let namespaces = path.child("namespaces");
    let list = rule.list("namespaces");
    if list.is_empty() && !rule.flag("clusterScope") {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.required(&namespaces, detail);
    } else if has_wildcard(rule, "namespaces") {
        if list.len() > 1 {
            let detail = "if '*' is present, must not specify other namespaces";
            errors.invalid(&namespaces, list.to_vec(), detail);
        }
    } else {
        for (index, namespace) in list.iter().filter_map(Value::as_str).enumerate() {
            let intro = "each member of this list must be '*' or a DNS-1123 label; ";
            let complaints =
                names::dns_label(namespace).into_iter().map(|complaint| format!("{intro}{complaint}"));
            add_invalid(complaints.collect(), namespace, &namespaces.index(index), errors);
        }
    }
}

fn check_other_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    check_verbs(rule, path, errors);
    let missing = "nonResourceURLs must contain at least one value";
    check_list(rule, "nonResourceURLs", missing, "non-resource URLs", path, errors);
    if has_wildcard(rule, "nonResourceURLs") {
        return;
    }
    let path = path.child("nonResourceURLs");
    for (index, url) in rule.list("nonResourceURLs").iter().filter_map(Value::as_str).enumerate() {
        check_url(url, &path.index(index), errors);
    }
}

fn check_url(url: &str, path: &Path<'_>, errors: &mut Errors) {
    let stars = url.matches('*').count();
    let problem = if url.is_empty() {
        "must not be empty"
    } else if url == "/" {
        return;
    } else if !url.starts_with('/') {
        "must start with slash"
    } else if url.contains(' ') {
        "must not contain white-space"
    } else if url.contains("//") {
        "must not contain double slash"
    } else if stars > 1 || stars == 1 && !url.ends_with("/*") {
        "wildcard can only do suffix matching"
    } else {
        return;
    };
    errors.invalid(path, url, problem);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check as checking;

    fn schema(change: impl FnOnce(&mut Value)) -> Value {
        let mut schema = json!({"spec": {"priorityLevelConfiguration": {"name": "a"}, "rules": [{
            "subjects": [{"kind": "User", "user": {"name": "*"}}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/x", "/y/*"]}]}]}});
        change(schema.object_mut("spec"));
        schema
    }

    #[test]
    fn a_schema_has_a_level_and_a_precedence() {
        checking::create(&FlowSchema, schema(|_| ()), &[]);
        checking::create(
            &FlowSchema,
            json!({"spec": {"matchingPrecedence": 1, "distinguisherMethod": {"type": "X"}}}),
            &[
                "Invalid spec.matchingPrecedence",
                "NotSupported spec.distinguisherMethod.type",
                "Required spec.priorityLevelConfiguration.name",
            ],
        );
        checking::create(
            &FlowSchema,
            schema(|spec| spec.set("matchingPrecedence", 10001)),
            &["Invalid spec.matchingPrecedence"],
        );
    }

    #[test]
    fn rules_have_subjects_and_verbs() {
        let path = "spec.rules[0]";
        let rule = |rule: Value| schema(|spec| spec.set("rules", json!([rule])));
        checking::create(
            &FlowSchema,
            rule(json!({"subjects": [{"kind": "User", "group": {"name": "g"}}, {"kind": "X"}]})),
            &[
                &format!("Required {path}.subjects[0].user"),
                &format!("Forbidden {path}.subjects[0].group"),
                &format!("NotSupported {path}.subjects[1].kind"),
                &format!("Required {path}"),
            ],
        );
        checking::create(
            &FlowSchema,
            rule(json!({"subjects": [{"kind": "ServiceAccount", "serviceAccount": {"name": "*"}}],
                "resourceRules": [{"verbs": ["*", "get"], "apiGroups": [], "resources": ["a"]}],
                "nonResourceRules": [{"verbs": ["x"], "nonResourceURLs": ["x", "/a*"]}]})),
            &[
                &format!("Required {path}.subjects[0].serviceAccount.namespace"),
                &format!("Invalid {path}.resourceRules[0].verbs"),
                &format!("Required {path}.resourceRules[0].apiGroups"),
                &format!("Required {path}.resourceRules[0].namespaces"),
                &format!("NotSupported {path}.nonResourceRules[0].verbs"),
                &format!("Invalid {path}.nonResourceRules[0].nonResourceURLs[0]"),
                &format!("Invalid {path}.nonResourceRules[0].nonResourceURLs[1]"),
            ],
        );
    }

    #[test]
    fn built_in_flow_schemas_are_valid_and_fixed_ones_immutable() {
        for schema in bootstrap::flow_schemas() {
            checking::create(&FlowSchema, schema, &[]);
        }
        let mut fixed = bootstrap::flow_schemas().remove(1);
        fixed["spec"]["matchingPrecedence"] = json!(9999);
        checking::create(&FlowSchema, fixed, &["Invalid spec"]);
    }
}
