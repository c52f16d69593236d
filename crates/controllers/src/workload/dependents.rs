//! Finds the dependents of an owner without scanning its namespace.
//!
//! Two indexes over any namespaced kind: controlled objects by the controller's uid, and orphans by namespace.

use std::sync::Arc;

use setpoint::object::DecodeError;
use setpoint::{Cached, Informer, Lister, Metadata, Object, View};

const BY_CONTROLLER: &str = "by-controller";
const ORPHANS: &str = "orphans";

/// Finds dependents of one kind. Cheap to clone.
pub(crate) struct Dependents<V> {
    lister: Lister<V>,
}

impl<V> Clone for Dependents<V> {
    fn clone(&self) -> Self {
        Self { lister: self.lister.clone() }
    }
}

impl<V: View> Dependents<V> {
    /// Adds the indexes to an informer, if missing, and reads from it.
    pub(crate) fn of(informer: &Informer) -> Self {
        informer.add_index(BY_CONTROLLER, Arc::new(controller_uid));
        informer.add_index(ORPHANS, Arc::new(orphans_namespace));
        Self { lister: informer.lister() }
    }

    /// Lists objects controlled by this uid.
    pub(crate) fn controlled_by(&self, uid: &str) -> Result<Vec<Cached<V>>, DecodeError> {
        self.lister.indexed(BY_CONTROLLER, uid)
    }

    /// Lists what an owner controls or could adopt: its own dependents, and the orphans of its namespace.
    pub(crate) fn claimable_by(&self, owner: &Metadata) -> Result<Vec<Cached<V>>, DecodeError> {
        let mut found = self.controlled_by(&owner.uid)?;
        if let Some(namespace) = &owner.namespace {
            found.extend(self.lister.indexed(ORPHANS, namespace)?);
        }
        Ok(found)
    }
}

fn controller_uid(object: &Object) -> Vec<String> {
    object.meta().controller().map(|controller| controller.uid.to_string()).into_iter().collect()
}

fn orphans_namespace(object: &Object) -> Vec<String> {
    let meta = object.meta();
    if meta.controller().is_some() {
        return Vec::new();
    }
    meta.namespace.iter().map(|namespace| namespace.to_string()).collect()
}
