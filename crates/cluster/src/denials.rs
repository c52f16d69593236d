//! Requests of built-in parts that were denied for lack of permission.
//!
//! In a correct cluster there are none: if a part requests more than its role allows, either the part or the role has a
//! bug. Tests assert that there are none, and a server logs them.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use setpoint_apiserver::User;

/// The maximum number of distinct denials kept: enough to see what is wrong. Each is a line of some 100 bytes.
const KEPT: usize = 100;

/// The distinct denials so far. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Denials(Arc<Mutex<BTreeSet<String>>>);

impl Denials {
    /// Records that `user` was denied `what`: a verb and a resource, or a method and a path.
    pub fn note(&self, user: &User, what: &str) {
        let line = format!("{}: {what}", user.name);
        let mut lines = self.0.lock();
        if lines.contains(&line) || lines.len() == KEPT {
            return;
        }
        tracing::warn!(user = user.name, what, "a component of the control plane lacks a permission");
        lines.insert(line);
    }

    /// Returns the distinct denials so far, sorted.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().iter().cloned().collect()
    }

    /// Asserts that no part of the control plane was denied anything.
    ///
    /// # Panics
    /// If there are denials. The message lists all of them.
    pub fn assert_none(&self) {
        let lines = self.all();
        assert!(lines.is_empty(), "parts of the control plane lack rights:\n{}", lines.join("\n"));
    }
}
