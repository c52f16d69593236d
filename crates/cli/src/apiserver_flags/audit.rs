//! Audit flags: what is recorded, where it goes, and what happens if delivery fails.
//!
//! Names, defaults and checks are v1.34's. As there, the flags of an unused backend are not checked, and without a
//! policy nothing is recorded.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgAction, Args};
use setpoint::Clock;
use setpoint_apiserver::audit::{
    AuditConfig, BackendConfig, BatchSettings, Format, LogSink, Mode, Policy, Rotation, Throttle, Truncation,
    WebhookSink,
};
use setpoint_apiserver::auth::Outbound;
use setpoint_controllers::flags::duration;

const HEADING: &str = "Audit";
const VERSION: &str = "audit.k8s.io/v1";

#[derive(Debug, Args)]
#[command(next_help_heading = HEADING)]
pub(crate) struct AuditFlags {
    /// Audit policy: which requests are recorded, and in how much detail. Unset, nothing is recorded.
    #[arg(long, value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,
    #[command(flatten)]
    log: LogFlags,
    #[command(flatten)]
    webhook: WebhookFlags,
}

#[derive(Debug, Args)]
struct LogFlags {
    /// File audit events are written to; '-' is standard output.
    #[arg(long, value_name = "FILE", allow_hyphen_values = true)]
    audit_log_path: Option<PathBuf>,
    /// Days to keep rotated audit logs, by the timestamp in their names; 0 keeps them forever.
    #[arg(long, default_value_t = 0, value_name = "DAYS", allow_negative_numbers = true)]
    audit_log_maxage: i64,
    /// Number of rotated audit logs to keep; 0 keeps all.
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true)]
    audit_log_maxbackup: i64,
    /// Size in megabytes at which the audit log is rotated; 0 means 100.
    #[arg(long, default_value_t = 0, value_name = "MB", allow_negative_numbers = true)]
    audit_log_maxsize: i64,
    /// Compress rotated audit logs with gzip.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false,
        action = ArgAction::Set, value_name = "BOOL")]
    audit_log_compress: bool,
    /// Format of the audit log: json, or legacy for one line of text per event.
    #[arg(long, default_value = "json", value_name = "FORMAT")]
    audit_log_format: String,
    /// API version of the events in the audit log.
    #[arg(long, default_value = VERSION, value_name = "VERSION")]
    audit_log_version: String,
    /// When events are written: batch (in the background), blocking (before the response) or blocking-strict (before
    /// the response; a request that cannot be recorded fails).
    #[arg(long, default_value = "blocking", value_name = "MODE")]
    audit_log_mode: String,
    /// Number of events buffered in batch mode.
    #[arg(long, default_value_t = 10_000, value_name = "N", allow_negative_numbers = true)]
    audit_log_batch_buffer_size: i64,
    /// Maximum number of events in a batch.
    #[arg(long, default_value_t = 1, value_name = "N", allow_negative_numbers = true)]
    audit_log_batch_max_size: i64,
    /// Time after which a batch is written even if it is not full.
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration)]
    audit_log_batch_max_wait: Duration,
    /// Throttle batches.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false,
        action = ArgAction::Set, value_name = "BOOL")]
    audit_log_batch_throttle_enable: bool,
    /// Average number of batches written per second.
    #[arg(long, default_value_t = 0.0, value_name = "QPS", allow_negative_numbers = true)]
    audit_log_batch_throttle_qps: f64,
    /// Number of batches written in a burst.
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true)]
    audit_log_batch_throttle_burst: i64,
    /// Truncate events and batches that are too large.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false,
        action = ArgAction::Set, value_name = "BOOL")]
    audit_log_truncate_enabled: bool,
    /// Maximum size of a batch in bytes.
    #[arg(long, default_value_t = 10 << 20, value_name = "BYTES", allow_negative_numbers = true)]
    audit_log_truncate_max_batch_size: i64,
    /// Maximum size of an event in bytes. A larger one loses its objects; if it is still too large, it is dropped.
    #[arg(long, default_value_t = 100 << 10, value_name = "BYTES", allow_negative_numbers = true)]
    audit_log_truncate_max_event_size: i64,
}

