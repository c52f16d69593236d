//! Events, in the core group and in `events.k8s.io`: one stored resource, two views of it.
//!
//! Objects are stored in the form of the core group.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{CORE, EVENTS, entry};
use crate::json::{Json, JsonMut};
use crate::kind::{Conversion, FieldSelector, Kind};
use crate::strategy::Strategy;
use crate::table::{Column, time_since};

/// How long an event is kept.
const TIME_TO_LIVE: Duration = Duration::from_secs(3600);

pub fn core_kind() -> Kind {
    Kind {
        short_names: vec!["ev".into()],
        columns: columns(),
        field_selectors: vec![
            FieldSelector { path: "involvedObject.kind", value: |event| about(event, "kind") },
            FieldSelector { path: "involvedObject.namespace", value: |event| about(event, "namespace") },
            FieldSelector { path: "involvedObject.name", value: |event| about(event, "name") },
            FieldSelector { path: "involvedObject.uid", value: |event| about(event, "uid") },
            FieldSelector { path: "involvedObject.apiVersion", value: |event| about(event, "apiVersion") },
            FieldSelector {
                path: "involvedObject.resourceVersion",
                value: |event| about(event, "resourceVersion"),
            },
            FieldSelector { path: "involvedObject.fieldPath", value: |event| about(event, "fieldPath") },
            FieldSelector { path: "reason", value: |event| event.text("reason").to_owned() },
            FieldSelector { path: "reportingComponent", value: |event| reporter(event).to_owned() },
            FieldSelector { path: "source", value: source },
            FieldSelector { path: "type", value: |event| event.text("type").to_owned() },
        ],
        ..entry(&CORE, "Event", "events", Event { form: Form::Core })
    }
}

pub fn events_kind() -> Kind {
    Kind {
        short_names: vec!["ev".into()],
        stored_as: "events".into(),
        conversion: Some(Conversion { to_stored, from_stored }),
        columns: columns(),
        field_selectors: vec![
            FieldSelector { path: "regarding.kind", value: |event| about(event, "kind") },
            FieldSelector { path: "regarding.namespace", value: |event| about(event, "namespace") },
            FieldSelector { path: "regarding.name", value: |event| about(event, "name") },
            FieldSelector { path: "regarding.uid", value: |event| about(event, "uid") },
            FieldSelector { path: "regarding.apiVersion", value: |event| about(event, "apiVersion") },
            FieldSelector {
                path: "regarding.resourceVersion",
                value: |event| about(event, "resourceVersion"),
            },
            FieldSelector { path: "regarding.fieldPath", value: |event| about(event, "fieldPath") },
            FieldSelector { path: "reason", value: |event| event.text("reason").to_owned() },
            FieldSelector { path: "reportingController", value: |event| reporter(event).to_owned() },
            FieldSelector { path: "type", value: |event| event.text("type").to_owned() },
        ],
        ..entry(&EVENTS, "Event", "events", Event { form: Form::Events })
    }
}

/// The fields that have two names: core's, and that of `events.k8s.io`.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// A field under core's name, whichever form the event is in. No event has both names of a field.
fn field<'a>(event: &'a Value, core: &str) -> &'a Value {
    let other = NAMES.iter().find(|(name, _)| *name == core).map_or(core, |(_, other)| other);
    event.get(core).unwrap_or_else(|| event.at(other))
}

fn field_text<'a>(event: &'a Value, core: &str) -> &'a str {
    field(event, core).as_str().unwrap_or_default()
}

fn about(event: &Value, part: &str) -> String {
    field(event, "involvedObject").text(part).to_owned()
}

fn reporter(event: &Value) -> &str {
    field_text(event, "reportingComponent")
}

fn source(event: &Value) -> String {
    match field(event, "source").text("component") {
        "" => reporter(event).to_owned(),
        component => component.to_owned(),
    }
}

fn to_stored(event: &mut Value) {
    event.set("apiVersion", "v1");
    for (core, other) in NAMES {
        rename(event, other, core);
    }
}

fn from_stored(event: &mut Value) {
    event.set("apiVersion", "events.k8s.io/v1");
    for (core, other) in NAMES {
        rename(event, core, other);
    }
}

fn rename(event: &mut Value, from: &str, to: &str) {
    if let Some(value) = event.unset(from) {
        event.set(to, value);
    }
}

const LAST_SEEN: &str = "The time at which the most recent occurrence of this event was recorded.";
const TYPE: &str = "Type of this event (Normal, Warning), new types could be added in the future";
const REASON: &str = "This should be a short, machine understandable string that gives the reason for the transition into the object's current status.";
const OBJECT: &str = "The object that this event is about.";
const SUBOBJECT: &str = "If referring to a piece of an object instead of an entire object, this string should contain a valid JSON/Go field access statement, such as desiredState.manifest.containers[2]. For example, if the object reference is to a container within a pod, this would take on a value like: \"spec.containers{name}\" (where \"name\" refers to the name of the container that triggered the event) or if no container name is specified \"spec.containers[2]\" (container with index 2 in this pod). This syntax is chosen only to have some well-defined way of referencing a part of an object.";
const SOURCE: &str = "The component reporting this event. Should be a short machine understandable string.";
const MESSAGE: &str = "A human-readable description of the status of this operation.";
const FIRST_SEEN: &str =
    "The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)";
