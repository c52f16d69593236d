//! The children of a parent: it adopts orphans that its selector matches, and releases children that it no longer
//! matches.
//!
//! Invariant: a parent adopts only after a read from the API server has shown that it still exists and is not being deleted.

use std::sync::Arc;

use setpoint::client::{IgnoreErrors, Optional, Subresource};
use setpoint::indexer::IndexFn;
use setpoint::owner::{Claim, adoption_of_any, claim, controller_ref, release_of_any};
use setpoint::reconcile::ErrorContext;
use setpoint::{Informer, Kind, LabelSelector, Object, ReconcileError};

use super::reconcile::{Parents, Pass};
use super::setup::{annotations, full};
use crate::names::{CONTROLLER_UID, DECORATED_BY};
use crate::wire::{Objects, Shape};

/// The index of children by the uid of their controller, and of orphans by namespace.
pub(super) const BY_OWNER: &str = "hooks-owner";
/// No uid has a slash.
const ORPHANS: &str = "/";

pub(super) fn by_owner() -> IndexFn {
    Arc::new(|object: &Object| match object.meta().controller() {
        Some(owner) => vec![owner.uid.to_string()],
        None => {
            let namespace = object.key().namespace().unwrap_or_default();
            vec![ORPHANS.to_owned(), format!("{ORPHANS}{namespace}")]
        }
    })
}

/// Returns the selector of a parent's children.
pub(super) fn selector_of(parent: &Object, generated: bool) -> Result<LabelSelector, String> {
    #[derive(serde::Deserialize)]
    struct Selecting {
        #[serde(default)]
        spec: Spec,
    }
    #[derive(Default, serde::Deserialize)]
    struct Spec {
        selector: Option<LabelSelector>,
    }
    if generated {
        let match_labels = [(CONTROLLER_UID, &*parent.meta().uid)].into_iter().collect();
        return Ok(LabelSelector { match_labels, ..LabelSelector::default() });
    }
    let parent: Selecting = parent.decode().map_err(|error| {
        let source = std::error::Error::source(&error).map(ToString::to_string);
        format!(".spec.selector: {}", source.unwrap_or_else(|| error.to_string()))
    })?;
    let selector = parent.spec.selector.unwrap_or_default();
    match selector.is_empty() {
        true => Err(".spec.selector must have either matchLabels, matchExpressions, or both".into()),
        false => Ok(selector),
    }
}

impl Parents {
    /// Returns the children of a parent.
    pub(super) async fn children(
        &self,
        pass: &mut Pass,
        selector: &LabelSelector,
    ) -> Result<Objects, ReconcileError> {
        let mut children = Objects::default();
        for declared in &self.setup.children {
            let (kind, informer) = (&declared.kind, &self.wiring.children[&declared.kind]);
            children.declare(kind);
            let claimed = match self.setup.shape {
                Shape::Composite => self.claim(pass, kind, informer, selector).await?,
                Shape::Decorator => self.decorations(pass, informer),
            };
            for child in claimed {
                children.insert(kind, child.key().clone(), full(kind, &child));
            }
        }
        Ok(children)
    }

    /// Returns the attachments that this decorator has created.
    fn decorations(&self, pass: &Pass, informer: &Informer) -> Vec<Object> {
        let mut owned = informer.objects().indexed(BY_OWNER, &pass.parent.meta().uid);
        owned.retain(|child| annotations(child).get(DECORATED_BY) == Some(self.setup.name.as_str()));
        owned
    }

    pub(super) async fn claim(
        &self,
        pass: &mut Pass,
        kind: &Kind,
        informer: &Informer,
        selector: &LabelSelector,
    ) -> Result<Vec<Object>, ReconcileError> {
        let objects = informer.objects();
        let mut candidates = objects.indexed(BY_OWNER, &pass.parent.meta().uid);
        let namespace = pass.at.key.namespace();
        candidates.retain(|child| {
            !kind.namespaced() || namespace.is_none() || child.key().namespace() == namespace
        });
        candidates.extend(objects.indexed(BY_OWNER, &format!("{ORPHANS}{}", namespace.unwrap_or_default())));
        let mut children = Vec::new();
        for child in candidates {
            match claim(pass.parent.meta(), selector, child.meta()) {
                Claim::Owned => children.push(child),
                Claim::Adopt => children.extend(self.adopt(pass, kind, &child).await?),
                Claim::Release => self.release(pass, kind, &child).await?,
                Claim::Foreign => {}
            }
        }
        Ok(children)
    }

    async fn adopt(
        &self,
        pass: &mut Pass,
        kind: &Kind,
        child: &Object,
    ) -> Result<Option<Object>, ReconcileError> {
        self.may_adopt(pass).await?;
        let owner = controller_ref(&pass.at.kind, pass.parent.meta());
        let patch = adoption_of_any(&owner, child.meta());
        let adopted = self.wiring.client.patch(kind, child.key(), Subresource::None, patch).await.optional();
        let adopted = adopted.attempting(|| format!("adopt {} {}", kind.kind(), child.key()))?;
        pass.wrote("adopted", kind, child.key(), Some(child), adopted.as_ref());
        Ok(adopted)
    }

    /// Reads the parent from the API server, once per reconcile.
    async fn may_adopt(&self, pass: &mut Pass) -> Result<(), ReconcileError> {
        if pass.may_adopt {
            return Ok(());
        }
        let read = self.wiring.client.get(&pass.at.kind, &pass.at.key).await.optional();
        let live = read.attempting(|| format!("read {} before it adopts", pass.at))?;
        let is_same = live
            .is_some_and(|live| live.meta().uid == pass.parent.meta().uid && !live.meta().is_being_deleted());
        match is_same {
            true => pass.may_adopt = true,
            false => {
                return Err(ReconcileError::conflict(format!(
                    "{} is gone or about to be: it adopts nothing",
                    pass.at
                )));
            }
        }
        Ok(())
    }

    async fn release(&self, pass: &mut Pass, kind: &Kind, child: &Object) -> Result<(), ReconcileError> {
        let patch = release_of_any(&pass.parent.meta().uid, child.meta());
        let released =
            self.wiring.client.patch_ignoring_response(kind, child.key(), Subresource::None, patch).await;
        released.ignore_not_found().attempting(|| format!("release {} {}", kind.kind(), child.key()))?;
        pass.wrote("released", kind, child.key(), None, None);
        Ok(())
    }
}
