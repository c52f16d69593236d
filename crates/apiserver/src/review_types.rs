//! The Go types of webhook responses: what v1.34's decoder rejects before anything is read, in its words.
//!
//! Null counts as absent everywhere, as in Go.

use serde_json::Value;

use crate::json::Json;
use crate::review_document::ReviewVersion;
use crate::schema::go;

/// A type with fields.
pub(crate) struct Struct {
    name: &'static str,
    fields: &'static [Field],
}

/// A field: its name, its Go type and the JSON that this type is decoded from. A `~` stands for the version of the review.
struct Field(&'static str, &'static str, Form);

enum Form {
    Text,
    Bool,
    Int32,
    Int64,
    Object(&'static Struct),
    /// A list of texts.
    Texts,
    TextMap,
    /// A list of values of a type.
    Objects(&'static str, &'static Struct),
    /// A list of anything.
    Raw,
}

pub(crate) const ADMISSION_REVIEW: Struct = Struct {
    name: "AdmissionReview",
    fields: &[Field("response", "~.AdmissionResponse", Form::Object(&ADMISSION_RESPONSE))],
};

const ADMISSION_RESPONSE: Struct = Struct {
    name: "AdmissionResponse",
    fields: &[
        Field("uid", "types.UID", Form::Text),
        Field("allowed", "bool", Form::Bool),
        Field("status", "v1.Status", Form::Object(&STATUS)),
        Field("patch", "[]uint8", Form::Text),
        Field("patchType", "~.PatchType", Form::Text),
        Field("auditAnnotations", "map[string]string", Form::TextMap),
        Field("warnings", "[]string", Form::Texts),
    ],
};

pub(crate) const CONVERSION_REVIEW: Struct = Struct {
    name: "ConversionReview",
    fields: &[Field("response", "~.ConversionResponse", Form::Object(&CONVERSION_RESPONSE))],
};

const CONVERSION_RESPONSE: Struct = Struct {
    name: "ConversionResponse",
    fields: &[
        Field("uid", "types.UID", Form::Text),
        Field("convertedObjects", "[]runtime.RawExtension", Form::Raw),
        Field("result", "v1.Status", Form::Object(&STATUS)),
    ],
};

const STATUS: Struct = Struct {
    name: "Status",
    fields: &[
        Field("kind", "string", Form::Text),
        Field("apiVersion", "string", Form::Text),
        Field("metadata", "v1.ListMeta", Form::Object(&LIST_META)),
        Field("status", "string", Form::Text),
        Field("message", "string", Form::Text),
        Field("reason", "v1.StatusReason", Form::Text),
        Field("details", "v1.StatusDetails", Form::Object(&DETAILS)),
        Field("code", "int32", Form::Int32),
    ],
};

const LIST_META: Struct = Struct {
    name: "ListMeta",
    fields: &[
        Field("selfLink", "string", Form::Text),
        Field("resourceVersion", "string", Form::Text),
        Field("continue", "string", Form::Text),
        Field("remainingItemCount", "int64", Form::Int64),
    ],
};

const DETAILS: Struct = Struct {
    name: "StatusDetails",
    fields: &[
        Field("name", "string", Form::Text),
        Field("group", "string", Form::Text),
        Field("kind", "string", Form::Text),
        Field("uid", "types.UID", Form::Text),
        Field("causes", "[]v1.StatusCause", Form::Objects("v1.StatusCause", &CAUSE)),
        Field("retryAfterSeconds", "int32", Form::Int32),
    ],
};

const CAUSE: Struct = Struct {
    name: "StatusCause",
    fields: &[
        Field("reason", "v1.CauseType", Form::Text),
        Field("message", "string", Form::Text),
        Field("field", "string", Form::Text),
    ],
};

/// Where a value is: the type it is a field of, and the fields that lead to it from the document.
struct Place<'a> {
    owner: &'a str,
    path: &'a str,
    version: ReviewVersion,
}

impl Struct {
    /// Fails if a field has a value of another type.
    pub(crate) fn check(&self, document: &Value, version: ReviewVersion) -> Result<(), String> {
        self.check_at(document, "", version)
    }

