//! Client errors, decoded from the API server's Status.

use bytes::Bytes;
use http::HeaderMap;
use http::header::RETRY_AFTER;
use serde::Deserialize;

use crate::ReconcileError;

/// An error from the client.
///
/// ```
/// use setpoint::ClientError;
/// let error = ClientError::from_reply(404, &Default::default(), br#"{"kind":"Status","reason":"NotFound",
///     "message":"pods \"web\" not found","code":404}"#);
/// assert!(error.is_not_found());
/// assert_eq!(error.to_string(), "pods \"web\" not found");
/// ```
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The API server responded with a Status.
    #[error("{message}")]
    Api {
        /// The HTTP status code.
        code: u16,
        /// The machine-readable reason.
        reason: String,
        /// The human-readable message.
        message: String,
        /// The causes, usually one per invalid field.
        causes: Vec<Cause>,
        /// How long the API server asks to wait before a retry.
        retry_after_seconds: Option<u32>,
    },
    /// No response: the request may or may not have been executed.
    #[error("no response from the API server")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The response could not be decoded.
    #[error("cannot decode the API server's response")]
    InvalidResponse(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The write was not sent, because another process may be writing by now.
    #[error("not sent: this process does not hold the lease that its writes need")]
    Fenced,
}

/// A cause in a Status.
///
/// ```
/// use setpoint::client::Cause;
/// let cause = Cause { field: "spec.replicas".into(), ..Cause::default() };
/// assert!(cause.reason.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// The machine-readable reason.
    pub reason: String,
    /// The human-readable message.
    pub message: String,
    /// The field, if the cause is about one.
    pub field: String,
}

/// The fields of a `meta/v1` Status that are used here.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    kind: String,
    reason: String,
    message: String,
    code: u16,
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    causes: Vec<Cause>,
    retry_after_seconds: u32,
}

/// How much of a response that is not a Status is included in the message.
const EXCERPT: usize = 1024;

/// Turns "not found" into `None`: `client.get(..).await.optional()?`.
///
/// ```
/// use setpoint::client::{ClientError, Optional};
/// let missing = ClientError::from_reply(404, &Default::default(), br#"{"kind":"Status","reason":"NotFound"}"#);
/// assert_eq!(Err::<(), _>(missing).optional().unwrap(), None);
/// ```
pub trait Optional<T> {
    /// Returns `None` if the object does not exist.
    fn optional(self) -> Result<Option<T>, ClientError>;
}

impl<T> Optional<T> for Result<T, ClientError> {
    fn optional(self) -> Result<Option<T>, ClientError> {
        match self {
            Err(error) if error.is_not_found() => Ok(None),
            result => result.map(Some),
        }
    }
}

/// Treats expected errors as success: `client.delete(..).await.ignore_not_found()?`.
///
/// ```
/// use setpoint::client::{ClientError, IgnoreErrors};
/// let reply = |reason: &str| {
///     let status = format!(r#"{{"kind":"Status","reason":"{reason}"}}"#);
///     Err::<(), _>(ClientError::from_reply(409, &Default::default(), status.as_bytes()))
/// };
/// reply("AlreadyExists").ignore_already_exists().unwrap();
/// reply("Conflict").ignore_conflict().unwrap();
/// assert!(reply("Conflict").ignore_not_found().is_err());
/// ```
pub trait IgnoreErrors: Sized {
    /// Succeeds if the object does not exist: there is nothing to delete or to update.
    fn ignore_not_found(self) -> Result<(), ClientError>;

    /// Succeeds if the object exists already: a cache did not show it yet.
    fn ignore_already_exists(self) -> Result<(), ClientError>;

    /// Succeeds if the object has changed in the meantime: the change causes another reconcile.
    fn ignore_conflict(self) -> Result<(), ClientError>;
}

impl<T> IgnoreErrors for Result<T, ClientError> {
    fn ignore_not_found(self) -> Result<(), ClientError> {
        ignore(self, ClientError::is_not_found)
    }

    fn ignore_already_exists(self) -> Result<(), ClientError> {
        ignore(self, ClientError::is_already_exists)
    }

    fn ignore_conflict(self) -> Result<(), ClientError> {
        ignore(self, ClientError::is_conflict)
    }
}

fn ignore<T>(result: Result<T, ClientError>, expected: fn(&ClientError) -> bool) -> Result<(), ClientError> {
    match result {
        Err(error) if expected(&error) => Ok(()),
        result => result.map(drop),
    }
}

impl ClientError {
    /// Decodes the error from an unsuccessful response.
    pub fn from_reply(code: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        let header = retry_after(headers);
        match serde_json::from_slice::<Status>(body) {
            Ok(status) if status.kind == "Status" => Self::from_status(status, code, header),
            _ => Self::from_text(code, header, body),
        }
    }

    /// Decodes the error from an `ERROR` event of a watch, or any other encoded Status.
    pub fn from_encoded_status(body: &Bytes) -> Self {
        let code = serde_json::from_slice::<Status>(body).map_or(500, |status| status.code);
        Self::from_reply(code, &HeaderMap::new(), body)
    }

    fn from_status(status: Status, code: u16, header: Option<u32>) -> Self {
        let in_details = Some(status.details.retry_after_seconds).filter(|seconds| *seconds > 0);
        Self::Api {
            code: if status.code == 0 { code } else { status.code },
            reason: if status.reason.is_empty() { reason_of(code).into() } else { status.reason },
            message: status.message,
            causes: status.details.causes,
            retry_after_seconds: in_details.or(header),
        }
    }

