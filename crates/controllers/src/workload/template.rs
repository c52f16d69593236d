//! Pod templates: kept encoded, compared, hashed, turned into pods.
//!
//! The pod spec is never decoded. The body of a new pod is the template's bytes with new metadata in front. Two
//! templates are equal if their bytes are, or if they mean the same.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use setpoint::{Labels, OwnerRef, Rng};
use setpoint_quantity::Quantity;

/// The label that separates a Deployment's ReplicaSets and their pods.
pub(crate) const HASH_LABEL: &str = "pod-template-hash";

/// A pod template.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct PodTemplate {
    #[serde(default)]
    pub(crate) metadata: TemplateMetadata,
    #[serde(default = "empty_object")]
    pub(crate) spec: Box<RawValue>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TemplateMetadata {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) name: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) generate_name: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) namespace: Box<str>,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub(crate) labels: Labels,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub(crate) annotations: Labels,
    #[serde(skip_serializing_if = "<[Box<str>]>::is_empty")]
    pub(crate) finalizers: Box<[Box<str>]>,
}

/// The body of a pod created from a template.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewPod<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: NewPodMetadata<'a>,
    spec: &'a RawValue,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewPodMetadata<'a> {
    name: &'a str,
    generate_name: &'a str,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    labels: &'a Labels,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    annotations: &'a Labels,
    #[serde(skip_serializing_if = "<[Box<str>]>::is_empty")]
    finalizers: &'a [Box<str>],
    owner_references: [&'a OwnerRef; 1],
}

impl PodTemplate {
    /// Returns a pod of this template, owned by `owner`.
    pub(crate) fn pod<'a>(
        &'a self,
        name: &'a str,
        generate_name: &'a str,
        owner: &'a OwnerRef,
    ) -> NewPod<'a> {
        NewPod {
            api_version: "v1",
            kind: "Pod",
            metadata: NewPodMetadata {
                name,
                generate_name,
                labels: &self.metadata.labels,
                annotations: &self.metadata.annotations,
                finalizers: &self.metadata.finalizers,
                owner_references: [owner],
            },
            spec: &self.spec,
        }
    }

    /// Returns the template with its hash as a label.
    pub(crate) fn with_hash(&self, hash: &str) -> Self {
        let mut template = self.clone();
        template.metadata.labels = with_label(&self.metadata.labels, HASH_LABEL, hash);
        template
    }

    /// Returns the template without the hash label.
    pub(crate) fn without_hash(&self) -> Self {
        let mut template = self.clone();
        template.metadata.labels = unhashed(&self.metadata.labels).collect();
        template
    }

    /// Whether both produce the same pods, ignoring the hash label.
    pub(crate) fn same_pods_as(&self, other: &Self) -> bool {
        self.metadata.same_as(&other.metadata)
            && (self.spec.get() == other.spec.get() || mean_the_same(&self.spec, &other.spec))
    }

    /// Returns a hash of the template in characters that spell no words. A collision with another template changes the
    /// hash through the collision count.
    pub(crate) fn hash(&self, collision_count: Option<i32>) -> String {
        let mut hasher = Fnv1a::default();
        let metadata = serde_json::to_vec(&self.metadata).unwrap_or_default();
        hasher.write(&metadata);
        hasher.write(canonical(&self.spec).as_bytes());
        if let Some(count) = collision_count {
            hasher.write(&i64::from(count).to_le_bytes());
        }
        safe_encode(hasher.0)
    }
}

impl TemplateMetadata {
    /// Whether both are equal, ignoring the hash label.
    fn same_as(&self, other: &Self) -> bool {
        let Self { name, generate_name, namespace, labels, annotations, finalizers } = self;
        unhashed(labels).eq(unhashed(&other.labels))
            && *annotations == other.annotations
            && *finalizers == other.finalizers
            && (name, generate_name, namespace) == (&other.name, &other.generate_name, &other.namespace)
    }
}

