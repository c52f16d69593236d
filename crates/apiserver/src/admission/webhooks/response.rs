//! Webhook responses, decoded and verified as in v1.34.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::WebhookType;
use crate::json::Json;
use crate::review_document::{ReviewType, ReviewVersion};
use crate::review_types;
use crate::status::{Cause, Details, ListMetadata, Status};

pub(super) const ADMISSION_REVIEW: ReviewType =
    ReviewType { group: "admission.k8s.io", kind: "AdmissionReview" };

/// The only supported patch type.
pub(super) const JSON_PATCH: &str = "JSONPatch";

/// A verified response.
#[derive(Debug, Default)]
pub(super) struct ReviewResponse {
    pub(super) is_allowed: bool,
    /// The patch of a mutating webhook. Empty if there is none.
    pub(super) patch: Vec<u8>,
    pub(super) patch_type: String,
    pub(super) warnings: Vec<String>,
    pub(super) annotations: BTreeMap<String, String>,
    /// The `status` of a denial.
    status: Value,
}

/// Why a response is invalid.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// It cannot be decoded.
    Undecodable(String),
    /// It is not a response to the review.
    Invalid(String),
}

/// Reads the response to the review with this uid.
pub(super) fn read(
    body: &[u8],
    version: ReviewVersion,
    uid: &str,
    sort: WebhookType,
) -> Result<ReviewResponse, Malformed> {
    let review = ADMISSION_REVIEW.decode(body, version).map_err(Malformed::Undecodable)?;
    review_types::ADMISSION_REVIEW.check(&review, version).map_err(Malformed::Undecodable)?;
    let response = review.at("response");
    if response.is_null() {
        return Err(Malformed::Invalid("webhook response was absent".into()));
    }
    let response = Response::decode(response).map_err(Malformed::Undecodable)?;
    if version == ReviewVersion::V1 {
        verify(&review, &response, uid, sort).map_err(Malformed::Invalid)?;
    }
    // v1beta1 has no other patch type.
    let patch_type = response.patch_type.filter(|_| version == ReviewVersion::V1);
    Ok(ReviewResponse {
        is_allowed: response.is_allowed,
        patch: if sort == WebhookType::Mutating { response.patch } else { Vec::new() },
        patch_type: patch_type.unwrap_or_else(|| JSON_PATCH.to_owned()),
        warnings: response.warnings,
        annotations: response.annotations,
        status: response.status,
    })
}

#[derive(Default)]
struct Response {
    uid: String,
    is_allowed: bool,
    patch: Vec<u8>,
    patch_type: Option<String>,
    warnings: Vec<String>,
    annotations: BTreeMap<String, String>,
    status: Value,
}

impl Response {
    /// Reads a response whose fields have the right types.
    fn decode(written: &Value) -> Result<Self, String> {
        let patch = written.text("patch");
        let patch = STANDARD.decode(patch).map_err(|why| match why {
            base64::DecodeError::InvalidByte(at, _) => format!("illegal base64 data at input byte {at}"),
            _ => format!("illegal base64 data at input byte {}", patch.len()),
        })?;
        Ok(Self {
            uid: written.text("uid").to_owned(),
            is_allowed: written.at("allowed") == true,
            patch,
            patch_type: written.at("patchType").as_str().map(Into::into),
            warnings: texts(written.at("warnings")),
            annotations: text_map(written.at("auditAnnotations")),
            status: written.at("status").clone(),
        })
    }
}

/// Returns the strings of a list. `null` is an empty string.
fn texts(written: &Value) -> Vec<String> {
    let items = written.as_array().into_iter().flatten();
    items.map(|item| item.as_str().unwrap_or_default().to_owned()).collect()
}

