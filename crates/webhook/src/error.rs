//! Call errors, with v1.34's messages.

use http::{HeaderMap, StatusCode};
use serde::Deserialize;

/// An error from a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("{method} {url:?}: net/http: request canceled (Client.Timeout exceeded while awaiting headers)")]
    Timeout { method: String, url: String },
    /// The deadline that the caller set has passed.
    #[error("{method} {url:?}: context deadline exceeded")]
    Deadline { method: String, url: String },
    /// The connection failed, or could not be established.
    #[error("{method} {url:?}: {why}")]
    Connection { method: String, url: String, why: String, is_reset: bool },
    #[error("{method} {url:?}: the response is longer than {limit} bytes")]
    TooLong { method: String, url: String, limit: usize },
    /// The response ended early, or cannot be decompressed.
    #[error("unexpected error when reading response body. Please retry. Original error: {why}")]
    Unread { why: String, is_reset: bool },
    /// The time was up before the end of the response.
    #[error("unexpected error when reading response body. Please retry. Original error: {why}")]
    Unfinished { why: &'static str },
    /// The server responded with an error status.
    #[error("{0}")]
    Status(StatusError),
    /// The response is invalid.
    #[error("{0}")]
    WebhookResponse(String),
    /// The request could not be built.
    #[error("{0}")]
    Request(String),
}

impl CallError {
    /// Returns the HTTP status code, if there was a response.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Status(status) => Some(status.code),
            _ => None,
        }
    }

    pub fn is_timeout(&self) -> bool {
        let is_late = matches!(self, Self::Timeout { .. } | Self::Deadline { .. } | Self::Unfinished { .. });
        is_late || self.code() == Some(504)
    }

    /// Returns whether a retry may succeed. Exactly the errors that v1.34 retries.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connection { is_reset, .. } | Self::Unread { is_reset, .. } => *is_reset,
            Self::Status(status) => status.is_transient(),
            _ => false,
        }
    }
}

/// An error reported by the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StatusError {
    pub code: u16,
    pub message: String,
    reason: String,
    retry_after: u32,
}

/// The fields read from a `Status`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawStatus {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    retry_after_seconds: u32,
}

impl RawStatus {
    /// Whether it is a `Status` that reports a failure. As in v1.34, the kind may be left out.
    fn is_failure(&self) -> bool {
        matches!(&*self.kind, "" | "Status")
            && matches!(&*self.api_version, "" | "v1")
            && self.status == "Failure"
    }
}

/// How much of an unstructured response is shown: 2 KiB, as in v1.34.
const SHOWN_BYTES: usize = 2048;

impl StatusError {
    pub(crate) fn of(code: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let written = serde_json::from_slice::<RawStatus>(body).ok();
        if let Some(written) = written.filter(RawStatus::is_failure) {
            let RawStatus { message, reason, details, .. } = written;
            return Self { code: code.as_u16(), message, reason, retry_after: details.retry_after_seconds };
        }
        let said = match is_text(headers) {
            true => String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES)]).trim().to_owned(),
            false => "unknown".into(),
        };
        let (reason, message) = generic(code.as_u16(), &said);
        Self { code: code.as_u16(), message, reason: reason.into(), retry_after: retry_after(headers) }
    }

    fn is_transient(&self) -> bool {
        let suggests_delay = self.retry_after > 0
            && matches!(self.reason.as_str(), "ServerTimeout" | "TooManyRequests" | "Timeout");
        suggests_delay || matches!(self.reason.as_str(), "InternalError" | "Timeout" | "TooManyRequests")
    }
}

/// Returns the seconds in a `Retry-After` header.
pub(crate) fn retry_after(headers: &HeaderMap) -> u32 {
    let header = headers.get(http::header::RETRY_AFTER);
    header.and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn is_text(headers: &HeaderMap) -> bool {
    match headers.get(http::header::CONTENT_TYPE) {
        None => true,
        Some(value) => value.to_str().is_ok_and(|text| text.trim_start().starts_with("text/")),
    }
}

/// Returns the reason and message for a response without a `Status`, as v1.34's clients have them.
pub fn generic(code: u16, said: &str) -> (&'static str, String) {
    let (reason, message) = match code {
        400 => ("BadRequest", "the server rejected our request for an unknown reason"),
        401 => ("Unauthorized", "the server has asked for the client to provide credentials"),
        403 => ("Forbidden", said),
        404 => ("NotFound", "the server could not find the requested resource"),
        405 => ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
        406 if said.is_empty() || said == "unknown" => {
            ("NotAcceptable", "the server was unable to respond with a content type that the client supports")
        }
        406 => ("NotAcceptable", said),
        409 => ("AlreadyExists", "the server reported a conflict"),
        415 => ("UnsupportedMediaType", said),
        422 => ("Invalid", "the server rejected our request due to an error in our request"),
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        ),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => (
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request",
        ),
        500.. => {
            let message =
                format!("an error on the server ({said:?}) has prevented the request from succeeding");
            return ("InternalError", message);
        }
        _ => {
            let message = format!(
                "the server responded with the status code {code} but did not return more information"
            );
            return ("", message);
        }
    };
    (reason, message.to_owned())
}
