//! The policy file: `audit.k8s.io/v1 Policy` in YAML or JSON, validated as in v1.34.
//!
//! As in v1.34, unknown fields are ignored with a warning; everything else that is wrong is an error.

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::event::API_VERSION;
use super::policy::{Decision, GroupResources, Level, Policy, Rule, Stage, Stages};
use crate::field::{Errors, Path};
use crate::names;

/// An invalid policy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("failed decoding: {0}")]
    Undecodable(String),
    #[error("failed decoding: Object 'Kind' is missing in the audit policy")]
    NoKind,
    #[error(
        "failed decoding: expected kind \"Policy\" of version \"audit.k8s.io/v1\", found kind {kind:?} of version {version:?}"
    )]
    UnknownKind { kind: String, version: String },
    #[error("{0}")]
    Invalid(String),
    #[error("loaded illegal policy with 0 rules")]
    NoRules,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PolicyFile {
    #[serde(deserialize_with = "or_default")]
    rules: Vec<RuleFile>,
    #[serde(deserialize_with = "or_default")]
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RuleFile {
    #[serde(deserialize_with = "or_default")]
    level: String,
    #[serde(deserialize_with = "or_default")]
    users: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    user_groups: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    verbs: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    resources: Vec<GroupResources>,
    #[serde(deserialize_with = "or_default")]
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs", deserialize_with = "or_default")]
    non_resource_urls: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

/// Treats null as absent.
pub(super) fn or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

const POLICY_FIELDS: [&str; 6] =
    ["apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"];
const RULE_FIELDS: [&str; 9] = [
    "level",
    "users",
    "userGroups",
    "verbs",
    "resources",
    "namespaces",
    "nonResourceURLs",
    "omitStages",
    "omitManagedFields",
];
const RESOURCES_FIELDS: [&str; 3] = ["group", "resources", "resourceNames"];

impl Policy {
    /// Parses a policy file.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let undecodable = |why: String| PolicyError::Undecodable(why);
        let document: Value = serde_saphyr::from_str(text).map_err(|why| undecodable(why.to_string()))?;
        check_kind(&document)?;
        for field in unknown_fields(&document) {
            tracing::warn!("audit policy: unknown field {field:?} is ignored");
        }
        let file: PolicyFile =
            serde_json::from_value(document).map_err(|why| undecodable(why.to_string()))?;
        let errors = file.check();
        if !errors.is_empty() {
            return Err(PolicyError::Invalid(errors.to_string()));
        }
        file.policy()
    }
}

fn check_kind(document: &Value) -> Result<(), PolicyError> {
    let text = |field: &str| document.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
    match (text("kind"), text("apiVersion")) {
        (kind, _) if kind.is_empty() => Err(PolicyError::NoKind),
        (kind, version) if kind == "Policy" && version == API_VERSION => Ok(()),
        (kind, version) => Err(PolicyError::UnknownKind { kind, version }),
    }
}

fn unknown_fields(document: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    let mut look = |object: &Value, known: &[&str], place: &str| {
        let fields = object.as_object().into_iter().flat_map(serde_json::Map::keys);
        unknown.extend(
            fields.filter(|name| !known.contains(&name.as_str())).map(|name| format!("{place}{name}")),
        );
    };
    look(document, &POLICY_FIELDS, "");
    let list = |object: &Value, field: &str| {
        object.get(field).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    for (at, rule) in list(document, "rules").iter().enumerate() {
        look(rule, &RULE_FIELDS, &format!("rules[{at}]."));
        for (of, resources) in list(rule, "resources").iter().enumerate() {
            look(resources, &RESOURCES_FIELDS, &format!("rules[{at}].resources[{of}]."));
        }
    }
    unknown
}

impl PolicyFile {
    fn check(&self) -> Errors {
        let mut errors = Errors::default();
        check_stages(&self.omit_stages, &Path::root("omitStages"), &mut errors);
        let path = Path::root("rules");
        for (at, rule) in self.rules.iter().enumerate() {
            rule.check(&path.index(at), &mut errors);
        }
        errors
    }

    fn policy(self) -> Result<Policy, PolicyError> {
        let omit_managed_fields = self.omit_managed_fields.unwrap_or(false);
        let omitted = stages(&self.omit_stages);
        let rules = self.rules.into_iter().map(|rule| {
            let decision = Decision {
                level: Level::named(&rule.level).unwrap_or_default(),
                omit_stages: omitted.joined(stages(&rule.omit_stages)),
                omit_managed_fields: rule.omit_managed_fields.unwrap_or(omit_managed_fields),
            };
            Rule {
                decision,
                users: rule.users,
                user_groups: rule.user_groups,
                verbs: rule.verbs,
                resources: rule.resources,
                namespaces: rule.namespaces,
                non_resource_urls: rule.non_resource_urls,
            }
        });
        let rules: Vec<Rule> = rules.collect();
        if rules.is_empty() { Err(PolicyError::NoRules) } else { Ok(Policy { rules }) }
    }
}

fn stages(names: &[String]) -> Stages {
    names.iter().filter_map(|name| Stage::named(name)).collect()
}

impl RuleFile {
    fn check(&self, path: &Path<'_>, errors: &mut Errors) {
        let level = path.child("level");
        match self.level.as_str() {
            "" => errors.required(&level, ""),
            name if Level::named(name).is_none() => {
                errors.not_supported(&level, name, &Level::ALL.map(Level::name));
            }
            _ => {}
        }
        check_urls(&self.non_resource_urls, &path.child("nonResourceURLs"), errors);
        check_resources(&self.resources, &path.child("resources"), errors);
        check_stages(&self.omit_stages, &path.child("omitStages"), errors);
        let names_objects = !self.resources.is_empty() || !self.namespaces.is_empty();
        if !self.non_resource_urls.is_empty() && names_objects {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.invalid(&path.child("nonResourceURLs"), json!(self.non_resource_urls), detail);
        }
    }
}

fn check_urls(urls: &[String], path: &Path<'_>, errors: &mut Errors) {
    for (at, url) in urls.iter().enumerate().filter(|(_, url)| *url != "*") {
        if !url.starts_with('/') {
            let detail = "non-resource URL rules must begin with a '/' character";
            errors.invalid(&path.index(at), url.as_str(), detail);
        }
        if url.find('*').is_some_and(|star| star + 1 < url.len()) {
            let detail = "non-resource URL wildcards '*' must be the final character of the rule";
            errors.invalid(&path.index(at), url.as_str(), detail);
        }
    }
}

fn check_resources(all: &[GroupResources], path: &Path<'_>, errors: &mut Errors) {
    for one in all {
        let problems = if one.group.is_empty() { Vec::new() } else { names::dns_subdomain(&one.group) };
        if !problems.is_empty() {
            errors.invalid(&path.child("group"), one.group.as_str(), problems.join(","));
        }
        if !one.resource_names.is_empty() && one.resources.is_empty() {
            let detail = "using resourceNames requires at least one resource";
            errors.invalid(&path.child("resourceNames"), json!(one.resource_names), detail);
        }
    }
}

fn check_stages(names: &[String], path: &Path<'_>, errors: &mut Errors) {
    for (at, name) in names.iter().enumerate() {
        if Stage::named(name).is_none() {
            let known = Stage::ALL.map(Stage::name).join(",");
            errors.invalid(&path.index(at), name.as_str(), format!("allowed stages are {known}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::{Attributes, Object};
    use super::*;

    const HEAD: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";

    fn refused(rules: &str) -> String {
        match Policy::parse(&format!("{HEAD}{rules}")) {
            Ok(_) => panic!("this policy was accepted:\n{rules}"),
            Err(why) => why.to_string(),
        }
    }

    #[test]
    fn a_rule_adds_to_the_stages_and_overrides_the_managed_fields_of_the_policy() {
        let text = format!(
            "{HEAD}omitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n\
             - {{level: Metadata, verbs: [get], omitStages: [Panic]}}\n\
             - {{level: Request, omitManagedFields: false}}\n"
        );
        let policy = Policy::parse(&text).unwrap();
        let request = |verb| Attributes { verb, object: Some(Object::default()), ..Attributes::default() };
        let first = policy.decide(&request("get"));
        assert_eq!((first.level, first.omit_managed_fields), (Level::Metadata, true));
        let kept = |decision: Decision| Stage::ALL.map(|stage| !decision.omit_stages.has(stage));
        assert_eq!(kept(first), [false, true, true, false]);
        let second = policy.decide(&request("list"));
        assert_eq!((second.level, second.omit_managed_fields), (Level::Request, false));
        assert_eq!(kept(second), [false, true, true, true]);
    }

    #[test]
    fn unknown_fields_are_ignored_as_in_v1_34() {
        let text =
            format!("{HEAD}rule: 1\nrules:\n- {{level: None, verb: [get], resources: [{{groups: a}}]}}\n");
        assert!(Policy::parse(&text).is_ok());
        let document: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(unknown_fields(&document), ["rule", "rules[0].verb", "rules[0].resources[0].groups"]);
    }

    #[test]
    fn an_invalid_policy_is_rejected() {
        assert_eq!(Policy::parse("rules: []").unwrap_err(), PolicyError::NoKind);
        let other = Policy::parse("apiVersion: audit.k8s.io/v1beta1\nkind: Policy").unwrap_err();
        assert!(matches!(other, PolicyError::UnknownKind { .. }), "{other}");
        assert!(matches!(Policy::parse("{"), Err(PolicyError::Undecodable(_))));
        assert_eq!(refused("rules: []"), "loaded illegal policy with 0 rules");
        assert!(refused("rules: [{level: 7, users: {}}]").starts_with("failed decoding: "));
    }

    #[test]
    fn invalid_rules_are_reported_field_by_field() {
        let levels = "supported values: \"None\", \"Metadata\", \"Request\", \"RequestResponse\"";
        for (rules, expected) in [
            ("rules: [{}]", "rules[0].level: Required value".to_owned()),
            ("rules: [{level: Some}]", format!("rules[0].level: Unsupported value: \"Some\": {levels}")),
            (
                "omitStages: [Never]\nrules: [{level: None}]",
                "omitStages[0]: Invalid value: \"Never\": allowed stages are \
                 RequestReceived,ResponseStarted,ResponseComplete,Panic"
                    .to_owned(),
            ),
            (
                "rules: [{level: None, nonResourceURLs: [a, '/b*c', '*', '/d*']}]",
                "[rules[0].nonResourceURLs[0]: Invalid value: \"a\": non-resource URL rules must begin with a '/' character, \
                 rules[0].nonResourceURLs[1]: Invalid value: \"/b*c\": non-resource URL wildcards '*' must be the final character of the rule]"
                    .to_owned(),
            ),
            (
                "rules: [{level: None, namespaces: [a], nonResourceURLs: ['/b']}]",
                "rules[0].nonResourceURLs: Invalid value: [\"/b\"]: rules cannot apply to both regular resources and non-resource URLs"
                    .to_owned(),
            ),
            (
                "rules: [{level: None, resources: [{resourceNames: [a]}]}]",
                "rules[0].resources.resourceNames: Invalid value: [\"a\"]: using resourceNames requires at least one resource"
                    .to_owned(),
            ),
        ] {
            assert_eq!(refused(rules), expected, "{rules}");
        }
        assert!(refused("rules: [{level: None, resources: [{group: a/v1}]}]").starts_with(
            "rules[0].resources.group: Invalid value: \"a/v1\": a lowercase RFC 1123 subdomain"
        ));
    }
}
