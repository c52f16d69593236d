//! The responses of hooks.
//!
//! In loose mode, unknown and duplicate fields are ignored; in strict mode, they are errors. A field of the wrong type
//! is always an error. Unlike in Metacontroller, a response may have `events` and `conditions`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::document;
use crate::related::RelatedRule;

/// The type of controller, which determines the names of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Composite,
    Decorator,
}

/// The response of a sync or finalize hook.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SyncAnswer {
    pub(crate) status: Option<Map<String, Value>>,
    /// The children or attachments, each with an `apiVersion`, a `kind` and a name.
    pub(crate) children: Vec<Value>,
    pub(crate) resync_after: Option<Duration>,
    pub(crate) finalized: bool,
    /// `None` removes one. Of decorators only.
    pub(crate) labels: BTreeMap<String, Option<String>>,
    pub(crate) annotations: BTreeMap<String, Option<String>>,
    pub(crate) events: Vec<AnsweredEvent>,
    pub(crate) conditions: Vec<AnsweredCondition>,
}

/// An event about the parent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub(crate) struct AnsweredEvent {
    #[serde(rename = "type", default)]
    pub(crate) kind: EventKind,
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) message: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub(crate) enum EventKind {
    #[default]
    Normal,
    Warning,
}

impl From<EventKind> for setpoint::EventType {
    fn from(kind: EventKind) -> Self {
        match kind {
            EventKind::Normal => Self::Normal,
            EventKind::Warning => Self::Warning,
        }
    }
}

/// A condition in the status of the parent, without its times.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct AnsweredCondition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) message: String,
}

/// The maximum number of events in a response, as many as a source may record in a burst, and of conditions.
const MAX_EVENTS: usize = 25;
const MAX_CONDITIONS: usize = 100;
/// The length to which messages and reasons of events are truncated: the API server's limit.
const MAX_MESSAGE: usize = 1024;
const MAX_REASON: usize = 128;
/// A longer delay means never.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

const COMPOSITE: &[&str] = &["status", "children", "resyncAfterSeconds", "finalized", "events", "conditions"];
const DECORATOR: &[&str] = &[
    "labels",
    "annotations",
    "status",
    "attachments",
    "resyncAfterSeconds",
    "finalized",
    "events",
    "conditions",
];

/// Reads the response of a sync or finalize hook.
pub(crate) fn read_sync(shape: Shape, body: &[u8], strict: bool) -> Result<SyncAnswer, String> {
    let (known, list) = match shape {
        Shape::Composite => (COMPOSITE, "children"),
        Shape::Decorator => (DECORATOR, "attachments"),
    };
    let mut fields = fields(body, known, strict)?;
    let mut answer = SyncAnswer {
        status: taken(&mut fields, "status")?,
        finalized: taken(&mut fields, "finalized")?.unwrap_or_default(),
        resync_after: delay(taken(&mut fields, "resyncAfterSeconds")?),
        events: bounded(&mut fields, "events", MAX_EVENTS)?,
        conditions: bounded(&mut fields, "conditions", MAX_CONDITIONS)?,
        ..SyncAnswer::default()
    };
    answer.events.iter_mut().for_each(AnsweredEvent::cut);
    let children: Vec<Value> = taken(&mut fields, list)?.unwrap_or_default();
    for (nth, child) in children.into_iter().enumerate().filter(|(_, child)| !child.is_null()) {
        check_child(&child).map_err(|why| format!("{list}[{nth}]{why}"))?;
        answer.children.push(child);
    }
    if shape == Shape::Decorator {
        answer.labels = taken(&mut fields, "labels")?.unwrap_or_default();
        answer.annotations = taken(&mut fields, "annotations")?.unwrap_or_default();
    }
    Ok(answer)
}

