//! Connection limits and shutdown settings.

use std::time::Duration;

/// Connection limits and shutdown settings.
#[derive(Clone, Debug, PartialEq)]
pub struct ServeSettings {
    /// Maximum number of connections. Beyond it, the longest idle one is closed.
    pub connections: usize,
    /// Maximum connections per client address.
    pub connections_per_client: usize,
    /// Maximum connections per user, who may come from many addresses.
    pub connections_per_user: usize,
    /// Maximum concurrent HTTP/2 requests per connection (`--http2-max-streams-per-connection`).
    pub http2_streams: u32,
    /// Fraction of HTTP/2 requests after which a client is asked to reconnect (`--goaway-chance`).
    pub goaway_chance: f64,
    /// Whether requests that arrive while draining are told to retry (`--shutdown-send-retry-after`), instead of
    /// finding the port closed.
    pub send_retry_after: bool,
    /// The time over which open watches end (`--shutdown-watch-termination-grace-period`).
    pub watch_grace: Duration,
}

impl Default for ServeSettings {
    /// Allows twice the 5,000 watchers of a large cluster, each on its own connection; at about 60 KB of buffers each
    /// that is 600 MB in the worst case. A single address leaves a fifth to the others, and so does a single user.
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_per_client: 8_000,
            connections_per_user: 8_000,
            http2_streams: 100,
            goaway_chance: 0.0,
            send_retry_after: false,
            watch_grace: Duration::ZERO,
        }
    }
}
