//! The `SubjectAccessReview` requests sent to webhooks, and their responses.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::authorize::Attributes;
use crate::request::ResourceTarget;
use crate::selector::{LabelSelector, requirements};

/// The API version of `SubjectAccessReview` that a webhook is configured for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewVersion {
    V1,
    V1beta1,
}

impl ReviewVersion {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1beta1),
            _ => None,
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "authorization.k8s.io/v1",
            Self::V1beta1 => "authorization.k8s.io/v1beta1",
        }
    }
}

/// A webhook's decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reviewed {
    pub(super) allowed: bool,
    pub(super) denied: bool,
    pub(super) reason: String,
}

/// A review in a webhook response, generic over its status type.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawReview<S> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    status: Option<S>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawStatus {
    allowed: Option<bool>,
    denied: Option<bool>,
    reason: Option<String>,
}

/// Builds the `spec` of a v1 review for a request.
pub(super) fn spec(attributes: &Attributes<'_>) -> Value {
    let user = attributes.user;
    let mut spec = Map::new();
    let texts = [("user", &user.name), ("uid", &user.uid)];
    spec.extend(
        texts
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(k, text)| (k.into(), text.as_str().into())),
    );
    if !user.groups.is_empty() {
        spec.insert("groups".into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        spec.insert("extra".into(), json!(user.extra));
    }
    match attributes.resource {
        Some(target) => spec.insert("resourceAttributes".into(), resource(attributes.verb, target)),
        None => {
            let path = json!({"path": attributes.path, "verb": attributes.verb});
            spec.insert("nonResourceAttributes".into(), path)
        }
    };
    spec.into()
}

fn resource(verb: &str, target: &ResourceTarget) -> Value {
    let mut written = Map::new();
    let texts = [
        ("namespace", target.namespace.as_deref().unwrap_or_default()),
        ("verb", verb),
        ("group", &target.group),
        ("version", &target.version),
        ("resource", &target.resource),
        ("subresource", target.subresource.as_deref().unwrap_or_default()),
        ("name", target.named().unwrap_or_default()),
    ];
    for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        written.insert(field.into(), text.into());
    }
    let selectors = [("fieldSelector", fields(target)), ("labelSelector", labels(target))];
    for (field, requirements) in selectors.into_iter().filter(|(_, found)| !found.is_empty()) {
        written.insert(field.into(), json!({ "requirements": requirements }));
    }
    written.into()
}

/// Returns the field selector's requirements. Leaves the selector out if it cannot be parsed, which makes the review
/// broader.
fn fields(target: &ResourceTarget) -> Vec<Value> {
    let requirements = requirements(&target.field_selector).unwrap_or_default();
    let written = requirements.into_iter().map(|one| {
        json!({"key": one.field, "operator": if one.equal { "In" } else { "NotIn" }, "values": [one.value]})
    });
    written.collect()
}

fn labels(target: &ResourceTarget) -> Vec<Value> {
    let selector = LabelSelector::parse(&target.label_selector).unwrap_or_default();
    selector.requirements().iter().filter_map(crate::selector::Requirement::written).collect()
}

/// Builds the complete review. v1beta1 has a different field name for groups.
pub(super) fn review(version: ReviewVersion, spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let (ReviewVersion::V1beta1, Value::Object(fields)) = (version, &mut spec)
        && let Some(groups) = fields.remove("groups")
    {
        fields.insert("group".into(), groups);
    }
    json!({
        "kind": "SubjectAccessReview",
        "apiVersion": version.api_version(),
        "metadata": {},
        "spec": spec,
        "status": {"allowed": false},
    })
}

/// Decodes the status of a review in a webhook response, rejecting a review of any other kind or version. The review
/// and its status must be JSON objects: serde would also accept a list and read it as the struct's fields in order.
pub(super) fn answered<S: DeserializeOwned + Default>(
    body: &[u8],
    kind: &str,
    api_version: &str,
) -> Result<S, String> {
    let failed = |why: &dyn std::fmt::Display| format!("couldn't get version/kind; json parse error: {why}");
    let written: Value = serde_json::from_slice(body).map_err(|why| failed(&why))?;
    if !written.is_object() || !matches!(written.get("status"), None | Some(Value::Null | Value::Object(_))) {
        return Err(failed(&"expected objects"));
    }
    let written: RawReview<S> = serde_json::from_value(written).map_err(|why| failed(&why))?;
    if written.kind != kind || written.api_version != api_version {
        let RawReview { kind: other, api_version: version, .. } = written;
        return Err(format!("expected a {kind} of {api_version}, got kind {other:?} of version {version:?}"));
    }
    Ok(written.status.unwrap_or_default())
}

/// Decodes a webhook's response.
pub(super) fn read(version: ReviewVersion, body: &[u8]) -> Result<Reviewed, String> {
    let status: RawStatus = answered(body, "SubjectAccessReview", version.api_version())?;
    Ok(Reviewed {
        allowed: status.allowed.unwrap_or_default(),
        denied: status.denied.unwrap_or_default(),
        reason: status.reason.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_review_of_the_requested_version_is_accepted() {
        let answer = |version: &str, status: Value| {
            json!({"apiVersion": version, "kind": "SubjectAccessReview", "status": status}).to_string()
        };
        let v1 = "authorization.k8s.io/v1";
        let allowed = read(ReviewVersion::V1, answer(v1, json!({"allowed": true})).as_bytes()).unwrap();
        assert!(allowed.allowed && !allowed.denied);
        let nothing = read(ReviewVersion::V1, answer(v1, json!(null)).as_bytes()).unwrap();
        assert_eq!(nothing, Reviewed::default());
        for bad in [
            answer("authorization.k8s.io/v1beta1", json!({"allowed": true})),
            answer(v1, json!({"allowed": "true"})),
            answer(v1, json!({"allowed": 1})),
            answer(v1, json!([true])),
            json!({"status": {"allowed": true}}).to_string(),
            "[]".into(),
            String::new(),
        ] {
            assert!(read(ReviewVersion::V1, bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn selectors_are_sent_as_requirements() {
        let target = ResourceTarget {
            resource: "pods".into(),
            field_selector: "metadata.name=a,spec.nodeName!=b".into(),
            selected_name: Some("a".into()),
            label_selector: "a in (z,b),!c".into(),
            ..ResourceTarget::default()
        };
        let user = crate::auth::User::default();
        let attributes = Attributes { user: &user, verb: "list", path: "", resource: Some(&target) };
        let sent = &spec(&attributes)["resourceAttributes"];
        assert_eq!(sent["name"], "a");
        let expected = json!([
            {"key": "metadata.name", "operator": "In", "values": ["a"]},
            {"key": "spec.nodeName", "operator": "NotIn", "values": ["b"]},
        ]);
        assert_eq!(sent["fieldSelector"]["requirements"], expected);
        let expected = json!([
            {"key": "a", "operator": "In", "values": ["b", "z"]},
            {"key": "c", "operator": "DoesNotExist"},
        ]);
        assert_eq!(sent["labelSelector"]["requirements"], expected);
    }
}
