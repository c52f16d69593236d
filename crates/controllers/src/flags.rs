//! The command line flags of the controllers.
//!
//! A controller declares its flags as data: name, default, what it sets. The command line, its help, the documentation
//! and error messages are generated from [`all`].

use std::time::Duration;

use crate::registry::{Entry, Options};

/// A flag of kube-controller-manager.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Without dashes: `concurrent-deployment-syncs`.
    pub name: &'static str,
    /// The kind of value: `N`, `DURATION`.
    pub value: &'static str,
    pub default: &'static str,
    pub help: &'static str,
    set: Set,
}

#[derive(Clone, Copy, Debug)]
enum Set {
    /// The number of workers of this controller.
    Workers(&'static str),
    With(fn(&mut Options, &str) -> Result<(), String>),
}

/// An invalid flag value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid argument {value:?} for \"--{flag}\" flag: {expected}")]
pub struct BadFlag {
    pub flag: &'static str,
    pub value: String,
    pub expected: String,
}

impl Flag {
    /// Declares a flag for a controller's number of workers.
    pub(crate) const fn workers(name: &'static str, entry: &Entry, default: &'static str) -> Self {
        let help =
            "Number of objects synced concurrently; larger values are more responsive but use more CPU.";
        Self { name, value: "N", default, help, set: Set::Workers(entry.name) }
    }

    pub(crate) const fn new(
        name: &'static str,
        value: &'static str,
        default: &'static str,
        help: &'static str,
        set: fn(&mut Options, &str) -> Result<(), String>,
    ) -> Self {
        Self { name, value, default, help, set: Set::With(set) }
    }

    /// Applies the value to the options.
    pub fn apply(&self, options: &mut Options, value: &str) -> Result<(), BadFlag> {
        let applied = match self.set {
            Set::Workers(controller) => count(value).map(|workers| {
                options.workers.insert(controller.to_owned(), workers);
            }),
            Set::With(set) => set(options, value),
        };
        applied.map_err(|expected| BadFlag { flag: self.name, value: value.to_owned(), expected })
    }
}

/// All flags of all controllers.
pub fn all() -> impl Iterator<Item = &'static Flag> {
    crate::registry::FLAGS.iter().copied().flatten()
}

/// Parses a number of workers: at least one.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "expected a number greater than 0".into())
}

pub(crate) fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| "expected a number".into())
}

pub(crate) fn truth(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".into()),
    }
}

/// Parses a Go duration: `1h30m`, `15s`, `1.5h`, `100ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a duration such as 15s, 5m or 1h30m".to_owned();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(end);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let unit_end = tail.find(|letter: char| letter.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = tail;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        let check =
            |text: &str, expected: Option<Duration>| assert_eq!(duration(text).ok(), expected, "{text}");
        check("15s", Some(Duration::from_secs(15)));
        check("1h30m", Some(Duration::from_secs(5400)));
        check("1.5h", Some(Duration::from_secs(5400)));
        check("100ms", Some(Duration::from_millis(100)));
        check("8760h0m0s", Some(Duration::from_secs(8760 * 3600)));
        check("0", Some(Duration::ZERO));
        for wrong in ["", "15", "s", "-1s", "1d", "soon"] {
            check(wrong, None);
        }
    }

    #[test]
    fn every_flag_takes_its_own_default_and_no_other_has_its_name() {
        let mut seen = BTreeSet::new();
        for flag in all() {
            assert!(seen.insert(flag.name), "--{} is there twice", flag.name);
            flag.apply(&mut Options::default(), flag.default)
                .unwrap_or_else(|error| panic!("the default of --{}: {error}", flag.name));
        }
    }

    #[test]
    fn an_invalid_value_is_an_error_that_names_the_flag() {
        let flag = all().find(|flag| flag.name == "concurrent-deployment-syncs").unwrap();
        let error = flag.apply(&mut Options::default(), "many").unwrap_err().to_string();
        let expected = "invalid argument \"many\" for \"--concurrent-deployment-syncs\" flag: \
                        expected a number greater than 0";
        assert_eq!(error, expected);
        let mut options = Options::default();
        flag.apply(&mut options, "9").unwrap();
        assert_eq!(options.workers["deployment-controller"], 9);
    }
}
