//! Objects are JSON values, so the compiler does not detect a misspelled field. This test does: every field that a
//! kind, an admission plugin or an endpoint names in an accessor must be a field of some API type.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;
use setpoint_apiserver::schema::Table;

/// Map keys and query parameters, which no type declares.
const NOT_FIELDS: [&str; 18] = [
    "cpu",
    "endpoints.kubernetes.io/managed-by",
    "export",
    "force",
    "insecureSkipTLSVerifyBackend",
    "memory",
    "ssh-privatekey",
    "volume.beta.kubernetes.io/storage-class",
    // The contents of a node annotation.
    "podController",
    "podSignature",
    "preferAvoidPods",
    "watch",
    // AdmissionReview, ConversionReview and WebhookAdmissionConfiguration are not served.
    "convertedObjects",
    "kubeConfigFile",
    "patch",
    "response",
    "result",
    "warnings",
];

#[test]
fn every_field_that_the_code_names_exists_in_the_api() {
    let known: BTreeSet<&str> = Table::built_in()
        .structs()
        .flat_map(|(_, fields)| fields.fields.iter().map(|field| &*field.name))
        .chain(NOT_FIELDS)
        .collect();
    let accessor = Regex::new(
        r#"\.(?:at|text|list|map|int|boolean|flag|count|at_mut|list_mut|object_mut|or_insert|or_text|or_int|set|unset|restore)\(\s*"([^"]*)""#,
    )
    .unwrap();
    let mut unknown = Vec::new();
    for file in ["admission", "custom", "kinds", "rest"].iter().flat_map(|room| sources(room)) {
        let source = fs::read_to_string(&file).unwrap();
        let code = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let names = accessor.captures_iter(code).map(|found| found.get(1).unwrap().as_str());
        unknown.extend(
            names.filter(|name| !known.contains(name)).map(|name| format!("{}: {name:?}", file.display())),
        );
    }
    assert!(unknown.is_empty(), "no type of the API has these fields:\n{}", unknown.join("\n"));
}

/// Returns the source files in a directory of the crate, without tests.
fn sources(room: &str) -> Vec<PathBuf> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(room)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            match path.is_dir() {
                true if name != "tests" => folders.push(path),
                false if name.ends_with(".rs") && name != "tests.rs" => files.push(path),
                _ => {}
            }
        }
    }
    files
}