fn text_map(written: &Value) -> BTreeMap<String, String> {
    let entries = written.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

/// Verifies the requirements that only v1 has.
fn verify(review: &Value, response: &Response, uid: &str, sort: WebhookType) -> Result<(), String> {
    if response.uid != uid {
        return Err(format!("expected response.uid={uid:?}, got {:?}", response.uid));
    }
    ADMISSION_REVIEW.verify(review, ReviewVersion::V1)?;
    let (has_patch, patch_type) = (!response.patch.is_empty(), response.patch_type.as_deref());
    let problem = match (sort, has_patch, patch_type) {
        (WebhookType::Mutating, true, None) => "webhook returned response.patch but not response.patchType",
        (WebhookType::Mutating, false, Some(_)) => {
            "webhook returned response.patchType but not response.patch"
        }
        (WebhookType::Mutating, true, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (WebhookType::Validating, true, _) => "validating webhook may not return response.patch",
        (WebhookType::Validating, false, Some(_)) => "validating webhook may not return response.patchType",
        _ => return Ok(()),
    };
    Err(problem.into())
}

impl ReviewResponse {
    /// Returns the error of a denied request: the webhook's status, with the webhook's name in the message.
    pub(super) fn denial(&self, webhook: &str) -> Status {
        let denied = format!("admission webhook {webhook:?} denied the request");
        let status = &self.status;
        let message = match (status.text("message"), status.text("reason")) {
            ("", "") => format!("{denied} without explanation"),
            ("", reason) => format!("{denied}: {reason}"),
            (message, _) => format!("{denied}: {message}"),
        };
        let code = status.int("code").unwrap_or_default().max(400);
        let mut denial = Status::unknown(message);
        denial.status = match status.text("status") {
            "" | "Success" => "Failure".into(),
            // Like v1.34, passes on all other fields of the webhook's status.
            other => other.to_owned().into(),
        };
        denial.code = u16::try_from(code).ok().filter(|code| *code < 1000).unwrap_or(500);
        denial.reason = status.text("reason").to_owned().into();
        denial.metadata = list_metadata(status.at("metadata"));
        denial.details = status.map("details").map(|_| details(status.at("details")));
        denial
    }
}

fn list_metadata(written: &Value) -> ListMetadata {
    ListMetadata {
        self_link: written.text("selfLink").to_owned(),
        resource_version: written.text("resourceVersion").to_owned(),
        continue_token: written.text("continue").to_owned(),
        remaining_item_count: written.int("remainingItemCount"),
    }
}

fn details(written: &Value) -> Details {
    let text = |field: &str| written.text(field).to_owned();
    let cause = |cause: &Value| Cause {
        reason: cause.text("reason").to_owned().into(),
        message: cause.text("message").to_owned(),
        field: cause.text("field").to_owned(),
    };
    Details {
        name: text("name"),
        group: text("group"),
        kind: text("kind"),
        uid: text("uid"),
        causes: written.list("causes").iter().map(cause).collect(),
        retry_after_seconds: u32::try_from(written.count("retryAfterSeconds")).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(answer: Value, version: ReviewVersion, sort: WebhookType) -> Result<ReviewResponse, Malformed> {
        read(answer.to_string().as_bytes(), version, "u", sort)
    }

    fn review(response: Value) -> Value {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }

    #[test]
    fn a_response_to_another_review_is_rejected() {
        use Malformed::{Invalid, Undecodable};
        let patch = "W10=";
        for (answer, sort, expected) in [
            (json!({}), WebhookType::Validating, Invalid("webhook response was absent".into())),
            (review(json!({"uid": "v"})), WebhookType::Validating, Invalid("expected response.uid=\"u\", got \"v\"".into())),
            (
                json!({"response": {"uid": "u"}}),
                WebhookType::Validating,
                Invalid("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=".into()),
            ),
            (
                review(json!({"uid": "u", "patch": patch})),
                WebhookType::Mutating,
                Invalid("webhook returned response.patch but not response.patchType".into()),
            ),
            (
                review(json!({"uid": "u", "patchType": "JSONPatch"})),
                WebhookType::Mutating,
                Invalid("webhook returned response.patchType but not response.patch".into()),
            ),
            (
                review(json!({"uid": "u", "patch": patch, "patchType": "JSONPatch"})),
                WebhookType::Validating,
                Invalid("validating webhook may not return response.patch".into()),
            ),
            (
                review(json!({"uid": "u", "patch": "!"})),
                WebhookType::Mutating,
                Undecodable("illegal base64 data at input byte 0".into()),
            ),
            (
                review(json!({"uid": "u", "allowed": "yes"})),
                WebhookType::Mutating,
                Undecodable(
                    "json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool"
                        .into(),
                ),
            ),
            (
                json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "response": {}}),
                WebhookType::Mutating,
                Undecodable(
                    "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion".into(),
                ),
            ),
        ] {
            assert_eq!(check(answer.clone(), ReviewVersion::V1, sort).unwrap_err(), expected, "{answer}");
        }
    }

    #[test]
    fn v1beta1_is_lenient() {
        let answer = json!({"response": {"allowed": true, "patch": "W10="}});
        let answer = check(answer, ReviewVersion::V1Beta1, WebhookType::Mutating).unwrap();
        assert!(answer.is_allowed && answer.patch == b"[]");
    }

    #[test]
    fn an_invalid_response_is_an_error() {
        for body in ["hello", "[1]", "{", "{\"response\":[]}"] {
            assert!(
                read(body.as_bytes(), ReviewVersion::V1, "u", WebhookType::Validating).is_err(),
                "{body}"
            );
        }
    }

    #[test]
    fn a_denial_passes_on_the_status_of_the_webhook() {
        let denial = |status: Value| {
            let answer = check(
                review(json!({"uid": "u", "status": status})),
                ReviewVersion::V1,
                WebhookType::Validating,
            );
            let denial = answer.unwrap().denial("w");
            (denial.code, denial.reason.to_string(), denial.message)
        };
        let denied = "admission webhook \"w\" denied the request";
        assert_eq!(denial(Value::Null), (400, String::new(), format!("{denied} without explanation")));
        assert_eq!(denial(json!({"reason": "R"})), (400, "R".into(), format!("{denied}: R")));
        let whole = json!({"code": 410, "reason": "Gone", "message": "away"});
        assert_eq!(denial(whole), (410, "Gone".into(), format!("{denied}: away")));
        assert_eq!(denial(json!({"code": 200, "message": "odd"})).0, 400);
        assert_eq!(denial(json!({"code": 70_000})).0, 500);
    }
}
