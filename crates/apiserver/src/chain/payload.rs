//! The request body: read only after the request is authorized, and never beyond the limit.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use setpoint_webhook::{RequestBody, no_body};

use crate::status::Status;

/// Maximum size of a request body: 3 MiB, as in v1.34.
pub(crate) const BODY_BYTES: usize = 3 << 20;

/// How long a client may pause while sending a body. The request's deadline limits the total time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// A request's body, read or still on the wire.
pub(crate) enum Payload {
    Read(Bytes),
    Unread(Incoming),
}

impl Payload {
    /// Passes the body on as it arrives, whatever its size.
    pub(crate) fn streamed(self) -> RequestBody {
        match self {
            Self::Read(bytes) if bytes.is_empty() => no_body(),
            Self::Read(bytes) => Full::new(bytes).map_err(|never| match never {}).boxed_unsync(),
            Self::Unread(body) => body.map_err(Into::into).boxed_unsync(),
        }
    }

    pub(crate) async fn read(self) -> Result<Bytes, Status> {
        let body = match self {
            Self::Read(bytes) => return Ok(bytes),
            Self::Unread(body) => body,
        };
        let mut body = Limited::new(body, BODY_BYTES);
        let mut read = BytesMut::new();
        loop {
            let Ok(frame) = tokio::time::timeout(IDLE_TIMEOUT, body.frame()).await else {
                let seconds = IDLE_TIMEOUT.as_secs();
                return Err(Status::bad_request(format!("no part of the request body came for {seconds} s")));
            };
            match frame {
                None => return Ok(read.freeze()),
                Some(Ok(frame)) => {
                    frame.into_data().into_iter().for_each(|data| read.extend_from_slice(&data))
                }
                Some(Err(error)) if error.is::<LengthLimitError>() => {
                    return Err(Status::too_large(format_args!("limit is {BODY_BYTES}")));
                }
                Some(Err(error)) => {
                    return Err(Status::bad_request(format!("cannot read the request body: {error}")));
                }
            }
        }
    }
}
