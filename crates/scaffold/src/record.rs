//! The record of generated files: the digest of each as it was written, in `.setpoint/digests`.
//!
//! It has the format of `sha256sum`, so `sha256sum --check .setpoint/digests` lists what the author has changed. Line
//! endings do not count: version control may convert them.

use std::collections::BTreeMap;
use std::fmt::Write;

use sha2::{Digest, Sha256};

/// The path of the record in a project.
pub(crate) const RECORD: &str = ".setpoint/digests";

/// The digests of files by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record(pub(crate) BTreeMap<String, String>);

impl Record {
    /// Reads a record. Lines that are not of the format are ignored: their files count as the author's.
    pub(crate) fn parse(text: &str) -> Self {
        let entry = |line: &str| {
            let (digest, path) = line.split_once("  ")?;
            let is_digest = digest.len() == 64 && digest.chars().all(|c| c.is_ascii_hexdigit());
            is_digest.then(|| (path.to_owned(), digest.to_owned()))
        };
        Self(text.lines().filter_map(entry).collect())
    }

    pub(crate) fn text(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, (path, digest)| {
            let _ = writeln!(text, "{digest}  {path}");
            text
        })
    }
}

/// Returns the digest of a file's content.
pub(crate) fn digest(content: &str) -> String {
    let normalized = content.replace("\r\n", "\n");
    Sha256::digest(normalized).iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_being_written_and_read() {
        let record = Record([("a b".to_owned(), digest("x")), ("c".to_owned(), digest("y"))].into());
        assert_eq!(Record::parse(&record.text()), record);
        assert_eq!(Record::parse("<<<<<<< ours\nabc  path\n").0.len(), 0);
        assert_eq!(digest("a\r\nb"), digest("a\nb"));
    }
}
