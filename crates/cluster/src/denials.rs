//! What parts of the control plane were refused for want of a right.
//!
//! In a cluster that is set up as it should be there are none: a part that asks for more than its role allows has a
//! defect, or its role has. Tests assert that there are none; a server logs them.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use setpoint_apiserver::User;

/// Different denials that are kept: enough to see what is wrong. Each is a line of some 100 bytes.
const KEPT: usize = 100;

/// The denials so far, each once. Cheap to clone; clones are one.
#[derive(Clone, Debug, Default)]
pub struct Denials(Arc<Mutex<BTreeSet<String>>>);

impl Denials {
    /// Notes that `user` was refused `what`: a verb and a resource, or a method and a path.
    pub fn note(&self, user: &User, what: &str) {
        let line = format!("{}: {what}", user.name);
        let mut lines = self.0.lock();
        if lines.contains(&line) || lines.len() == KEPT {
            return;
        }
        tracing::warn!(user = user.name, what, "a part of the control plane lacks a right");
        lines.insert(line);
    }

    /// The different denials so far, in order.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().iter().cloned().collect()
    }

    /// Fails a test in which a part of the control plane was refused something.
    ///
    /// # Panics
    /// If there are denials, with all of them.
    pub fn assert_none(&self) {
        let lines = self.all();
        assert!(lines.is_empty(), "parts of the control plane lack rights:\n{}", lines.join("\n"));
    }
}
