//! The body of a request: read only once the request is authorized, and never beyond the limit.

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;

use crate::status::Status;

/// The largest body of a request: 3 MiB, as in v1.34.
pub(crate) const BODY_BYTES: usize = 3 << 20;

/// What a request has to say, read or still on the wire.
pub(crate) enum Payload {
    Read(Bytes),
    Unread(Incoming),
}

impl Payload {
    pub(crate) async fn read(self) -> Result<Bytes, Status> {
        let body = match self {
            Self::Read(bytes) => return Ok(bytes),
            Self::Unread(body) => body,
        };
        match Limited::new(body, BODY_BYTES).collect().await {
            Ok(collected) => Ok(collected.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(Status::too_large(format_args!("limit is {BODY_BYTES}")))
            }
            Err(error) => Err(Status::bad_request(format!("cannot read the request body: {error}"))),
        }
    }
}
