//! Unary gRPC calls over a unix socket: HTTP/2, one length-prefixed message each way, the status in the trailers.
//!
//! A call ends within the plugin's timeout, including the time to connect. If the plugin does not accept connections
//! yet, dialing is retried until then.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use setpoint_clock::Clock;
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use crate::TransformError;
use crate::metrics::Metrics;

/// The maximum response size: the default limit of gRPC clients. Valid responses are below 35 KiB.
const MAX_MESSAGE: usize = 4 << 20;
/// The delay before dialing again.
const DIAL_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// The length of the message header: a flag and the message length.
const MESSAGE_HEADER: usize = 5;

/// A gRPC status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(u8);

/// The names by number, as defined by gRPC.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

impl Code {
    const OK: Self = Self(0);
    const UNKNOWN: Self = Self(2);
    const DEADLINE_EXCEEDED: Self = Self(4);
    const RESOURCE_EXHAUSTED: Self = Self(8);
    const INTERNAL: Self = Self(13);
    const UNAVAILABLE: Self = Self(14);

    pub fn name(self) -> &'static str {
        CODES.get(usize::from(self.0)).copied().unwrap_or("Unknown")
    }
}

/// An error from a call.
#[derive(Debug, thiserror::Error)]
#[error("rpc error: code = {} desc = {message}", code.name())]
pub(crate) struct CallError {
    code: Code,
    message: String,
}

impl CallError {
    fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Converts the error for callers that transform values.
    pub(crate) fn during(self, attempt: &str) -> TransformError {
        TransformError { message: format!("{attempt}, error: {self}"), code: Some(self.code) }
    }
}

type Sender = SendRequest<Full<Bytes>>;

/// A KMS plugin.
pub(crate) struct Plugin {
    name: String,
    socket: PathBuf,
    timeout: Duration,
    clock: Clock,
    metrics: Arc<Metrics>,
    /// The shared connection. Locked while connecting.
    connection: Mutex<Option<Sender>>,
}

impl Plugin {
    /// Creates a plugin for a valid endpoint, such as `unix:///run/kms.sock`. Does not connect yet.
    pub(crate) fn new(
        name: &str,
        endpoint: &str,
        timeout: Duration,
        clock: &Clock,
        metrics: &Arc<Metrics>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            socket: socket_path(endpoint),
            timeout,
            clock: clock.clone(),
            metrics: metrics.clone(),
            connection: Mutex::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Calls a method of `v2.KeyManagementService`.
    pub(crate) async fn call<T: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<T, CallError> {
        let start = self.clock.instant();
        let method = format!("/v2.KeyManagementService/{method}");
        let result = match tokio::time::timeout(self.timeout, self.attempt(&method, request)).await {
            Ok(result) => result,
            Err(_) => Err(CallError::new(
                Code::DEADLINE_EXCEEDED,
                format!(
                    "context deadline exceeded: no answer from {} within {:?}",
                    self.shown(),
                    self.timeout
                ),
            )),
        };
        let code = result.as_ref().err().map_or(Code::OK, |error| error.code);
        self.metrics.called(&self.name, &method, code.name(), start.elapsed());
        result
    }

    async fn attempt<T: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<T, CallError> {
        // A connection may have broken without notice. All calls are safe to repeat.
        let first = self.sender().await?.send_request(http_request(method, self.timeout, request)?).await;
        let response = match first {
            Ok(response) => response,
            Err(_) => {
                *self.connection.lock().await = None;
                let request = http_request(method, self.timeout, request)?;
                let second = self.sender().await?.send_request(request).await;
                second.map_err(|error| CallError::new(Code::UNAVAILABLE, error.to_string()))?
            }
        };
        answer(response).await
    }

    /// Returns the connection, reconnecting if necessary. Waits until the plugin accepts it.
    async fn sender(&self) -> Result<Sender, CallError> {
        let mut connection = self.connection.lock().await;
        if let Some(sender) = connection.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let stream = self.dial().await;
        let (sender, driver) = handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(|error| CallError::new(Code::UNAVAILABLE, error.to_string()))?;
        // Ends when the last sender is dropped or the plugin closes the connection.
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "the connection to a KMS plugin ended");
            }
        });
        Ok(connection.insert(sender).clone())
    }

    async fn dial(&self) -> UnixStream {
        loop {
            match UnixStream::connect(&self.socket).await {
                Ok(stream) => return stream,
                Err(error) => {
                    tracing::debug!(plugin = self.name, socket = self.shown(), %error, "cannot connect to the KMS plugin");
                }
            }
            self.clock.sleep(DIAL_AGAIN_AFTER).await;
        }
    }

    fn shown(&self) -> String {
        self.socket.to_string_lossy().replace('\0', "@")
    }
}

