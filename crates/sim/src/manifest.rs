//! Manifests of an operator that must fit its code: they are compared with it, and written from it.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Serialize;
use serde_json::Value;

use crate::Permissions;

/// If this variable is set, manifests are written instead of compared.
const WRITE: &str = "SETPOINT_WRITE_MANIFESTS";

/// A file with a manifest that must fit the code. Tests fail if it does not, and write it if the environment variable
/// `SETPOINT_WRITE_MANIFESTS` is set.
///
/// ```no_run
/// # let definition = serde_json::json!({});
/// # let permissions = setpoint_sim::Permissions::default();
/// use setpoint_sim::Manifest;
/// let config = concat!(env!("CARGO_MANIFEST_DIR"), "/config");
/// Manifest::at(config, "crd/bases/example.com_widgets.yaml").assert_is(&definition);
/// Manifest::at(config, "rbac/role.yaml").assert_permits(&permissions);
/// ```
#[derive(Clone, Debug)]
pub struct Manifest {
    path: PathBuf,
    /// The command that writes it.
    command: String,
    writes: bool,
}

impl Manifest {
    /// A file below a directory.
    pub fn at(directory: impl AsRef<Path>, path: &str) -> Self {
        let writes = std::env::var_os(WRITE).is_some();
        Self { path: directory.as_ref().join(path), command: format!("{WRITE}=1 cargo test"), writes }
    }

    /// Names the command that writes the file, for error messages.
    pub fn written_by(self, command: &str) -> Self {
        Self { command: command.to_owned(), ..self }
    }

    /// Asserts that the file has this object.
    ///
    /// # Panics
    /// If it does not. The message names the command that writes it.
    pub fn assert_is(&self, object: &impl Serialize) {
        let object = serde_json::to_value(object).expect("an object encodes");
        let text = self.text();
        let found = text.as_deref().map(|text| self.parsed(text));
        if found.as_ref() == Some(&object) {
            return;
        }
        let yaml = serde_saphyr::to_string(&object).expect("JSON can be written as YAML");
        self.write_or_fail(&(comments(text.as_deref().unwrap_or_default()) + &yaml), || match &found {
            Some(found) => format!("is not what the code says: {}", difference("", found, &object)),
            None => "does not exist".to_owned(),
        });
    }

    /// Asserts that the file has a role with rules for all of these requests. Writing it adds what is missing; what is
    /// there stays.
    ///
    /// # Panics
    /// If a rule is missing, with the missing rules and the command that adds them.
    pub fn assert_permits(&self, used: &Permissions) {
        let text = self.text().unwrap_or_else(|| panic!("{} does not exist", self.path.display()));
        let role = self.parsed(&text);
        let rules: Vec<PolicyRule> = match &role["rules"] {
            Value::Null => Vec::new(),
            rules => serde_json::from_value(rules.clone())
                .unwrap_or_else(|error| panic!("{}: rules: {error}", self.path.display())),
        };
        let missing = used.missing_in(&rules);
        if missing.is_empty() {
            return;
        }
        let all = merged(rules, missing.rules());
        self.write_or_fail(&with_rules(&text, &all), || {
            format!("lacks rules for what the controllers do:\n{missing}")
        });
    }

    fn text(&self) -> Option<String> {
        fs::read_to_string(&self.path).ok()
    }

    fn parsed(&self, text: &str) -> Value {
        serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{}: {error}", self.path.display()))
    }

    fn write_or_fail(&self, text: &str, why: impl FnOnce() -> String) {
        let shown = self.path.display();
        assert!(self.writes, "{shown} {}\nrun `{}`", why(), self.command);
        let directory = self.path.parent().expect("a file is in a directory");
        let written = fs::create_dir_all(directory).and_then(|()| fs::write(&self.path, text));
        written.unwrap_or_else(|error| panic!("cannot write {shown}: {error}"));
    }
}

/// Returns the comments at the start of a file.
fn comments(text: &str) -> String {
    text.lines().take_while(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect()
}

/// Adds rules. Verbs for a resource that has a rule of its own are added to that one.
fn merged(mut rules: Vec<PolicyRule>, missing: Vec<PolicyRule>) -> Vec<PolicyRule> {
    for rule in missing {
        let is_same = |known: &&mut PolicyRule| {
            known.api_groups == rule.api_groups
                && known.resources == rule.resources
                && known.resource_names.iter().flatten().next().is_none()
        };
        match rules.iter_mut().find(is_same) {
            Some(known) => known.verbs.extend(
                rule.verbs.iter().filter(|verb| !known.verbs.contains(verb)).cloned().collect::<Vec<_>>(),
            ),
            None => rules.push(rule),
        }
    }
    rules
}

/// Replaces the rules in the text of a role. What is around them stays.
fn with_rules(text: &str, rules: &[PolicyRule]) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.iter().position(|line| line.starts_with("rules:")).unwrap_or(lines.len());
    let is_rule =
        |line: &&&str| line.is_empty() || line.starts_with([' ', '-', '#']) && !line.starts_with("---");
    let count = lines.iter().skip(start + 1).take_while(is_rule).count();
    let mut all: Vec<String> = lines[..start].iter().map(|line| (*line).to_owned()).collect();
    all.push("rules:".to_owned());
    all.extend(rules.iter().map(rule_text));
    all.extend(lines.iter().skip(start + 1 + count).map(|line| (*line).to_owned()));
    all.join("\n") + "\n"
}