#[derive(Debug, Args)]
struct WebhookFlags {
    /// Kubeconfig of the server audit events are sent to.
    #[arg(long, value_name = "FILE")]
    audit_webhook_config_file: Option<PathBuf>,
    /// Backoff after the first failed request.
    #[arg(long, alias = "audit-webhook-batch-initial-backoff", default_value = "10s", value_name = "DURATION",
        value_parser = duration)]
    audit_webhook_initial_backoff: Duration,
    /// API version of the events sent.
    #[arg(long, default_value = VERSION, value_name = "VERSION")]
    audit_webhook_version: String,
    /// When events are sent: batch, blocking or blocking-strict.
    #[arg(long, default_value = "batch", value_name = "MODE")]
    audit_webhook_mode: String,
    /// Number of events buffered in batch mode.
    #[arg(long, default_value_t = 10_000, value_name = "N", allow_negative_numbers = true)]
    audit_webhook_batch_buffer_size: i64,
    /// Maximum number of events in a batch.
    #[arg(long, default_value_t = 400, value_name = "N", allow_negative_numbers = true)]
    audit_webhook_batch_max_size: i64,
    /// Time after which a batch is sent even if it is not full.
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = duration)]
    audit_webhook_batch_max_wait: Duration,
    /// Throttle batches.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true,
        action = ArgAction::Set, value_name = "BOOL")]
    audit_webhook_batch_throttle_enable: bool,
    /// Average number of batches sent per second.
    #[arg(long, default_value_t = 10.0, value_name = "QPS", allow_negative_numbers = true)]
    audit_webhook_batch_throttle_qps: f64,
    /// Number of batches sent in a burst.
    #[arg(long, default_value_t = 15, value_name = "N", allow_negative_numbers = true)]
    audit_webhook_batch_throttle_burst: i64,
    /// Truncate events and batches that are too large.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false,
        action = ArgAction::Set, value_name = "BOOL")]
    audit_webhook_truncate_enabled: bool,
    /// Maximum size of a batch in bytes.
    #[arg(long, default_value_t = 10 << 20, value_name = "BYTES", allow_negative_numbers = true)]
    audit_webhook_truncate_max_batch_size: i64,
    /// Maximum size of an event in bytes. A larger one loses its objects; if it is still too large, it is dropped.
    #[arg(long, default_value_t = 100 << 10, value_name = "BYTES", allow_negative_numbers = true)]
    audit_webhook_truncate_max_event_size: i64,
}

/// The flags common to both backends.
struct Delivery<'a> {
    /// `log` or `webhook`.
    plugin: &'static str,
    mode: &'a str,
    version: &'a str,
    buffer_size: i64,
    max_size: i64,
    max_wait: Duration,
    throttle: Option<(f64, i64)>,
    truncates: bool,
    max_batch_bytes: i64,
    max_event_bytes: i64,
    concurrent: bool,
}

impl AuditFlags {
    /// Builds the audit configuration. `None` without a policy or without a backend.
    pub(crate) fn config(&self, outbound: &Outbound) -> anyhow::Result<Option<AuditConfig>> {
        let log = self.log.audit_log_path.as_deref().map(|path| (path, self.log.delivery()));
        let webhook = self.webhook.audit_webhook_config_file.as_deref();
        let webhook = webhook.map(|file| (file, self.webhook.delivery()));
        let mut problems = Vec::new();
        if let Some((_, delivery)) = &log {
            problems.extend(delivery.problems());
            problems.extend(self.log.problems());
        }
        problems.extend(webhook.iter().flat_map(|(_, delivery)| delivery.problems()));
        if !problems.is_empty() {
            bail!("{}", problems.join("\n"));
        }
        let Some(file) = &self.audit_policy_file else {
            if log.is_some() || webhook.is_some() {
                tracing::warn!("without --audit-policy-file nothing is recorded in the audit log");
            }
            return Ok(None);
        };
        let policy = policy(file)?;
        let mut backends = Vec::new();
        if let Some((path, delivery)) = log {
            backends.push(self.log.backend(path, &delivery, &outbound.clock)?);
        }
        if let Some((file, delivery)) = webhook {
            backends.push(self.webhook.backend(file, &delivery, outbound)?);
        }
        Ok((!backends.is_empty()).then_some(AuditConfig { policy, backends }))
    }
}

fn policy(file: &Path) -> anyhow::Result<Policy> {
    let text = std::fs::read_to_string(file).with_context(|| {
        format!("loading audit policy file: failed to read file path {:?}", file.display())
    })?;
    Policy::parse(&text).with_context(|| format!("loading audit policy file {}", file.display()))
}

