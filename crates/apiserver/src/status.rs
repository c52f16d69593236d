//! Error responses: `Status` objects with v1.34's codes, reasons and messages.

use std::borrow::Cow;
use std::collections::BTreeSet;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use crate::body::Body;
use crate::field::{Errors, FieldError, Reason as FieldReason};
use crate::health;
use crate::kind::Kind;

/// An error response. Also the body of a successful deletion ([`Status::deleted`]).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'static str,
    #[serde(rename = "apiVersion", skip_serializing_if = "str::is_empty")]
    api_version: &'static str,
    pub(crate) metadata: ListMetadata,
    pub status: Cow<'static, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
    #[serde(skip_serializing_if = "is_zero")]
    pub code: u16,
    /// Whether to respond with the message as plain text: the request was rejected before its target was known.
    #[serde(skip)]
    is_page: bool,
    /// Set if the user lacks a right, so that no change to the object would help.
    #[serde(skip)]
    pub(crate) lacks_rights: bool,
}

/// A response extension that marks requests rejected for lack of rights, unlike those forbidden because of the object,
/// such as one that exceeds a quota.
#[derive(Clone, Copy, Debug)]
pub struct LacksRights;

/// The metadata of a status. The server itself only sets the token; webhooks may set all.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListMetadata {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) self_link: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) resource_version: String,
    /// A token for continuing an expired list.
    #[serde(rename = "continue", skip_serializing_if = "str::is_empty")]
    pub(crate) continue_token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remaining_item_count: Option<i64>,
}

/// The subject of a status.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub group: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One of the causes of a status.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cause {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'static, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub field: String,
}

fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

/// A group and a resource (or kind) in it, as in messages: `deployments.apps`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Named<'a> {
    pub group: &'a str,
    pub resource: &'a str,
}

impl<'a> Named<'a> {
    /// Names a kind by its plural.
    pub fn resource(kind: &'a Kind) -> Self {
        Self { group: &kind.group, resource: &kind.plural }
    }

    /// Names a kind by its kind.
    pub fn kind(kind: &'a Kind) -> Self {
        Self { group: kind.internal_group(), resource: &kind.kind }
    }

    fn details(self, name: &str) -> Details {
        Details {
            name: name.into(),
            group: self.group.into(),
            kind: self.resource.into(),
            ..Details::default()
        }
    }
}

impl std::fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.group {
            "" => f.write_str(self.resource),
            group => write!(f, "{}.{group}", self.resource),
        }
    }
}

const EXPIRED_CONTINUE: &str = "The provided continue parameter is too old to display a consistent list result. You \
     can start a new list without the continue parameter, or use the continue token in this response to retrieve the \
     remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were \
     created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

