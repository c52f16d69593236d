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

pub(super) const PREFIX: &str = "pod-security.kubernetes.io/";

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

    /// Whether two policies treat every pod alike: the version of a privileged level does not matter.
    pub(super) fn is_equivalent(&self, other: &Self) -> bool {
        let is_alike =
            |a: LevelVersion, b: LevelVersion| a == b || a.level == b.level && a.level == Level::Privileged;
        is_alike(self.enforce, other.enforce)
            && is_alike(self.audit, other.audit)
            && is_alike(self.warn, other.warn)
    }

    /// Reads the labels; modes without labels are those of `defaults`. An invalid level enforces the strictest and warns
    /// about the least.
    pub(super) fn read<T: AsRef<str>>(defaults: Self, label: impl Fn(&str) -> Option<T>) -> (Self, Errors) {
        let mut errors = Errors::default();
        let mut one = |mode: &str, on_error: Level| {
            let (level_label, version_label) = (format!("{PREFIX}{mode}"), format!("{PREFIX}{mode}-version"));
            let level = label(&level_label).map(|text| {
                let level = parse_level(text.as_ref());
                level.map(|level| (level, true)).unwrap_or_else(|why| {
                    add_invalid(&level_label, text.as_ref(), why, &mut errors);
                    (on_error, false)
                })
            });
            let version = label(&version_label).map(|text| {
                parse_version(text.as_ref()).unwrap_or_else(|why| {
                    add_invalid(&version_label, text.as_ref(), why, &mut errors);
                    None
                })
            });
            (level, version)
        };
        let (enforce, enforce_version) = one("enforce", Level::Restricted);
        let (audit, audit_version) = one("audit", Level::Privileged);
        let (warn, warn_version) = one("warn", Level::Privileged);
        let of =
            |default: LevelVersion, level: Option<(Level, bool)>, version: Option<Version>| LevelVersion {
                level: level.map_or(default.level, |(level, _)| level),
                version: version.unwrap_or(default.version),
            };
        let mut policy = Self {
            enforce: of(defaults.enforce, enforce, enforce_version),
            audit: of(defaults.audit, audit, audit_version),
            warn: of(defaults.warn, warn, warn_version),
        };
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

/// Reads a level; the error says what is expected.
pub(super) fn parse_level(text: &str) -> Result<Level, &'static str> {
    match text {
        "privileged" => Ok(Level::Privileged),
        "baseline" => Ok(Level::Baseline),
        "restricted" => Ok(Level::Restricted),
        _ => Err("must be one of privileged, baseline, restricted"),
    }
}

/// Reads a version; the error says what is expected.
pub(super) fn parse_version(text: &str) -> Result<Version, &'static str> {
    if text == "latest" {
        return Ok(None);
    }
    let minor = text.strip_prefix("v1.").filter(|minor| *minor == "0" || !minor.starts_with('0'));
    match minor.and_then(|minor| minor.parse().ok()) {
        Some(minor) => Ok(Some(minor)),
        None => Err("must be \"latest\" or \"v1.x\""),
    }
}

fn add_invalid(label: &str, text: &str, detail: &str, errors: &mut Errors) {
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
