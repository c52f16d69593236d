//! Charts: directories with a `Chart.yaml`, and a digest of their contents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use serde::Deserialize;

/// The most files of a chart, and their size. Helm refuses charts that do not fit into a Secret of 1 MiB.
const MAX_FILES: usize = 5_000;
const MAX_BYTES: u64 = 64 << 20;

/// A chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    /// Its directory.
    pub path: PathBuf,
    /// The name in `Chart.yaml`.
    pub name: String,
    /// A digest of its files.
    pub digest: String,
}

#[derive(Deserialize)]
struct ChartFile {
    name: String,
}

impl Chart {
    /// Reads a chart. The error says what is wrong with it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let file = path.join("Chart.yaml");
        let text = std::fs::read_to_string(&file)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let chart: ChartFile =
            serde_saphyr::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        if chart.name.is_empty() {
            return Err(format!("{}: name: expected text", file.display()));
        }
        let digest = digest_of(path)?;
        let path = std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { path, name: chart.name, digest })
    }
}

fn digest_of(path: &Path) -> Result<String, String> {
    let mut files = BTreeMap::new();
    collect(path, path, &mut files)?;
    let mut digest = Context::new(&SHA256);
    let mut total = 0;
    for (name, file) in files {
        let content =
            std::fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        total += content.len() as u64;
        if total > MAX_BYTES {
            return Err(format!("{}: the chart is larger than {MAX_BYTES} bytes", path.display()));
        }
        for part in [name.as_bytes(), content.as_slice()] {
            digest.update(&(part.len() as u64).to_be_bytes());
            digest.update(part);
        }
    }
    Ok(hex(digest.finish().as_ref()))
}

fn collect(root: &Path, path: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            collect(root, &path, files)?;
            continue;
        }
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        files.insert(name, path);
        if files.len() > MAX_FILES {
            return Err(format!("{}: the chart has more than {MAX_FILES} files", root.display()));
        }
    }
    Ok(())
}

/// Returns a digest of a chart and its values.
pub(super) fn digest_with(chart: &str, values: &serde_json::Value) -> String {
    let mut digest = Context::new(&SHA256);
    digest.update(chart.as_bytes());
    // Objects are sorted by field.
    digest.update(values.to_string().as_bytes());
    hex(digest.finish().as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_digest_changes_with_any_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let write = |name: &str, text: &str| std::fs::write(path.join(name), text).expect("a file");
        assert!(Chart::read(path).expect_err("it is empty").contains("Chart.yaml"));
        write("Chart.yaml", "name: shop\nversion: 1.0.0\n");
        std::fs::create_dir(path.join("templates")).expect("a directory");
        write("templates/a.yaml", "a");
        let first = Chart::read(path).expect("a chart");
        assert_eq!((first.name.as_str(), Chart::read(path)), ("shop", Ok(first.clone())));
        write("templates/a.yaml", "b");
        let second = Chart::read(path).expect("a chart");
        write("templates/b.yaml", "");
        let third = Chart::read(path).expect("a chart");
        assert!(first.digest != second.digest && second.digest != third.digest);
        write("Chart.yaml", "version: 1.0.0\n");
        assert!(Chart::read(path).expect_err("no name").contains("name"));
    }

    #[test]
    fn a_digest_changes_with_the_values() {
        assert_ne!(digest_with("c", &json!({"a": 1})), digest_with("c", &json!({"a": 2})));
        assert_ne!(digest_with("c", &json!({})), digest_with("d", &json!({})));
    }
}
