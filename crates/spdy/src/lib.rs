//! SPDY/3.1 as Kubernetes uses it: the streams of exec, attach and port-forward over one connection.
//!
//! ```text
//!  Connection::open ──► Stream (AsyncRead + AsyncWrite) ◄── Connection::accept
//!                         │  ▲
//!                    State: streams, buffers, windows, frames to send
//!                         ▼  │
//!  Driver: frames ◄──────────┴──────► any AsyncRead + AsyncWrite
//! ```
//!
//! [`connect`] returns a [`Connection`] to open and accept streams with, and a [`Driver`]: a future that moves bytes,
//! to be spawned or polled. Dropping the driver closes the connection immediately; dropping the connection ends it when
//! its streams have ended.
//!
//! Invariants:
//! - A stream buffers at most [`Settings::buffer`] and one read of the connection in each direction. A peer that sends
//!   more has to wait.
//! - The decoder never allocates more than it has received. A header block has at most 64 KiB when decompressed.
//! - Replies caused by a peer (pings, resets) are bounded: above 64 of them, the connection is not read.
//! - No input causes a panic.
//!
//! # Flow control
//!
//! Kubernetes' own implementation (spdystream) neither sends WINDOW_UPDATE frames nor waits for them: it stops reading
//! the connection when a stream is not read. A sender that respected windows would stall after 64 KiB. So this side
//! honours windows only once the peer has sent a WINDOW_UPDATE or an initial window, which shows that it implements
//! flow control. Until then, backpressure comes from the connection itself.
//!
//! Likewise, clients of kubelets only send WINDOW_UPDATE frames from then on ([`FlowControl::Answered`]). A kubelet
//! passes frames on to the container runtime, which closes its connection when a process ends. If it cannot pass on a
//! WINDOW_UPDATE then, it drops unsent output.

mod connection;
mod driver;
mod error;
mod frame;
mod headers;
#[cfg(test)]
mod limit_tests;
mod settings;
mod slot;
mod state;
mod stream;
#[cfg(test)]
mod tests;
mod zlib;

pub use connection::{Connection, Incoming, OpenError, connect};
pub use driver::Driver;
pub use error::Error;
pub use frame::ResetStatus;
pub use headers::Headers;
pub use settings::{FlowControl, Role, Settings};
pub use stream::Stream;
