//! `ConversionReview`: the request, and the response, verified as in v1.34.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use setpoint_webhook::CallError;

use super::metadata;
use crate::codec;
use crate::json::Json;
use crate::review_document::{ReviewType, ReviewVersion};
use crate::review_types;
use crate::schema::go;

const CONVERSION_REVIEW: ReviewType = ReviewType { group: "apiextensions.k8s.io", kind: "ConversionReview" };

/// Why a conversion failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) why: FailureType,
    message: String,
    /// Whether v1.34's message does not name the webhook.
    is_bare: bool,
    /// Whether calls with fewer objects may succeed.
    pub(super) depends_on_batch: bool,
}

/// The maximum length of a message. It is shown to clients, logged, and part of a definition's status, and the webhook
/// chooses it: a response has up to 16 MiB.
const MESSAGE_BYTES: usize = 4 << 10;

/// Returns a message for display, truncated if it is too long.
pub(super) fn shown(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES {
        let end = (0..=MESSAGE_BYTES).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or(0));
        message.push_str("... (truncated)");
    }
    message
}

/// The failures that v1.34 counts separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureType {
    /// The call itself.
    Call,
    /// The response is not a review, or the webhook reports a failure.
    Response,
    /// The response has another number of objects.
    Count,
    /// An object of the response is invalid.
    Object,
}

impl FailureType {
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Call => "conversion_webhook_call_failure",
            Self::Response => "conversion_webhook_malformed_response_failure",
            Self::Count => "conversion_webhook_partial_response_failure",
            Self::Object => "conversion_webhook_invalid_converted_object_failure",
        }
    }
}

impl Failure {
    /// An invalid response may be caused by one of the objects, or by their number.
    fn new(why: FailureType, message: impl Into<String>) -> Self {
        let depends_on_batch = why != FailureType::Call;
        Self { why, message: message.into(), is_bare: false, depends_on_batch }
    }

    /// A failure that calls with fewer objects may avoid.
    pub(super) fn of_batch(why: impl fmt::Display) -> Self {
        Self { depends_on_batch: true, ..Self::calling(why) }
    }

    /// The call could not be made, or its response cannot be decoded.
    pub(super) fn calling(why: impl fmt::Display) -> Self {
        Self::new(FailureType::Call, format!("failed: {why}"))
    }

    /// The call failed. A response that is too large, or an error status, may be caused by the number of objects,
    /// unless the status means that the webhook is overloaded.
    pub(super) fn of_call(error: &CallError) -> Self {
        match (error, error.code()) {
            (CallError::TooLong { .. }, _) => Self::response(error),
            (_, Some(code)) if !matches!(code, 429 | 503 | 504) => Self::of_batch(error),
            _ => Self::calling(error),
        }
    }

    fn response(why: impl fmt::Display) -> Self {
        Self::new(FailureType::Response, format!("failed: {why}"))
    }

    fn object(what: impl Into<String>) -> Self {
        Self::new(FailureType::Object, what)
    }

    /// A failure whose message v1.34 returns as it is.
    pub(super) fn bare(why: FailureType, message: impl Into<String>) -> Self {
        Self { is_bare: true, ..Self::new(why, message) }
    }

    /// Returns v1.34's message about an object of this type.
    pub(super) fn about(&self, api_version: &str, kind: &str) -> String {
        shown(match self.is_bare {
            true => self.message.clone(),
            false => format!("conversion webhook for {api_version}, Kind={kind} {}", self.message),
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    kind: &'static str,
    api_version: String,
    request: Request<'a>,
    response: NoResponse,
}

#[derive(Serialize)]
struct Request<'a> {
    uid: &'a str,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: &'a str,
    objects: &'a [Value],
}

/// v1.34 sends an empty response with every request.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct NoResponse {
    uid: &'static str,
    converted_objects: Option<()>,
    result: NoResult,
}

#[derive(Default, Serialize)]
struct NoResult {
    metadata: serde_json::Map<String, Value>,
}

/// Encodes the request to convert objects.
pub(super) fn request(version: ReviewVersion, uid: &str, objects: &[Value], to: &str) -> Bytes {
    codec::to_bytes(&Review {
        kind: CONVERSION_REVIEW.kind,
        api_version: CONVERSION_REVIEW.api_version(version),
        request: Request { uid, desired_api_version: to, objects },
        response: NoResponse::default(),
    })
}

/// Returns what a response is verified against: an object's type and metadata.
pub(super) fn original(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|name, _| matches!(name.as_str(), "apiVersion" | "kind" | "metadata"));
    }
    object
}

