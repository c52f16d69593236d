//! The live records of one resource, in path order.
//!
//! The map is persistent: a list takes a snapshot in O(1) and walks it without holding any lock, while
//! writers go on. How many records there are below each first part of a path is counted along, so that a page
//! can say how many follow it without walking them.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;

use crate::{Event, EventKind, ListOptions, Page, Record, Revision};

#[derive(Clone, Default)]
pub(crate) struct Index {
    records: OrdMap<Arc<str>, Arc<Record>>,
    /// How many records there are below `first-part/`.
    below: OrdMap<Arc<str>, usize>,
}

/// The first part of a path, where it has more than one: `default/` of `default/web`.
fn first_part(path: &str) -> Option<&str> {
    path.find('/').map(|at| &path[..=at])
}

impl Index {
    pub(crate) fn get(&self, path: &str) -> Option<&Arc<Record>> {
        self.records.get(path)
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn insert(&mut self, record: Arc<Record>) -> Option<Arc<Record>> {
        let path = record.key.path.clone();
        let replaced = self.records.insert(path.clone(), record);
        if replaced.is_none()
            && let Some(part) = first_part(&path)
        {
            match self.below.get_mut(part) {
                Some(count) => *count += 1,
                None => _ = self.below.insert(part.into(), 1),
            }
        }
        replaced
    }

    pub(crate) fn remove(&mut self, path: &str) -> Option<Arc<Record>> {
        let removed = self.records.remove(path)?;
        if let Some(part) = first_part(path)
            && let Some(count) = self.below.get_mut(part)
        {
            *count -= 1;
            if *count == 0 {
                self.below.remove(part);
            }
        }
        Some(removed)
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        match event.kind {
            EventKind::Created | EventKind::Updated => self.insert(event.record.clone()),
            EventKind::Deleted => self.remove(&event.record.key.path),
        };
    }

    /// Takes an event back. Events are undone in the reverse of the order they were applied in.
    pub(crate) fn undo(&mut self, event: &Event) {
        match &event.previous {
            Some(previous) => self.insert(previous.clone()),
            None => self.remove(&event.record.key.path),
        };
    }

    pub(crate) fn count(&self, prefix: &str) -> usize {
        match first_part(prefix) {
            _ if prefix.is_empty() => self.len(),
            Some(part) if part == prefix => self.below.get(prefix).copied().unwrap_or(0),
            _ => self.under(prefix, None).count(),
        }
    }

    /// The records whose path is strictly after `after`.
    pub(crate) fn after(&self, after: Option<&str>) -> impl Iterator<Item = &Arc<Record>> {
        self.under("", after.map(Bound::Excluded))
    }

    /// The part of the records under `prefix` that `options` asks for; `revision` is what this index shows.
    pub(crate) fn page(&self, prefix: &str, options: &ListOptions, revision: Revision) -> Page {
        let limit = if options.limit == 0 { usize::MAX } else { options.limit };
        let mut rest = self.under(prefix, options.from.as_deref().map(Bound::Included));
        let records: Vec<_> = rest.by_ref().take(limit).cloned().collect();
        let before = if options.from.is_none() { Some(0) } else { options.before };
        let remaining = match (rest.next(), before) {
            (None, _) => 0,
            // Whatever the caller counted, there is one more at least.
            (Some(_), Some(before)) => {
                self.count(prefix).saturating_sub(before.saturating_add(records.len())).max(1)
            }
            (Some(_), None) => 1 + rest.count(),
        };
        Page { records, revision, remaining }
    }

    /// The records under `prefix` from `start` on.
    fn under<'a>(
        &'a self,
        prefix: &'a str,
        start: Option<Bound<&str>>,
    ) -> impl Iterator<Item = &'a Arc<Record>> {
        let start = match start {
            Some(start @ (Bound::Included(path) | Bound::Excluded(path))) if path >= prefix => start,
            _ => Bound::Included(prefix),
        };
        let from_start = self.records.range::<_, str>((start, Bound::Unbounded));
        from_start.take_while(move |(path, _)| path.starts_with(prefix)).map(|(_, record)| record)
    }
}