impl Status {
    fn failure(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind: "Status",
            api_version: "v1",
            metadata: ListMetadata::default(),
            status: Cow::Borrowed("Failure"),
            message: message.into(),
            reason: Cow::Borrowed(reason),
            details: None,
            code,
            is_page: false,
            lacks_rights: false,
        }
    }

    /// Builds an error as plain text.
    pub(crate) fn page(code: u16, text: impl Into<String>) -> Self {
        Self { is_page: true, ..Self::failure(code, "", text) }
    }

    pub(crate) const fn is_page(&self) -> bool {
        self.is_page
    }

    fn about(mut self, details: Details) -> Self {
        self.details = Some(details);
        self
    }

    /// Builds the response to a deletion: the object is gone.
    pub fn deleted(of: Named<'_>, name: &str, uid: &str) -> Self {
        let details = Details { uid: uid.into(), ..of.details(name) };
        Self { status: Cow::Borrowed("Success"), code: 0, ..Self::failure(0, "", "") }.about(details)
    }

    /// Builds the response to a successful request without an object.
    pub fn success(code: u16) -> Self {
        Self { status: Cow::Borrowed("Success"), ..Self::failure(code, "", "") }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, "BadRequest", message)
    }

    pub fn unauthorized() -> Self {
        Self::failure(401, "Unauthorized", "Unauthorized")
    }

    pub fn forbidden(of: Named<'_>, name: &str, why: impl std::fmt::Display) -> Self {
        let message = match (of.resource, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{of} is forbidden: {why}"),
            _ => format!("{of} {name:?} is forbidden: {why}"),
        };
        Self::failure(403, "Forbidden", message).about(of.details(name))
    }

    /// Marks the error as due to lack of rights.
    pub(crate) fn for_lack_of_rights(self) -> Self {
        Self { lacks_rights: self.code == 403, ..self }
    }

    pub fn not_found(of: Named<'_>, name: &str) -> Self {
        Self::failure(404, "NotFound", format!("{of} {name:?} not found")).about(of.details(name))
    }

    /// No such path.
    pub fn no_such_resource() -> Self {
        Self::failure(404, "NotFound", "the server could not find the requested resource")
            .about(Details::default())
    }

    /// No such method on this path.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::failure(405, "MethodNotAllowed", message).about(Details::default())
    }

    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::failure(406, "NotAcceptable", message)
    }

    /// The path offers no form that the client accepts.
    pub fn no_representation(available: &str) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {available}");
        Self::not_acceptable(message).about(Details::default())
    }

    pub fn already_exists(of: Named<'_>, name: &str) -> Self {
        Self::failure(409, "AlreadyExists", format!("{of} {name:?} already exists")).about(of.details(name))
    }

    /// All generated names were taken.
    pub fn generated_name_taken(of: Named<'_>, name: &str) -> Self {
        let message = format!(
            "{of} {name:?} already exists, the server was not able to generate a unique name for the object"
        );
        let details = Details { retry_after_seconds: 1, ..of.details(name) };
        Self::failure(409, "AlreadyExists", message).about(details)
    }

    pub fn conflict(of: Named<'_>, name: &str, why: impl std::fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {of} {name:?}: {why}");
        Self::failure(409, "Conflict", message).about(of.details(name))
    }

    /// An apply would take fields from other managers.
    pub fn apply_conflict(message: impl Into<String>) -> Self {
        Self::failure(409, "Conflict", message)
    }

    /// The requested version has been compacted.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, "Expired", message)
    }

    /// The snapshot of a list has been compacted; `token` continues with the current state.
    pub fn expired_continue(token: String) -> Self {
        let mut status = Self::expired(EXPIRED_CONTINUE);
        status.metadata.continue_token = token;
        status
    }

    pub fn too_large(message: impl std::fmt::Display) -> Self {
        Self::failure(413, "RequestEntityTooLarge", format!("Request entity too large: {message}"))
    }

    pub fn unsupported_media_type(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::failure(415, "UnsupportedMediaType", message)
    }

    /// This path does not support this patch type.
    pub fn unsupported_patch_type() -> Self {
        Self::failure(415, "UnsupportedMediaType", "415: Unsupported Media Type").about(Details::default())
    }

    pub fn invalid(of: Named<'_>, name: &str, errors: &Errors) -> Self {
        let causes = errors.0.iter().map(Cause::of_field).collect();
        let details = Details { causes, ..of.details(name) };
        Self::failure(422, "Invalid", format!("{of} {name:?} is invalid: {errors}")).about(details)
    }

    /// The request could not be processed for a reason unrelated to a field.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::failure(422, "Invalid", message).about(Details::default())
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let details = Details { retry_after_seconds, ..Details::default() };
        Self::failure(429, "TooManyRequests", message).about(details)
    }

    pub fn internal(why: impl std::fmt::Display) -> Self {
        let cause = Cause { message: why.to_string(), ..Cause::default() };
        let details = Details { causes: vec![cause], ..Details::default() };
        Self::failure(500, "InternalError", format!("Internal error occurred: {why}")).about(details)
    }

    /// An error that v1.34 returns without a reason.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::failure(500, "", message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::failure(503, "ServiceUnavailable", message)
    }

    pub fn timeout(message: impl std::fmt::Display, retry_after_seconds: u32) -> Self {
        let details = Details { retry_after_seconds, ..Details::default() };
        Self::failure(504, "Timeout", format!("Timeout: {message}")).about(details)
    }

    /// A revision in the future.
    pub fn too_large_resource_version(requested: u64, newest: u64) -> Self {
        let cause = Cause {
            reason: "ResourceVersionTooLarge".into(),
            message: "Too large resource version".into(),
            ..Cause::default()
        };
        let mut status =
            Self::timeout(format_args!("Too large resource version: {requested}, current: {newest}"), 1);
        status.add_cause(cause);
        status
    }

    /// The error for a response of another server that is not a `Status`.
    pub(crate) fn of_server(code: u16, of: Named<'_>, name: &str, said: &str) -> Self {
        let (reason, message) = setpoint_webhook::generic_error(code, said);
        let reason = if code == 409 { "Conflict" } else { reason };
        let message = format!("{message} ( {of} {name})");
        Self::failure(code, reason, message).about(of.details(name))
    }

    /// Leaves out its kind, as in messages that carry nothing but a `Status`.
    #[must_use]
    pub(crate) fn without_kind(self) -> Self {
        Self { kind: "", api_version: "", ..self }
    }

    pub fn add_cause(&mut self, cause: Cause) {
        self.details.get_or_insert_default().causes.push(cause);
    }

    pub fn is_not_found(&self) -> bool {
        self.reason == "NotFound"
    }

    pub fn is_conflict(&self) -> bool {
        self.reason == "Conflict"
    }

    pub fn is_already_exists(&self) -> bool {
        self.reason == "AlreadyExists"
    }

    pub fn to_bytes(&self) -> Bytes {
        serde_json::to_vec(self).expect("a status always encodes").into()
    }

    /// Converts the error to a response.
    pub fn into_response(self) -> Response<Body> {
        if self.is_page {
            return health::text(self.http_code(), self.message);
        }
        let code = if self.code == 0 { StatusCode::OK } else { self.http_code() };
        let retry = self.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        let mut response = Response::new(Body::full(self.to_bytes()));
        *response.status_mut() = code;
        if self.lacks_rights {
            response.extensions_mut().insert(LacksRights);
        }
        let headers = response.headers_mut();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if retry > 0 {
            headers.insert(http::header::RETRY_AFTER, HeaderValue::from(retry));
        }
        response
    }

    fn http_code(&self) -> StatusCode {
        StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

impl Cause {
    fn of_field(error: &FieldError) -> Self {
        Self { reason: error.reason.name().into(), message: error.body(), field: error.field.clone() }
    }
}

/// Joins all messages about an object as v1.34 does: without duplicates; in brackets if there is more than one.
impl std::fmt::Display for Errors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut seen = BTreeSet::new();
        let messages = self.0.iter().map(|error| format!("{}: {}", error.field, error.body()));
        let messages: Vec<String> = messages.filter(|message| seen.insert(message.clone())).collect();
        match messages.as_slice() {
            [] => Ok(()),
            [only] => f.write_str(only),
            _ => write!(f, "[{}]", messages.join(", ")),
        }
    }
}

impl FieldReason {
    /// Returns the name of this reason in `details.causes`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    fn phrase(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
            Self::TypeInvalid => "Invalid value",
            Self::Internal => "Internal error",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::Internal)
    }
}

impl FieldError {
    /// Returns the message without the field's name.
    pub fn body(&self) -> String {
        let mut body = String::from(self.reason.phrase());
        if let Some(value) = self.value.as_ref().filter(|_| self.reason.shows_value()) {
            body.push_str(": ");
            body.push_str(&shown(value));
        }
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }
}

/// Formats a value for messages: strings quoted, anything else as JSON.
fn shown(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => format!("{text:?}"),
        other => crate::declared::shown(other),
    }
}
