//! The controllers' flags, generated from each controller's declarations.

use clap::{Arg, ArgAction, ArgMatches, Command};
use setpoint_controllers::flags::{BadFlag, Flag, all};
use setpoint_controllers::{Entry, Options, selected, why_absent};

use crate::args::Controllers;

/// The values given for the controllers' flags.
#[derive(Debug, Default)]
pub(crate) struct ControllerFlags {
    given: Vec<(&'static Flag, String)>,
}

impl ControllerFlags {
    /// Applies the given values.
    pub(crate) fn apply(&self, options: &mut Options) -> Result<(), BadFlag> {
        self.given.iter().try_for_each(|(flag, value)| flag.apply(options, value))
    }

    /// Every flag with its effective value.
    pub(crate) fn effective(&self) -> impl Iterator<Item = (&'static str, &str)> {
        all().map(|flag| {
            let given = self.given.iter().find(|(given, _)| given.name == flag.name);
            (flag.name, given.map_or(flag.default, |(_, value)| value))
        })
    }
}

fn arg(flag: &'static Flag) -> Arg {
    let default =
        if flag.default.is_empty() { String::new() } else { format!(" [default: {}]", flag.default) };
    let arg = Arg::new(flag.name)
        .long(flag.name)
        .value_name(flag.value)
        .help(format!("{}{default}", flag.help))
        .help_heading("Controllers")
        .action(ArgAction::Set)
        .allow_hyphen_values(true);
    match flag.value {
        "BOOL" => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        _ => arg,
    }
}

impl clap::Args for ControllerFlags {
    fn augment_args(command: Command) -> Command {
        all().fold(command, |command, flag| command.arg(arg(flag)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for ControllerFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value =
            |flag: &'static Flag| matches.get_one::<String>(flag.name).map(|value| (flag, value.clone()));
        Ok(Self { given: all().filter_map(value).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns the selected controllers. Prints why a controller that is named explicitly cannot run.
pub(crate) fn selection(arguments: &Controllers) -> anyhow::Result<Vec<&'static Entry>> {
    use anyhow::Context;
    let (list, gates) = (&arguments.selection, &arguments.feature_gates);
    let mut controllers = selected(list).context("--controllers")?;
    let named =
        |entry: &Entry| list.iter().any(|word| word == entry.name || entry.aliases.contains(&word.as_str()));
    controllers.retain(|entry| {
        let closed = || entry.closed_gate(gates).map(|gate| format!("it needs --feature-gates={gate}=true"));
        let why = why_absent(entry).map(str::to_owned).or_else(closed);
        if let Some(why) = why.as_ref().filter(|_| named(entry)) {
            eprintln!("{} is not started: {why}", entry.name);
        }
        why.is_none()
    });
    Ok(controllers)
}