/// Reads the response of a customize hook.
pub(crate) fn read_customize(body: &[u8], strict: bool) -> Result<Vec<RelatedRule>, String> {
    let mut fields = fields(body, &["relatedResources"], strict)?;
    let rules: Vec<Value> = taken(&mut fields, "relatedResources")?.unwrap_or_default();
    let read = |(nth, rule): (usize, &Value)| {
        RelatedRule::read(rule, strict).map_err(|why| format!("relatedResources[{nth}]{why}"))
    };
    rules.iter().enumerate().filter(|(_, rule)| !rule.is_null()).map(read).collect()
}

/// Returns the fields of a response. `null` has none.
fn fields(body: &[u8], known: &[&str], strict: bool) -> Result<Map<String, Value>, String> {
    let document = document::read(body).map_err(|error| format!("it is not JSON: {error}"))?;
    let fields = match document.value {
        Value::Object(fields) => fields,
        Value::Null => Map::new(),
        other => return Err(format!("expected an object, found {}", excerpt(&other))),
    };
    if strict {
        let unknown = fields.keys().filter(|name| !known.contains(&name.as_str()));
        let unknown = unknown.map(|name| format!("unknown field {name:?}"));
        let twice = document.duplicates.iter().map(|path| format!("duplicate field {path:?}"));
        let wrong: Vec<String> = unknown.chain(twice).take(10).collect();
        if !wrong.is_empty() {
            return Err(format!("strict reading: {}", wrong.join(", ")));
        }
    }
    Ok(fields)
}

fn taken<T: serde::de::DeserializeOwned>(
    fields: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<T>, String> {
    match fields.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let shown = excerpt(&value);
            serde_json::from_value(value).map(Some).map_err(|error| format!("{name}: {error}, in {shown}"))
        }
    }
}

fn bounded<T: serde::de::DeserializeOwned>(
    fields: &mut Map<String, Value>,
    name: &str,
    most: usize,
) -> Result<Vec<T>, String> {
    let all: Vec<T> = taken(fields, name)?.unwrap_or_default();
    match all.len() > most {
        true => Err(format!("{name}: expected at most {most}, found {}", all.len())),
        false => Ok(all),
    }
}

fn delay(seconds: Option<f64>) -> Option<Duration> {
    let seconds = seconds.filter(|seconds| *seconds > 0.0)?;
    Some(Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST).min(LONGEST))
}

/// Checks that a child has a kind and a name.
fn check_child(child: &Value) -> Result<(), String> {
    if !child.is_object() {
        return Err(format!(": expected an object, found {}", excerpt(child)));
    }
    for pointer in ["/apiVersion", "/kind", "/metadata/name"] {
        let value = child.pointer(pointer);
        if value.and_then(Value::as_str).is_none_or(str::is_empty) {
            let field = pointer.replace('/', ".");
            let found = value.map_or_else(|| "nothing".to_owned(), excerpt);
            return Err(format!("{field}: expected text, found {found}"));
        }
    }
    let namespace = &child["metadata"]["namespace"];
    if !namespace.is_null() && !namespace.is_string() {
        return Err(format!(".metadata.namespace: expected text, found {}", excerpt(namespace)));
    }
    for field in ["labels", "annotations"] {
        let values = &child["metadata"][field];
        let is_text = values.as_object().is_some_and(|values| values.values().all(Value::is_string));
        if !values.is_null() && !is_text {
            return Err(format!(".metadata.{field}: expected texts by name, found {}", excerpt(values)));
        }
    }
    Ok(())
}

/// Returns the start of a value, for messages.
fn excerpt(value: &Value) -> String {
    let mut text = value.to_string();
    cut(&mut text, 80);
    text
}

/// Truncates a string to at most this many bytes.
fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
}

