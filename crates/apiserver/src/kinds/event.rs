//! Events, in the core group and in `events.k8s.io`: one stored resource, two views.
//!
//! Objects are stored in the core group's form.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::{CORE, EVENTS, entry, metadata};
use crate::declared;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Conversion, FieldSelector, Kind};
use crate::names;
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::table::{Column, time_since};
use crate::validation::{add_invalid, immutable, qualified_name};

/// How long to keep an event.
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
        semantics: Semantics {
            counts_generations: false,
            create_on_update: true,
            names: NameRule::PathSegment,
            ..Semantics::default()
        },
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
        semantics: Semantics { counts_generations: false, create_on_update: true, ..Semantics::default() },
        ..entry(&EVENTS, "Event", "events", Event { form: Form::Events })
    }
}

/// Fields with two names: core's, and that of `events.k8s.io`.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// Fields that only core writes when empty.
const WRITTEN_WHEN_EMPTY: [&str; 2] = ["reportingComponent", "reportingInstance"];

/// Returns a field by core's name, whichever form the event has. No event has both names of a field.
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
    for field in WRITTEN_WHEN_EMPTY {
        event.or_insert(field, "");
    }
}

fn from_stored(event: &mut Value) {
    event.set("apiVersion", "events.k8s.io/v1");
    for field in WRITTEN_WHEN_EMPTY {
        if event.text(field).is_empty() {
            event.unset(field);
        }
    }
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

/// The two kinds of events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Core,
    Events,
}

struct Event {
    form: Form,
}

impl Lifecycle for Event {
    fn time_to_live(&self, _: &Value, _: Timestamp) -> Option<Duration> {
        Some(TIME_TO_LIVE)
    }
}

impl Validation for Event {
    fn validate(&self, event: &Value) -> Errors {
        let mut errors = Errors::default();
        self.check_always(event, &mut errors);
        if self.form == Form::Events {
            check_new(event, &mut errors);
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        self.check_always(new, &mut errors);
        if self.form == Form::Events {
            check_change(new, old, &mut errors);
        }
        errors
    }
}

impl Event {
    /// Validates events of both groups. Those with `eventTime` are of the new style, which also names the reporter and
    /// the action.
    fn check_always(&self, event: &Value, errors: &mut Errors) {
        let namespace = event.at("metadata").text("namespace");
        let object_namespace = field(event, "involvedObject").text("namespace");
        let is_new = event.has("eventTime");
        let agrees = match object_namespace {
            "" if is_new => matches!(namespace, "default" | "kube-system"),
            "" => matches!(namespace, "" | "default"),
            object_namespace => is_new || namespace == object_namespace,
        };
        if !agrees {
            let path = Path::root("involvedObject");
            errors.invalid(&path.child("namespace"), object_namespace, "does not match event.namespace");
        }
        if is_new {
            self.check_report(event, errors);
        }
        add_invalid(names::dns_subdomain(namespace), namespace, &Path::root("namespace"), errors);
    }

    fn check_report(&self, event: &Value, errors: &mut Errors) {
        let path = match self.form {
            Form::Core => Path::root("reportingComponent"),
            Form::Events => Path::root("reportingController"),
        };
        if reporter(event).is_empty() {
            errors.required(&path, "");
        }
        qualified_name(reporter(event), &path, errors);
        for (name, limit) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
            let path = Path::root(name);
            if event.text(name).is_empty() {
                errors.required(&path, "");
            }
            check_length(event.text(name), limit, &path, errors);
        }
        check_length(field_text(event, "message"), 1024, &Path::root("message"), errors);
    }
}

fn check_length(text: &str, limit: usize, path: &Path<'_>, errors: &mut Errors) {
    if text.len() > limit {
        errors.invalid(path, "", format!("can have at most {limit} characters"));
    }
}

/// Checks that a new event of `events.k8s.io` is of the new style, without deprecated fields.
fn check_new(event: &Value, errors: &mut Errors) {
    metadata::new(event, errors);
    check_series(event, errors);
    if !event.has("eventTime") {
        errors.required(&Path::root("eventTime"), "");
    }
    let of = event.text("type");
    if !matches!(of, "Normal" | "Warning") {
        errors.invalid(&Path::root("type"), "", format!("has invalid value: {of}"));
    }
    for name in ["firstTimestamp", "lastTimestamp", "count", "source"] {
        let is_set = match field(event, name) {
            Value::Null => false,
            Value::Object(source) => !source.is_empty(),
            value => *value != 0,
        };
        if is_set {
            errors.invalid(&Path::root(name), "", "needs to be unset");
        }
    }
}