/// Reads the response to a request: the converted objects, in order.
pub(super) fn response(
    body: &[u8],
    version: ReviewVersion,
    uid: &str,
    originals: &[Value],
    to: &str,
) -> Result<Vec<Value>, Failure> {
    let mut review = CONVERSION_REVIEW.decode(body, version).map_err(Failure::of_batch)?;
    review_types::CONVERSION_REVIEW.check(&review, version).map_err(Failure::of_batch)?;
    verify(&review, version, uid).map_err(Failure::response)?;
    let converted = match review.pointer_mut("/response/convertedObjects").map(Value::take) {
        Some(Value::Array(converted)) => converted,
        _ => Vec::new(),
    };
    if converted.len() != originals.len() {
        let message = format!("returned {} objects, expected {}", converted.len(), originals.len());
        return Err(Failure::new(FailureType::Count, message));
    }
    let pairs = originals.iter().zip(converted);
    pairs.map(|(original, converted)| checked(original, converted, to)).collect()
}

/// Verifies that the response is to this request, and that the webhook reports success. v1beta1 does not check the
/// former.
fn verify(review: &Value, version: ReviewVersion, uid: &str) -> Result<(), String> {
    if version == ReviewVersion::V1 {
        CONVERSION_REVIEW.verify(review, version)?;
    }
    let response = review.at("response");
    if response.is_null() {
        return Err("no response provided".into());
    }
    if version == ReviewVersion::V1 && response.text("uid") != uid {
        return Err(format!("expected response.uid={uid:?}, got {:?}", response.text("uid")));
    }
    let result = response.at("result");
    match (result.text("status"), result.text("message")) {
        ("Success", _) => Ok(()),
        (status, "") => Err(format!("response.result.status was '{status}', not 'Success'")),
        (_, message) => Err(message.to_owned()),
    }
}

/// Checks a converted object, and restores the metadata that a webhook may not change.
fn checked(original: &Value, mut converted: Value, to: &str) -> Result<Value, Failure> {
    check_is_object(&converted).map_err(|why| Failure::bare(FailureType::Object, why))?;
    if converted.text("kind").is_empty() {
        return Err(Failure::bare(FailureType::Object, format!("Object 'Kind' is missing in '{converted}'")));
    }
    let invalid = |what: &str, expected: &str, received: &str| {
        let why = format!("invalid {what} (expected {expected}, received {received})");
        Failure::object(format!("returned invalid object at index 0: {why}"))
    };
    if converted.text("apiVersion") != to {
        return Err(invalid("groupVersion", to, converted.text("apiVersion")));
    }
    if converted.text("kind") != original.text("kind") {
        return Err(invalid("kind", original.text("kind"), converted.text("kind")));
    }
    metadata::check_identity(original, &converted)
        .map_err(|why| Failure::object(format!("returned invalid object: {why}")))?;
    metadata::restore(original, &mut converted)
        .map_err(|why| Failure::object(format!("returned invalid metadata: {why}")))?;
    Ok(converted)
}

