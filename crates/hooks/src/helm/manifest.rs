//! Manifests of releases: the objects in them, and what they look like in the cluster.                        (pure)

use serde_json::{Value, json};
use setpoint::Key;

use crate::gateway::Adoption;

/// The most objects of a release that are followed. A release of 1 MiB can have a few thousand.
pub(super) const MAX_OBJECTS: usize = 10_000;
/// The largest manifest that is read: decoded objects take many times more.
const MAX_MANIFEST: usize = 8 << 20;
/// The largest manifest that is shown in a status. An object has at most 1.5 MiB.
const MAX_SHOWN: usize = 512 << 10;

/// Reads the objects of a manifest. Lists are resolved.
pub(super) fn objects(manifest: &str) -> Result<Vec<Value>, String> {
    if manifest.len() > MAX_MANIFEST {
        return Err(format!("the manifest is larger than {MAX_MANIFEST} bytes"));
    }
    let mut objects = Vec::new();
    for document in documents(manifest) {
        let value: Value =
            serde_saphyr::from_str(document).map_err(|error| format!("the manifest is no YAML: {error}"))?;
        flatten(value, &mut objects);
        if objects.len() > MAX_OBJECTS {
            return Err(format!("the manifest has more than {MAX_OBJECTS} objects"));
        }
    }
    Ok(objects)
}

fn flatten(value: Value, objects: &mut Vec<Value>) {
    let is_list =
        value["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) && value["items"].is_array();
    match value {
        Value::Object(mut fields) if is_list => {
            let items = fields.remove("items").unwrap_or_default();
            items.as_array().into_iter().flatten().for_each(|item| flatten(item.clone(), objects));
        }
        Value::Object(_) => objects.push(value),
        _ => {}
    }
}

/// Splits a manifest at the lines that begin a document.
fn documents(manifest: &str) -> Vec<&str> {
    let (mut documents, mut start, mut at) = (Vec::new(), 0, 0);
    for line in manifest.split_inclusive('\n') {
        if line.starts_with("---") {
            documents.push(&manifest[start..at]);
            start = at + 3;
        }
        at += line.len();
    }
    documents.push(&manifest[start.min(manifest.len())..]);
    documents
        .retain(|document| document.lines().any(|line| !line.trim().is_empty() && !line.starts_with('#')));
    documents
}

/// Returns a manifest as it is shown in a status: without the values of Secrets. `None` if it is too long.
pub(super) fn shown(manifest: &str) -> Option<String> {
    if manifest.len() > MAX_SHOWN {
        return None;
    }
    let (mut shown, mut at) = (String::with_capacity(manifest.len()), 0);
    for document in documents(manifest) {
        // A document is a part of the manifest.
        let start = document.as_ptr() as usize - manifest.as_ptr() as usize;
        shown.push_str(&manifest[at..start]);
        match document.contains("Secret") {
            true => shown.push_str(&masked(document)),
            false => shown.push_str(document),
        }
        at = start + document.len();
    }
    shown.push_str(&manifest[at..]);
    (shown.len() <= MAX_SHOWN).then_some(shown)
}

/// Returns a document without the values of Secrets, also of those in lists.
fn masked(document: &str) -> String {
    let Ok(mut object) = serde_saphyr::from_str::<Value>(document) else { return "\n".to_owned() };
    if !mask(&mut object) {
        return document.to_owned();
    }
    let source = document.lines().find(|line| line.starts_with("# Source:"));
    let source = source.map(|line| format!("{line}\n")).unwrap_or_default();
    format!("\n{source}{}", serde_saphyr::to_string(&object).unwrap_or_default())
}

/// Masks the values of Secrets. Returns whether there were any.
fn mask(object: &mut Value) -> bool {
    let mut has_masked = false;
    for item in object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        has_masked |= mask(item);
    }
    if object.get("kind").is_some_and(|kind| kind == "Secret") {
        for field in ["data", "stringData"] {
            let values = object.get_mut(field).and_then(Value::as_object_mut);
            for (_, value) in values.into_iter().flatten() {
                *value = "(masked)".into();
                has_masked = true;
            }
        }
    }
    has_masked
}

/// Returns an object of a manifest as Helm applies it, with what is added to it.
pub(super) fn applied(object: &Value, key: &Key, release: &Key, adoption: &Adoption) -> Value {
    let mut object = object.clone();
    let namespace = release.namespace().unwrap_or_default();
    let fields = json!({
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"meta.helm.sh/release-name": release.name(), "meta.helm.sh/release-namespace": namespace},
    });
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    for field in ["labels", "annotations"] {
        for (name, value) in fields[field].as_object().into_iter().flatten() {
            crate::gateway::put(&mut object, field, name, value.as_str().unwrap_or_default());
        }
    }
    adoption.adopt(&mut object, key.namespace());
    if let Some(namespace) = key.namespace() {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "---
# Source: shop/templates/a.yaml
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data:
  text: |
    a
     --- b
---
# Source: shop/templates/empty.yaml
# nothing
---
# Source: shop/templates/s.yaml
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {password: hunter2}
--- # a list
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: b}}
";

    #[test]
    fn the_objects_of_a_manifest_are_read() {
        let objects = objects(MANIFEST).expect("it is valid");
        let names: Vec<_> =
            objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap_or_default()).collect();
        assert_eq!(names, ["a", "s", "b"]);
        assert_eq!(objects[0]["data"]["text"], "a\n --- b\n");
        assert!(super::objects("---\na: [").is_err());
        assert!(
            super::objects(&"a: 1\n---\n".repeat(MAX_MANIFEST / 8))
                .expect_err("too long")
                .contains("larger than")
        );
        assert_eq!(super::objects("").expect("nothing"), Vec::<Value>::new());
    }

    #[test]
    fn the_values_of_secrets_are_not_shown() {
        let text = shown(MANIFEST).expect("it is short");
        assert!(
            !text.contains("hunter2")
                && text.contains("(masked)")
                && text.contains("# Source: shop/templates/s.yaml")
        );
        assert_eq!(objects(&text).expect("it is valid").len(), 3);
        for hidden in [
            "kind: \"Secret\"\nstringData: {a: hunter2}\n",
            "{kind: Secret, data: {a: hunter2}}",
            "kind: List\nitems:\n- kind: Secret\n  stringData: {a: hunter2}\n",
            "---\na: 1\n---\n  kind: Secret\n  data: {a: hunter2}\n---\nb: 1\n",
        ] {
            let text = shown(hidden).expect("it is short");
            assert!(!text.contains("hunter2") && text.contains("(masked)"), "{text}");
        }
        let other = "---\n# Secret\nkind: ConfigMap\ndata: {a: 'Secret'}\n--- \n# the end\n";
        assert_eq!(shown(other).as_deref(), Some(other));
        assert_eq!(shown(&"x".repeat(MAX_SHOWN + 1)), None);
    }
}