const COUNT: &str = "The number of times this event has occurred.";

fn columns() -> Vec<Column> {
    vec![
        Column::text("Last Seen", LAST_SEEN, |event, now| last_seen(event, now).into()),
        Column::text("Type", TYPE, |event, _| event.text("type").into()),
        Column::text("Reason", REASON, |event, _| event.text("reason").into()),
        Column::text("Object", OBJECT, |event, _| object(event).into()),
        Column::text("Subobject", SUBOBJECT, |event, _| about(event, "fieldPath").into()).wide(),
        Column::text("Source", SOURCE, |event, _| source_cell(event).into()).wide(),
        Column::text("Message", MESSAGE, |event, _| field_text(event, "message").trim().into()),
        Column::text("First Seen", FIRST_SEEN, |event, now| first_seen(event, now).into()).wide(),
        Column::text("Count", COUNT, |event, _| count(event).into()).wide(),
        Column::name().wide(),
    ]
}

fn first_seen(event: &Value, now: Timestamp) -> String {
    match field_text(event, "firstTimestamp") {
        "" => time_since(event.text("eventTime"), now),
        first => time_since(first, now),
    }
}

fn last_seen(event: &Value, now: Timestamp) -> String {
    if event.has("series") {
        return time_since(event.at("series").text("lastObservedTime"), now);
    }
    match field_text(event, "lastTimestamp") {
        "" => first_seen(event, now),
        last => time_since(last, now),
    }
}

fn count(event: &Value) -> i64 {
    match event.at("series").int("count") {
        Some(count) => count,
        None => field(event, "count").as_i64().unwrap_or(0).max(1),
    }
}

fn object(event: &Value) -> String {
    let object = field(event, "involvedObject");
    let kind = object.text("kind").to_lowercase();
    match object.text("name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn source_cell(event: &Value) -> String {
    let host = match field(event, "source").text("host") {
        "" => event.text("reportingInstance"),
        host => host,
    };
    match host {
        "" => source(event),
        host => format!("{}, {host}", source(event)),
    }
}

/// Which of the two kinds of events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Core,
    Events,
}

struct Event {
    form: Form,
}

impl Strategy for Event {
    /// The times that an event always carries, if only to say that there are none.
    fn default(&self, event: &mut Value) {
        let always: &[(&str, fn() -> Value)] = match self.form {
            Form::Core => &[
                ("eventTime", || Value::Null),
                ("firstTimestamp", || Value::Null),
                ("lastTimestamp", || Value::Null),
                ("source", || json!({})),
                ("reportingComponent", || "".into()),
                ("reportingInstance", || "".into()),
            ],
            Form::Events => &[
                ("eventTime", || Value::Null),
                ("deprecatedFirstTimestamp", || Value::Null),
                ("deprecatedLastTimestamp", || Value::Null),
                ("deprecatedSource", || json!({})),
            ],
        };
        for (field, value) in always {
            if !event.has(field) {
                event.set(field, value());
            }
        }
    }

    fn counts_generations(&self) -> bool {
        false
    }

    fn create_on_update(&self) -> bool {
        true
    }

    fn time_to_live(&self, _: &Value, _: Timestamp) -> Option<Duration> {
        Some(TIME_TO_LIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_forms_convert_into_each_other() {
        let core = json!({"apiVersion": "v1", "kind": "Event", "involvedObject": {"name": "p"}, "message": "m",
            "reportingComponent": "c", "source": {"host": "h"}, "firstTimestamp": null, "lastTimestamp": null, "count": 2});
        let mut event = core.clone();
        from_stored(&mut event);
        assert_eq!(
            event,
            json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": {"name": "p"}, "note": "m",
                "reportingController": "c", "deprecatedSource": {"host": "h"}, "deprecatedFirstTimestamp": null,
                "deprecatedLastTimestamp": null, "deprecatedCount": 2})
        );
        to_stored(&mut event);
        assert_eq!(event, core);
    }

    #[test]
    fn both_forms_print_the_same_row() {
        let now = "2020-01-01T00:01:00Z".parse().unwrap();
        let core = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "f"},
            "type": "Normal", "reason": "R", "message": " m\n", "reportingComponent": "c", "reportingInstance": "i",
            "eventTime": "2020-01-01T00:00:00.000000Z", "series": {"count": 9, "lastObservedTime": "2020-01-01T00:00:50.000000Z"}});
        let mut other = core.clone();
        from_stored(&mut other);
        for event in [core, other] {
            let cells: Vec<Value> = columns().iter().map(|column| (column.cell)(&event, now)).collect();
            assert_eq!(json!(cells), json!(["10s", "Normal", "R", "pod/p", "f", "c, i", "m", "60s", 9, "e"]));
        }
    }
}
