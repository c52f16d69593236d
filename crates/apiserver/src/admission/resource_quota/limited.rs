//! Resources that can only be consumed where a quota covers them: `ResourceQuotaConfiguration`.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;
use setpoint_quota::{Item, Operator, Resources, Scope};

use super::positive;

/// The versions and kinds of the configuration.
const KINDS: [(&str, &str); 3] = [
    ("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"),
    ("resourcequota.admission.k8s.io/v1beta1", "Configuration"),
    ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"),
];

/// How the ResourceQuota plugin is configured. By default nothing is limited without a quota.
#[derive(Clone, Debug, Default)]
pub struct ResourceQuotaConfiguration {
    limited: Vec<LimitedResource>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LimitedResource {
    #[serde(default)]
    api_group: String,
    #[serde(default)]
    resource: String,
    /// A resource whose name contains one of these needs a quota.
    #[serde(default)]
    match_contains: Vec<String>,
    /// An object in one of these scopes needs a quota with the scope.
    #[serde(default)]
    match_scopes: Vec<Scope>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    api_version: String,
    kind: String,
    #[serde(default)]
    limited_resources: Vec<LimitedResource>,
}

impl ResourceQuotaConfiguration {
    /// Reads a configuration; the error says what is wrong with it.
    pub(crate) fn parse(configuration: &Value) -> Result<Self, String> {
        let written = Written::deserialize(configuration).map_err(|why| why.to_string())?;
        let found = (written.api_version.as_str(), written.kind.as_str());
        if !KINDS.contains(&found) {
            let (version, kind) = KINDS[0];
            return Err(format!(
                "expected kind {kind} of apiVersion {version}, found {} of {}",
                found.1, found.0
            ));
        }
        match written.limited_resources.iter().position(|limited| limited.resource.is_empty()) {
            Some(index) => Err(format!("limitedResources[{index}].resource: Required value")),
            None => Ok(Self { limited: written.limited_resources }),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.limited.is_empty()
    }

    /// Returns what an object may only have with a quota.
    pub(super) fn needs(&self, group: &str, resource: &str, item: &Item, usage: &Resources) -> Needs {
        let consumed = positive(usage);
        let own = self.limited.iter().filter(|one| one.api_group == group && one.resource == resource);
        let is_limited = |limited: &LimitedResource, name: &str| {
            limited.match_contains.iter().any(|part| name.contains(part.as_str()))
        };
        let resources = own.flat_map(|limited| {
            consumed.names().filter(|name| is_limited(limited, name)).map(str::to_owned).collect::<Vec<_>>()
        });
        let scopes = self.limited.iter().flat_map(|limited| &limited.match_scopes);
        let scopes = scopes.filter(|scope| item.matches(scope)).cloned().collect();
        Needs { resources: resources.collect(), scopes }
    }
}

/// What quotas must cover.
#[derive(Debug, Default)]
pub(super) struct Needs {
    resources: BTreeSet<String>,
    scopes: Vec<Scope>,
}

/// Why a request needs a quota that does not exist.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Uncovered {
    Resources(String),
    Scopes(String),
}

impl Needs {
    pub(super) fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.scopes.is_empty()
    }

    /// Fails unless these resources and scopes, which the namespace's quotas restrict, are all that is needed.
    pub(super) fn check(&self, resources: &BTreeSet<String>, scopes: &[Scope]) -> Result<(), Uncovered> {
        let missing: Vec<&str> = self.resources.difference(resources).map(String::as_str).collect();
        if !missing.is_empty() {
            return Err(Uncovered::Resources(format!(
                "insufficient quota to consume: {}",
                missing.join(",")
            )));
        }
        let is_covered = |wanted: &&Scope| !scopes.iter().any(|scope| scope.scope_name == wanted.scope_name);
        let missing: Vec<String> = self.scopes.iter().filter(is_covered).map(shown).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(Uncovered::Scopes(format!(
                "insufficient quota to match these scopes: [{}]",
                missing.join(" ")
            ))),
        }
    }
}

/// Formats a scope as Go prints the struct.
fn shown(scope: &Scope) -> String {
    let operator = match scope.operator {
        Operator::In => "In",
        Operator::NotIn => "NotIn",
        Operator::Exists => "Exists",
        Operator::DoesNotExist => "DoesNotExist",
    };
    format!("{{{} {operator} [{}]}}", scope.scope_name, scope.values.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn invalid_values_are_rejected_with_their_field() {
        let (version, kind) = KINDS[0];
        for (configuration, expected) in [
            (json!({"apiVersion": version, "kind": "Other"}), "expected kind ResourceQuotaConfiguration"),
            (json!({"apiVersion": version, "kind": kind, "oops": 1}), "unknown field `oops`"),
            (
                json!({"apiVersion": version, "kind": kind, "limitedResources": [{"matchContains": ["x"]}]}),
                "limitedResources[0].resource: Required value",
            ),
        ] {
            let problem = ResourceQuotaConfiguration::parse(&configuration).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