fn check_is_object(converted: &Value) -> Result<(), String> {
    match converted {
        Value::Object(_) => Ok(()),
        Value::Null => Err("unexpected end of JSON input".into()),
        other => {
            let found = go::kind_of(other);
            Err(format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn before() -> Value {
        json!({"apiVersion": "g/v1", "kind": "W", "metadata": {"name": "w", "uid": "u", "labels": {"a": "b"}}})
    }

    fn converted(change: impl FnOnce(&mut Value)) -> Value {
        let mut object = before();
        object["apiVersion"] = "g/v2".into();
        change(&mut object);
        let response = json!({"uid": "r", "convertedObjects": [object], "result": {"status": "Success"}});
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response})
    }

    fn read(review: &Value) -> Result<Vec<Value>, String> {
        let body = review.to_string();
        let read = response(body.as_bytes(), ReviewVersion::V1, "r", &[original(before())], "g/v2");
        read.map_err(|failure| failure.about("g/v1", "W"))
    }

    #[track_caller]
    fn refused(review: Value, why: &str) {
        assert_eq!(read(&review).unwrap_err(), format!("conversion webhook for g/v1, Kind=W {why}"));
    }

    #[test]
    fn a_request_has_v1_34s_form() {
        let body = request(ReviewVersion::V1Beta1, "u", &[json!({"a": 1})], "g/v2");
        let expected = r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1beta1","request":{"uid":"u","desiredAPIVersion":"g/v2","objects":[{"a":1}]},"response":{"uid":"","convertedObjects":null,"result":{"metadata":{}}}}"#;
        assert_eq!(body, expected);
    }

    #[test]
    fn an_invalid_response_is_described_as_in_v1_34() {
        let with = |field: &str, value: Value| {
            let mut review = converted(|_| ());
            review["response"][field] = value;
            review
        };
        refused(with("uid", "other".into()), "failed: expected response.uid=\"r\", got \"other\"");
        refused(with("convertedObjects", json!([])), "returned 0 objects, expected 1");
        refused(with("result", json!({"status": "Failure", "message": "no"})), "failed: no");
        refused(with("result", json!({})), "failed: response.result.status was '', not 'Success'");
        refused(
            with("result", json!({"status": "success"})),
            "failed: response.result.status was 'success', not 'Success'",
        );
        let mut absent = converted(|_| ());
        absent["response"] = Value::Null;
        refused(absent, "failed: no response provided");
        refused(
            json!({"response": {"uid": "r"}}),
            "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=",
        );
        let mut other = converted(|_| ());
        other["apiVersion"] = "apiextensions.k8s.io/v1beta1".into();
        refused(
            other,
            "failed: converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion",
        );
        refused(
            with("convertedObjects", "x".into()),
            "failed: json: cannot unmarshal string into Go struct field ConversionResponse.response.convertedObjects of type []runtime.RawExtension",
        );
    }

    #[test]
    fn an_invalid_object_is_described_as_in_v1_34() {
        let set =
            |path: &'static str, value: Value| converted(|object| *object.pointer_mut(path).unwrap() = value);
        let index = "returned invalid object at index 0: invalid";
        refused(
            set("/apiVersion", "g/v3".into()),
            &format!("{index} groupVersion (expected g/v2, received g/v3)"),
        );
        refused(set("/kind", "X".into()), &format!("{index} kind (expected W, received X)"));
        let invalid = "returned invalid object: must have the same";
        refused(set("/metadata/name", "x".into()), &format!("{invalid} name: w != x"));
        refused(set("/metadata/uid", Value::Null), &format!("{invalid} UID: u != "));
        refused(set("/metadata", Value::Null), &format!("{invalid} name: w != "));
        for (object, expected) in [
            (Value::Null, "unexpected end of JSON input"),
            ("x".into(), "json: cannot unmarshal string into Go value of type map[string]interface {}"),
            (json!({"spec": 1}), "Object 'Kind' is missing in '{\"spec\":1}'"),
        ] {
            assert_eq!(read(&converted(|whole| *whole = object)).unwrap_err(), expected);
        }
        let metadata = "returned invalid metadata:";
        refused(
            set("/metadata/labels", 1.into()),
            &format!("{metadata} invalid metadata.labels of type int64 in converted object"),
        );
        refused(
            set("/metadata/labels/a", true.into()),
            &format!("{metadata} metadata.labels[a] must be a string, but is bool in converted object"),
        );
    }

    #[test]
    fn a_long_message_is_cut() {
        let long = json!({"status": "Failure", "message": "é".repeat(1 << 20)});
        let mut review = converted(|_| ());
        review["response"]["result"] = long;
        let message = read(&review).unwrap_err();
        assert!(message.len() < 5_000 && message.ends_with("éé... (truncated)"), "{}", message.len());
    }

    #[test]
    fn only_labels_and_annotations_may_change() {
        let review = converted(|object| {
            object["metadata"]["generation"] = 9.into();
            object["metadata"]["finalizers"] = json!(["a/b"]);
            object["metadata"]["labels"] = json!({"x": "y"});
            object["metadata"]["annotations"] = json!({"z": ""});
            object["spec"] = json!({"new": true});
        });
        let expected = json!({"apiVersion": "g/v2", "kind": "W", "spec": {"new": true},
            "metadata": {"name": "w", "uid": "u", "labels": {"x": "y"}, "annotations": {"z": ""}}});
        assert_eq!(read(&review).unwrap(), [expected]);
    }

    #[test]
    fn v1beta1_checks_neither_type_nor_uid() {
        let mut review = converted(|_| ());
        review["response"]["uid"] = "other".into();
        review.as_object_mut().unwrap().remove("kind");
        let body = review.to_string();
        let read = response(body.as_bytes(), ReviewVersion::V1Beta1, "r", &[original(before())], "g/v2");
        review["apiVersion"] = "apiextensions.k8s.io/v1beta1".into();
        assert!(read.is_err(), "it states another version");
        let body = review.to_string();
        assert!(
            response(body.as_bytes(), ReviewVersion::V1Beta1, "r", &[original(before())], "g/v2").is_ok()
        );
    }
}
