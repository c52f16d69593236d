//! Fields of encoded objects: which of them a write would change, and whether a live object agrees.
//!
//! Invariants:
//! - Only written fields are compared. Defaults and the fields of other writers are ignored.
//! - Fields that the API server assigns (uid, versions, managed fields) are never compared. Two times agree if they are
//!   within the tolerance.
//! - An empty field (`null`, `""`, `0`, `false`, `[]`, `{}`) equals an absent one.
//! - The order of a list is ignored. Items with a merge key are compared by key.

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

/// The merge keys of lists, as in the API's patch merge keys.
const MERGE_KEYS: &[(&str, &str)] = &[
    ("conditions", "type"),
    ("containers", "name"),
    ("env", "name"),
    ("ephemeralContainers", "name"),
    ("imagePullSecrets", "name"),
    ("initContainers", "name"),
    ("ownerReferences", "uid"),
    ("resourceClaimStatuses", "name"),
    ("resourceClaims", "name"),
    ("secrets", "name"),
    ("volumeMounts", "mountPath"),
    ("volumes", "name"),
];

/// Metadata that the API server assigns.
const ASSIGNED: &[&str] = &[
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Fields with signatures. Two signers never produce the same one, so only the presence is compared.
const SIGNED: &[&str] = &["certificate", "token"];

/// A step of a field path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Item { key: &'static str, value: String },
}

/// A field path: `status.conditions[type=Available].status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldPath(Vec<Step>);

/// A field that a write would change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    pub(crate) path: FieldPath,
    /// `None` if the field would be removed.
    pub(crate) want: Option<Value>,
    pub(crate) was: Option<Value>,
}

/// A field whose live value differs from the intended one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mismatch {
    pub(crate) path: FieldPath,
    pub(crate) want: Option<Value>,
    pub(crate) live: Option<Value>,
    /// The live value has changed since the write was intended, to something else.
    pub(crate) moved: bool,
}

/// How lists without merge keys are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lists {
    /// The live list may have more items: admission may add some on create.
    MayHaveMore,
    Exact,
}

/// Compares with this tolerance for times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison {
    pub(crate) tolerance: Duration,
}

impl FieldPath {
    fn field(&self, name: &str) -> Self {
        self.with(Step::Field(name.to_owned()))
    }

    fn with(&self, step: Step) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }

    fn last_field(&self) -> Option<&str> {
        match self.0.last()? {
            Step::Field(name) => Some(name),
            Step::Item { .. } => None,
        }
    }

    /// Whether one is a prefix of the other.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(one, another)| one == another)
    }

    pub(crate) fn starts_with(&self, fields: &[&str]) -> bool {
        self.0.len() >= fields.len()
            && fields
                .iter()
                .zip(&self.0)
                .all(|(name, step)| matches!(step, Step::Field(field) if field == name))
    }

    /// Whether the API server assigns this field.
    fn is_assigned(&self) -> bool {
        match self.0.as_slice() {
            [Step::Field(top)] => matches!(top.as_str(), "apiVersion" | "kind"),
            [Step::Field(top), Step::Field(field)] => top == "metadata" && ASSIGNED.contains(&field.as_str()),
            _ => false,
        }
    }

    /// Returns the value at this path.
    pub(crate) fn get<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(object, |value, step| match step {
            Step::Field(name) => value.get(name),
            Step::Item { key, value: wanted } => {
                value.as_array()?.iter().find(|item| item.get(key).and_then(Value::as_str) == Some(wanted))
            }
        })
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in self.0.iter().enumerate() {
            match step {
                Step::Field(name) if name.contains(['.', '/']) => write!(f, "[{name:?}]")?,
                Step::Field(name) if place == 0 => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Item { key, value } => write!(f, "[{key}={value}]")?,
            }
        }
        Ok(())
    }
}

/// Returns the fields in which `after` differs from `before`.
pub(crate) fn changes(before: &Value, after: &Value) -> Vec<Change> {
    let mut found = Vec::new();
    compare(&FieldPath::default(), Some(before), Some(after), &mut found);
    found
}

