//! Limits on requests, watches and connections, and shutdown flags.

use std::time::Duration;

use anyhow::bail;
use clap::{ArgAction, Args};
use setpoint_apiserver::{Config, FlowSettings, ServeSettings, WatchLimits};
use setpoint_controllers::flags::duration;

/// The maximum fraction of requests answered with GOAWAY.
const MAX_GOAWAY_CHANCE: f64 = 0.02;

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitFlags {
    /// Maximum number of read requests in flight. With priority and fairness, this and
    /// --max-mutating-requests-inflight add up to the total number of seats. 0 means no limit otherwise.
    #[arg(long, default_value_t = 400, value_name = "N")]
    max_requests_inflight: u32,
    /// Maximum number of mutating requests in flight; see --max-requests-inflight.
    #[arg(long, default_value_t = 200, value_name = "N")]
    max_mutating_requests_inflight: u32,
    /// Queue requests by FlowSchemas and PriorityLevelConfigurations instead of the two plain limits above.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true,
        action = ArgAction::Set, value_name = "BOOL")]
    enable_priority_and_fairness: bool,
    /// Deadline of requests other than watches and streams.
    #[arg(long, default_value = "1m", value_name = "DURATION", value_parser = duration)]
    request_timeout: Duration,
    /// Minimum duration in seconds of a watch that sets no timeout; the actual one is between this and twice this.
    #[arg(long, default_value_t = 1800, value_name = "SECONDS")]
    min_request_timeout: u32,
    /// Fraction of HTTP/2 requests answered with GOAWAY, so that clients reconnect; at most 0.02.
    #[arg(long, default_value_t = 0.0, value_name = "FRACTION")]
    goaway_chance: f64,
    /// Maximum number of concurrent HTTP/2 streams per connection; 0 means 100.
    #[arg(long, default_value_t = 0, value_name = "N")]
    http2_max_streams_per_connection: u32,
    /// Maximum number of connections. At the limit, the one idle longest is closed.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    max_connections: usize,
    /// Maximum number of connections per client address.
    #[arg(long, default_value_t = 8_000, value_name = "N")]
    max_connections_per_client: usize,
    /// Maximum number of connections per user, from all addresses. Anonymous clients count as one user.
    #[arg(long, default_value_t = 8_000, value_name = "N")]
    max_connections_per_user: usize,
    /// Maximum number of open watches. More are rejected with 429.
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    max_watches: usize,
    /// Maximum number of open watches per user.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    max_watches_per_user: usize,
    /// How long to keep serving after SIGTERM while /readyz fails.
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration)]
    shutdown_delay_duration: Duration,
    /// Keep listening until requests in flight have finished, and reject new ones with 429 and Retry-After.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false,
        action = ArgAction::Set, value_name = "BOOL")]
    shutdown_send_retry_after: bool,
    /// Period over which open watches are closed on shutdown.
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration)]
    shutdown_watch_termination_grace_period: Duration,
}

impl LimitFlags {
    /// Applies these limits.
    pub(crate) fn apply(&self, config: Config) -> anyhow::Result<Config> {
        self.check()?;
        let flow = FlowSettings {
            max_requests: self.max_requests_inflight,
            max_mutating_requests: self.max_mutating_requests_inflight,
            is_fair: self.enable_priority_and_fairness,
        };
        let usual = ServeSettings::default();
        let serving = ServeSettings {
            connections: self.max_connections,
            connections_per_client: self.max_connections_per_client,
            connections_per_user: self.max_connections_per_user,
            http2_streams: match self.http2_max_streams_per_connection {
                0 => usual.http2_streams,
                streams => streams,
            },
            goaway_chance: self.goaway_chance,
            send_retry_after: self.shutdown_send_retry_after,
            watch_grace: self.shutdown_watch_termination_grace_period,
        };
        Ok(Config {
            flow: Some(flow),
            watch_limits: WatchLimits { total: self.max_watches, per_user: self.max_watches_per_user },
            request_timeout: self.request_timeout,
            min_request_timeout: Duration::from_secs(self.min_request_timeout.into()),
            serving,
            ..config
        })
    }

    /// Returns how long requests are still served after the stop signal.
    pub(crate) fn shutdown_delay(&self) -> Duration {
        self.shutdown_delay_duration
    }

    fn check(&self) -> anyhow::Result<()> {
        let seats = u64::from(self.max_requests_inflight) + u64::from(self.max_mutating_requests_inflight);
        if self.enable_priority_and_fairness && seats == 0 {
            bail!(
                "--max-requests-inflight plus --max-mutating-requests-inflight must be positive with priority and fairness"
            );
        }
        if !(0.0..=MAX_GOAWAY_CHANCE).contains(&self.goaway_chance) {
            bail!("--goaway-chance must be between 0 and {MAX_GOAWAY_CHANCE}");
        }
        let positive = [
            ("--request-timeout", self.request_timeout.is_zero()),
            ("--max-connections", self.max_connections == 0),
            ("--max-connections-per-client", self.max_connections_per_client == 0),
            ("--max-connections-per-user", self.max_connections_per_user == 0),
        ];
        match positive.iter().find(|(_, is_zero)| *is_zero) {
            Some((flag, _)) => bail!("{flag} must be positive"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        limits: LimitFlags,
    }

    fn problem(flags: &[&str]) -> Option<String> {
        let only =
            Only::try_parse_from(std::iter::once(&"x").chain(flags)).map_err(|error| error.to_string());
        match only {
            Ok(only) => only.limits.check().err().map(|error| error.to_string()),
            Err(error) => Some(error),
        }
    }

    #[test]
    fn invalid_limits_are_rejected() {
        assert_eq!(problem(&[]), None);
        assert_eq!(problem(&["--goaway-chance=0.02", "--enable-priority-and-fairness=false"]), None);
        assert!(problem(&["--goaway-chance=0.03"]).unwrap().contains("--goaway-chance"));
        assert!(problem(&["--goaway-chance=NaN"]).is_some());
        assert!(problem(&["--max-connections-per-user=0"]).unwrap().contains("--max-connections-per-user"));
        assert!(problem(&["--request-timeout=0s"]).unwrap().contains("--request-timeout"));
        let none = ["--max-requests-inflight=0", "--max-mutating-requests-inflight=0"];
        assert!(problem(&none).is_some());
        assert_eq!(problem(&[none[0], none[1], "--enable-priority-and-fairness=false"]), None);
    }
}
