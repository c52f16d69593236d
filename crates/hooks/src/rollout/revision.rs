//! ControllerRevisions: earlier states of a parent, and the children that are still at them.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use setpoint::{Key, Kind};

use crate::apply::encode;
use crate::wire::{Objects, SyncAnswer, relative_key, relative_name};

/// A revision during a reconcile.
#[derive(Clone, Debug)]
pub(crate) struct Revision {
    /// The name of its ControllerRevision.
    pub(crate) name: String,
    /// The recorded fields of the parent.
    pub(crate) patch: Value,
    pub(crate) claims: Claims,
    /// The hook's response for it.
    pub(crate) answer: SyncAnswer,
    pub(crate) desired: Objects,
}

/// The children that a revision claims, as in `children` of a ControllerRevision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Claims(Vec<ClaimedKind>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClaimedKind {
    api_group: String,
    kind: String,
    names: Vec<String>,
}

impl ClaimedKind {
    fn is(&self, kind: &Kind) -> bool {
        self.api_group == kind.group() && self.kind == kind.kind()
    }
}

impl Claims {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|claimed| claimed.names.is_empty())
    }

    /// Returns the claimed children of known kinds. `namespace` is that of the parent.
    pub(crate) fn children<'a>(
        &'a self,
        known: &'a Objects,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a Kind, Key)> {
        self.0.iter().flat_map(move |claimed| {
            let kind = known.kind_named(&claimed.api_group, &claimed.kind);
            let keys = claimed.names.iter();
            kind.into_iter().flat_map(move |kind| {
                keys.clone().map(move |name| (kind, relative_key(namespace, kind, name)))
            })
        })
    }

    pub(crate) fn has(&self, kind: &Kind, namespace: Option<&str>, key: &Key) -> bool {
        let name = relative_name(namespace, key);
        self.0.iter().any(|claimed| claimed.is(kind) && claimed.names.contains(&name))
    }

    pub(crate) fn add(&mut self, kind: &Kind, namespace: Option<&str>, key: &Key) {
        let name = relative_name(namespace, key);
        let at = self.0.iter().position(|claimed| claimed.is(kind)).unwrap_or_else(|| {
            let (api_group, kind) = (kind.group().to_owned(), kind.kind().to_owned());
            self.0.push(ClaimedKind { api_group, kind, names: Vec::new() });
            self.0.len() - 1
        });
        if !self.0[at].names.contains(&name) {
            self.0[at].names.push(name);
        }
    }

    pub(crate) fn remove(&mut self, kind: &Kind, namespace: Option<&str>, key: &Key) {
        let name = relative_name(namespace, key);
        let claimed = self.0.iter_mut().filter(|claimed| claimed.is(kind));
        claimed.for_each(|claimed| claimed.names.retain(|known| *known != name));
        self.0.retain(|claimed| !claimed.names.is_empty());
    }
}

/// Returns the fields of a parent that are relevant for its revision.
pub(crate) fn patch_of(parent: &Value, paths: &[String]) -> Value {
    let mut patch = Map::new().into();
    for path in paths {
        if let Some(value) = field(parent, path) {
            set_field(&mut patch, path, value.clone());
        }
    }
    patch
}

/// Returns the parent at a revision.
pub(crate) fn patched(parent: &Value, patch: &Value, paths: &[String]) -> Value {
    let mut parent = parent.clone();
    for path in paths {
        if let Some(value) = field(patch, path) {
            set_field(&mut parent, path, value.clone());
        }
    }
    parent
}

fn field<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, name| value.get(name))
}

fn set_field(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for name in path.split('.') {
        if !at.is_object() {
            *at = Map::new().into();
        }
        at = &mut at[name];
    }
    *at = value;
}

/// The maximum length of an object name, and of the suffix: a dash and 40 digits.
const MAX_NAME: usize = 253;
const SUFFIX: usize = 41;

/// Returns the name of a revision: that of the parent's kind, and a digest of the parent's uid and the fields.
pub(crate) fn revision_name(parents: &Kind, uid: &str, patch: &Value) -> String {
    let group = if parents.group().is_empty() { "core" } else { parents.group() };
    let mut name = format!("{}.{group}", parents.plural());
    name.truncate(MAX_NAME - SUFFIX);
    let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(uid.as_bytes());
    digest.update(encode(patch).as_bytes());
    let digits: String = digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name}-{digits}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_revision_has_the_fields_that_the_author_named() {
        let parent = json!({"metadata": {"name": "a"}, "spec": {"template": {"image": "x"}, "replicas": 3}});
        let check = |paths: &[&str], expected: Value| {
            let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
            assert_eq!(patch_of(&parent, &paths), expected, "{paths:?}");
        };
        check(&["spec"], json!({"spec": parent["spec"]}));
        check(&["spec.template"], json!({"spec": {"template": {"image": "x"}}}));
        check(&["spec.template.image", "spec.missing"], json!({"spec": {"template": {"image": "x"}}}));
        let old =
            patched(&parent, &json!({"spec": {"template": {"image": "y"}}}), &["spec.template".to_owned()]);
        assert_eq!(old["spec"], json!({"template": {"image": "y"}, "replicas": 3}));
    }

    #[test]
    fn the_name_of_a_revision_is_metacontrollers() {
        let kind = Kind::new("example.com", "v1", "Set", "sets", true);
        let patch = json!({"spec": {"b": 1, "a": "<x>"}});
        // sha1sum of `uid-1{"spec":{"a":"\u003cx\u003e","b":1}}`
        let expected = "sets.example.com-12a1dc611e812b58584db09de8adbf1467fe949c";
        let name = revision_name(&kind, "uid-1", &patch);
        assert_eq!(name, expected);
        let long = Kind::new(&"g".repeat(300), "v1", "Set", "sets", true);
        assert_eq!(revision_name(&long, "uid-1", &patch).len(), MAX_NAME);
        assert!(
            revision_name(&Kind::new("", "v1", "Pod", "pods", true), "u", &patch).starts_with("pods.core-")
        );
    }

    #[test]
    fn claims_are_added_once_and_removed() {
        let pods = Kind::new("", "v1", "Pod", "pods", true);
        let (here, key) = (Some("here"), Key::namespaced("here", "a"));
        let mut claims = Claims::default();
        claims.add(&pods, here, &key);
        claims.add(&pods, here, &key);
        assert_eq!(json!(claims), json!([{"apiGroup": "", "kind": "Pod", "names": ["a"]}]));
        assert!(claims.has(&pods, here, &key));
        claims.remove(&pods, here, &key);
        assert!(claims.is_empty() && claims == Claims::default());
        claims.add(&pods, None, &key);
        assert_eq!(json!(claims), json!([{"apiGroup": "", "kind": "Pod", "names": ["here/a"]}]));
    }
}