/// Parses `unix:///path`, or `unix:///@name` for Linux's abstract namespace.
fn socket_path(endpoint: &str) -> PathBuf {
    let rest = endpoint.strip_prefix("unix:").unwrap_or(endpoint);
    let path = match rest.strip_prefix("//") {
        // The part before the path would be a host, which unix sockets do not have.
        Some(authority) => &authority[authority.find('/').unwrap_or(authority.len())..],
        None => rest,
    };
    match path.strip_prefix("/@") {
        Some(name) => format!("\0{name}").into(),
        None => path.into(),
    }
}

fn http_request(
    method: &str,
    timeout: Duration,
    message: &impl Message,
) -> Result<Request<Full<Bytes>>, CallError> {
    let length = message.encoded_len();
    let mut body = Vec::with_capacity(MESSAGE_HEADER + length);
    body.put_u8(0);
    body.put_u32(
        u32::try_from(length)
            .map_err(|_| CallError::new(Code::RESOURCE_EXHAUSTED, "the request is too large"))?,
    );
    message.encode(&mut body).map_err(|error| CallError::new(Code::INTERNAL, error.to_string()))?;
    Request::post(format!("http://localhost{method}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .header(header::USER_AGENT, concat!("setpoint/", env!("CARGO_PKG_VERSION")))
        .header("grpc-timeout", format!("{}m", timeout.as_millis().min(99_999_999)))
        .body(Full::from(body))
        .map_err(|error| CallError::new(Code::INTERNAL, error.to_string()))
}

async fn answer<T: Message + Default>(response: Response<Incoming>) -> Result<T, CallError> {
    let (head, body) = response.into_parts();
    if head.status != StatusCode::OK {
        let message = format!("unexpected HTTP status code received from server: {}", head.status);
        return Err(CallError::new(Code::UNAVAILABLE, message));
    }
    // A status without a message is sent in the headers.
    check_status(&head.headers, true)?;
    let collected = Limited::new(body, MAX_MESSAGE).collect().await;
    let collected = collected.map_err(|error| CallError::new(Code::UNAVAILABLE, error.to_string()))?;
    let none = HeaderMap::new();
    check_status(collected.trailers().unwrap_or(&none), head.headers.contains_key(STATUS))?;
    decode(collected.to_bytes())
}

const STATUS: &str = "grpc-status";

fn check_status(headers: &HeaderMap, may_be_absent: bool) -> Result<(), CallError> {
    let Some(status) = headers.get(STATUS) else {
        return match may_be_absent {
            true => Ok(()),
            false => Err(CallError::new(Code::INTERNAL, "server closed the stream without sending trailers")),
        };
    };
    let code = status.to_str().ok().and_then(|text| text.parse().ok()).map_or(Code::UNKNOWN, Code);
    if code == Code::OK {
        return Ok(());
    }
    let message = headers.get("grpc-message").map(|text| text.as_bytes()).unwrap_or_default();
    let message = percent_encoding::percent_decode(message).decode_utf8_lossy().into_owned();
    Err(CallError::new(code, message))
}

fn decode<T: Message + Default>(mut body: Bytes) -> Result<T, CallError> {
    let malformed = |why: &str| CallError::new(Code::INTERNAL, why);
    if body.len() < MESSAGE_HEADER {
        return Err(malformed("the answer has no message"));
    }
    if body.get_u8() != 0 {
        return Err(malformed("the answer is compressed, although no compression was offered"));
    }
    if body.get_u32() as usize != body.len() {
        return Err(malformed("the answer's length is wrong"));
    }
    T::decode(body).map_err(|error| malformed(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::super::messages::StatusResponse;
    use super::*;

    #[test]
    fn endpoints_name_sockets() {
        for (endpoint, expected) in [
            ("unix:///var/run/kms.sock", "/var/run/kms.sock"),
            ("unix:/var/run/kms.sock", "/var/run/kms.sock"),
            ("unix:///@name", "\0name"),
            ("unix://host/a", "/a"),
            ("unix://", ""),
        ] {
            assert_eq!(socket_path(endpoint), PathBuf::from(expected), "{endpoint}");
        }
    }

    #[test]
    fn no_bent_answer_makes_the_client_panic() {
        let good = [&[0, 0, 0, 0, 4][..], b"\x0a\x02v2"].concat();
        assert_eq!(decode::<StatusResponse>(good.clone().into()).unwrap().version, "v2");
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bent = good.clone();
                bent[at] ^= 1 << bit;
                _ = decode::<StatusResponse>(bent.into());
            }
            assert!(decode::<StatusResponse>(good[..at].to_vec().into()).is_err());
        }
    }
}
