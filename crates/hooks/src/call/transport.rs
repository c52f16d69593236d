//! The transport of requests to hooks, which the program that runs the controllers provides.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;

/// The maximum size of a response. Up to eight calls of a hook are in flight, so a hook holds at most 64 MiB.
pub const MAX_ANSWER: usize = 8 << 20;

/// The address of a hook, and the credentials for calling it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HookTarget {
    /// The URL: `http://…`, `https://…`, or `exec://NAME/…` for a child process.
    pub url: String,
    /// The trusted CAs as PEM. Defaults to the system's.
    pub authorities: Option<Vec<u8>>,
    /// The client certificate and its key, as PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The header `Authorization`.
    pub authorization: Option<String>,
}

/// One call.
#[derive(Clone, Debug)]
pub struct HookRequest {
    /// `sync`, `finalize` or `customize`.
    pub hook: &'static str,
    /// The request, as JSON.
    pub body: Bytes,
    /// The ETag of the cached response.
    pub etag: Option<String>,
}

/// The reply of a hook.
#[derive(Clone, Debug, Default)]
pub struct HookReply {
    /// The HTTP status: only 200 is success.
    pub status: u16,
    /// The response, as JSON. At most [`MAX_ANSWER`] bytes.
    pub body: Bytes,
    /// The header `ETag`.
    pub etag: Option<String>,
    /// The header `Retry-After`.
    pub retry_after: Option<String>,
}

/// Sends requests to one hook.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request. Dropping the future cancels it. The error says why there is no response.
    fn send(&self, request: HookRequest) -> BoxFuture<'static, Result<HookReply, String>>;
}

/// Connects to hooks.
pub trait Transports: Send + Sync + 'static {
    /// Prepares calls to a hook, without sending anything. The error says what is wrong with the target.
    fn open(&self, target: &HookTarget) -> Result<Arc<dyn Transport>, String>;
}

impl HookReply {
    /// A successful response.
    pub fn ok(body: impl Into<Bytes>) -> Self {
        Self { status: 200, body: body.into(), ..Self::default() }
    }
}

impl std::fmt::Debug for HookTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HookTarget").field("url", &self.url).finish_non_exhaustive()
    }
}
