//! The second round of mutating admission: which policies and webhooks are called again.
//!
//! There is one if a policy or a webhook changed the object, and never a third. Plugins are all called again; policies
//! and webhooks if they ask for it and the object changed after they were called.

use std::collections::BTreeSet;

use serde_json::Value;

/// The rounds of a request.
#[derive(Default)]
pub(super) struct Reinvocation {
    /// 0 for the first round, 1 for the second.
    pub(super) round: u8,
    /// Whether there is to be a second round.
    pub(super) is_needed: bool,
    pub(super) webhooks: Called,
    pub(super) policies: Called,
}

/// The policies or webhooks that were called, by id. Each group has its own record.
#[derive(Default)]
pub(super) struct Called {
    /// Those that may be called again, since the object last changed.
    called: BTreeSet<String>,
    /// The ids to call again.
    again: BTreeSet<String>,
    /// The object as they left it in the last round.
    last: Value,
}

impl Called {
    /// Begins a round. In the second one all are called again that were called before a plugin changed the object.
    pub(super) fn begin(&mut self, round: u8, object: &Value) {
        if round > 0 && self.last != *object {
            self.changed();
        }
    }

    /// The object has changed: those that were called before it did are to be called again.
    pub(super) fn changed(&mut self) {
        let called = std::mem::take(&mut self.called);
        self.again.extend(called);
    }

    /// One was called that may be called again.
    pub(super) fn add(&mut self, id: String) {
        self.called.insert(id);
    }

    /// Whether one is to be called in a round. One that did not match in the first round is not called for the first
    /// time in the second.
    pub(super) fn is_due(&self, round: u8, id: &str) -> bool {
        round == 0 || self.again.contains(id)
    }

    /// Ends a round with this object.
    pub(super) fn end(&mut self, object: &Value) {
        self.last = object.clone();
    }
}
