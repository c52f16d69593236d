//! From a dependent to its owner and potential adopters.

use setpoint::{Cached, Event, Key, LabelSelector, Lister, Object, View};

/// A kind whose objects select their dependents.
pub(crate) trait Owner: View {
    fn selector(&self) -> &LabelSelector;
}

/// Potential owners of one kind.
pub(crate) struct Owners<V> {
    kind: setpoint::Kind,
    lister: Lister<V>,
}

impl<V: Owner> Owners<V> {
    pub(crate) fn new(lister: Lister<V>) -> Self {
        Self { kind: V::kind(), lister }
    }

    /// Returns a dependent's controller, if it is of this kind and its uid matches.
    pub(crate) fn of(&self, dependent: &Object) -> Option<Cached<V>> {
        let controller = dependent.meta().controller()?;
        if *controller.kind != *self.kind.kind() {
            return None;
        }
        let owner = self.lister.get(&dependent.key().sibling(&*controller.name)).ok()??;
        (owner.meta().uid == controller.uid).then_some(owner)
    }

    /// Returns all owners that a dependent's event concerns: current, previous and potential ones.
    pub(crate) fn concerned_by(&self, event: &Event) -> Vec<Key> {
        let new = event.object();
        let handed_over = event.old().filter(|old| old.meta().controller() != new.meta().controller());
        let had = handed_over.and_then(|old| self.of(old));
        let mut keys: Vec<Key> = had.map(|had| had.key().clone()).into_iter().collect();
        if new.meta().controller().is_some() {
            keys.extend(self.of(new).map(|has| has.key().clone()));
        } else if may_lead_to_adoption(event) {
            keys.extend(self.selecting(new));
        }
        keys
    }

    /// Lists owners that select an orphan. An empty selector selects nothing here.
    pub(crate) fn selecting(&self, orphan: &Object) -> Vec<Key> {
        let labels = &orphan.meta().labels;
        if labels.is_empty() {
            return Vec::new();
        }
        let selects = |owner: &&Cached<V>| !owner.selector().is_empty() && owner.selector().matches(labels);
        match self.lister.list(orphan.key().namespace()) {
            Ok(owners) => owners.iter().filter(selects).map(|owner| owner.key().clone()).collect(),
            Err(error) => {
                tracing::warn!(orphan = %orphan.key(), kind = %self.kind, %error, "cannot find the owners of an orphan");
                Vec::new()
            }
        }
    }
}

/// Whether a change of an orphan may lead to its adoption.
fn may_lead_to_adoption(event: &Event) -> bool {
    match event {
        Event::Added { .. } => true,
        Event::Updated { old, new } => {
            old.meta().labels != new.meta().labels || old.meta().controller() != new.meta().controller()
        }
        Event::Deleted { .. } => false,
    }
}