impl AnsweredEvent {
    fn cut(&mut self) {
        cut(&mut self.message, MAX_MESSAGE - '…'.len_utf8());
        cut(&mut self.reason, MAX_REASON - '…'.len_utf8());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn composite(answer: &str, strict: bool) -> Result<SyncAnswer, String> {
        read_sync(Shape::Composite, answer.as_bytes(), strict)
    }

    #[test]
    fn an_answer_may_be_empty() {
        for text in ["{}", "null", r#"{"status":null,"children":null,"resyncAfterSeconds":null}"#] {
            assert_eq!(composite(text, true), Ok(SyncAnswer::default()), "{text}");
        }
    }

    #[test]
    fn an_answer_has_children_a_status_and_a_delay() {
        let child = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
        let text = json!({"status": {"n": 1}, "children": [child, null], "resyncAfterSeconds": 0.5, "finalized": true});
        let answer = composite(&text.to_string(), true).expect("an answer");
        assert_eq!((answer.children.as_slice(), answer.finalized), (&[child][..], true));
        assert_eq!(answer.resync_after, Some(Duration::from_millis(500)));
        assert_eq!(answer.status.expect("a status")["n"], 1);
        let never = composite(r#"{"resyncAfterSeconds": -1}"#, true).expect("an answer");
        assert_eq!(never.resync_after, None);
        let far = composite(r#"{"resyncAfterSeconds": 1e300}"#, true).expect("an answer");
        assert_eq!(far.resync_after, Some(LONGEST));
    }

    #[test]
    fn only_a_strict_reader_objects_to_unknown_and_duplicate_fields() {
        let check = |text: &str, why: &str| {
            assert!(composite(text, false).is_ok(), "{text}");
            let error = composite(text, true).expect_err(text);
            assert!(error.contains(why), "{error}");
        };
        check(r#"{"attachments": []}"#, "unknown field \"attachments\"");
        check(r#"{"Status": {}}"#, "unknown field \"Status\"");
        check(r#"{"finalized": true, "finalized": false}"#, "duplicate field \"finalized\"");
        check(r#"{"status": {"a": 1, "a": 2}}"#, "duplicate field \"status.a\"");
    }

    #[test]
    fn an_answer_that_makes_no_sense_names_the_field() {
        let check = |text: &str, why: &str| {
            let error = composite(text, false).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        };
        check("", "it is not JSON");
        check("<html>", "it is not JSON");
        check("[]", "expected an object, found []");
        check(r#"{"children": {}}"#, "children:");
        check(r#"{"status": 7}"#, "status:");
        check(r#"{"resyncAfterSeconds": "1"}"#, "resyncAfterSeconds:");
        check(r#"{"children": [7]}"#, "children[0]: expected an object, found 7");
        check(r#"{"children": [{}]}"#, "children[0].apiVersion: expected text, found nothing");
        check(
            r#"{"children": [{"apiVersion":"v1","kind":"Pod","metadata":{"name":7}}]}"#,
            "children[0].metadata.name: expected text, found 7",
        );
        check(
            r#"{"children": [{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"n":1}}}]}"#,
            "children[0].metadata.labels: expected texts by name",
        );
        check(r#"{"events": [{"message": "x"}]}"#, "events:");
    }

    #[test]
    fn a_decorator_sets_and_removes_labels() {
        let text = r#"{"labels": {"a": "1", "b": null}, "annotations": null, "attachments": []}"#;
        let answer = read_sync(Shape::Decorator, text.as_bytes(), true).expect("an answer");
        assert_eq!(answer.labels, [("a".to_owned(), Some("1".to_owned())), ("b".to_owned(), None)].into());
        assert!(answer.annotations.is_empty() && answer.status.is_none());
        assert!(read_sync(Shape::Decorator, br#"{"labels": {"a": 1}}"#, false).is_err());
    }

    #[test]
    fn events_have_a_limit() {
        let event = json!({"reason": "Grown", "message": "ä".repeat(2000)});
        let answer = composite(&json!({"events": [event]}).to_string(), true).expect("an answer");
        assert_eq!(answer.events[0].kind, EventKind::Normal);
        assert!(answer.events[0].message.len() <= MAX_MESSAGE);
        let many = vec![event; MAX_EVENTS + 1];
        assert!(composite(&json!({"events": many}).to_string(), true).is_err());
    }
}