fn compare(path: &FieldPath, was: Option<&Value>, want: Option<&Value>, found: &mut Vec<Change>) {
    if path.is_assigned() || was == want || (is_empty(was) && is_empty(want)) {
        return;
    }
    match (was, want) {
        (Some(Value::Object(was)), Some(Value::Object(want))) => {
            let names = want.keys().chain(was.keys().filter(|name| !want.contains_key(*name)));
            for name in names {
                compare(&path.field(name), was.get(name), want.get(name), found);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) => {
            match merge_key(path, before).and_then(|_| merge_key(path, after)) {
                Some(key) => compare_items(path, key, before, after, found),
                None if same_items(before, after) => {}
                None => found.push(change(path, was, want)),
            }
        }
        _ => found.push(change(path, was, want)),
    }
}

fn compare_items(
    path: &FieldPath,
    key: &'static str,
    before: &[Value],
    after: &[Value],
    found: &mut Vec<Change>,
) {
    let names = |items: &[Value]| -> Vec<String> {
        items.iter().filter_map(|item| item.get(key)?.as_str().map(str::to_owned)).collect()
    };
    let (was, want) = (names(before), names(after));
    let both = want.iter().chain(was.iter().filter(|name| !want.contains(name)));
    for name in both {
        let item = path.with(Step::Item { key, value: name.clone() });
        let find = |items: &[String], all: &[Value]| {
            items.iter().position(|one| one == name).and_then(|place| all.get(place).cloned())
        };
        compare(&item, find(&was, before).as_ref(), find(&want, after).as_ref(), found);
    }
}

fn change(path: &FieldPath, was: Option<&Value>, want: Option<&Value>) -> Change {
    Change { path: path.clone(), want: want.cloned(), was: was.cloned() }
}

/// Whether two lists have the same items in any order.
fn same_items(one: &[Value], another: &[Value]) -> bool {
    let mut left: Vec<&Value> = another.iter().collect();
    one.len() == another.len()
        && one.iter().all(|item| match left.iter().position(|other| *other == item) {
            Some(place) => {
                left.swap_remove(place);
                true
            }
            None => false,
        })
}

/// Returns the merge key of this list. `None` if an item lacks it, or two items have the same value.
fn merge_key(path: &FieldPath, items: &[Value]) -> Option<&'static str> {
    let field = path.last_field()?;
    let key = key_of(field)?;
    let mut values: Vec<&str> = items.iter().map(|item| item.get(key)?.as_str()).collect::<Option<_>>()?;
    values.sort_unstable();
    let count = values.len();
    values.dedup();
    (values.len() == count).then_some(key)
}

/// Returns the merge key of a list with this name.
pub(crate) fn key_of(field: &str) -> Option<&'static str> {
    MERGE_KEYS.iter().find(|(name, _)| *name == field).map(|(_, key)| *key)
}

/// Whether two values are equal except for times.
pub(crate) fn are_equivalent(one: &Value, another: &Value) -> bool {
    match (one, another) {
        (Value::Object(one), Value::Object(another)) => {
            one.len() == another.len()
                && one
                    .iter()
                    .all(|(name, value)| another.get(name).is_some_and(|other| are_equivalent(value, other)))
        }
        (Value::Array(one), Value::Array(another)) => {
            one.len() == another.len()
                && one.iter().zip(another).all(|(one, another)| are_equivalent(one, another))
        }
        (Value::String(one), Value::String(another)) => {
            one == another || (one.parse::<Timestamp>().is_ok() && another.parse::<Timestamp>().is_ok())
        }
        _ => one == another,
    }
}

/// Whether Go omits this value from JSON.
fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Bool(on)) => !on,
        Some(Value::Number(number)) => number.as_f64() == Some(0.0),
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(fields)) => fields.values().all(|value| is_empty(Some(value))),
    }
}

impl Change {
    /// Whether it equals another one except for times.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let are_equivalent = |one: &Option<Value>, another: &Option<Value>| match (one, another) {
            (Some(one), Some(another)) => are_equivalent(one, another),
            (one, another) => one.is_none() && another.is_none(),
        };
        self.path == other.path
            && are_equivalent(&self.want, &other.want)
            && are_equivalent(&self.was, &other.was)
    }
}

impl Comparison {
    /// Returns where a live object differs from the one to be created.
    pub(crate) fn of_object(self, want: &Value, live: &Value) -> Vec<Mismatch> {
        let mut found = Vec::new();
        self.check(&FieldPath::default(), want, Some(live), Lists::MayHaveMore, &mut found);
        found
    }

