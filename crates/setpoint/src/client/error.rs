//! Why a call failed, read from the API server's Status.

use bytes::Bytes;
use http::HeaderMap;
use http::header::RETRY_AFTER;
use serde::Deserialize;

use crate::ReconcileError;

/// Why a call failed.
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
    /// The API server answered with a Status.
    #[error("{message}")]
    Api {
        /// The HTTP status code.
        code: u16,
        /// A word for programs.
        reason: String,
        /// A sentence for people.
        message: String,
        /// What is wrong with which field, if that was said.
        causes: Vec<Cause>,
        /// How long the API server asks to be left alone.
        retry_after_seconds: Option<u32>,
    },
    /// No answer: the call may or may not have been carried out.
    #[error("no answer from the API server")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer could not be understood.
    #[error("cannot understand the API server's answer")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A write that was not sent, because somebody else may be writing by now.
    #[error("not sent: this process does not hold the lease that its writes need")]
    Fenced,
}

/// One of the reasons in a Status.
///
/// ```
/// use setpoint::client::Cause;
/// let cause = Cause { field: "spec.replicas".into(), ..Cause::default() };
/// assert!(cause.reason.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// A word for programs.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// The field that the cause is about, if it is about one.
    pub field: String,
}

/// The parts of a `meta/v1` Status that matter here.
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

/// How much of an answer that is no Status goes into the message.
const EXCERPT: usize = 1024;

/// Takes "there is no such object" for an answer: `client.get(..).await.optional()?`.
///
/// ```
/// use setpoint::client::{ClientError, Optional};
/// let missing = ClientError::from_reply(404, &Default::default(), br#"{"kind":"Status","reason":"NotFound"}"#);
/// assert_eq!(Err::<(), _>(missing).optional().unwrap(), None);
/// ```
pub trait Optional<T> {
    /// `None` if there is no such object.
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

impl ClientError {
    /// The error that an unsuccessful reply stands for.
    pub fn from_reply(code: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        let header = retry_after(headers);
        match serde_json::from_slice::<Status>(body) {
            Ok(status) if status.kind == "Status" => Self::from_status(status, code, header),
            _ => Self::from_text(code, header, body),
        }
    }

    /// The error that an `ERROR` event of a watch carries, or any other encoded Status.
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

    /// A proxy or a crashed handler answers in prose.
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

    /// The HTTP status code, if there was an answer.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Api { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// The word for programs, if there was an answer.
    pub fn reason(&self) -> &str {
        match self {
            Self::Api { reason, .. } => reason,
            _ => "",
        }
    }

    /// The causes in the answer's details.
    pub fn causes(&self) -> &[Cause] {
        match self {
            Self::Api { causes, .. } => causes,
            _ => &[],
        }
    }

    /// Whether one of the causes has this reason (`NamespaceTerminating`).
    pub fn has_cause(&self, reason: &str) -> bool {
        self.causes().iter().any(|cause| cause.reason == reason)
    }

    /// How long the API server asks to be left alone.
    pub fn retry_after(&self) -> Option<std::time::Duration> {
        match self {
            Self::Api { retry_after_seconds, .. } => {
                retry_after_seconds.map(|seconds| std::time::Duration::from_secs(seconds.into()))
            }
            _ => None,
        }
    }

    /// There is no such object.
    pub fn is_not_found(&self) -> bool {
        self.reason() == "NotFound"
    }

    /// There is an object of that name.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == "AlreadyExists"
    }

    /// A precondition did not hold: somebody else wrote first.
    pub fn is_conflict(&self) -> bool {
        self.reason() == "Conflict"
    }

    /// Not allowed: by permissions, a quota or a policy.
    pub fn is_forbidden(&self) -> bool {
        self.reason() == "Forbidden"
    }

    /// The object is not valid.
    pub fn is_invalid(&self) -> bool {
        self.reason() == "Invalid"
    }

    /// Too many requests, or an eviction that a disruption budget does not allow now.
    pub fn is_too_many_requests(&self) -> bool {
        self.code() == Some(429)
    }

    /// The version asked for is gone: list again.
    pub fn is_expired(&self) -> bool {
        self.code() == Some(410)
    }

    /// What kind of failure it is, in a word, for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Transport(_) => "network",
            Self::Answer(_) => "answer",
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

    /// The class of this error for a reconciler that was attempting `attempted`.
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

/// The reason that goes with a status code when the answer names none.
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
    fn what_is_no_status_is_told_by_its_code() {
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
