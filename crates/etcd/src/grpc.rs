//! gRPC over HTTP/2: length-prefixed messages, and the status in the trailers.

use std::convert::Infallible;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use prost::Message;
use setpoint_store::etcd::EtcdError;

pub(crate) type RequestBody = UnsyncBoxBody<Bytes, Infallible>;

/// The maximum size of a message from etcd. A page of 2,000 objects of 16 KB fits, and larger ones are read in smaller
/// pages. A watch's messages have at most etcd's request limit, 1.5 MiB by default, and half a MiB.
pub(crate) const MAX_MESSAGE: usize = 32 << 20;
/// The length of the message header: a flag and the message length.
const MESSAGE_HEADER: usize = 5;
const STATUS: &str = "grpc-status";

/// The names of the status codes, by number.
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
const CANCELED: usize = 1;
const UNKNOWN: usize = 2;
const DEADLINE_EXCEEDED: usize = 4;
const INTERNAL: usize = 13;
const UNAVAILABLE: usize = 14;
const NUMBER_OF_CODES: usize = CODES.len();

/// Returns a message with its header.
pub(crate) fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = Vec::with_capacity(MESSAGE_HEADER + length);
    frame.put_u8(0);
    // A request of 4 GiB is far beyond what the store commits.
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    frame.put_slice(&message.encode_to_vec());
    frame.into()
}

/// Returns the request of a call with one message.
pub(crate) fn unary(
    authority: &str,
    method: &str,
    message: Bytes,
) -> Result<Request<RequestBody>, EtcdError> {
    request(authority, method, Full::from(message).boxed_unsync())
}

