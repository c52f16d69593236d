//! What connections are allowed, and how serving ends.

use std::time::Duration;

/// The limits of connections and the course of a shutdown.
#[derive(Clone, Debug, PartialEq)]
pub struct ServeSettings {
    /// Connections at once. Beyond it the one that has been idle for longest makes room.
    pub connections: usize,
    /// Connections of one client address.
    pub connections_per_client: usize,
    /// Connections of one user, who may come from many addresses.
    pub connections_per_user: usize,
    /// HTTP/2 requests under way on one connection (`--http2-max-streams-per-connection`).
    pub http2_streams: u32,
    /// The part of HTTP/2 requests after which a client is asked to connect anew (`--goaway-chance`).
    pub goaway_chance: f64,
    /// Whether requests that come while others are drained are told to come back (`--shutdown-send-retry-after`)
    /// instead of finding nothing that listens.
    pub send_retry_after: bool,
    /// Over how long open watches end (`--shutdown-watch-termination-grace-period`).
    pub watch_grace: Duration,
}

impl Default for ServeSettings {
    /// Twice the 5,000 watchers of a large cluster, each on a connection of its own; at some 60 KB of buffers each
    /// that is 600 MB in the worst case. One address leaves a fifth to the others, and so does one user.
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
