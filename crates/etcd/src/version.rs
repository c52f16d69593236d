//! etcd's versions: which are supported, and what they can do.

use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    major: u64,
    minor: u64,
    patch: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VersionError {
    #[error(
        "version {0} is not supported, expected 3.5 or 3.6. etcd 3.4 no longer gets fixes, and its watches can lose \
         events after a compaction. Upgrade etcd one minor version at a time"
    )]
    TooOld(Version),
    #[error("version {0} is not supported, expected 3.5 or 3.6")]
    TooNew(Version),
    #[error("its version is {0:?}, expected three numbers")]
    Unknown(String),
}

impl Version {
    const fn new(major: u64, minor: u64, patch: u64) -> Self {
        Self { major, minor, patch }
    }

    pub(crate) fn check(self) -> Result<(), VersionError> {
        match self {
            version if version < Self::new(3, 5, 0) => Err(VersionError::TooOld(version)),
            version if version >= Self::new(4, 0, 0) => Err(VersionError::TooNew(version)),
            _ => Ok(()),
        }
    }

    /// Whether a crash may leave the members of a cluster with different data.
    pub(crate) fn may_corrupt(self) -> bool {
        self < Self::new(3, 5, 3)
    }

    /// Whether a progress notification follows all events up to its revision.
    pub(crate) fn has_reliable_progress(self) -> bool {
        self >= Self::new(3, 5, 13)
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let unknown = || VersionError::Unknown(text.to_owned());
        let release = text.split(['-', '+']).next().unwrap_or_default();
        let numbers: Result<Vec<u64>, _> = release.split('.').map(str::parse).collect();
        match numbers.map_err(|_| unknown())?[..] {
            [major, minor, patch] => Ok(Self::new(major, minor, patch)),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_3_5_and_later_are_supported() {
        let check =
            |text: &str| text.parse::<Version>().and_then(Version::check).map_err(|why| why.to_string());
        for text in ["3.5.0", "3.5.21", "3.6.0-rc.1", "3.7.0"] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for (text, expected) in [
            ("3.4.30", "version 3.4.30 is not supported, expected 3.5 or 3.6. etcd 3.4 no longer"),
            ("4.0.0", "version 4.0.0 is not supported"),
            ("three", "its version is \"three\""),
            ("", "its version is \"\""),
        ] {
            assert!(check(text).unwrap_err().starts_with(expected), "{text}");
        }
        let progress = |text: &str| text.parse::<Version>().unwrap().has_reliable_progress();
        assert!(!progress("3.5.12") && progress("3.5.13") && progress("3.6.0"));
    }
}
