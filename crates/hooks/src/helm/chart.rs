//! Charts: directories with a `Chart.yaml`, and a digest of their contents.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use serde::Deserialize;

/// The most files of a chart, and their size. Helm refuses charts that do not fit into a Secret of 1 MiB.
const MAX_FILES: usize = 5_000;
const MAX_BYTES: u64 = 64 << 20;
/// The deepest directory of a chart: dependencies are charts in charts. A link may lead to a directory above it.
const MAX_DEPTH: usize = 32;

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
    collect(path, path, MAX_DEPTH, &mut files)?;
    let mut digest = Context::new(&SHA256);
    let mut total = 0;
    for (name, file) in files {
        let mut content = Vec::new();
        let read = std::fs::File::open(&file)
            .and_then(|open| open.take(MAX_BYTES - total + 1).read_to_end(&mut content));
        read.map_err(|error| format!("cannot read {}: {error}", file.display()))?;
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

fn collect(
    root: &Path,
    path: &Path,
    depth: usize,
    files: &mut BTreeMap<String, PathBuf>,
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let metadata =
            std::fs::metadata(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        if metadata.is_dir() {
            let deeper =
                depth.checked_sub(1).ok_or_else(|| format!("{}: the chart is too deep", path.display()))?;
            collect(root, &path, deeper, files)?;
            continue;
        }
        // Reading a pipe would wait for a writer.
        if !metadata.is_file() {
            return Err(format!("{}: expected a file or a directory", path.display()));
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
    fn odd_files_do_not_hang_an_operator() {
        let check = |make: &dyn Fn(&Path), why: &str| {
            let directory = tempfile::tempdir().expect("a directory");
            std::fs::write(directory.path().join("Chart.yaml"), "name: shop\n").expect("a file");
            make(directory.path());
            let error = Chart::read(directory.path()).expect_err(why);
            assert!(error.contains(why), "{error}");
        };
        let link = |to: &Path, name: PathBuf| std::os::unix::fs::symlink(to, name).expect("a link");
        check(&|path| link(Path::new("/dev/zero"), path.join("zero")), "expected a file");
        check(&|path| link(Path::new("nowhere"), path.join("lost")), "cannot read");
        check(
            &|path| {
                let inside = path.join("empty");
                std::fs::create_dir(&inside).expect("a directory");
                link(&inside, inside.join("again"));
            },
            "too deep",
        );
        check(
            &|path| {
                let file = std::fs::File::create(path.join("huge")).expect("a file");
                file.set_len(MAX_BYTES + 1).expect("a size");
            },
            "larger than",
        );
    }

    #[test]
    fn a_digest_changes_with_the_values() {
        assert_ne!(digest_with("c", &json!({"a": 1})), digest_with("c", &json!({"a": 2})));
        assert_ne!(digest_with("c", &json!({})), digest_with("d", &json!({})));
    }
}
