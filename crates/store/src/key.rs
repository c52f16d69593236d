//! Resources, keys and ranges.

use std::fmt;
use std::sync::Arc;

/// A resource, which has its own index: `pods`, `apps/replicasets`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(Arc<str>);

/// The key of a record: its resource, and a path within it (`namespace/name` or `name`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub resource: Resource,
    pub path: Arc<str>,
}

/// All records of a resource whose path starts with `prefix` (`namespace/`, or empty for all), or the single record at
/// that path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    pub resource: Resource,
    pub prefix: Arc<str>,
    /// Selects only the record at the path `prefix`.
    pub is_exact: bool,
}

impl Resource {
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn key(&self, path: impl Into<Arc<str>>) -> Key {
        Key { resource: self.clone(), path: path.into() }
    }

    /// Selects all records of this resource.
    pub fn all(&self) -> Range {
        self.under("")
    }

    /// Selects the records whose path starts with `prefix`.
    pub fn under(&self, prefix: impl Into<Arc<str>>) -> Range {
        Range { resource: self.clone(), prefix: prefix.into(), is_exact: false }
    }

    /// Selects the record at `path`, if there is one.
    pub fn only(&self, path: impl Into<Arc<str>>) -> Range {
        Range { resource: self.clone(), prefix: path.into(), is_exact: true }
    }
}

impl Range {
    pub fn contains(&self, key: &Key) -> bool {
        key.resource == self.resource && self.has_path(&key.path)
    }

    pub(crate) fn has_path(&self, path: &str) -> bool {
        if self.is_exact { path == &*self.prefix } else { path.starts_with(&*self.prefix) }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.resource.0, self.path)
    }
}