    fn check_at(&self, value: &Value, path: &str, version: ReviewVersion) -> Result<(), String> {
        for Field(name, go_type, form) in self.fields {
            let value = value.at(name);
            let path = if path.is_empty() { (*name).to_owned() } else { format!("{path}.{name}") };
            let place = Place { owner: self.name, path: &path, version };
            if !value.is_null() {
                form.check(value, go_type, &place)?;
            }
        }
        Ok(())
    }
}

impl Form {
    fn check(&self, value: &Value, go_type: &str, place: &Place<'_>) -> Result<(), String> {
        match (self, value) {
            (Self::Text, Value::String(_)) | (Self::Bool, Value::Bool(_)) | (Self::Raw, Value::Array(_)) => {
                Ok(())
            }
            (Self::Int32 | Self::Int64, Value::Number(number)) => match self.has(number.as_i64()) {
                true => Ok(()),
                false => Err(place.wrong(&format!("number {number}"), go_type)),
            },
            (Self::Object(of), Value::Object(_)) => of.check_at(value, place.path, place.version),
            (Self::Objects(item, of), Value::Array(items)) => {
                items.iter().try_for_each(|value| Self::Object(of).check_item(value, item, place))
            }
            (Self::Texts, Value::Array(items)) => {
                items.iter().try_for_each(|value| Self::Text.check_item(value, "string", place))
            }
            (Self::TextMap, Value::Object(entries)) => {
                entries.values().try_for_each(|value| Self::Text.check_item(value, "string", place))
            }
            _ => Err(place.wrong(go::kind_of(value), go_type)),
        }
    }

    fn check_item(&self, value: &Value, go_type: &str, place: &Place<'_>) -> Result<(), String> {
        if value.is_null() { Ok(()) } else { self.check(value, go_type, place) }
    }

    /// Whether a number fits.
    fn has(&self, number: Option<i64>) -> bool {
        number.is_some_and(|number| matches!(self, Self::Int64) || i32::try_from(number).is_ok())
    }
}

impl Place<'_> {
    fn wrong(&self, found: &str, go_type: &str) -> String {
        let Self { owner, path, version } = self;
        let go_type = go_type.replace('~', version.name());
        format!("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {go_type}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_of_another_type_is_described_as_in_v1_34() {
        let beta = ReviewVersion::V1Beta1;
        for (response, version, expected) in [
            (json!({"status": {"code": 403, "details": {"causes": [null]}}, "warnings": [null]}), beta, None),
            (
                json!("yes"),
                beta,
                Some(
                    "string into Go struct field AdmissionReview.response of type v1beta1.AdmissionResponse",
                ),
            ),
            (
                json!({"uid": 1}),
                beta,
                Some("number into Go struct field AdmissionResponse.response.uid of type types.UID"),
            ),
            (
                json!({"patchType": 1}),
                ReviewVersion::V1,
                Some("number into Go struct field AdmissionResponse.response.patchType of type v1.PatchType"),
            ),
            (
                json!({"status": {"code": "403"}}),
                beta,
                Some("string into Go struct field Status.response.status.code of type int32"),
            ),
            (
                json!({"status": {"code": 4_000_000_000u32}}),
                beta,
                Some("number 4000000000 into Go struct field Status.response.status.code of type int32"),
            ),
            (
                json!({"status": {"details": {"causes": [{"reason": []}]}}}),
                beta,
                Some(
                    "array into Go struct field StatusCause.response.status.details.causes.reason of type v1.CauseType",
                ),
            ),
            (
                json!({"status": {"details": {"causes": [1]}}}),
                beta,
                Some(
                    "number into Go struct field StatusDetails.response.status.details.causes of type v1.StatusCause",
                ),
            ),
            (
                json!({"auditAnnotations": {"a": true}}),
                beta,
                Some("bool into Go struct field AdmissionResponse.response.auditAnnotations of type string"),
            ),
        ] {
            let checked = ADMISSION_REVIEW.check(&json!({"response": response}), version);
            let expected = expected.map(|expected| format!("json: cannot unmarshal {expected}"));
            assert_eq!(checked.err(), expected, "{response}");
        }
    }
}
