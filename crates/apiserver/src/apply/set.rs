//! Field sets, as a tree: what a manager owns, what a change touches.
//!
//! A field is a member on its own, independent of what is below it: owning a map's entry is not owning the map. The
//! tree has the same form as `fieldsV1`, so that decoding and encoding are free and a small change to a large set is
//! cheap: an element maps to an object that is empty for a member with nothing below, and has `.` for a member with
//! something below.

use serde_json::{Map, Value};

use super::element;
use super::schema_node::SchemaNode;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Set(Map<String, Value>);

const SELF: &str = ".";

impl Set {
    /// Creates a set from field paths.
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

    /// Adds a new element, unless it is neither a member nor has anything below.
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

    /// Returns the fields in both sets.
    pub(super) fn intersection(&self, other: &Self) -> Self {
        Self(intersect(&self.0, &other.0))
    }

    /// Returns the fields in this set but not in `other`. Removing a field keeps what is below it.
    pub(super) fn difference(mut self, other: &Self) -> Self {
        subtract(&mut self.0, &other.0, Depth::Itself);
        self
    }

    /// Returns the fields in this set that are neither in `other` nor below a field in it.
    pub(super) fn without(mut self, other: &Self) -> Self {
        subtract(&mut self.0, &other.0, Depth::AllBelow);
        self
    }

    /// Makes every declared struct field with something below it a member.
    pub(super) fn with_named_fields(mut self, place: SchemaNode<'_>) -> Self {
        name_fields(&mut self.0, place);
        self
    }

    /// Returns all members' paths for messages: the members of a level first, then what is below.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        collect_paths(&self.0, "", &mut paths);
        paths
    }

    /// Decodes a stored set. Drops elements of unknown types.
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

    /// Encodes the set in its stored form.
    pub(super) fn text(&self) -> String {
        // Serializing maps of maps cannot fail.
        serde_json::to_string(&self.0).unwrap_or_default()
    }
}

/// A read-only part of a set.
#[derive(Clone, Copy)]
pub(super) struct View<'s>(&'s Map<String, Value>);

impl<'s> View<'s> {
    pub(super) fn has(self, element: &str) -> bool {
        self.0.get(element).is_some_and(is_member)
    }

    /// Whether the field with this name is a member, for small sets.
    pub(super) fn has_field(self, name: &str) -> bool {
        self.0.iter().any(|(element, node)| element::field_name(element) == Some(name) && is_member(node))
    }

    /// Returns what is below the field with this name, for small sets.
    pub(super) fn below_field(self, name: &str) -> Option<View<'s>> {
        let found = self.0.iter().find(|(element, _)| element::field_name(element) == Some(name));
        found.and_then(|(_, node)| node.as_object()).filter(|node| has_children(node)).map(View)
    }

    /// Returns what is below an element, if anything is.
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

/// Removes a node's member mark, and returns whether it had one.
fn open(node: &mut Map<String, Value>) -> bool {
    node.is_empty() || node.remove(SELF).is_some()
}

/// Restores the mark that [`open`] removed. Returns false if the node is no longer needed.
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

/// How much to remove with a member.
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

fn name_fields(fields: &mut Map<String, Value>, place: SchemaNode<'_>) {
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

/// Converts elements written by others to this server's form.
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
