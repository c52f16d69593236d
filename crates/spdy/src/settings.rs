//! The limits of a connection.

use std::time::Duration;

/// Which side of a connection this is. Clients open streams with odd numbers, servers with even ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

/// The limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many streams may exist at once, opened by either side.
    pub streams: usize,
    /// How many bytes a stream buffers in each direction. At least [`INITIAL_WINDOW`], which a peer may send before it
    /// hears from this side.
    pub buffer: usize,
    /// How long the connection may be without a frame in either direction.
    pub idle_timeout: Option<Duration>,
    /// How often to send a ping, so that connections through load balancers stay open. The next one is sent only after
    /// the last one was answered.
    pub ping_period: Option<Duration>,
    pub flow_control: FlowControl,
}

/// Whether this side reports what it has read, and honours the windows of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowControl {
    /// Reports. Honours windows once the peer has reported or announced some.
    Offered,
    /// Does both once the peer has reported or announced a window.
    Answered,
    /// Does neither, as in Kubernetes' own implementation.
    None,
}

/// The number of bytes that a peer may send on a new stream, as SPDY/3.1 defines it.
pub(crate) const INITIAL_WINDOW: u32 = 64 << 10;

/// How much is read before it is reported to the peer: half a window.
pub(crate) const REPORTED: u32 = INITIAL_WINDOW / 2;

/// What all streams together may hold that was received and not read, besides a little for each of them. A stream that
/// is over this is reset.
pub(crate) const SHARED_BUFFER: usize = 2 << 20;
pub(crate) const OWN_BUFFER: usize = 16 << 10;

/// The longest headers of a stream. Kubernetes sends three short ones.
pub(crate) const HEADER_BYTES: usize = 4 << 10;

impl Default for Settings {
    /// Up to 256 streams. If nothing is read on either side, these hold 2 MiB + 256 × 16 KiB received, 256 × 64 KiB to be
    /// sent, and 256 × 4 KiB of headers: 23 MiB. A peer alone causes 7 MiB of that.
    fn default() -> Self {
        Self {
            streams: 256,
            buffer: INITIAL_WINDOW as usize,
            idle_timeout: None,
            ping_period: None,
            flow_control: FlowControl::Offered,
        }
    }
}