    /// Returns where a live object differs from the intended changes.
    pub(crate) fn of_changes(self, changes: &[Change], live: &Value) -> Vec<Mismatch> {
        let mut found = Vec::new();
        for change in changes {
            let value = change.path.get(live);
            let before = found.len();
            match &change.want {
                Some(want) => self.check(&change.path, want, value, Lists::Exact, &mut found),
                None if is_empty(value) => {}
                None => found.push(mismatch(&change.path, None, value)),
            }
            let moved = !self.same(change.was.as_ref(), value);
            found[before..].iter_mut().for_each(|one| one.moved = moved);
        }
        found
    }

    fn same(self, one: Option<&Value>, another: Option<&Value>) -> bool {
        one == another || (is_empty(one) && is_empty(another))
    }

    fn check(
        self,
        path: &FieldPath,
        want: &Value,
        live: Option<&Value>,
        lists: Lists,
        found: &mut Vec<Mismatch>,
    ) {
        if path.is_assigned() || Some(want) == live || (is_empty(Some(want)) && is_empty(live)) {
            return;
        }
        match (want, live) {
            (Value::Object(want), Some(Value::Object(live))) => {
                self.check_fields(path, want, live, lists, found);
            }
            (Value::Array(want), Some(Value::Array(live))) => {
                self.check_items(path, want, live, lists, found);
            }
            (Value::String(want), Some(Value::String(live)))
                if self.same_time(want, live) || is_signed(path) => {}
            _ => found.push(mismatch(path, Some(want), live)),
        }
    }

    fn check_fields(
        self,
        path: &FieldPath,
        want: &Map<String, Value>,
        live: &Map<String, Value>,
        lists: Lists,
        found: &mut Vec<Mismatch>,
    ) {
        for (name, value) in want {
            self.check(&path.field(name), value, live.get(name), lists, found);
        }
    }

    fn check_items(
        self,
        path: &FieldPath,
        want: &[Value],
        live: &[Value],
        lists: Lists,
        found: &mut Vec<Mismatch>,
    ) {
        if let Some(key) = merge_key(path, want).and_then(|_| merge_key(path, live)) {
            for item in want {
                let value = item.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
                let live = live.iter().find(|one| one.get(key).and_then(Value::as_str) == Some(&value));
                self.check(&path.with(Step::Item { key, value }), item, live, lists, found);
            }
            return;
        }
        let enough = match lists {
            Lists::MayHaveMore => want.len() <= live.len(),
            Lists::Exact => want.len() == live.len(),
        };
        if !enough || !self.is_among(path, want, live, lists) {
            let (want, live) = (Value::Array(want.to_vec()), Value::Array(live.to_vec()));
            found.push(mismatch(path, Some(&want), Some(&live)));
        }
    }

    /// Whether each intended item has a distinct live counterpart. Items are mostly in the same order, so the one at
    /// the same index is tried first.
    fn is_among(self, path: &FieldPath, want: &[Value], live: &[Value], lists: Lists) -> bool {
        let mut taken = vec![false; live.len()];
        want.iter().enumerate().all(|(place, item)| {
            let fits = |other: usize, taken: &[bool]| {
                let mut found = Vec::new();
                !taken[other] && {
                    self.check(path, item, Some(&live[other]), lists, &mut found);
                    found.is_empty()
                }
            };
            let same_place = Some(place).filter(|place| *place < live.len() && fits(*place, &taken));
            let other = same_place.or_else(|| (0..live.len()).find(|other| fits(*other, &taken)));
            other.inspect(|other| taken[*other] = true).is_some()
        })
    }

    fn same_time(self, want: &str, live: &str) -> bool {
        let (Ok(want), Ok(live)) = (want.parse::<Timestamp>(), live.parse::<Timestamp>()) else {
            return false;
        };
        let tolerance = SignedDuration::try_from(self.tolerance).unwrap_or(SignedDuration::MAX);
        want.duration_since(live).abs() <= tolerance
    }
}

fn is_signed(path: &FieldPath) -> bool {
    path.last_field().is_some_and(|field| SIGNED.contains(&field))
}

fn mismatch(path: &FieldPath, want: Option<&Value>, live: Option<&Value>) -> Mismatch {
    Mismatch { path: path.clone(), want: want.cloned(), live: live.cloned(), moved: false }
}
