//! The caches of a controller, which must sync before its first reconcile.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Informer, Kind};

/// The informers that a controller reads. Shared by the controller and its reconciler. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Caches {
    /// At most one entry per kind and selection that the controller's code names.
    all: Arc<Mutex<Vec<Informer>>>,
}

impl Caches {
    pub(crate) fn add(&self, informer: &Informer) {
        let mut all = self.all.lock();
        if !all.iter().any(|known| known.is(informer)) {
            all.push(informer.clone());
        }
    }

    pub(crate) fn all(&self) -> Vec<Informer> {
        self.all.lock().clone()
    }

    /// Returns the informer for the full objects of a kind, if there is one.
    pub(crate) fn of_kind(&self, kind: &Kind) -> Option<Informer> {
        let all = self.all.lock();
        all.iter().find(|known| known.kind() == kind && !known.selection().metadata_only).cloned()
    }
}
