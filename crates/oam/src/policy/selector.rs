//! Selectors of rules.

use serde::Deserialize;
use serde_json::Value;

use crate::names;

/// A selector: all its conditions must hold. Without conditions it matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Selector {
    component_names: Vec<String>,
    component_types: Vec<String>,
    oam_types: Vec<String>,
    trait_types: Vec<String>,
    resource_types: Vec<String>,
    resource_names: Vec<String>,
}

/// The attributes that a selector matches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a>(pub(crate) &'a Value);

impl<'a> Subject<'a> {
    fn label(&self, name: &str) -> &'a str {
        self.0["metadata"]["labels"][name].as_str().unwrap_or_default()
    }
}

impl Selector {
    /// Returns whether an object with the labels of its application matches.
    pub(crate) fn matches(&self, subject: &Subject<'_>) -> bool {
        let object = subject.0;
        let conditions = [
            (&self.component_names, subject.label(names::APP_COMPONENT)),
            (&self.component_types, subject.label(names::WORKLOAD_TYPE)),
            (&self.oam_types, subject.label(names::RESOURCE_TYPE)),
            (&self.trait_types, subject.label(names::TRAIT_TYPE)),
            (&self.resource_types, object["kind"].as_str().unwrap_or_default()),
            (&self.resource_names, object["metadata"]["name"].as_str().unwrap_or_default()),
        ];
        let mut given = conditions.iter().filter(|(wanted, _)| !wanted.is_empty()).peekable();
        given.peek().is_some() && given.all(|(wanted, have)| wanted.iter().any(|one| one == have))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_conditions_have_to_hold_and_there_has_to_be_one() {
        let object = json!({"kind": "Deployment", "metadata": {"name": "a", "labels": {"app.oam.dev/component": "c"}}});
        let check = |selector: Value, expected: bool| {
            let selector: Selector = serde_json::from_value(selector).unwrap();
            assert_eq!(selector.matches(&Subject(&object)), expected, "{selector:?}");
        };
        check(json!({}), false);
        check(json!({"resourceTypes": ["Deployment"]}), true);
        check(json!({"resourceTypes": ["Deployment"], "componentNames": ["d"]}), false);
        check(json!({"resourceTypes": ["Job", "Deployment"], "componentNames": ["c"]}), true);
    }
}