impl LogFlags {
    fn delivery(&self) -> Delivery<'_> {
        let throttle = (self.audit_log_batch_throttle_qps, self.audit_log_batch_throttle_burst);
        Delivery {
            plugin: "log",
            mode: &self.audit_log_mode,
            version: &self.audit_log_version,
            buffer_size: self.audit_log_batch_buffer_size,
            max_size: self.audit_log_batch_max_size,
            max_wait: self.audit_log_batch_max_wait,
            throttle: self.audit_log_batch_throttle_enable.then_some(throttle),
            truncates: self.audit_log_truncate_enabled,
            max_batch_bytes: self.audit_log_truncate_max_batch_size,
            max_event_bytes: self.audit_log_truncate_max_event_size,
            concurrent: false,
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.format().is_none() {
            problems.push(format!(
                "invalid audit log format {}, allowed formats are \"legacy,json\"",
                self.audit_log_format
            ));
        }
        for (flag, value) in [
            ("maxage", self.audit_log_maxage),
            ("maxbackup", self.audit_log_maxbackup),
            ("maxsize", self.audit_log_maxsize),
        ] {
            if value < 0 {
                problems.push(format!("--audit-log-{flag} {value} can't be a negative number"));
            }
        }
        problems
    }

    fn format(&self) -> Option<Format> {
        match self.audit_log_format.as_str() {
            "json" => Some(Format::Json),
            "legacy" => Some(Format::Legacy),
            _ => None,
        }
    }

    fn backend(&self, path: &Path, delivery: &Delivery<'_>, clock: &Clock) -> anyhow::Result<BackendConfig> {
        let mode = delivery.mode();
        let rotation = Rotation {
            max_megabytes: self.audit_log_maxsize.unsigned_abs(),
            max_age_days: u32::try_from(self.audit_log_maxage).unwrap_or(u32::MAX),
            max_backups: usize::try_from(self.audit_log_maxbackup).unwrap_or(usize::MAX),
            compress: self.audit_log_compress,
        };
        let syncs = matches!(mode, Mode::BlockingStrict);
        let sink = LogSink::open(path, rotation, syncs, clock.clone())
            .with_context(|| format!("cannot open the audit log {} (--audit-log-path)", path.display()))?;
        let format = self.format().unwrap_or_default();
        Ok(BackendConfig { sink: Box::new(sink), mode, format, truncation: delivery.truncation() })
    }
}

impl WebhookFlags {
    fn delivery(&self) -> Delivery<'_> {
        let throttle = (self.audit_webhook_batch_throttle_qps, self.audit_webhook_batch_throttle_burst);
        Delivery {
            plugin: "webhook",
            mode: &self.audit_webhook_mode,
            version: &self.audit_webhook_version,
            buffer_size: self.audit_webhook_batch_buffer_size,
            max_size: self.audit_webhook_batch_max_size,
            max_wait: self.audit_webhook_batch_max_wait,
            throttle: self.audit_webhook_batch_throttle_enable.then_some(throttle),
            truncates: self.audit_webhook_truncate_enabled,
            max_batch_bytes: self.audit_webhook_truncate_max_batch_size,
            max_event_bytes: self.audit_webhook_truncate_max_event_size,
            concurrent: true,
        }
    }

    fn backend(
        &self,
        file: &Path,
        delivery: &Delivery<'_>,
        outbound: &Outbound,
    ) -> anyhow::Result<BackendConfig> {
        let sink = WebhookSink::from_kubeconfig(file, self.audit_webhook_initial_backoff, outbound)
            .context("initializing audit webhook (--audit-webhook-config-file)")?;
        let (mode, truncation) = (delivery.mode(), delivery.truncation());
        Ok(BackendConfig { sink: Box::new(sink), mode, format: Format::Json, truncation })
    }
}

