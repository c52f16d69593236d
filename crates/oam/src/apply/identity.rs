//! The identity of an object: kind, namespace and name.

use std::fmt;

use serde_json::Value;
use setpoint::{Key, Kind};

/// An object in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) kind: Kind,
    pub(crate) key: Key,
}

impl Identity {
    /// Returns the identity of a manifest. Objects of namespaced kinds without a namespace are in `namespace`.
    pub(crate) fn of(kind: &Kind, manifest: &Value, namespace: &str) -> Self {
        let meta = &manifest["metadata"];
        let name = meta["name"].as_str().unwrap_or_default();
        let own = meta["namespace"].as_str().filter(|own| !own.is_empty()).unwrap_or(namespace);
        let key = if kind.namespaced() { Key::namespaced(own, name) } else { Key::cluster(name) };
        Self { kind: kind.clone(), key }
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.key.namespace()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.kind.kind(), self.key)
    }
}
