//! `PodSecurityConfiguration`: the policy of namespaces without labels, and what is exempt from all policies.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::policy::{LevelVersion, Policy, parse_level, parse_version};
use crate::field::{Errors, Path};
use crate::names;

/// The kind, in any of its versions.
const KIND: &str = "PodSecurityConfiguration";
const VERSIONS: [&str; 3] = [
    "pod-security.admission.config.k8s.io/v1",
    "pod-security.admission.config.k8s.io/v1beta1",
    "pod-security.admission.config.k8s.io/v1alpha1",
];

/// How the PodSecurity plugin is configured. The default is that of v1.34: privileged, without exemptions.
#[derive(Clone, Debug, Default)]
pub struct PodSecurityConfiguration {
    pub(super) defaults: Policy,
    pub(super) exemptions: Exemptions,
}

/// What no policy applies to.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct Exemptions {
    usernames: Vec<String>,
    namespaces: Vec<String>,
    runtime_classes: Vec<String>,
}

impl Exemptions {
    pub(super) fn has_user(&self, name: &str) -> bool {
        self.usernames.iter().any(|exempt| exempt == name)
    }

    pub(super) fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.iter().any(|exempt| exempt == name)
    }

    pub(super) fn has_runtime_class(&self, name: &str) -> bool {
        !name.is_empty() && self.runtime_classes.iter().any(|exempt| exempt == name)
    }

    fn check(&self, errors: &mut Errors) {
        let path = Path::root("exemptions");
        let check =
            |field: &str, all: &[String], problem: &dyn Fn(&str) -> Vec<String>, errors: &mut Errors| {
                let (path, mut seen) = (path.child(field), BTreeSet::new());
                for (index, one) in all.iter().enumerate() {
                    let problems = problem(one);
                    if !problems.is_empty() {
                        errors.invalid(&path.index(index), one.as_str(), problems.join(", "));
                    } else if !seen.insert(one) {
                        errors.duplicate(&path.index(index), one.as_str());
                    }
                }
            };
        check("namespaces", &self.namespaces, &names::dns_label, errors);
        check("runtimeClasses", &self.runtime_classes, &names::dns_subdomain, errors);
        let named =
            |name: &str| if name.is_empty() { vec!["must not be empty".to_owned()] } else { Vec::new() };
        check("usernames", &self.usernames, &named, errors);
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    api_version: String,
    kind: String,
    #[serde(default)]
    defaults: RawDefaults,
    #[serde(default)]
    exemptions: Exemptions,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
struct RawDefaults {
    enforce: String,
    enforce_version: String,
    audit: String,
    audit_version: String,
    warn: String,
    warn_version: String,
}

impl PodSecurityConfiguration {
    /// Reads a configuration; the error says what is wrong with it.
    pub(crate) fn parse(configuration: &Value) -> Result<Self, String> {
        let written = Written::deserialize(configuration).map_err(|why| why.to_string())?;
        if written.kind != KIND || !VERSIONS.contains(&written.api_version.as_str()) {
            return Err(format!(
                "expected kind {KIND} of apiVersion {}, found {} of {}",
                VERSIONS[0], written.kind, written.api_version
            ));
        }
        let mut errors = Errors::default();
        let RawDefaults { enforce, enforce_version, audit, audit_version, warn, warn_version } =
            &written.defaults;
        let defaults = Policy {
            enforce: level("enforce", enforce, enforce_version, &mut errors),
            warn: level("warn", warn, warn_version, &mut errors),
            audit: level("audit", audit, audit_version, &mut errors),
        };
        written.exemptions.check(&mut errors);
        match errors.is_empty() {
            true => Ok(Self { defaults, exemptions: written.exemptions }),
            false => Err(errors.to_string()),
        }
    }
}

fn level(mode: &str, level: &str, version: &str, errors: &mut Errors) -> LevelVersion {
    let path = Path::root("defaults");
    let default = Policy::default().enforce;
    let level = match level {
        "" => default.level,
        text => parse_level(text).unwrap_or_else(|why| {
            errors.invalid(&path.child(mode), text, why);
            default.level
        }),
    };
    let version = match version {
        "" => default.version,
        text => parse_version(text).unwrap_or_else(|why| {
            errors.invalid(&path.child(&format!("{mode}-version")), text, why);
            default.version
        }),
    };
    LevelVersion { level, version }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(other: Value) -> Result<PodSecurityConfiguration, String> {
        let mut configuration = json!({"apiVersion": VERSIONS[0], "kind": KIND});
        configuration.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
        PodSecurityConfiguration::parse(&configuration)
    }

    #[test]
    fn levels_default_to_privileged_and_the_latest_version() {
        let defaults =
            parsed(json!({"defaults": {"enforce": "baseline", "warn-version": "v1.30"}})).unwrap().defaults;
        let shown = [defaults.enforce, defaults.audit, defaults.warn].map(|level| level.to_string());
        assert_eq!(shown, ["baseline:latest", "privileged:latest", "privileged:v1.30"]);
    }

    #[test]
    fn invalid_values_are_rejected_with_their_field() {
        for (other, expected) in [
            (json!({"kind": "Other"}), "expected kind PodSecurityConfiguration"),
            (json!({"oops": 1}), "unknown field `oops`"),
            (
                json!({"defaults": {"enforce": "some"}}),
                "defaults.enforce: Invalid value: \"some\": must be one of",
            ),
            (json!({"defaults": {"audit-version": "1"}}), "defaults.audit-version: Invalid value: \"1\""),
            (json!({"exemptions": {"namespaces": ["A"]}}), "exemptions.namespaces[0]: Invalid value: \"A\""),
            (
                json!({"exemptions": {"usernames": ["a", "a"]}}),
                "exemptions.usernames[1]: Duplicate value: \"a\"",
            ),
        ] {
            let problem = parsed(other.clone()).unwrap_err();
            assert!(problem.contains(expected), "{other}: {problem}");
        }
    }
}
