//! Overrides: changes to components at a deployment target.

use serde::Deserialize;
use serde_json::Value;

use super::Policies;
use crate::model::{Component, Trait};

/// An override policy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Override {
    components: Vec<ComponentPatch>,
    selector: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ComponentPatch {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    properties: Value,
    traits: Vec<TraitPatch>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TraitPatch {
    #[serde(rename = "type")]
    kind: String,
    properties: Value,
    disable: bool,
}

impl Policies {
    /// Returns the components as the named override and replication policies change them.
    pub(crate) fn overridden(&self, named: &[String], components: &[Component]) -> Vec<Component> {
        let mut changed = components.to_vec();
        for (_, policy) in self.overrides.iter().filter(|(name, _)| named.contains(name)) {
            changed = policy.apply(changed);
        }
        for (_, replication) in self.replications.iter().filter(|(name, _)| named.contains(name)) {
            let chosen =
                |name: &String| replication.selector.is_empty() || replication.selector.contains(name);
            changed = changed
                .into_iter()
                .flat_map(|component| match chosen(&component.name) {
                    true => replicas(&component, &replication.keys),
                    false => vec![component],
                })
                .collect();
        }
        changed
    }
}

fn replicas(component: &Component, keys: &[String]) -> Vec<Component> {
    keys.iter().map(|key| Component { replica_key: key.clone(), ..component.clone() }).collect()
}

impl Override {
    fn apply(&self, mut components: Vec<Component>) -> Vec<Component> {
        for patch in &self.components {
            let mut found = false;
            for component in components.iter_mut().filter(|component| patch.is_for(component)) {
                patch.apply(component);
                found = true;
            }
            if !found && patch.adds() {
                components.push(patch.component());
            }
        }
        if !self.selector.is_empty() {
            components.retain(|component| self.selector.iter().any(|name| matches(name, &component.name)));
        }
        components
    }
}

impl ComponentPatch {
    fn is_for(&self, component: &Component) -> bool {
        (self.name.is_empty() || matches(&self.name, &component.name))
            && (self.kind.is_empty() || !self.name.is_empty() || self.kind == component.kind)
    }

    /// A patch with a full name and a type that matches nothing adds a component.
    fn adds(&self) -> bool {
        !self.name.is_empty() && !self.name.contains('*') && !self.kind.is_empty()
    }

    fn component(&self) -> Component {
        let enabled = self.traits.iter().filter(|patch| !patch.disable);
        Component {
            name: self.name.clone(),
            kind: self.kind.clone(),
            properties: self.properties.clone(),
            traits: enabled.map(TraitPatch::attached).collect(),
            ..Component::default()
        }
    }

    fn apply(&self, component: &mut Component) {
        if !self.kind.is_empty() && self.kind != component.kind {
            // A different type has different properties.
            component.kind = self.kind.clone();
            component.properties = Value::Null;
        }
        merge(&mut component.properties, &self.properties);
        for patch in &self.traits {
            let found = component.traits.iter().position(|attached| attached.kind == patch.kind);
            match (found, patch.disable) {
                (Some(index), true) => drop(component.traits.remove(index)),
                (Some(index), false) => merge(&mut component.traits[index].properties, &patch.properties),
                (None, false) => component.traits.push(patch.attached()),
                (None, true) => {}
            }
        }
    }
}

impl TraitPatch {
    fn attached(&self) -> Trait {
        Trait { kind: self.kind.clone(), properties: self.properties.clone() }
    }
}

/// Merges objects deeply; lists and scalars are replaced.
fn merge(base: &mut Value, patch: &Value) {
    match (base, patch) {
        (_, Value::Null) => {}
        (Value::Object(base), Value::Object(patch)) => {
            for (name, value) in patch {
                merge(base.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (base, patch) => base.clone_from(patch),
    }
}

/// Matches a name with a pattern in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::Policy;

    fn overridden(patch: Value) -> Vec<Component> {
        let policy =
            Policy { name: "o".into(), kind: "override".into(), properties: json!({"components": [patch]}) };
        let web = json!({"name": "web", "type": "webservice", "properties": {"image": "a", "env": [1]},
            "traits": [{"type": "scaler", "properties": {"replicas": 1}}]});
        let components = [serde_json::from_value(web).unwrap()];
        Policies::parse(&[policy]).unwrap().overridden(&["o".to_owned()], &components)
    }

    #[test]
    fn properties_and_traits_are_merged() {
        let changed = overridden(json!({"type": "webservice", "properties": {"env": [2]}, "traits": [
            {"type": "scaler", "properties": {"replicas": 3}}, {"type": "labels", "properties": {"a": "b"}}]}));
        assert_eq!(changed[0].properties, json!({"image": "a", "env": [2]}));
        assert_eq!(changed[0].traits[0].properties, json!({"replicas": 3}));
        assert_eq!(changed[0].traits[1].kind, "labels");
    }

    #[test]
    fn traits_can_be_disabled_and_components_added() {
        let changed = overridden(json!({"name": "w*", "traits": [{"type": "scaler", "disable": true}]}));
        assert!(changed[0].traits.is_empty());
        let changed = overridden(json!({"name": "db", "type": "worker"}));
        assert_eq!(changed.len(), 2);
    }

    #[test]
    fn a_pattern_matches_any_text() {
        for (pattern, name, expected) in [
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("a*d", "abc", false),
            ("abc", "abcd", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
