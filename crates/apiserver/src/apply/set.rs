//! Sets of fields, as a tree: what a manager owns, what a change touches.
//!
//! A field is a member for itself, not for what is below it: owning a map's entry is not owning the map.
//! The tree is kept in the very form that `fieldsV1` has, so that sets are read and written for nothing
//! and a small change of a large set costs little: an element leads to an object that is empty for a member
//! with nothing below, and has `.` for a member with something below.

use serde_json::{Map, Value};

use super::element;
use super::place::Place;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Set(Map<String, Value>);

const SELF: &str = ".";

impl Set {
    /// A set of fields that are named by their paths.
    pub(super) fn of(paths: &[&[&str]]) -> Self {
        paths.iter().fold(Self::default(), |set, path| set.union(Self::path(path)))
    }

    fn path(path: &[&str]) -> Self {
        let mut set = Self::default();
        if let Some((first, rest)) = path.split_first() {
            set.push(|| element::field(first), rest.is_empty(), Self::path(rest));
        }
        set
    }

    /// Adds an element that is not there yet; nothing if it would be useless.
    pub(super) fn push(&mut self, element: impl FnOnce() -> String, member: bool, below: Self) {
        if member || !below.is_empty() {
            self.0.insert(element(), node(member, below));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn view(&self) -> View<'_> {
        View(&self.0)
    }

    pub(super) fn union(mut self, other: Self) -> Self {
        unite(&mut self.0, other.0);
        self
    }

    /// What is in both.
    pub(super) fn intersection(&self, other: &Self) -> Self {
        Self(intersect(&self.0, &other.0))
    }

    /// What is here and not there. A field goes without what is below it.
    pub(super) fn difference(mut self, other: &Self) -> Self {
        subtract(&mut self.0, &other.0, Depth::Itself);
        self
    }

    /// What is here and not there, nor below anything there.
    pub(super) fn without(mut self, other: &Self) -> Self {
        subtract(&mut self.0, &other.0, Depth::AllBelow);
        self
    }

    /// The same set, with every struct's field as a member that leads to one.
    pub(super) fn with_named_fields(mut self, place: Place<'_>) -> Self {
        name_fields(&mut self.0, place);
        self
    }

    /// Every member's path, as messages write it: members of a level first, then what is below.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        collect_paths(&self.0, "", &mut paths);
        paths
    }

    /// Takes over a stored set. Elements of unknown kinds are dropped.
    pub(super) fn from_stored(stored: Value) -> Self {
        match stored {
            Value::Object(mut fields) => {
                canonicalize(&mut fields);
                Self(fields)
            }
            _ => Self::default(),
        }
    }

    pub(super) fn into_stored(self) -> Value {
        Value::Object(self.0)
    }

    /// As it is stored.
    pub(super) fn text(&self) -> String {
        // Maps of maps always have a text.
        serde_json::to_string(&self.0).unwrap_or_default()
    }
}

/// A part of a set, for looking up.
#[derive(Clone, Copy)]
pub(super) struct View<'s>(&'s Map<String, Value>);

impl<'s> View<'s> {
    pub(super) fn has(self, element: &str) -> bool {
        self.0.get(element).is_some_and(is_member)
    }

    /// Whether the field of this name is a member, for sets of a few fields.
    pub(super) fn has_field(self, name: &str) -> bool {
        self.0.iter().any(|(element, node)| element::field_name(element) == Some(name) && is_member(node))
    }

    /// What is below the field of this name, for sets of a few fields.
    pub(super) fn below_field(self, name: &str) -> Option<View<'s>> {
        let found = self.0.iter().find(|(element, _)| element::field_name(element) == Some(name));
        found.and_then(|(_, node)| node.as_object()).filter(|node| has_children(node)).map(View)
    }

    /// What is below an element, if anything is.
    pub(super) fn below(self, element: &str) -> Option<View<'s>> {
        self.0.get(element).and_then(Value::as_object).filter(|node| has_children(node)).map(View)
    }
}

fn node(member: bool, below: Set) -> Value {
    let mut below = below.0;
    if member && !below.is_empty() {
        below.insert(SELF.into(), Value::Object(Map::new()));
    }
    Value::Object(below)
}

fn has_children(node: &Map<String, Value>) -> bool {
    node.len() > usize::from(node.contains_key(SELF))
}

