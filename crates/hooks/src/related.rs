//! Related objects: the rules that a customize hook answers with, and what they select.                       (pure)
//!
//! A rule selects by labels, names, namespace or namespace selector. In version 1 of the protocol, a namespaced parent
//! only sees its own namespace.

use serde::Deserialize;
use serde_json::Value;
use setpoint::{Key, LabelSelector, Labels};

use crate::model::HookVersion;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RelatedRule {
    pub(crate) api_version: String,
    pub(crate) resource: String,
    pub(crate) label_selector: Option<LabelSelector>,
    pub(crate) namespace_selector: Option<LabelSelector>,
    #[serde(default, deserialize_with = "setpoint::null_is_empty")]
    pub(crate) namespace: String,
    #[serde(default, deserialize_with = "setpoint::null_is_empty")]
    pub(crate) names: Vec<String>,
}

const KNOWN: &[&str] =
    &["apiVersion", "resource", "labelSelector", "namespaceSelector", "namespace", "names"];

/// The scope in which a rule selects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visibility<'a> {
    pub(crate) version: HookVersion,
    /// The namespace of the parent.
    pub(crate) namespace: Option<&'a str>,
    /// Whether the kind of the related objects has namespaces.
    pub(crate) namespaced: bool,
}

impl Visibility<'_> {
    /// Whether only the parent's namespace is visible.
    fn is_confined(&self) -> bool {
        self.version == HookVersion::V1 && self.namespace.is_some() && self.namespaced
    }
}

impl RelatedRule {
    /// Reads a rule. The error starts with the path of the field.
    pub(crate) fn read(value: &Value, strict: bool) -> Result<Self, String> {
        let fields = value.as_object().ok_or_else(|| format!(": expected an object, found {value}"))?;
        if strict && let Some(unknown) = fields.keys().find(|name| !KNOWN.contains(&name.as_str())) {
            return Err(format!(": unknown field {unknown:?}"));
        }
        let rule: Self = serde_json::from_value(value.clone()).map_err(|error| format!(": {error}"))?;
        match (rule.api_version.is_empty(), rule.resource.is_empty()) {
            (true, _) => Err(".apiVersion: expected a version such as v1".into()),
            (_, true) => Err(".resource: expected a plural name such as pods".into()),
            _ => rule.check().map(|()| rule),
        }
    }

    fn check(&self) -> Result<(), String> {
        let selects = self.label_selector.is_some() || self.namespace_selector.is_some();
        if !self.names.is_empty() && selects {
            return Err(".names: cannot be combined with labelSelector or namespaceSelector".into());
        }
        if !self.namespace.is_empty() && self.namespace_selector.is_some() {
            return Err(".namespace: cannot be combined with namespaceSelector".into());
        }
        Ok(())
    }

    /// Returns why a parent cannot use this rule.
    pub(crate) fn check_for(&self, visibility: Visibility<'_>) -> Result<(), String> {
        if self.namespace_selector.is_some() && !visibility.namespaced {
            return Err(format!("namespaceSelector: {} have no namespaces", self.resource));
        }
        if visibility.is_confined() && self.namespace_selector.is_some() {
            return Err("namespaceSelector: a namespaced parent needs version v2 of the hook for it".into());
        }
        let own = visibility.namespace.unwrap_or_default();
        if visibility.is_confined() && !self.namespace.is_empty() && self.namespace != own {
            let Self { namespace, .. } = self;
            return Err(format!(
                "namespace {namespace}: a parent in {own} needs version v2 of the hook to see another"
            ));
        }
        Ok(())
    }