/// Adds a label.
pub(crate) fn with_label(labels: &Labels, key: &str, value: &str) -> Labels {
    labels.iter().filter(|(known, _)| *known != key).chain([(key, value)]).collect()
}

fn unhashed(labels: &Labels) -> impl Iterator<Item = (&str, &str)> {
    labels.iter().filter(|(key, _)| *key != HASH_LABEL)
}

/// Whether two specs differ only in notation: key order, empty values, or quantity formats (`1Gi`, `1024Mi`).
fn mean_the_same(a: &RawValue, b: &RawValue) -> bool {
    match (serde_json::from_str(a.get()), serde_json::from_str(b.get())) {
        (Ok(a), Ok(b)) => same(&a, &b, Holds::Anything),
        _ => false,
    }
}

/// The kind of values in an object's fields.
#[derive(Clone, Copy, PartialEq)]
enum Holds {
    Anything,
    Quantities,
}

impl Holds {
    fn below(field: &str) -> Self {
        match field {
            "limits" | "requests" | "overhead" | "sizeLimit" | "divisor" => Self::Quantities,
            _ => Self::Anything,
        }
    }
}

fn same(a: &Value, b: &Value, holds: Holds) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let one_way = |a: &Map<String, Value>, b: &Map<String, Value>| {
                a.iter().all(|(field, value)| {
                    let holds = if holds == Holds::Quantities { holds } else { Holds::below(field) };
                    same(value, b.get(field).unwrap_or(&Value::Null), holds)
                })
            };
            one_way(a, b) && one_way(b, a)
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b, Holds::Anything))
        }
        _ if is_empty(a) && is_empty(b) => true,
        _ if holds == Holds::Quantities => match (Quantity::of(a), Quantity::of(b)) {
            (Ok(a), Ok(b)) => a == b,
            _ => a == b,
        },
        _ => a == b,
    }
}

/// Returns a canonical text, independent of key order and empty values, for hashing.
fn canonical(raw: &RawValue) -> String {
    match serde_json::from_str::<Value>(raw.get()) {
        Ok(value) => meaning(value).to_string(),
        Err(_) => raw.get().to_owned(),
    }
}

/// Removes nulls and empty containers, and sorts keys.
fn meaning(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(meaning).collect(),
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.into_iter().map(|(key, value)| (key, meaning(value))).collect();
            fields.retain(|(_, value)| !is_empty(value));
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(fields.into_iter().collect())
        }
        scalar => scalar,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn empty_object() -> Box<RawValue> {
    serde_json::value::to_raw_value(&serde_json::Map::new()).expect("an empty map encodes")
}

/// The 32-bit FNV-1a hash.
struct Fnv1a(u32);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(0x811c_9dc5)
    }
}

impl Fnv1a {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }
}

