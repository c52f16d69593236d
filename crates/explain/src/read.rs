//! Reads fields of objects of any kind. A missing field reads as empty.

use jiff::Timestamp;
use serde_json::Value;

use crate::model::{Evidence, Source};

/// Reads by JSON pointers.
pub trait Read {
    fn at(&self, path: &str) -> &Value;

    fn text(&self, path: &str) -> &str {
        self.at(path).as_str().unwrap_or_default()
    }

    fn number(&self, path: &str) -> Option<i64> {
        self.at(path).as_i64()
    }

    /// Returns a count, 0 if it is missing or negative.
    fn count(&self, path: &str) -> usize {
        self.number(path).and_then(|number| usize::try_from(number).ok()).unwrap_or_default()
    }

    fn flag(&self, path: &str) -> bool {
        self.at(path) == &Value::Bool(true)
    }

    fn time(&self, path: &str) -> Option<Timestamp> {
        self.text(path).parse().ok()
    }

    fn items(&self, path: &str) -> &[Value] {
        self.at(path).as_array().map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the strings of an object, such as labels.
    fn pairs(&self, path: &str) -> Vec<(&str, &str)> {
        let fields = self.at(path).as_object().into_iter().flatten();
        fields.map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default())).collect()
    }

    /// Whether the field is there and neither null nor empty.
    fn has(&self, path: &str) -> bool {
        match self.at(path) {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            _ => true,
        }
    }

    fn conditions(&self) -> Vec<Condition<'_>> {
        self.items("/status/conditions").iter().map(Condition::of).collect()
    }

    fn condition(&self, condition_type: &str) -> Option<Condition<'_>> {
        self.conditions().into_iter().find(|condition| condition.kind == condition_type)
    }
}

impl Read for Value {
    fn at(&self, path: &str) -> &Value {
        self.pointer(path).unwrap_or(&Value::Null)
    }
}

/// A condition of an object's status.
#[derive(Clone, Copy, Debug)]
pub struct Condition<'a> {
    pub kind: &'a str,
    pub status: &'a str,
    pub reason: &'a str,
    pub message: &'a str,
    pub time: Option<Timestamp>,
}

impl<'a> Condition<'a> {
    pub(crate) fn of(value: &'a Value) -> Self {
        Self {
            kind: value.text("/type"),
            // Some list a condition only while it holds.
            status: if value.at("/status").is_null() { "True" } else { value.text("/status") },
            reason: value.text("/reason"),
            message: value.text("/message"),
            time: value.time("/lastTransitionTime"),
        }
    }

    pub fn is_true(&self) -> bool {
        self.status == "True"
    }

    pub fn is_false(&self) -> bool {
        self.status == "False"
    }

    /// Returns the message, or the reason if there is none.
    pub fn said(&self) -> &'a str {
        if self.message.is_empty() { self.reason } else { self.message }
    }

    pub fn evidence(&self) -> Evidence {
        let value = match (self.reason, self.message) {
            (reason, "") => reason.to_owned(),
            ("", message) => message.to_owned(),
            (reason, message) => format!("{reason}: {message}"),
        };
        Evidence::new(Source::Condition, &format!("{}={}", self.kind, self.status), &value, self.time)
    }
}

/// Returns the first text between two others.
pub fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let rest = text.split_once(before)?.1;
    rest.split_once(after).map(|(found, _)| found)
}

/// Returns the first text in double quotes after a word.
pub fn quoted_after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    between(text.split_once(word)?.1, "\"", "\"")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_fields_are_empty() {
        let value = json!({"status": {"replicas": 3, "conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!((value.count("/status/replicas"), value.count("/status/other")), (3, 0));
        assert_eq!(value.text("/spec/name"), "");
        assert!(value.condition("Ready").is_some_and(|ready| ready.is_true()));
        assert!(value.items("/spec/volumes").is_empty() && !value.has("/spec"));
        assert_eq!(quoted_after("configmap \"a\" not found", "configmap"), Some("a"));
    }
}
