//! Replaced CAs and keys that stay valid for a while: until the date in their file name.

use std::path::{Path, PathBuf};

use anyhow::Context;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use super::{read_if_exists, write_private};

/// Certificates and tokens are valid for at most a year, so a replaced CA or key is needed that long.
const YEARS: i32 = 1;

/// The maximum number of replacements on one day.
const A_DAY: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Retired {
    pub(crate) path: PathBuf,
    pub(crate) until: Date,
    pub(crate) content: String,
}

impl Retired {
    /// Lists the files whose names begin with `prefix` (`ca`, `sa`), by date.
    pub(super) fn all(directory: &Path, prefix: &str) -> anyhow::Result<Vec<Self>> {
        let failed = || format!("cannot read {}", directory.display());
        let entries = match std::fs::read_dir(directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.with_context(failed)?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let path = entry.with_context(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(until) = date_in(name, prefix) else { continue };
            if let Some(content) = read_if_exists(&path)? {
                all.push(Self { path, until, content });
            }
        }
        // Compare without the extension, which sorts after the number of a second file on the same day.
        all.sort_by(|one, other| {
            (one.until, one.path.file_stem()).cmp(&(other.until, other.path.file_stem()))
        });
        Ok(all)
    }

    pub(crate) fn counts(&self, now: Timestamp) -> bool {
        now.to_zoned(TimeZone::UTC).date() <= self.until
    }

    /// Keeps a file that is about to be replaced.
    pub(super) fn keep(
        directory: &Path,
        prefix: &str,
        extension: &str,
        content: &str,
        now: Timestamp,
    ) -> anyhow::Result<PathBuf> {
        let today = now.to_zoned(TimeZone::UTC).date();
        let until = today.checked_add(YEARS.years()).unwrap_or(today).strftime("%Y%m%d");
        for number in 1..=A_DAY {
            let more = if number == 1 { String::new() } else { format!("-{number}") };
            let path = directory.join(format!("{prefix}-old-until-{until}{more}.{extension}"));
            match read_if_exists(&path)? {
                Some(kept) if kept != content => continue,
                Some(_) => {}
                None => write_private(&path, content)?,
            }
            return Ok(path);
        }
        anyhow::bail!("{A_DAY} were replaced today: remove some {prefix}-old-until-{until} files")
    }
}

/// Parses the date in `ca-old-until-20270102-2.crt`.
fn date_in(name: &str, prefix: &str) -> Option<Date> {
    let rest = name.strip_prefix(prefix)?.strip_prefix("-old-until-")?;
    let (stem, extension) = rest.split_once('.')?;
    let date = stem.split('-').next()?;
    matches!(extension, "crt" | "pub").then(|| Date::strptime("%Y%m%d", date).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retired_keys_are_valid_until_the_date_in_their_name() {
        let directory = tempfile::tempdir().unwrap();
        let now: Timestamp = "2026-11-16T10:00:00Z".parse().unwrap();
        let keep = |content: &str| Retired::keep(directory.path(), "ca", "crt", content, now).unwrap();
        let first = keep("a");
        assert!(first.ends_with("ca-old-until-20271116.crt"), "{first:?}");
        assert_eq!(keep("a"), first, "duplicates are stored once");
        assert!(keep("b").ends_with("ca-old-until-20271116-2.crt"));
        let all = Retired::all(directory.path(), "ca").unwrap();
        assert_eq!(all.iter().map(|one| one.content.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(all[0].counts("2027-11-16T23:59:59Z".parse().unwrap()));
        assert!(!all[0].counts("2027-11-17T00:00:00Z".parse().unwrap()));
        assert_eq!(Retired::all(directory.path(), "sa").unwrap(), []);
        assert_eq!(date_in("ca-old-until-tomorrow.crt", "ca"), None);
    }
}