fn check_series(event: &Value, errors: &mut Errors) {
    let series = event.at("series");
    if series.is_null() {
        return;
    }
    if series.count("count") < 2 {
        errors.invalid(&Path::root("series.count"), "", "should be at least 2");
    }
    if !series.has("lastObservedTime") {
        errors.required(&Path::root("series.lastObservedTime"), "");
    }
}

/// Checks that only the series of an event of `events.k8s.io` changes.
fn check_change(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::change(new, errors);
    if new.at("series") != old.at("series") {
        check_series(new, errors);
    }
    let fixed = [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "reason",
        "type",
        "eventTime",
        "action",
        "related",
    ];
    for name in fixed {
        immutable(&shown(new, name), &shown(old, name), &Path::root(name), errors);
    }
    let path = Path::root("reportingController");
    immutable(&shown(new, "reportingComponent"), &shown(old, "reportingComponent"), &path, errors);
    let path = Path::root("reportingInstance");
    immutable(&shown(new, "reportingInstance"), &shown(old, "reportingInstance"), &path, errors);
}

/// Formats a field for messages: absent ones as their zero value.
fn shown(event: &Value, name: &str) -> Value {
    let value = field(event, name);
    match name {
        "involvedObject" => declared::of(value, &declared::OBJECT_REFERENCE),
        "related" if !value.is_null() => declared::of(value, &declared::OBJECT_REFERENCE),
        "source" => declared::of(value, &declared::EVENT_SOURCE),
        "count" if value.is_null() => 0.into(),
        "reason" | "message" | "type" | "action" | "reportingComponent" | "reportingInstance"
            if value.is_null() =>
        {
            "".into()
        }
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_two_forms_convert_into_each_other() {
        let core = json!({"apiVersion": "v1", "kind": "Event", "involvedObject": {"name": "p"}, "message": "m",
            "reportingInstance": "", "reportingComponent": "c", "source": {"host": "h"}, "firstTimestamp": null, "lastTimestamp": null, "count": 2});
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

    const CORE_EVENT: Event = Event { form: Form::Core };
    const NEW_EVENT: Event = Event { form: Form::Events };

    fn new_event() -> Value {
        json!({"metadata": {"namespace": "n"}, "regarding": {"namespace": "n"}, "eventTime": "2020-01-01T00:00:00.000000Z",
            "reportingController": "x.io/c", "reportingInstance": "i", "action": "A", "reason": "R", "type": "Normal"})
    }

    #[test]
    fn an_old_event_is_in_the_namespace_of_its_object() {
        use crate::kinds::check;
        let event = |namespace: &str, object: &str| json!({"metadata": {"namespace": namespace}, "involvedObject": {"namespace": object}});
        check::create(&CORE_EVENT, event("a", "a"), &[]);
        check::create(&CORE_EVENT, event("default", ""), &[]);
        check::create(&CORE_EVENT, event("a", "b"), &["Invalid involvedObject.namespace"]);
        check::create(&CORE_EVENT, event("a", ""), &["Invalid involvedObject.namespace"]);
    }

    #[test]
    fn a_new_event_has_a_reporter_and_no_deprecated_fields() {
        use crate::kinds::check;
        check::create(&NEW_EVENT, new_event(), &[]);
        let mut event = new_event();
        for name in ["reportingController", "action", "eventTime"] {
            event.unset(name);
        }
        event.set("deprecatedCount", 1);
        event.set("type", "Odd");
        check::create(&NEW_EVENT, event, &["Required eventTime", "Invalid type", "Invalid count"]);
        let mut event = new_event();
        event.set("reportingController", "");
        event.set("reason", "x".repeat(129));
        let expected = [
            "Required reportingController",
            "Invalid reportingController",
            "Invalid reportingController",
            "Invalid reason",
        ];
        check::create(&NEW_EVENT, event, &expected);
    }

    #[test]
    fn only_the_series_of_a_new_event_changes() {
        use crate::kinds::check;
        let mut event = new_event();
        event.set("series", json!({"count": 2, "lastObservedTime": "2020-01-01T00:00:00.000000Z"}));
        check::update(&NEW_EVENT, event.clone(), &new_event(), &[]);
        event.set("note", "x");
        check::update(&NEW_EVENT, event, &new_event(), &["Invalid message"]);
    }
}