pub(crate) fn request(
    authority: &str,
    method: &str,
    body: RequestBody,
) -> Result<Request<RequestBody>, EtcdError> {
    Request::post(format!("{authority}/etcdserverpb.{method}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .header(header::USER_AGENT, concat!("setpoint/", env!("CARGO_PKG_VERSION")))
        // etcd ends calls that need a leader when there is none, instead of leaving them waiting.
        .header("hasleader", "true")
        .body(body)
        .map_err(|error| EtcdError::Refused(format!("cannot make a request to etcd: {error}")))
}

/// The messages of a response.
pub(crate) struct Messages {
    body: Incoming,
    buffer: BytesMut,
    has_status: bool,
}

impl Messages {
    pub(crate) fn new(response: Response<Incoming>) -> Result<Self, EtcdError> {
        let (head, body) = response.into_parts();
        if head.status != StatusCode::OK {
            let why = format!("unexpected HTTP status code received from server: {}", head.status);
            return Err(EtcdError::Unavailable(why));
        }
        // A status without a message is sent in the headers.
        check(&head.headers)?;
        let has_status = head.headers.contains_key(STATUS);
        Ok(Self { body, buffer: BytesMut::new(), has_status })
    }

    /// Returns the next message. `None`: the response has ended well.
    pub(crate) async fn next<T: Message + Default>(&mut self) -> Result<Option<T>, EtcdError> {
        loop {
            if let Some(message) = take(&mut self.buffer)? {
                let malformed =
                    |error| EtcdError::Unavailable(format!("etcd's message is malformed: {error}"));
                return T::decode(message).map(Some).map_err(malformed);
            }
            let Some(part) = self.body.frame().await else {
                return match self.has_status && self.buffer.is_empty() {
                    true => Ok(None),
                    false => Err(EtcdError::Unavailable("etcd closed the stream without a status".into())),
                };
            };
            let part = part.map_err(|error| EtcdError::Unavailable(format!("etcd's response: {error}")))?;
            match part.into_data() {
                Ok(data) => self.buffer.extend_from_slice(&data),
                Err(part) => {
                    if let Ok(trailers) = part.into_trailers() {
                        check(&trailers)?;
                        self.has_status = trailers.contains_key(STATUS);
                    }
                }
            }
        }
    }

    /// Returns the only message.
    pub(crate) async fn only<T: Message + Default>(mut self) -> Result<T, EtcdError> {
        let message = self.next().await?;
        let message = message.ok_or_else(|| EtcdError::Unavailable("etcd's response is empty".into()))?;
        match self.next::<T>().await? {
            None => Ok(message),
            Some(_) => Err(EtcdError::Unavailable("etcd's response has more than one message".into())),
        }
    }
}

/// Takes a complete message from the buffer.
fn take(buffer: &mut BytesMut) -> Result<Option<Bytes>, EtcdError> {
    let Some(&[flag, a, b, c, d]) = buffer.first_chunk::<MESSAGE_HEADER>() else { return Ok(None) };
    if flag != 0 {
        let why = "etcd's message is compressed, although no compression was offered";
        return Err(EtcdError::Unavailable(why.into()));
    }
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length > MAX_MESSAGE {
        return Err(EtcdError::TooLarge { length, limit: MAX_MESSAGE });
    }
    if buffer.len() < MESSAGE_HEADER + length {
        return Ok(None);
    }
    buffer.advance(MESSAGE_HEADER);
    Ok(Some(buffer.split_to(length).freeze()))
}

fn check(headers: &HeaderMap) -> Result<(), EtcdError> {
    let Some(status) = headers.get(STATUS) else { return Ok(()) };
    let code = status.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(UNKNOWN);
    if code == 0 {
        return Ok(());
    }
    let message = headers.get("grpc-message").map(|text| text.as_bytes()).unwrap_or_default();
    Err(error(code, &percent_encoding::percent_decode(message).decode_utf8_lossy()))
}

/// Converts a status, which etcd's own errors have in their message.
fn error(code: usize, message: &str) -> EtcdError {
    let known = [EtcdError::Compacted, EtcdError::Future, EtcdError::NoSpace, EtcdError::LeaseNotFound];
    if let Some(known) = known.into_iter().find(|known| known.to_string() == message) {
        return known;
    }
    let is_of_etcd = message.starts_with("etcdserver: ");
    let name = CODES.get(code).copied().unwrap_or("Unknown");
    let shown =
        if is_of_etcd { message.to_owned() } else { format!("rpc error: code = {name} desc = {message}") };
    // What says nothing about the outcome is no refusal.
    match code {
        CANCELED | UNKNOWN | DEADLINE_EXCEEDED | INTERNAL | UNAVAILABLE | NUMBER_OF_CODES.. => {
            EtcdError::Unavailable(shown)
        }
        _ => EtcdError::Refused(shown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{KeyValue, RangeResponse};

    fn response() -> RangeResponse {
        let kv = KeyValue { key: "a".into(), value: "b".into(), mod_revision: 7, ..KeyValue::default() };
        RangeResponse { kvs: vec![kv], count: 1, ..RangeResponse::default() }
    }

    #[test]
    fn messages_are_taken_whole_from_any_pieces() {
        let frame = frame(&response());
        for at in 0..frame.len() {
            let mut buffer = BytesMut::from(&frame[..at]);
            assert!(take(&mut buffer).unwrap().is_none());
            buffer.extend_from_slice(&frame[at..]);
            buffer.extend_from_slice(&frame);
            for _ in 0..2 {
                let message = take(&mut buffer).unwrap().unwrap();
                assert_eq!(RangeResponse::decode(message).unwrap(), response());
            }
            assert!(take(&mut buffer).unwrap().is_none());
        }
    }

    #[test]
    fn a_message_beyond_the_limit_is_not_read() {
        let mut buffer = BytesMut::from(&[0, 2, 0, 0, 1][..]);
        assert!(
            matches!(take(&mut buffer), Err(EtcdError::TooLarge { length, .. }) if length == (32 << 20) + 1)
        );
        assert!(take(&mut BytesMut::from(&[1, 0, 0, 0, 0][..])).is_err(), "compressed");
    }

    #[test]
    fn statuses_become_errors() {
        let shown = |code, message| format!("{:?}", error(code, message));
        for (code, message, expected) in [
            (11, "etcdserver: mvcc: required revision has been compacted", "Compacted"),
            (11, "etcdserver: mvcc: required revision is a future revision", "Future"),
            (8, "etcdserver: mvcc: database space exceeded", "NoSpace"),
            (5, "etcdserver: requested lease not found", "LeaseNotFound"),
            (14, "etcdserver: leader changed", "Unavailable(\"etcdserver: leader changed\")"),
            (3, "etcdserver: request is too large", "Refused(\"etcdserver: request is too large\")"),
            (12, "x", "Refused(\"rpc error: code = Unimplemented desc = x\")"),
            (99, "x", "Unavailable(\"rpc error: code = Unknown desc = x\")"),
        ] {
            assert_eq!(shown(code, message), expected);
        }
    }
}
