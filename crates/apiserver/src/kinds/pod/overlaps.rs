//! Finds files in a volume that would overwrite each other.

use serde_json::Value;

use crate::json::Json;

/// A file, and the source that writes it if there are several.
#[derive(Clone, PartialEq)]
struct File<'a> {
    path: &'a str,
    source: String,
}

impl std::fmt::Display for File<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.source.as_str() {
            "" => write!(f, "{:?}", self.path),
            source => write!(f, "{:?} ({source})", self.path),
        }
    }
}

pub(super) fn of_volume(volume: &Value, warnings: &mut Vec<String>) {
    let name = volume.text("name");
    let kinds = [
        ("configMap", format!("ConfigMap {:?}", volume.at("configMap").text("name"))),
        ("secret", format!("Secret {:?}", volume.at("secret").text("secretName"))),
        ("downwardAPI", "DownwardAPI".to_owned()),
    ];
    for (field, what) in kinds.iter().filter(|(field, _)| !volume.at(field).list("items").is_empty()) {
        warn(name, what, files(volume.at(field), ""), warnings);
    }
    let mut projected = Vec::new();
    for source in volume.at("projected").list("sources") {
        if source.as_object().is_none_or(|fields| fields.values().all(Value::is_null)) {
            warnings.push(format!("volume {name:?} (Projected) has no sources provided"));
        }
        projected.extend(projected_files(source));
    }
    warn(name, "Projected", projected, warnings);
}

fn projected_files(source: &Value) -> Vec<File<'_>> {
    let named = |kind: &str, field: &str| format!("{kind} {:?}", source.at(field).text("name"));
    match () {
        () if !source.at("configMap").list("items").is_empty() => {
            files(source.at("configMap"), &named("ConfigMap", "configMap"))
        }
        () if !source.at("secret").list("items").is_empty() => {
            files(source.at("secret"), &named("Secret", "secret"))
        }
        () if !source.at("downwardAPI").list("items").is_empty() => {
            files(source.at("downwardAPI"), "DownwardAPI")
        }
        () if source.has("serviceAccountToken") => {
            let path = source.at("serviceAccountToken").text("path").trim_end_matches('/');
            vec![File { path, source: "ServiceAccountToken".into() }]
        }
        () => Vec::new(),
    }
}

fn files<'a>(source: &'a Value, shown: &str) -> Vec<File<'a>> {
    let paths = source.list("items").iter().map(|item| item.text("path").trim_end_matches('/'));
    paths.map(|path| File { path, source: shown.to_owned() }).collect()
}

/// Maximum number of files per volume to compare: at most half a million pairs.
const MAX_FILES: usize = 1_000;
/// Maximum number of overlaps to report: more than a response has room for.
const MAX_WARNINGS: usize = 100;

fn warn(volume: &str, what: &str, files: Vec<File<'_>>, warnings: &mut Vec<String>) {
    for (index, file) in files.iter().enumerate().take(MAX_FILES) {
        for other in files[..index].iter().filter(|other| overlap(other.path, file.path)) {
            if warnings.len() >= MAX_WARNINGS {
                return;
            }
            warnings.push(format!("volume {volume:?} ({what}): overlapping paths: {file} with {other}"));
        }
    }
}

/// Whether two paths are the same file, or one is inside the other.
fn overlap(a: &str, b: &str) -> bool {
    let inside =
        |inner: &str, outer: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'));
    !a.is_empty() && !b.is_empty() && (a == b || inside(a, b) || inside(b, a))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn files_inside_each_other_overlap() {
        let volume = json!({"name": "v", "configMap": {"name": "m", "items": [
            {"key": "a", "path": "p"}, {"key": "b", "path": "p/q"}, {"key": "c", "path": "pq"}]}});
        let mut warnings = Vec::new();
        of_volume(&volume, &mut warnings);
        assert_eq!(warnings, ["volume \"v\" (ConfigMap \"m\"): overlapping paths: \"p/q\" with \"p\""]);
    }
}
