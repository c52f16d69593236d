//! What is added to the objects that a program writes: owner, labels, marks.                                  (pure)
//!
//! An object that its owner may own gets an owner reference, so that it is deleted with its owner. Others get the
//! annotations of the Operator SDK: an owner in a namespace cannot own objects elsewhere.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use setpoint::{Key, Kind, Metadata};

use crate::names::{PRIMARY_RESOURCE, PRIMARY_RESOURCE_TYPE, RELEASE_FAILED, RELEASE_INPUTS, RELEASE_OF};

const RESOURCE_POLICY: &str = "helm.sh/resource-policy";
/// The type of the Secrets in which Helm keeps releases.
pub(crate) const RELEASE_TYPE: &str = "helm.sh/release.v1";

/// The object that a program runs for.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) kind: Kind,
    pub(crate) key: Key,
    pub(crate) uid: String,
}

impl Owner {
    pub(crate) fn new(kind: &Kind, meta: &Metadata) -> Self {
        let key = Key::in_namespace(meta.namespace.as_deref(), &*meta.name);
        Self { kind: kind.clone(), key, uid: meta.uid.to_string() }
    }

    /// Whether it can own an object in this namespace.
    fn can_own(&self, namespace: Option<&str>) -> bool {
        !self.kind.namespaced() || self.key.namespace() == namespace
    }

    /// `Kind.group`, as the Operator SDK writes it.
    pub(crate) fn group_kind(&self) -> String {
        match self.kind.group() {
            "" => self.kind.kind().to_owned(),
            group => format!("{}.{group}", self.kind.kind()),
        }
    }

    /// `namespace/name`, as the Operator SDK writes it.
    fn full_name(&self) -> String {
        format!("{}/{}", self.key.namespace().unwrap_or_default(), self.key.name())
    }
}

/// What is added to objects.
#[derive(Clone, Debug)]
pub(crate) struct Adoption {
    pub(crate) owner: Owner,
    /// Whether the owner is the managing controller.
    pub(crate) controls: bool,
    pub(crate) labels: BTreeMap<String, String>,
}

impl Adoption {
    /// Adds the owner and the labels to an object in a namespace.
    pub(crate) fn adopt(&self, object: &mut Value, namespace: Option<&str>) {
        for (name, value) in &self.labels {
            put(object, "labels", name, value);
        }
        let keeps = self.controls && is_kept(object);
        if self.owner.can_own(namespace) && !keeps {
            self.add_reference(object);
        } else {
            put(object, "annotations", PRIMARY_RESOURCE, &self.owner.full_name());
            put(object, "annotations", PRIMARY_RESOURCE_TYPE, &self.owner.group_kind());
        }
    }

    fn add_reference(&self, object: &mut Value) {
        let Owner { kind, key, uid } = &self.owner;
        let mut reference = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind(), "name": key.name(), "uid": uid,
        });
        if self.controls {
            reference["controller"] = true.into();
            reference["blockOwnerDeletion"] = true.into();
        }
        let Some(metadata) = members(object, "metadata") else { return };
        let references = metadata.entry("ownerReferences").or_insert(Value::Null);
        if !references.is_array() {
            *references = json!([]);
        }
        let references = references.as_array_mut().into_iter().next();
        if let Some(references) = references
            && !references.iter().any(|known| known["uid"] == uid.as_str())
        {
            references.push(reference);
        }
    }
}

/// The marks of the releases that a run creates: annotations of Helm's Secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReleaseMarks {
    pub(crate) release: String,
    /// The uid of the object that the release is of.
    pub(crate) of: String,
    /// A digest of the chart and the values.
    pub(crate) inputs: String,
    /// The digest of those that failed, if this is a rollback.
    pub(crate) failed: Option<String>,
    /// The annotations of the release's older revisions, by the name of their Secret.
    pub(crate) known: BTreeMap<String, BTreeMap<String, String>>,
}

impl ReleaseMarks {
    /// Whether this is a revision of the release.
    pub(crate) fn concerns(&self, secret: &Value) -> bool {
        let labels = &secret["metadata"]["labels"];
        secret["type"] == RELEASE_TYPE && labels["owner"] == "helm" && labels["name"] == self.release.as_str()
    }