    /// Returns the namespace of all selected objects, if there is only one.
    pub(crate) fn only_namespace<'a>(&'a self, visibility: Visibility<'a>) -> Option<&'a str> {
        match visibility {
            _ if !visibility.namespaced => None,
            _ if visibility.is_confined() => visibility.namespace,
            _ => Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty()),
        }
    }

    /// Returns whether an object of the rule's kind is selected. `labels_of` returns the labels of a namespace.
    pub(crate) fn selects(
        &self,
        visibility: Visibility<'_>,
        key: &Key,
        labels: &Labels,
        labels_of: impl Fn(&str) -> Option<Labels>,
    ) -> bool {
        if self.check_for(visibility).is_err() {
            return false;
        }
        if let Some(only) = self.only_namespace(visibility)
            && key.namespace() != Some(only)
        {
            return false;
        }
        let by_namespace = self.namespace_selector.as_ref().is_none_or(|selector| {
            key.namespace().and_then(labels_of).is_some_and(|labels| selector.matches(&labels))
        });
        let by_name = self.names.is_empty() || self.names.iter().any(|name| name == key.name());
        let by_label = self.label_selector.as_ref().is_none_or(|selector| selector.matches(labels));
        by_namespace && by_name && by_label
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HERE: Option<&str> = Some("here");

    fn rule(more: Value) -> Result<RelatedRule, String> {
        let mut value = json!({"apiVersion": "v1", "resource": "configmaps"});
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        RelatedRule::read(&value, true)
    }

    fn selected(more: Value, version: HookVersion, namespace: Option<&str>) -> Vec<String> {
        let rule = rule(more).expect("a rule");
        let visibility = Visibility { version, namespace, namespaced: true };
        let all = [("here", "a", "red"), ("here", "b", "blue"), ("there", "a", "red")];
        let labels_of = |name: &str| Some([("zone", name)].into_iter().collect());
        let selected = all.iter().filter(|(namespace, name, colour)| {
            let labels = [("colour", *colour)].into_iter().collect();
            rule.selects(visibility, &Key::namespaced(namespace, name), &labels, labels_of)
        });
        selected.map(|(namespace, name, _)| format!("{namespace}/{name}")).collect()
    }

    #[test]
    fn a_rule_selects_by_labels_names_and_namespaces() {
        let check = |more: Value, version, namespace, expected: &[&str]| {
            assert_eq!(selected(more.clone(), version, namespace), expected, "{more}");
        };
        let (v1, v2) = (HookVersion::V1, HookVersion::V2);
        let red = json!({"labelSelector": {"matchLabels": {"colour": "red"}}});
        check(json!({}), v1, HERE, &["here/a", "here/b"]);
        check(json!({}), v2, HERE, &["here/a", "here/b", "there/a"]);
        check(json!({}), v1, None, &["here/a", "here/b", "there/a"]);
        check(red.clone(), v1, HERE, &["here/a"]);
        check(red.clone(), v2, HERE, &["here/a", "there/a"]);
        check(json!({"names": ["b"]}), v1, HERE, &["here/b"]);
        check(json!({"names": ["a"]}), v2, HERE, &["here/a", "there/a"]);
        check(json!({"namespace": "there"}), v2, HERE, &["there/a"]);
        check(json!({"namespace": "there"}), v1, None, &["there/a"]);
        check(json!({"namespace": "there"}), v1, HERE, &[]);
        check(json!({"namespace": "here", "names": ["a"]}), v1, HERE, &["here/a"]);
        let zone = json!({"namespaceSelector": {"matchLabels": {"zone": "there"}}});
        check(zone.clone(), v2, HERE, &["there/a"]);
        check(zone.clone(), v1, None, &["there/a"]);
        check(zone, v1, HERE, &[]);
    }

    #[test]
    fn combinations_that_contradict_each_other_are_refused() {
        let check = |more: Value, field: &str| {
            let error = rule(more).expect_err(field);
            assert!(error.starts_with(field), "{error}");
        };
        check(json!({"names": ["a"], "labelSelector": {}}), ".names:");
        check(json!({"names": ["a"], "namespaceSelector": {}}), ".names:");
        check(json!({"namespace": "a", "namespaceSelector": {}}), ".namespace:");
        check(json!({"resource": ""}), ".resource:");
        check(json!({"labels": {}}), ": unknown field");
        assert!(
            RelatedRule::read(&json!({"apiVersion": "v1", "resource": "pods", "labels": {}}), false).is_ok()
        );
    }

    #[test]
    fn a_namespaced_parent_of_version_1_sees_its_own_namespace_only() {
        let visibility = Visibility { version: HookVersion::V1, namespace: HERE, namespaced: true };
        let other = rule(json!({"namespace": "there"})).expect("a rule");
        assert!(other.check_for(visibility).is_err());
        assert!(other.check_for(Visibility { version: HookVersion::V2, ..visibility }).is_ok());
        let zone = rule(json!({"namespaceSelector": {}})).expect("a rule");
        assert!(zone.check_for(visibility).is_err());
        assert!(zone.check_for(Visibility { namespaced: false, namespace: None, ..visibility }).is_err());
    }
}