fn rule_text(rule: &PolicyRule) -> String {
    let fields = [
        ("apiGroups", rule.api_groups.clone()),
        ("resources", rule.resources.clone()),
        ("resourceNames", rule.resource_names.clone()),
        ("nonResourceURLs", rule.non_resource_urls.clone()),
        ("verbs", Some(rule.verbs.clone())),
    ];
    let quoted = |value: &String| match value.is_empty() || value.starts_with(['*', '/']) {
        true => format!("{value:?}"),
        false => value.clone(),
    };
    let given = fields
        .into_iter()
        .filter_map(|(name, values)| Some((name, values.filter(|values| !values.is_empty())?)));
    let lines = given.map(|(name, values)| {
        format!("{name}: [{}]", values.iter().map(quoted).collect::<Vec<_>>().join(", "))
    });
    format!("  - {}", lines.collect::<Vec<_>>().join("\n    "))
}

/// Returns the first path at which two objects differ, with both values.
fn difference(path: &str, one: &Value, other: &Value) -> String {
    if let (Value::Object(one), Value::Object(other)) = (one, other) {
        for name in one.keys().chain(other.keys()) {
            let (one, other) =
                (one.get(name).unwrap_or(&Value::Null), other.get(name).unwrap_or(&Value::Null));
            if one != other {
                return difference(&format!("{path}.{name}"), one, other);
            }
        }
    }
    if let (Value::Array(one), Value::Array(other)) = (one, other) {
        let pairs = one.iter().zip(other).enumerate().find(|(_, (one, other))| one != other);
        if let Some((nth, (one, other))) = pairs {
            return difference(&format!("{path}[{nth}]"), one, other);
        }
    }
    format!("{path} is {one}, expected {other}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(text: &str) -> PolicyRule {
        serde_json::from_value(serde_saphyr::from_str(text).expect("YAML")).expect("a rule")
    }

    #[test]
    fn rules_are_added_and_the_rest_of_the_file_stays() {
        let text = "# Mine.\nkind: ClusterRole\nrules:\n- apiGroups: [\"\"]\n  resources: [pods]\n  verbs: [get]\naggregationRule: x\n";
        let known = vec![rule("{apiGroups: [''], resources: [pods], verbs: [get]}")];
        let missing = vec![
            rule("{apiGroups: [''], resources: [pods], verbs: [get, list]}"),
            rule("{apiGroups: [apps], resources: [deployments/scale], verbs: [update]}"),
        ];
        let changed = with_rules(text, &merged(known, missing));
        assert_eq!(
            changed,
            "# Mine.\nkind: ClusterRole\nrules:\n  - apiGroups: [\"\"]\n    resources: [pods]\n    verbs: [get, list]\n  - apiGroups: [apps]\n    resources: [deployments/scale]\n    verbs: [update]\naggregationRule: x\n"
        );
        let all = rule("{apiGroups: ['*'], resources: ['*'], verbs: ['*'], resourceNames: [a]}");
        assert_eq!(
            rule_text(&all),
            "  - apiGroups: [\"*\"]\n    resources: [\"*\"]\n    resourceNames: [a]\n    verbs: [\"*\"]"
        );
    }

    #[test]
    fn a_file_is_compared_and_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let manifest = |writes| Manifest { writes, ..Manifest::at(directory.path(), "a/b.yaml") };
        let object = json!({"kind": "A", "spec": {"list": [1, 2]}});
        let fails = |object: &Value| {
            let (manifest, object) = (manifest(false), object.clone());
            let error = std::panic::catch_unwind(move || manifest.assert_is(&object)).expect_err("it fails");
            error.downcast_ref::<String>().cloned().unwrap_or_default()
        };
        assert!(fails(&object).contains("does not exist"));
        manifest(true).assert_is(&object);
        manifest(false).assert_is(&object);
        let changed = json!({"kind": "A", "spec": {"list": [1, 3]}});
        let message = fails(&changed);
        assert!(
            message.contains(".spec.list[1] is 2, expected 3\nrun `SETPOINT_WRITE_MANIFESTS=1 cargo test`"),
            "{message}"
        );
    }
}
