//! Flags of kube-controller-manager and kube-scheduler that have only one supported value: the feature is missing or cannot be turned off.
//! That value is accepted; any other is rejected with an explanation.

use anyhow::bail;
use clap::{Arg, ArgAction, ArgMatches, Command};

/// A flag with one supported value.
struct FixedFlag {
    name: &'static str,
    /// Placeholder for its value: `BOOL`, `FILE`.
    value: &'static str,
    /// The values that match the behaviour; empty if any value does.
    accepted: &'static [&'static str],
    why: &'static str,
    /// Deprecation warning printed if the flag is set.
    deprecated: Option<&'static str>,
}

const NO_CLOUD: &str = "cloud providers are not built in (run the provider's cloud-controller-manager)";
const NO_MIGRATION: &str = "leader migration is not supported";
const NOT_CACHED: &str = "reviews are not cached";
const NO_LOOKUP: &str =
    "CAs are not read from the cluster (set --client-ca-file and --requestheader-client-ca-file)";
const ONE_STREAM: &str = "logs are written unbuffered to stderr";
const ALL_LABELS: &str = "metrics keep all label values";

const ALL: &[FixedFlag] = &[
    fixed("contention-profiling", "BOOL", &["false"], "only CPU and heap profiles are supported"),
    fixed("enable-leader-migration", "BOOL", &["false"], NO_MIGRATION),
    fixed("leader-migration-config", "FILE", &[""], NO_MIGRATION),
    fixed("cloud-provider", "NAME", &["", "external"], NO_CLOUD),
    fixed("cloud-config", "FILE", &[""], NO_CLOUD),
    fixed("external-cloud-volume-plugin", "NAME", &[""], NO_CLOUD),
    fixed("configure-cloud-routes", "BOOL", &[], NO_CLOUD),
    fixed("route-reconciliation-period", "DURATION", &[], NO_CLOUD),
    deprecated(
        "allow-untagged-cloud",
        "BOOL",
        "This flag is deprecated and will be removed in a future release. A cluster-id will be required on cloud \
         instances.",
    ),
    deprecated("node-sync-period", "DURATION", "This flag is currently no-op and will be deleted."),
    fixed(
        "pod-max-in-unschedulable-pods-duration",
        "DURATION",
        &["5m", "5m0s", "300s"],
        "an unschedulable pod is tried again after five minutes at the latest",
    ),
    fixed("emulated-version", "VERSION", &["", "1.34", "kube=1.34"], "only v1.34 is emulated"),
    fixed("authentication-skip-lookup", "BOOL", &[], NO_LOOKUP),
    fixed("authentication-tolerate-lookup-failure", "BOOL", &[], NO_LOOKUP),
    fixed("authentication-token-webhook-cache-ttl", "DURATION", &[], NOT_CACHED),
    fixed("authorization-webhook-cache-authorized-ttl", "DURATION", &[], NOT_CACHED),
    fixed("authorization-webhook-cache-unauthorized-ttl", "DURATION", &[], NOT_CACHED),
    fixed("allow-metric-labels", "LABELS", &[""], ALL_LABELS),
    fixed("allow-metric-labels-manifest", "FILE", &[""], ALL_LABELS),
    fixed("show-hidden-metrics-for-version", "VERSION", &["", "1.33"], "no metrics are hidden"),
    fixed("log-flush-frequency", "DURATION", &[], ONE_STREAM),
    fixed("log-json-info-buffer-size", "BYTES", &["", "0"], ONE_STREAM),
    fixed("log-json-split-stream", "BOOL", &["false"], ONE_STREAM),
    fixed("log-text-info-buffer-size", "BYTES", &["", "0"], ONE_STREAM),
    fixed("log-text-split-stream", "BOOL", &["false"], ONE_STREAM),
    fixed("vmodule", "PATTERN", &[""], "use --log, which takes a level per module"),
];