/// Maps the decimal digits of a number to the alphabet of generated names.
fn safe_encode(number: u32) -> String {
    let letter = |digit: u8| Rng::SUFFIX_ALPHABET[usize::from(digit) % Rng::SUFFIX_ALPHABET.len()];
    number.to_string().bytes().map(|digit| char::from(letter(digit))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(value: Value) -> PodTemplate {
        serde_json::from_str(&value.to_string()).unwrap()
    }

    fn plain() -> PodTemplate {
        template(
            json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}),
        )
    }

    #[test]
    fn templates_are_the_same_when_they_mean_the_same() {
        let check = |other: &str, expected: bool| {
            let other: PodTemplate = serde_json::from_str(other).unwrap();
            assert_eq!(plain().same_pods_as(&other), expected, "{other:?}");
            assert_eq!(other.same_pods_as(&plain()), expected, "{other:?}, the other way round");
        };
        check(
            r#"{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i:1"}]}}"#,
            true,
        );
        check(
            r#"{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"image":"i:1","name":"c"}]}}"#,
            true,
        );
        check(
            r#"{"metadata":{"creationTimestamp":null,"labels":{"app":"a","pod-template-hash":"x"}},
                "spec":{"volumes":null,"nodeSelector":{},"containers":[{"name":"c","image":"i:1","ports":[]}]}}"#,
            true,
        );
        check(
            r#"{"metadata":{"labels":{"app":"b"}},"spec":{"containers":[{"name":"c","image":"i:1"}]}}"#,
            false,
        );
        check(
            r#"{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i:2"}]}}"#,
            false,
        );
        check(
            r#"{"metadata":{"labels":{"app":"a"},"annotations":{"x":"1"}},
                "spec":{"containers":[{"name":"c","image":"i:1"}]}}"#,
            false,
        );
        check(
            r#"{"metadata":{"labels":{"app":"a"}},"spec":{"hostNetwork":false,"containers":[{"name":"c","image":"i:1"}]}}"#,
            false,
        );
    }

    #[test]
    fn equal_quantities_are_the_same_in_any_notation() {
        let with = |memory: Value| {
            template(
                json!({"spec": {"containers": [{"resources": {"limits": {"memory": memory}}}], "hostname": "1Gi"}}),
            )
        };
        assert!(with(json!("1Gi")).same_pods_as(&with(json!("1024Mi"))));
        assert!(with(json!("1Gi")).same_pods_as(&with(json!(1_073_741_824))));
        assert!(!with(json!("1Gi")).same_pods_as(&with(json!("1G"))));
        let named = |hostname: &str| template(json!({"spec": {"hostname": hostname}}));
        assert!(!named("1Gi").same_pods_as(&named("1024Mi")), "a name is no quantity");
    }

    #[test]
    fn the_hash_follows_the_meaning_and_the_collision_count() {
        let hash = plain().hash(None);
        let reordered = template(json!({
            "spec": {"volumes": [], "containers": [{"image": "i:1", "name": "c"}]}, "metadata": {"labels": {"app": "a"}},
        }));
        assert_eq!(reordered.hash(None), hash);
        assert_ne!(plain().hash(Some(0)), hash);
        assert_ne!(plain().hash(Some(1)), plain().hash(Some(0)));
        assert_ne!(plain().with_hash("x").hash(None), hash);
        assert!((1..=10).contains(&hash.len()) && hash.bytes().all(|b| Rng::SUFFIX_ALPHABET.contains(&b)));
    }

    #[test]
    fn the_hash_of_a_number_is_kubernetes_encoding_of_its_digits() {
        // As Kubernetes encodes these numbers.
        assert_eq!(safe_encode(0), "4");
        assert_eq!(safe_encode(1_234_567_890), "56789bcdf4");
    }

    #[test]
    fn the_label_of_the_hash_comes_and_goes() {
        let labelled = plain().with_hash("x");
        assert_eq!(labelled.metadata.labels.get(HASH_LABEL), Some("x"));
        assert!(labelled.same_pods_as(&plain()));
        assert_eq!(labelled.without_hash().metadata, plain().metadata);
    }

    #[test]
    fn a_pod_is_the_templates_bytes_with_metadata_of_its_own() {
        let spec = r#"{"z":1.50,"containers":[{"name":"c"}],"a":null}"#;
        let text = format!(
            r#"{{"metadata":{{"name":"ignored","labels":{{"app":"a"}},"annotations":{{"n":"1"}},"finalizers":["f/x"]}},"spec":{spec}}}"#
        );
        let template: PodTemplate = serde_json::from_str(&text).unwrap();
        let owner = OwnerRef {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            name: "web".into(),
            uid: "u".into(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        let body = serde_json::to_string(&template.pod("web-abcde", "web-", &owner)).unwrap();
        assert_eq!(
            body,
            format!(
                r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"web-abcde","generateName":"web-","labels":{{"app":"a"}},"annotations":{{"n":"1"}},"finalizers":["f/x"],"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"u","controller":true,"blockOwnerDeletion":true}}]}},"spec":{spec}}}"#
            )
        );
    }
}
