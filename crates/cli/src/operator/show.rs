//! Development: prints one line for each reconcile, and its writes.

use std::fmt::Write as _;

use serde_json::Value;
use setpoint_hooks::{Observer, Report, Write};

use crate::app::lines::unified;

/// The maximum length of a printed diff.
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
    let (Some(after), before) = (&write.after, &write.before) else { return String::new() };
    let is_secret = write.kind.group().is_empty() && write.kind.kind() == "Secret";
    let shown = |object: &Value, other: Option<&Value>, state: &str| match is_secret {
        true => yaml(masked(object.clone(), other, state)),
        false => yaml(object.clone()),
    };
    let old = before.as_ref().map(|before| shown(before, Some(after), "before")).unwrap_or_default();
    let lines = unified(&old, &shown(after, before.as_ref(), "after"));
    let mut shown: String = lines.lines().take(MAX_LINES).map(|line| format!("    {line}\n")).collect();
    if lines.lines().count() > MAX_LINES {
        shown.push_str("    ...\n");
    }
    shown
}

fn yaml(object: Value) -> String {
    serde_saphyr::to_string(&cleaned(object)).unwrap_or_default()
}

/// Returns an object without the fields that change with every write.
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

/// Returns a Secret without its values, which do not belong in logs. Changed values are marked.
fn masked(mut secret: Value, other: Option<&Value>, state: &str) -> Value {
    for field in ["data", "stringData"] {
        for (name, value) in secret[field].as_object_mut().into_iter().flatten() {
            let is_same = other.is_some_and(|other| other[field].get(name) == Some(&*value));
            *value = if is_same { "(masked)".into() } else { format!("(masked, {state})").into() };
        }
    }
    secret
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use setpoint::{Key, Kind};

    use super::*;

    #[test]
    fn a_reconcile_is_a_line_and_its_differences() {
        let text = shown("ConfigMap", "configmaps");
        assert!(
            text.starts_with("greeter: Thing default/t: sync in 12.0ms, updated ConfigMap default/a\n"),
            "{text}"
        );
        assert!(text.contains("    -  value: first") && text.contains("    +  value: second"), "{text}");
        assert!(!text.contains("resourceVersion"), "{text}");
    }

    #[test]
    fn the_values_of_secrets_are_not_shown() {
        let text = shown("Secret", "secrets");
        assert!(
            text.contains("    -  value: (masked, before)") && text.contains("    +  value: (masked, after)")
        );
        assert!(!text.contains("first") && !text.contains("second"), "{text}");
    }

    /// Returns the diff from `first` to `second`.
    fn shown(kind: &str, plural: &str) -> String {
        let kind = Kind::new("", "v1", kind, plural, true);
        let object = |value: &str| json!({"metadata": {"name": "a", "resourceVersion": value}, "data": {"value": value}});
        let write = Write {
            verb: "updated",
            kind,
            key: Key::namespaced("default", "a"),
            before: Some(object("first")),
            after: Some(object("second")),
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
        text(&report)
    }
}