impl Delivery<'_> {
    /// Returns the errors in the flags, with v1.34's messages.
    fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.batch_problem().into_iter().collect();
        let Self { plugin, max_event_bytes, max_batch_bytes, .. } = self;
        if *max_event_bytes <= 0 {
            problems.push(format!(
                "invalid audit truncate {plugin} max event size {max_event_bytes}, must be a positive number"
            ));
        } else if max_batch_bytes < max_event_bytes {
            problems.push(format!(
                "invalid audit truncate {plugin} max batch size {max_batch_bytes}, must be greater than max event \
                 size ({max_event_bytes})"
            ));
        }
        if self.version != VERSION {
            problems.push(format!(
                "--audit-{plugin}-version {:?}: invalid group version, allowed versions are [{VERSION:?}]",
                self.version
            ));
        }
        problems
    }

    fn batch_problem(&self) -> Option<String> {
        let plugin = self.plugin;
        let not_positive = |what: &str, value: &dyn std::fmt::Display| {
            Some(format!("invalid audit batch {plugin} {what} {value}, must be a positive number"))
        };
        match (self.mode, self.throttle) {
            ("blocking" | "blocking-strict", _) => None,
            ("batch", _) if self.buffer_size <= 0 => not_positive("buffer size", &self.buffer_size),
            ("batch", _) if self.max_size <= 0 => not_positive("max batch size", &self.max_size),
            ("batch", Some((qps, _))) if qps.is_nan() || qps <= 0.0 => not_positive("throttle QPS", &qps),
            ("batch", Some((_, burst))) if burst <= 0 => not_positive("throttle burst", &burst),
            ("batch", _) => None,
            (mode, _) => Some(format!(
                "invalid audit {plugin} mode {mode}, allowed modes are \"batch,blocking,blocking-strict\""
            )),
        }
    }

    /// Returns the mode. The flags must be valid.
    fn mode(&self) -> Mode {
        match self.mode {
            "blocking" => Mode::Blocking,
            "blocking-strict" => Mode::BlockingStrict,
            _ => Mode::Batch(BatchSettings {
                buffer_size: count(self.buffer_size),
                max_size: count(self.max_size),
                max_wait: self.max_wait,
                throttle: self
                    .throttle
                    .map(|(qps, burst)| Throttle { qps, burst: u32::try_from(burst).unwrap_or(u32::MAX) }),
                concurrent: self.concurrent,
            }),
        }
    }

    fn truncation(&self) -> Option<Truncation> {
        let truncation = Truncation {
            max_event_bytes: count(self.max_event_bytes),
            max_batch_bytes: count(self.max_batch_bytes),
        };
        self.truncates.then_some(truncation)
    }
}

fn count(number: i64) -> usize {
    usize::try_from(number).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        audit: AuditFlags,
    }

    fn problem(flags: &[&str]) -> String {
        let parsed = Command::try_parse_from([&["setpoint"], flags].concat()).unwrap();
        let config = parsed.audit.config(&Outbound::new(Clock::system(), setpoint::Rng::seeded(1)));
        config.err().map(|error| format!("{error:#}")).unwrap_or_default()
    }

    #[test]
    fn flags_are_checked_as_v1_34_does() {
        let log = "--audit-log-path=-";
        let webhook = "--audit-webhook-config-file=none";
        for (flags, expected) in [
            (&["--audit-log-mode=sometimes"][..], ""),
            (
                &[log, "--audit-log-mode=sometimes"],
                "invalid audit log mode sometimes, allowed modes are \"batch,blocking,blocking-strict\"",
            ),
            (
                &[log, "--audit-log-mode=batch", "--audit-log-batch-buffer-size=0"],
                "invalid audit batch log buffer size 0, must be a positive number",
            ),
            (&[log, "--audit-log-batch-buffer-size=0"], ""),
            (
                &[webhook, "--audit-webhook-batch-throttle-qps=-1"],
                "invalid audit batch webhook throttle QPS -1, must be a positive number",
            ),
            (
                &[
                    webhook,
                    "--audit-webhook-batch-throttle-qps=0",
                    "--audit-webhook-batch-throttle-enable=false",
                ],
                "",
            ),
            (
                &[log, "--audit-log-truncate-max-event-size=0"],
                "invalid audit truncate log max event size 0, must be a positive number",
            ),
            (
                &[log, "--audit-log-truncate-max-batch-size=1"],
                "invalid audit truncate log max batch size 1, must be greater than max event size (102400)",
            ),
            (
                &[log, "--audit-log-format=xml", "--audit-log-maxage=-1"],
                "invalid audit log format xml, allowed formats are \"legacy,json\"\n--audit-log-maxage -1 can't be a negative number",
            ),
            (
                &[log, "--audit-log-version=v2"],
                "--audit-log-version \"v2\": invalid group version, allowed versions are [\"audit.k8s.io/v1\"]",
            ),
        ] {
            assert_eq!(problem(flags), expected, "{flags:?}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let policy = directory.path().join("policy.yaml");
        let flag = format!("--audit-policy-file={}", policy.display());
        assert!(problem(&[&flag]).contains("policy.yaml"), "{}", problem(&[&flag]));
        std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{}]\n").unwrap();
        assert!(problem(&[&flag]).ends_with("rules[0].level: Required value"), "{}", problem(&[&flag]));
        std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None}]\n")
            .unwrap();
        assert_eq!(problem(&[&flag]), "");
        let log = format!("--audit-log-path={}/policy.yaml/audit.log", directory.path().display());
        assert!(problem(&[&flag, &log]).contains("(--audit-log-path)"), "{}", problem(&[&flag, &log]));
    }
}
