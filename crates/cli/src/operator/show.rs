//! Development: one line for each reconcile, and what it wrote.

use std::fmt::Write as _;

use serde_json::Value;
use setpoint_hooks::{Observer, Report, Write};

use crate::app::lines::unified;

/// The longest difference that is shown.
const MAX_LINES: usize = 60;

/// Prints to stderr.
pub(super) struct Shown;

impl Observer for Shown {
    fn reconciled(&self, report: &Report) {
        eprint!("{}", text(report));
    }
}

fn text(report: &Report) -> String {
    let Report { controller, kind, key, hook, took, error, writes } = report;
    let hook = hook.unwrap_or("-");
    let mut text = format!("{controller}: {} {key}: {hook} in {took:.1?}", kind.kind());
    if writes.is_empty() && error.is_none() {
        text.push_str(": nothing to write");
    }
    for write in writes {
        let _ = write!(text, ", {} {} {}", write.verb, write.kind.kind(), write.key);
    }
    if let Some(error) = error {
        let _ = write!(text, ": error: {error}");
    }
    text.push('\n');
    writes.iter().for_each(|write| text.push_str(&difference(write)));
    text
}

fn difference(write: &Write) -> String {
    let yaml = |object: &Option<Value>| {
        let object = object.clone().map(cleaned);
        object.and_then(|object| serde_saphyr::to_string(&object).ok()).unwrap_or_default()
    };
    if write.after.is_none() {
        return String::new();
    }
    let lines = unified(&yaml(&write.before), &yaml(&write.after));
    let mut shown: String = lines.lines().take(MAX_LINES).map(|line| format!("    {line}\n")).collect();
    if lines.lines().count() > MAX_LINES {
        shown.push_str("    ...\n");
    }
    shown
}

/// Returns an object without what changes with every write.
fn cleaned(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"] {
            metadata.remove(field);
        }
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.remove("metacontroller.k8s.io/last-applied-configuration");
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use setpoint::{Key, Kind};

    use super::*;

    #[test]
    fn a_reconcile_is_a_line_and_its_differences() {
        let maps = Kind::new("", "v1", "ConfigMap", "configmaps", true);
        let map = |value: &str| json!({"kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": value}, "data": {"value": value}});
        let write = Write {
            verb: "updated",
            kind: maps,
            key: Key::namespaced("default", "a"),
            before: Some(map("1")),
            after: Some(map("2")),
        };
        let report = Report {
            controller: "greeter".into(),
            kind: Kind::new("example.com", "v1", "Thing", "things", true),
            key: Key::namespaced("default", "t"),
            hook: Some("sync"),
            took: Duration::from_millis(12),
            error: None,
            writes: vec![write],
        };
        let text = text(&report);
        assert!(
            text.starts_with("greeter: Thing default/t: sync in 12.0ms, updated ConfigMap default/a\n"),
            "{text}"
        );
        assert!(text.contains("    -  value: ") && text.contains("    +  value: "), "{text}");
        assert!(!text.contains("resourceVersion"), "{text}");
    }
}
