//! Parses a namespace's Pod Security labels.

use std::fmt;

use crate::field::{Errors, Path};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// A version of the standards: the minor version; `None` is the latest.
pub(super) type Version = Option<u32>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub(super) level: Level,
    pub(super) version: Version,
}

/// The levels to enforce, audit and warn about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) enforce: LevelVersion,
    pub(super) audit: LevelVersion,
    pub(super) warn: LevelVersion,
}

const PREFIX: &str = "pod-security.kubernetes.io/";

impl Default for Policy {
    fn default() -> Self {
        let open = LevelVersion { level: Level::Privileged, version: None };
        Self { enforce: open, audit: open, warn: open }
    }
}

impl Policy {
    /// Whether every pod passes without warnings or annotations.
    pub(super) fn is_fully_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|mode| mode.level == Level::Privileged)
    }

    /// Reads the labels. An invalid level enforces the strictest and warns about the least.
    pub(super) fn read<T: AsRef<str>>(label: impl Fn(&str) -> Option<T>) -> (Self, Errors) {
        let mut errors = Errors::default();
        let mut one = |mode: &str, on_error: Level| {
            let (level_label, version_label) = (format!("{PREFIX}{mode}"), format!("{PREFIX}{mode}-version"));
            let level = label(&level_label)
                .map(|text| parse_level(&level_label, text.as_ref(), on_error, &mut errors));
            let version =
                label(&version_label).map(|text| parse_version(&version_label, text.as_ref(), &mut errors));
            (level, version)
        };
        let (enforce, enforce_version) = one("enforce", Level::Restricted);
        let (audit, audit_version) = one("audit", Level::Privileged);
        let (warn, warn_version) = one("warn", Level::Privileged);
        let mut policy = Self::default();
        policy.enforce.level = enforce.map_or(Level::Privileged, |(level, _)| level);
        policy.enforce.version = enforce_version.flatten();
        policy.audit.level = audit.map_or(Level::Privileged, |(level, _)| level);
        policy.audit.version = audit_version.flatten();
        policy.warn.level = warn.map_or(Level::Privileged, |(level, _)| level);
        policy.warn.version = warn_version.flatten();
        // The enforce level is also the default warn level, so that workloads get warnings.
        if warn.is_none() && matches!(enforce, Some((level, true)) if level > policy.warn.level) {
            policy.warn.level = policy.enforce.level;
            if warn_version.is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }
}

/// Returns the level, and whether the label is valid.
fn parse_level(label: &str, text: &str, on_error: Level, errors: &mut Errors) -> (Level, bool) {
    match text {
        "privileged" => (Level::Privileged, true),
        "baseline" => (Level::Baseline, true),
        "restricted" => (Level::Restricted, true),
        _ => {
            complain(label, text, "must be one of privileged, baseline, restricted", errors);
            (on_error, false)
        }
    }
}

fn parse_version(label: &str, text: &str, errors: &mut Errors) -> Version {
    if text == "latest" {
        return None;
    }
    let minor = text.strip_prefix("v1.").filter(|minor| *minor == "0" || !minor.starts_with('0'));
    match minor.and_then(|minor| minor.parse().ok()) {
        Some(minor) => Some(minor),
        None => {
            complain(label, text, "must be \"latest\" or \"v1.x\"", errors);
            None
        }
    }
}

fn complain(label: &str, text: &str, detail: &str, errors: &mut Errors) {
    errors.invalid(&Path::root("metadata").child("labels").key(label), text, detail);
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.version {
            Some(minor) => write!(f, "{level}:v1.{minor}"),
            None => write!(f, "{level}:latest"),
        }
    }
}