    /// Marks a revision. Helm replaces Secrets without their annotations, so older revisions get theirs again.
    pub(crate) fn mark(&self, secret: &mut Value) {
        let name = secret["metadata"]["name"].as_str().unwrap_or_default();
        let annotations = match self.known.get(name) {
            Some(known) => known.clone(),
            None => self.annotations(),
        };
        for (name, value) in annotations {
            put(secret, "annotations", &name, &value);
        }
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        let marks = [
            (RELEASE_OF, Some(&self.of)),
            (RELEASE_INPUTS, Some(&self.inputs)),
            (RELEASE_FAILED, self.failed.as_ref()),
        ];
        marks.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.clone()))).collect()
    }
}

/// Whether Helm keeps an object when its release is uninstalled.
pub(crate) fn is_kept(object: &Value) -> bool {
    let policy = object["metadata"]["annotations"][RESOURCE_POLICY].as_str().unwrap_or_default();
    policy.trim().eq_ignore_ascii_case("keep")
}

/// Sets a label or an annotation.
pub(crate) fn put(object: &mut Value, field: &str, name: &str, value: &str) {
    let Some(metadata) = members(object, "metadata") else { return };
    let values = metadata.entry(field).or_insert(Value::Null);
    if !values.is_object() {
        *values = Map::new().into();
    }
    if let Some(values) = values.as_object_mut() {
        values.insert(name.to_owned(), value.into());
    }
}

/// Returns the fields of an object in a field, creating it if necessary.
fn members<'a>(object: &'a mut Value, field: &str) -> Option<&'a mut Map<String, Value>> {
    let value = object.as_object_mut()?.entry(field).or_insert(Value::Null);
    if !value.is_object() {
        *value = Map::new().into();
    }
    value.as_object_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adoption(controls: bool) -> Adoption {
        let kind = Kind::new("example.com", "v1", "Shop", "shops", true);
        let owner = Owner { kind, key: Key::namespaced("a", "shop"), uid: "u1".into() };
        Adoption { owner, controls, labels: [("chart".to_owned(), "shop".to_owned())].into() }
    }

    fn adopted(controls: bool, namespace: Option<&str>, mut object: Value) -> Value {
        adoption(controls).adopt(&mut object, namespace);
        object["metadata"].take()
    }

    #[test]
    fn an_object_in_the_namespace_of_its_owner_gets_an_owner_reference() {
        let found = adopted(true, Some("a"), json!({"metadata": {"name": "x", "labels": null}}));
        assert_eq!(found["labels"], json!({"chart": "shop"}));
        let expected = json!([{"apiVersion": "example.com/v1", "kind": "Shop", "name": "shop", "uid": "u1",
            "controller": true, "blockOwnerDeletion": true}]);
        assert_eq!(found["ownerReferences"], expected);
        let again = adopted(true, Some("a"), json!({"metadata": found.clone()}));
        assert_eq!(again, found, "once is enough");
        let plain = adopted(false, Some("a"), json!({}));
        assert_eq!(plain["ownerReferences"][0].get("controller"), None);
    }

    #[test]
    fn other_objects_get_annotations() {
        let annotations = json!({PRIMARY_RESOURCE: "a/shop", PRIMARY_RESOURCE_TYPE: "Shop.example.com"});
        for namespace in [None, Some("b")] {
            let found = adopted(true, namespace, json!({"metadata": {"name": "x"}}));
            assert_eq!((&found["annotations"], found.get("ownerReferences")), (&annotations, None));
        }
        let kept = adopted(true, Some("a"), json!({"metadata": {"annotations": {RESOURCE_POLICY: " Keep"}}}));
        assert_eq!(kept["annotations"][PRIMARY_RESOURCE], "a/shop");
        assert_eq!(kept.get("ownerReferences"), None, "the garbage collector must not delete it");
    }

    #[test]
    fn a_new_revision_is_marked_and_an_older_one_keeps_its_marks() {
        let marks = ReleaseMarks {
            release: "shop".into(),
            of: "u1".into(),
            inputs: "new".into(),
            failed: None,
            known: [("v1".to_owned(), [(RELEASE_INPUTS.to_owned(), "old".to_owned())].into())].into(),
        };
        let secret = |name: &str| json!({"type": RELEASE_TYPE, "metadata": {"name": name, "labels": {"owner": "helm", "name": "shop"}}});
        assert!(marks.concerns(&secret("v1")) && !marks.concerns(&json!({"type": "Opaque"})));
        let marked = |name: &str| {
            let mut secret = secret(name);
            marks.mark(&mut secret);
            secret["metadata"]["annotations"].take()
        };
        assert_eq!(marked("v1"), json!({RELEASE_INPUTS: "old"}));
        assert_eq!(marked("v2"), json!({RELEASE_INPUTS: "new", RELEASE_OF: "u1"}));
    }
}
