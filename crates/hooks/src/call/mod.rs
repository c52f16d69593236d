//! Calls of hooks.
//!
//! ```text
//!  caller.rs      one hook: time limit, places, circuit breaker, ETags, metrics
//!  breaker.rs     when a hook that fails is left alone                              (pure)
//!  etag.rs        answers that may be used again
//!  transport.rs   how a request gets to a hook: the traits
//!  http.rs        … over HTTP and HTTPS
//!  process.rs     … to a child process, as lines of JSON
//!  functions.rs   … to a function, in tests
//!  recorded.rs    … to a recording of earlier calls, in tests
//!  credentials.rs CAs, certificates and tokens, from Secrets and ConfigMaps
//! ```
//!
//! Invariants:
//! - A call ends at its timeout. A response has at most [`MAX_ANSWER`] bytes.
//! - A hook that fails for several parents is called with backoff; other hooks are not affected.

mod breaker;
mod caller;
mod credentials;
mod etag;
mod functions;
mod http;
mod process;
mod recorded;
mod transport;

pub(crate) use caller::{CallError, Caller, CallerSettings, HookName, Labels};
pub(crate) use credentials::{CredentialError, Credentials};
pub use functions::Functions;
pub use http::Network;
pub use process::{Command, Commands};
pub use recorded::{Recorded, Recording};
pub use transport::{HookReply, HookRequest, HookTarget, MAX_ANSWER, Transport, Transports};
