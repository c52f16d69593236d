//! Sets of fields, as a tree: what a manager owns, what a change touches.
//!
//! A field is a member for itself, not for what is below it: owning a map's entry is not owning the map.
//! Entries are sorted and none is useless: each is a member or leads to one.

use std::cmp::Ordering;

use serde_json::{Map, Value, json};

use super::element::Element;
use super::place::Place;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Set(Vec<Entry>);

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    element: Element,
    member: bool,
    children: Set,
}

impl Set {
    /// A set of fields that are named by their paths.
    pub(super) fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(path);
        }
        set
    }

    fn insert(&mut self, path: &[&str]) {
        let Some((first, rest)) = path.split_first() else { return };
        let element = Element::field(first);
        let at = match self.0.binary_search_by(|entry| entry.element.cmp(&element)) {
            Ok(at) => at,
            Err(at) => {
                self.0.insert(at, Entry { element, member: false, children: Self::default() });
                at
            }
        };
        match rest {
            [] => self.0[at].member = true,
            rest => self.0[at].children.insert(rest),
        }
    }

    /// Adds what comes after all that is there; nothing if it would be useless.
    pub(super) fn push(&mut self, element: impl FnOnce() -> Element, member: bool, children: Self) {
        if member || !children.is_empty() {
            self.0.push(Entry { element: element(), member, children });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, element: &Element) -> Option<&Entry> {
        self.0.binary_search_by(|entry| entry.element.cmp(element)).ok().map(|at| &self.0[at])
    }

    pub(super) fn has(&self, element: &Element) -> bool {
        self.find(element).is_some_and(|entry| entry.member)
    }

    /// What is below an element.
    pub(super) fn below(&self, element: &Element) -> Option<&Self> {
        self.find(element).map(|entry| &entry.children).filter(|children| !children.is_empty())
    }

    pub(super) fn union(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        let mut union = Self(Vec::with_capacity(self.0.len().max(other.0.len())));
        let (mut left, mut right) = (self.0.into_iter().peekable(), other.0.into_iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) => a.element.cmp(&b.element),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return union,
            };
            let (a, b) = (left.next_if(|_| order.is_le()), right.next_if(|_| order.is_ge()));
            match (a, b) {
                (Some(a), Some(b)) => {
                    let children = a.children.union(b.children);
                    union.0.push(Entry { element: a.element, member: a.member || b.member, children });
                }
                (one, other) => union.0.extend(one.or(other)),
            }
        }
    }

    /// What is in both.
    pub(super) fn intersection(&self, other: &Self) -> Self {
        let mut intersection = Self::default();
        for entry in &self.0 {
            let Some(found) = other.find(&entry.element) else { continue };
            let children = entry.children.intersection(&found.children);
            intersection.push(|| entry.element.clone(), entry.member && found.member, children);
        }
        intersection
    }

    /// What is here and not there. A field goes without what is below it.
    pub(super) fn difference(mut self, other: &Self) -> Self {
        self.0.retain_mut(|entry| {
            let Some(found) = other.find(&entry.element) else { return true };
            entry.member &= !found.member;
            entry.children = std::mem::take(&mut entry.children).difference(&found.children);
            entry.member || !entry.children.is_empty()
        });
        self
    }

    /// What is here and not there, nor below anything there.
    pub(super) fn without(mut self, other: &Self) -> Self {
        self.0.retain_mut(|entry| {
            let Some(found) = other.find(&entry.element) else { return true };
            entry.children = std::mem::take(&mut entry.children).without(&found.children);
            !found.member && (entry.member || !entry.children.is_empty())
        });
        self
    }

    /// The same set, with every struct's field as a member that leads to one.
    pub(super) fn with_named_fields(mut self, place: Place<'_>) -> Self {
        for entry in &mut self.0 {
            let below = place.below(&entry.element);
            if !entry.children.is_empty() {
                entry.member |= matches!(&entry.element, Element::Field(name) if place.declares(name));
                entry.children = std::mem::take(&mut entry.children).with_named_fields(below);
            }
        }
        self
    }

    /// Every member's path, as messages write it: members of a level first, then what is below.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths("", &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &str, paths: &mut Vec<String>) {
        paths.extend(
            self.0.iter().filter(|entry| entry.member).map(|entry| format!("{prefix}{}", entry.element)),
        );
        for entry in &self.0 {
            entry.children.collect_paths(&format!("{prefix}{}", entry.element), paths);
        }
    }

    /// Reads the form that `fieldsV1` has. Elements of unknown kinds are dropped.
    pub(super) fn from_stored(stored: &Value) -> Self {
        let mut set = Self::default();
        let Some(fields) = stored.as_object() else { return set };
        for (text, below) in fields.iter().filter(|(text, _)| *text != ".") {
            let Some(element) = Element::parse(text) else { continue };
            let children = Self::from_stored(below);
            let member = children.is_empty() || below.get(".").is_some();
            set.0.push(Entry { element, member, children });
        }
        // Stored texts sort much as elements do, but not quite.
        set.0.sort_by(|a, b| a.element.cmp(&b.element));
        set
    }

    pub(super) fn to_stored(&self) -> Value {
        Value::Object(self.0.iter().map(|entry| (entry.element.stored(), entry.to_stored())).collect())
    }
}

impl Entry {
    fn to_stored(&self) -> Value {
        let mut stored = match self.children.to_stored() {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        if self.member && !stored.is_empty() {
            stored.insert(".".into(), json!({}));
        }
        Value::Object(stored)
    }
}
