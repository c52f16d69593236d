//! Flags of kube-controller-manager whose value is settled here: what they would turn on is not there, or cannot be
//! turned off. One that says what is so anyway is accepted; any other value is an error that says why.

use anyhow::bail;
use clap::{Arg, ArgAction, ArgMatches, Command};

/// A flag with a settled value.
struct Settled {
    name: &'static str,
    /// What kind of value it takes: `BOOL`, `FILE`.
    value: &'static str,
    /// The values that say what is so anyway; none: all of them do.
    accepted: &'static [&'static str],
    why: &'static str,
    /// What is printed if it is given at all.
    deprecated: Option<&'static str>,
}

const NO_CLOUD: &str = "there is no cloud in this binary: run the cloud's own manager";
const NO_MIGRATION: &str = "controllers are not handed from one manager to another one by one";
const NOT_CACHED: &str = "the API server is asked anew each time";
const NO_LOOKUP: &str = "nothing is looked up in the cluster: name authorities with --client-ca-file and \
                         --requestheader-client-ca-file";
const ONE_STREAM: &str = "log lines are written at once, to standard error";
const ALL_LABELS: &str = "metrics keep the values of all their labels";

const ALL: &[Settled] = &[
    settled("contention-profiling", "BOOL", &["false"], "there are profiles of CPU and memory only"),
    settled("enable-leader-migration", "BOOL", &["false"], NO_MIGRATION),
    settled("leader-migration-config", "FILE", &[""], NO_MIGRATION),
    settled("cloud-provider", "NAME", &["", "external"], NO_CLOUD),
    settled("cloud-config", "FILE", &[""], NO_CLOUD),
    settled("external-cloud-volume-plugin", "NAME", &[""], NO_CLOUD),
    settled("configure-cloud-routes", "BOOL", &[], NO_CLOUD),
    settled("route-reconciliation-period", "DURATION", &[], NO_CLOUD),
    deprecated(
        "allow-untagged-cloud",
        "BOOL",
        "This flag is deprecated and will be removed in a future release. A cluster-id will be required on cloud \
         instances.",
    ),
    deprecated("node-sync-period", "DURATION", "This flag is currently no-op and will be deleted."),
    settled("emulated-version", "VERSION", &["", "1.34", "kube=1.34"], "everything is as in v1.34"),
    settled("authentication-skip-lookup", "BOOL", &[], NO_LOOKUP),
    settled("authentication-tolerate-lookup-failure", "BOOL", &[], NO_LOOKUP),
    settled("authentication-token-webhook-cache-ttl", "DURATION", &[], NOT_CACHED),
    settled("authorization-webhook-cache-authorized-ttl", "DURATION", &[], NOT_CACHED),
    settled("authorization-webhook-cache-unauthorized-ttl", "DURATION", &[], NOT_CACHED),
    settled("allow-metric-labels", "LABELS", &[""], ALL_LABELS),
    settled("allow-metric-labels-manifest", "FILE", &[""], ALL_LABELS),
    settled("show-hidden-metrics-for-version", "VERSION", &["", "1.33"], "no metrics are hidden"),
    settled("log-flush-frequency", "DURATION", &[], ONE_STREAM),
    settled("log-json-info-buffer-size", "BYTES", &["", "0"], ONE_STREAM),
    settled("log-json-split-stream", "BOOL", &["false"], ONE_STREAM),
    settled("log-text-info-buffer-size", "BYTES", &["", "0"], ONE_STREAM),
    settled("log-text-split-stream", "BOOL", &["false"], ONE_STREAM),
    settled("vmodule", "PATTERN", &[""], "use --log, which takes a level for each module"),
];

const fn settled(
    name: &'static str,
    value: &'static str,
    accepted: &'static [&'static str],
    why: &'static str,
) -> Settled {
    Settled { name, value, accepted, why, deprecated: None }
}

const fn deprecated(name: &'static str, value: &'static str, word: &'static str) -> Settled {
    Settled { name, value, accepted: &[], why: "it has no effect", deprecated: Some(word) }
}

/// What was given for such flags.
#[derive(Debug, Default)]
pub(crate) struct SettledFlags {
    given: Vec<(&'static str, String)>,
}

impl SettledFlags {
    /// Says what there is to say about them; a value that cannot be had is an error.
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

fn arg(flag: &'static Settled) -> Arg {
    let values = match flag.accepted {
        [] => "any value is accepted".to_owned(),
        values => {
            let shown: Vec<_> = values.iter().map(|value| format!("{value:?}")).collect();
            format!("accepted: {}", shown.join(", "))
        }
    };
    let arg = Arg::new(flag.name)
        .long(flag.name)
        .value_name(flag.value)
        .help(format!("Settled: {} ({values})", flag.why))
        .help_heading("Settled")
        .action(ArgAction::Set);
    match flag.value {
        "BOOL" => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        _ => arg,
    }
}

impl clap::Args for SettledFlags {
    fn augment_args(command: Command) -> Command {
        ALL.iter().fold(command, |command, flag| command.arg(arg(flag)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for SettledFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |flag: &'static Settled| {
            matches.get_one::<String>(flag.name).map(|value| (flag.name, value.clone()))
        };
        Ok(Self { given: ALL.iter().filter_map(value).collect() })
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
    fn what_is_so_anyway_may_be_said_and_nothing_else() {
        let check = |name: &'static str, value: &str, expected: Result<(), &str>| {
            let flags = SettledFlags { given: vec![(name, value.to_owned())] };
            let checked = flags.check().map_err(|error| error.to_string());
            assert_eq!(checked, expected.map_err(str::to_owned), "--{name}={value}");
        };
        check("cloud-provider", "external", Ok(()));
        check("cloud-provider", "", Ok(()));
        let no_cloud = "--cloud-provider=aws is not supported: there is no cloud in this binary: run the cloud's \
                        own manager";
        check("cloud-provider", "aws", Err(no_cloud));
        check("route-reconciliation-period", "10s", Ok(()));
        check(
            "emulated-version",
            "1.33",
            Err("--emulated-version=1.33 is not supported: everything is as in v1.34"),
        );
    }
}
