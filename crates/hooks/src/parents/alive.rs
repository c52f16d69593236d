//! Parents that are gone but still in the cache.
//!
//! The garbage collector deletes the children of a deleted parent. A controller with a stale cache would recreate them
//! again and again until the cache catches up. So before it creates children of a parent that was reconciled before, it
//! reads the parent from the API server. A parent that is gone is ignored for a while.

use std::time::Duration;

use setpoint::Instant;
use setpoint::client::Optional;
use setpoint::reconcile::ErrorContext;

use super::reconcile::{Failure, Parents, Pass};
use crate::apply::Action;

/// How long a parent that is gone is ignored, unless the cache shows something new.
const LEFT_ALONE: Duration = Duration::from_secs(10);

/// A reconciled parent.
#[derive(Debug)]
pub(super) struct Known {
    uid: Box<str>,
    gone_until: Option<Instant>,
}

impl Parents {
    /// Ends the reconcile of a parent that is known to be gone.
    pub(super) fn check_gone(&self, pass: &Pass) -> Result<(), Failure> {
        let now = self.wiring.clock.instant();
        let known = self.known.lock();
        let known = known.get(&pass.at).filter(|known| known.uid == pass.parent.meta().uid);
        match known.and_then(|known| known.gone_until).filter(|until| now < *until) {
            Some(until) => Err(Failure::Later(until.saturating_duration_since(now))),
            None => Ok(()),
        }
    }

    /// Checks that a parent exists, before actions that create children.
    pub(super) async fn check_before(&self, pass: &mut Pass, actions: &[Action]) -> Result<(), Failure> {
        let creates = |action: &Action| matches!(action, Action::Create { .. } | Action::Apply { .. });
        match actions.iter().any(creates) {
            true => self.check_alive(pass).await,
            false => Ok(()),
        }
    }

    /// Checks, once per reconcile, that a parent exists before something is created for it. In its first reconcile, the
    /// cache is trusted.
    pub(super) async fn check_alive(&self, pass: &mut Pass) -> Result<(), Failure> {
        if pass.is_alive {
            return Ok(());
        }
        let uid = &pass.parent.meta().uid;
        let known = Known { uid: uid.clone(), gone_until: None };
        let before = self.known.lock().insert(pass.at.clone(), known);
        if before.is_some_and(|before| before.uid == *uid) {
            let read = self.wiring.client.get(&pass.at.kind, &pass.at.key).await.optional();
            let live = read.attempting(|| format!("read {} before it creates children", pass.at))?;
            if live.is_none_or(|live| live.meta().uid != *uid) {
                return Err(self.gone(pass));
            }
        }
        pass.is_alive = true;
        Ok(())
    }

    /// Records the end of a reconcile: from now on, the parent is read before anything is created for it.
    pub(super) fn note_known(&self, pass: &Pass) {
        let uid = &pass.parent.meta().uid;
        let mut known = self.known.lock();
        if known.get(&pass.at).is_none_or(|known| known.uid != *uid) {
            known.insert(pass.at.clone(), Known { uid: uid.clone(), gone_until: None });
        }
    }

    /// Records that a parent is gone.
    pub(super) fn gone(&self, pass: &Pass) -> Failure {
        let until = self.wiring.clock.instant() + LEFT_ALONE;
        let known = Known { uid: pass.parent.meta().uid.clone(), gone_until: Some(until) };
        self.known.lock().insert(pass.at.clone(), known);
        Failure::Later(LEFT_ALONE)
    }
}