fn is_member(node: &Value) -> bool {
    node.as_object().is_some_and(|node| node.is_empty() || node.contains_key(SELF))
}

/// Whether the node is a member, and the node without saying so.
fn open(node: &mut Map<String, Value>) -> bool {
    node.is_empty() || node.remove(SELF).is_some()
}

/// Says again what [`open`] found. False if the node is of no use any more.
fn close(node: &mut Map<String, Value>, member: bool) -> bool {
    if member && !node.is_empty() {
        node.insert(SELF.into(), Value::Object(Map::new()));
    }
    member || !node.is_empty()
}

fn unite(into: &mut Map<String, Value>, other: Map<String, Value>) {
    for (element, theirs) in other {
        let Value::Object(mut theirs) = theirs else { continue };
        match into.get_mut(&element) {
            Some(Value::Object(ours)) => {
                let member = open(ours) | open(&mut theirs);
                unite(ours, theirs);
                close(ours, member);
            }
            _ => _ = into.insert(element, Value::Object(theirs)),
        }
    }
}

fn intersect(a: &Map<String, Value>, b: &Map<String, Value>) -> Map<String, Value> {
    let mut both = Map::new();
    let (fewer, more) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    for (element, ours) in fewer {
        let (Some(ours), Some(theirs)) = (ours.as_object(), more.get(element).and_then(Value::as_object))
        else {
            continue;
        };
        if element == SELF {
            continue;
        }
        let is_member = |node: &Map<String, Value>| node.is_empty() || node.contains_key(SELF);
        let mut node = intersect(ours, theirs);
        if close(&mut node, is_member(ours) && is_member(theirs)) {
            both.insert(element.clone(), Value::Object(node));
        }
    }
    both
}

/// How much goes with a member that goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Itself,
    AllBelow,
}

fn subtract(from: &mut Map<String, Value>, other: &Map<String, Value>, depth: Depth) {
    // An object may have thousands of managers with a field each, and a change may touch thousands of fields.
    let elements: Vec<String> = match from.len() < other.len() {
        true => from.keys().filter(|element| other.contains_key(*element)).cloned().collect(),
        false => other.keys().filter(|element| from.contains_key(*element)).cloned().collect(),
    };
    for element in elements.iter().filter(|element| *element != SELF) {
        let (Some(Value::Object(ours)), Some(Value::Object(theirs))) =
            (from.get_mut(element), other.get(element))
        else {
            continue;
        };
        let goes = theirs.is_empty() || theirs.contains_key(SELF);
        let member = open(ours) && !goes;
        if goes && depth == Depth::AllBelow {
            ours.clear();
        } else {
            subtract(ours, theirs, depth);
        }
        if !close(ours, member) {
            from.remove(element);
        }
    }
}

fn name_fields(fields: &mut Map<String, Value>, place: Place<'_>) {
    for (element, node) in fields.iter_mut() {
        let Value::Object(node) = node else { continue };
        if has_children(node) {
            let named = element::field_name(element).is_some_and(|name| place.declares(name));
            let member = open(node) || named;
            name_fields(node, place.below(element));
            close(node, member);
        }
    }
}

fn collect_paths(fields: &Map<String, Value>, prefix: &str, paths: &mut Vec<String>) {
    let elements = || fields.iter().filter(|(element, _)| *element != SELF);
    let shown = |element: &str| format!("{prefix}{}", element::shown(element));
    paths.extend(elements().filter(|(_, node)| is_member(node)).map(|(element, _)| shown(element)));
    for (element, node) in elements() {
        collect_paths(node.as_object().unwrap_or(&Map::new()), &shown(element), paths);
    }
}

/// Brings what others may have written into this server's form.
fn canonicalize(fields: &mut Map<String, Value>) {
    let odd = |element: &String| element != SELF && !element::looks_canonical(element);
    let odd: Vec<String> = fields.keys().filter(|element| odd(element)).cloned().collect();
    for element in odd {
        if let (Some(canonical), Some(node)) = (element::canonical(&element), fields.remove(&element)) {
            fields.insert(canonical, node);
        }
    }
    for node in fields.values_mut() {
        match node {
            Value::Object(node) => canonicalize(node),
            other => *other = Value::Object(Map::new()),
        }
    }
}
