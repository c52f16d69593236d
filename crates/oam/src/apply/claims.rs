//! Which application is about to write which object. An object that does not exist yet has no owner, so claims keep two
//! applications of this process from creating the same one.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::identity::Identity;

/// Objects that are being written, and by which application. Bounded by the objects of the reconciles in progress. Cheap
/// to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims(Arc<Mutex<BTreeMap<Identity, String>>>);

/// An application's claim to an object, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Claims,
    /// None if the application had claimed the object before.
    of: Option<Identity>,
}

impl Claims {
    /// Claims an object for an application. The error is the application that was first.
    pub(crate) fn claim(&self, of: &Identity, app: &str) -> Result<Claim, String> {
        let mut held = self.0.lock();
        let of = match held.get(of) {
            Some(other) if other != app => return Err(other.clone()),
            Some(_) => None,
            None => {
                held.insert(of.clone(), app.to_owned());
                Some(of.clone())
            }
        };
        drop(held);
        Ok(Claim { claims: self.clone(), of })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(of) = &self.of {
            self.claims.0.lock().remove(of);
        }
    }
}

#[cfg(test)]
mod tests {
    use setpoint::{Key, Kind};

    use super::*;

    #[test]
    fn an_object_is_claimed_by_one_application_at_a_time() {
        let claims = Claims::default();
        let kind = Kind::new("", "v1", "ConfigMap", "configmaps", true);
        let of = Identity { kind, key: Key::namespaced("d", "a") };
        let first = claims.claim(&of, "d/one").expect("free");
        let again = claims.claim(&of, "d/one").expect("its own");
        assert_eq!(claims.claim(&of, "d/two").expect_err("taken"), "d/one");
        drop(again);
        assert!(claims.claim(&of, "d/two").is_err());
        drop(first);
        assert!(claims.claim(&of, "d/two").is_ok());
    }
}