/// Those of kube-scheduler.
const SCHEDULER: [&str; 17] = [
    "contention-profiling",
    "pod-max-in-unschedulable-pods-duration",
    "emulated-version",
    "authentication-skip-lookup",
    "authentication-tolerate-lookup-failure",
    "authentication-token-webhook-cache-ttl",
    "authorization-webhook-cache-authorized-ttl",
    "authorization-webhook-cache-unauthorized-ttl",
    "allow-metric-labels",
    "allow-metric-labels-manifest",
    "show-hidden-metrics-for-version",
    "log-flush-frequency",
    "log-json-info-buffer-size",
    "log-json-split-stream",
    "log-text-info-buffer-size",
    "log-text-split-stream",
    "vmodule",
];
/// Those that only kube-scheduler has.
const ONLY_SCHEDULER: [&str; 1] = ["pod-max-in-unschedulable-pods-duration"];

fn flags(of_scheduler: bool) -> impl Iterator<Item = &'static FixedFlag> {
    ALL.iter().filter(move |flag| match of_scheduler {
        true => SCHEDULER.contains(&flag.name),
        false => !ONLY_SCHEDULER.contains(&flag.name),
    })
}

const fn fixed(
    name: &'static str,
    value: &'static str,
    accepted: &'static [&'static str],
    why: &'static str,
) -> FixedFlag {
    FixedFlag { name, value, accepted, why, deprecated: None }
}

const fn deprecated(name: &'static str, value: &'static str, word: &'static str) -> FixedFlag {
    FixedFlag { name, value, accepted: &[], why: "it has no effect", deprecated: Some(word) }
}

/// The values given for these flags, of the scheduler or the controller manager.
#[derive(Debug, Default)]
pub(crate) struct FixedFlags<const OF_SCHEDULER: bool = false> {
    given: Vec<(&'static str, String)>,
}

impl<const OF_SCHEDULER: bool> FixedFlags<OF_SCHEDULER> {
    /// Rejects unsupported values and prints deprecation warnings.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        for (name, value) in &self.given {
            let Some(flag) = ALL.iter().find(|flag| flag.name == *name) else { continue };
            if !flag.accepted.is_empty() && !flag.accepted.contains(&value.as_str()) {
                bail!("--{name}={value} is not supported: {}", flag.why);
            }
            if let Some(word) = flag.deprecated {
                eprintln!("Flag --{name} has been deprecated, {word}");
            }
        }
        Ok(())
    }
}

fn arg(flag: &'static FixedFlag) -> Arg {
    let values = match flag.accepted {
        [] => "Any value is accepted".to_owned(),
        values => {
            let shown: Vec<_> = values.iter().map(|value| format!("{value:?}")).collect();
            format!("Accepted: {}", shown.join(", "))
        }
    };
    let arg = Arg::new(flag.name)
        .long(flag.name)
        .value_name(flag.value)
        .help(format!("Not configurable: {}. {values}", flag.why))
        .help_heading("Compatibility")
        .action(ArgAction::Set);
    match flag.value {
        "BOOL" => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        _ => arg,
    }
}

impl<const OF_SCHEDULER: bool> clap::Args for FixedFlags<OF_SCHEDULER> {
    fn augment_args(command: Command) -> Command {
        flags(OF_SCHEDULER).fold(command, |command, flag| command.arg(arg(flag)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const OF_SCHEDULER: bool> clap::FromArgMatches for FixedFlags<OF_SCHEDULER> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |flag: &'static FixedFlag| {
            matches.get_one::<String>(flag.name).map(|value| (flag.name, value.clone()))
        };
        Ok(Self { given: flags(OF_SCHEDULER).filter_map(value).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_supported_values_are_accepted() {
        let check = |name: &'static str, value: &str, expected: Result<(), &str>| {
            let flags = FixedFlags::<false> { given: vec![(name, value.to_owned())] };
            let checked = flags.check().map_err(|error| error.to_string());
            assert_eq!(checked, expected.map_err(str::to_owned), "--{name}={value}");
        };
        check("cloud-provider", "external", Ok(()));
        check("cloud-provider", "", Ok(()));
        let no_cloud = "--cloud-provider=aws is not supported: cloud providers are not built in (run the provider's \
                        cloud-controller-manager)";
        check("cloud-provider", "aws", Err(no_cloud));
        check("route-reconciliation-period", "10s", Ok(()));
        check(
            "emulated-version",
            "1.33",
            Err("--emulated-version=1.33 is not supported: only v1.34 is emulated"),
        );
    }
}
