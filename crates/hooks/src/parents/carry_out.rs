//! Carries out actions as requests. Each is attempted, even if others fail.

use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, IgnoreErrors, Patch, PropagationPolicy, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{ClientError, Key, Kind, ReconcileError};

use super::reconcile::{Parents, Pass};
use super::setup::full;
use crate::apply::{Action, fingerprint, same, system_fields_removed};
use crate::names::LAST_APPLIED;

/// The status of a request whose object is invalid.
const INVALID: u16 = 422;

impl Parents {
    /// Carries out actions. Returns the errors.
    pub(super) async fn carry_out(&self, pass: &mut Pass, actions: Vec<Action>) -> Vec<ReconcileError> {
        let mut errors = Vec::new();
        for action in actions {
            let (verb, kind, key) = action.described();
            let attempted = format!("{verb} {} {key}", kind.kind());
            if let Err(error) = self.carry_out_one(pass, action).await {
                errors.push(error.into_reconcile_error(attempted));
            }
        }
        errors
    }

    async fn carry_out_one(&self, pass: &mut Pass, action: Action) -> Result<(), ClientError> {
        match action {
            Action::Delete { kind, key, uid } => self.delete(pass, "deleted", &kind, &key, uid).await,
            Action::Recreate { kind, key, uid } => {
                self.delete(pass, "deleted to recreate", &kind, &key, uid).await
            }
            Action::Create { kind, key, body } => self.create(pass, &kind, &key, &body).await,
            Action::Update { kind, key, body } => self.update(pass, &kind, &key, &body).await,
            Action::Apply { kind, key, body, noted } => self.apply(pass, &kind, &key, body, noted).await,
            Action::RecreateIfDifferent { kind, key, body, observed } => {
                self.recreate_if_different(pass, &kind, &key, body, &observed).await
            }
        }
    }

    async fn delete(
        &self,
        pass: &mut Pass,
        verb: &'static str,
        kind: &Kind,
        key: &Key,
        uid: String,
    ) -> Result<(), ClientError> {
        let options =
            DeleteOptions { propagation: Some(PropagationPolicy::Background), ..DeleteOptions::of_uid(uid) };
        self.wiring.ledger.forget(kind, key);
        let deleted = self.wiring.client.delete(kind, key, &options).await;
        deleted.ignore_not_found()?;
        pass.inputs.delete(kind, key);
        pass.wrote_values(verb, kind, key, None, None);
        Ok(())
    }

    /// A child that already exists is adopted or left alone once the cache shows it.
    async fn create(&self, pass: &mut Pass, kind: &Kind, key: &Key, body: &Value) -> Result<(), ClientError> {
        match self.wiring.client.create(kind, key.namespace(), body).await {
            Ok(created) => {
                pass.inputs.write(kind, key, created.meta());
                pass.wrote("created", kind, key, None, Some(&created));
                Ok(())
            }
            Err(error) if error.is_already_exists() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// After a conflict, or if the child is gone, an event causes the next attempt.
    async fn update(&self, pass: &mut Pass, kind: &Kind, key: &Key, body: &Value) -> Result<(), ClientError> {
        match self.wiring.client.update(kind, key, Subresource::None, body).await {
            Ok(updated) => {
                pass.inputs.write(kind, key, updated.meta());
                pass.wrote("updated", kind, key, None, Some(&updated));
                Ok(())
            }
            Err(error) if error.is_conflict() || error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn apply(
        &self,
        pass: &mut Pass,
        kind: &Kind,
        key: &Key,
        body: Value,
        noted: Option<String>,
    ) -> Result<(), ClientError> {
        let client = &self.wiring.client;
        if let Some(uid) = noted {
            let note = json!({"metadata": {"uid": uid, "annotations": {LAST_APPLIED: null}}});
            let cleaned =
                client.patch_ignoring_response(kind, key, Subresource::None, Patch::merge(&note)).await;
            cleaned.ignore_not_found()?;
        }
        let wanted = fingerprint(&body);
        let manager = &self.setup.field_manager;
        let applied = client.apply(kind, key, Subresource::None, manager, body).await?;
        pass.inputs.write(kind, key, applied.meta());
        pass.wrote("applied", kind, key, None, Some(&applied));
        self.wiring.ledger.note(kind, key, wanted, &full(kind, &applied));
        Ok(())
    }

    async fn recreate_if_different(
        &self,
        pass: &mut Pass,
        kind: &Kind,
        key: &Key,
        body: Value,
        observed: &Value,
    ) -> Result<(), ClientError> {
        if self.is_applied(kind, key, body, observed).await? {
            return Ok(());
        }
        let uid = observed["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        self.delete(pass, "deleted to recreate", kind, key, uid).await
    }

    /// Whether a server-side apply would change nothing. This takes a dry run, because it depends on defaults.
    pub(super) async fn is_applied(
        &self,
        kind: &Kind,
        key: &Key,
        body: Value,
        observed: &Value,
    ) -> Result<bool, ClientError> {
        let wanted = fingerprint(&body);
        let client = &self.wiring.client;
        let preview = match client.preview_apply(kind, key, &self.setup.field_manager, body.clone()).await {
            Err(error) if error.code() == Some(INVALID) => {
                return self.check_creatable(kind, key, body).await;
            }
            preview => full(kind, &preview?),
        };
        let is_applied = same(&system_fields_removed(&preview), &system_fields_removed(observed));
        if is_applied {
            self.wiring.ledger.note(kind, key, wanted, observed);
        }
        Ok(is_applied)
    }

    /// A rejected change may be to an immutable field, in which case the child has to be recreated. If the API server
    /// would reject the new child as well, the current one is kept.
    async fn check_creatable(&self, kind: &Kind, key: &Key, mut body: Value) -> Result<bool, ClientError> {
        let other = key.sibling(format!("preview-{:016x}", fingerprint(&body)));
        body["metadata"]["name"] = other.name().into();
        let client = &self.wiring.client;
        client.preview_apply(kind, &other, &self.setup.field_manager, body).await?;
        Ok(false)
    }

    /// Patches a parent, unless it has changed. Returns `None` if it has changed or is gone.
    pub(super) async fn patch_parent(
        &self,
        pass: &Pass,
        subresource: Subresource,
        patch: Patch,
        what: &str,
    ) -> Result<Option<setpoint::Object>, ReconcileError> {
        match self.wiring.client.patch(&pass.at.kind, &pass.at.key, subresource, patch).await {
            Ok(patched) => Ok(Some(patched)),
            Err(error) if error.is_conflict() || error.is_not_found() => Ok(None),
            Err(error) => Err::<(), _>(error).attempting(|| format!("{what} of {}", pass.at)).map(|()| None),
        }
    }
}

impl Action {
    fn described(&self) -> (&'static str, Kind, Key) {
        let (verb, kind, key) = match self {
            Self::Delete { kind, key, .. } | Self::Recreate { kind, key, .. } => ("delete", kind, key),
            Self::Create { kind, key, .. } => ("create", kind, key),
            Self::Update { kind, key, .. } => ("update", kind, key),
            Self::Apply { kind, key, .. } => ("apply", kind, key),
            Self::RecreateIfDifferent { kind, key, .. } => ("compare", kind, key),
        };
        (verb, kind.clone(), key.clone())
    }
}