    /// Builds an error from plain text, as a proxy or a crashed handler sends it.
    fn from_text(code: u16, retry_after_seconds: Option<u32>, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&body[..body.len().min(EXCERPT)]);
        let text = text.trim();
        let message = match http::StatusCode::from_u16(code).ok().and_then(|status| status.canonical_reason())
        {
            Some(name) if text.is_empty() => format!("the server answered {code} {name}"),
            Some(name) => format!("the server answered {code} {name}: {text}"),
            None => format!("the server answered {code}: {text}"),
        };
        Self::Api { code, reason: reason_of(code).into(), message, causes: Vec::new(), retry_after_seconds }
    }

    /// Returns the HTTP status code, if there was a response.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Api { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Returns the machine-readable reason, if there was a response.
    pub fn reason(&self) -> &str {
        match self {
            Self::Api { reason, .. } => reason,
            _ => "",
        }
    }

    /// Returns the causes in the response's details.
    pub fn causes(&self) -> &[Cause] {
        match self {
            Self::Api { causes, .. } => causes,
            _ => &[],
        }
    }

    /// Returns whether one of the causes has this reason (for example `NamespaceTerminating`).
    pub fn has_cause(&self, reason: &str) -> bool {
        self.causes().iter().any(|cause| cause.reason == reason)
    }

    /// Returns how long the API server asks to wait before a retry.
    pub fn retry_after(&self) -> Option<std::time::Duration> {
        match self {
            Self::Api { retry_after_seconds, .. } => {
                retry_after_seconds.map(|seconds| std::time::Duration::from_secs(seconds.into()))
            }
            _ => None,
        }
    }

    /// Returns whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.reason() == "NotFound"
    }

    /// Returns whether an object with this name already exists.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == "AlreadyExists"
    }

    /// Returns whether a precondition failed because of a concurrent write.
    pub fn is_conflict(&self) -> bool {
        self.reason() == "Conflict"
    }

    /// Returns whether permissions, a quota or a policy forbid the request.
    pub fn is_forbidden(&self) -> bool {
        self.reason() == "Forbidden"
    }

    /// Returns whether the object is invalid.
    pub fn is_invalid(&self) -> bool {
        self.reason() == "Invalid"
    }

    /// Returns whether there were too many requests, or a disruption budget currently rejects an eviction.
    pub fn is_too_many_requests(&self) -> bool {
        self.code() == Some(429)
    }

    /// Returns whether the requested resource version has expired, so that a new list is needed.
    pub fn is_expired(&self) -> bool {
        self.code() == Some(410)
    }

    /// Returns the error category as one word, for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Transport(_) => "network",
            Self::InvalidResponse(_) => "answer",
            Self::Fenced => "fenced",
            Self::Api { .. } if self.is_already_exists() => "already_exists",
            Self::Api { code, .. } => match code {
                401 | 403 => "forbidden",
                404 | 410 => "not_found",
                409 => "conflict",
                429 | 500..=599 => "unavailable",
                400..=499 => "invalid",
                _ => "other",
            },
        }
    }

    /// Converts this into a reconcile error of the matching class. `attempted` says what was attempted.
    pub fn into_reconcile_error(self, attempted: String) -> ReconcileError {
        let conflict = self.is_conflict();
        let terminal = matches!(self.code(), Some(400 | 401 | 403 | 404 | 405 | 413 | 415 | 422));
        let source: Option<Box<dyn std::error::Error + Send + Sync>> = Some(Box::new(self));
        match (conflict, terminal) {
            (true, _) => ReconcileError::Conflict { attempted, source },
            (_, true) => ReconcileError::Terminal { attempted, source },
            _ => ReconcileError::Retry { attempted, source },
        }
    }
}

fn retry_after(headers: &HeaderMap) -> Option<u32> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()
}

/// Returns the reason for a status code, for responses that do not include one.
fn reason_of(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        406 => "NotAcceptable",
        409 => "Conflict",
        410 => "Gone",
        413 => "RequestEntityTooLarge",
        415 => "UnsupportedMediaType",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(code: u16, retry_after: Option<&'static str>, body: &str) -> ClientError {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after {
            headers.insert(RETRY_AFTER, http::HeaderValue::from_static(value));
        }
        ClientError::from_reply(code, &headers, body.as_bytes())
    }

    #[test]
    fn a_status_becomes_an_error_with_its_causes() {
        let error = reply(
            429,
            None,
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Cannot evict",
                "reason":"TooManyRequests","code":429,"details":{"retryAfterSeconds":10,"causes":[
                {"reason":"DisruptionBudget","message":"needs 3 healthy pods"}]}}"#,
        );
        assert_eq!((error.code(), error.reason()), (Some(429), "TooManyRequests"));
        assert!(error.has_cause("DisruptionBudget"));
        assert_eq!(error.retry_after(), Some(std::time::Duration::from_secs(10)));
    }

    #[test]
    fn responses_without_a_status_are_errors_by_code() {
        let check = |code, body: &str, reason: &str, message: &str| {
            let error = reply(code, Some("3"), body);
            assert_eq!((error.reason(), error.to_string().as_str()), (reason, message));
            assert_eq!(error.retry_after(), Some(std::time::Duration::from_secs(3)));
        };
        check(503, "", "ServiceUnavailable", "the server answered 503 Service Unavailable");
        check(502, "<html>\n", "Unknown", "the server answered 502 Bad Gateway: <html>");
        check(404, "404 page not found", "NotFound", "the server answered 404 Not Found: 404 page not found");
        check(599, "{}", "Unknown", "the server answered 599: {}");
    }
}
