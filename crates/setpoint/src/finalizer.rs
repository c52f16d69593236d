//! Finalizers: cleanup that must happen before an object is removed.
//!
//! ```text
//!  not being deleted ─► ensure: add the finalizer before creating anything for the object
//!  being deleted     ─► clean up, then release: the object is removed with its last finalizer
//! ```
//!
//! Invariant: a patch carries the resource version its finalizer list was read at, so it never drops or restores a
//! finalizer of another controller.

use serde_json::json;

use crate::client::{Patch, Subresource};
use crate::{Client, ClientError, Kind, Metadata, Object};

/// What to do with an object, from the point of view of one finalizer.
///
/// ```
/// use setpoint::{Metadata, finalizer::{FinalizerAction, finalizer_action}};
/// let fresh = Metadata::default();
/// assert_eq!(finalizer_action(&fresh, "example.com/backup"), FinalizerAction::Ensure);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalizerAction {
    /// Add the finalizer first.
    Ensure,
    /// The finalizer is set: reconcile the object.
    Reconcile,
    /// The object is being deleted and waits for this finalizer: clean up, then remove the finalizer.
    CleanUp,
    /// The object is being deleted and does not have this finalizer: nothing to do.
    Nothing,
}

/// Decides what to do with an object, from the point of view of the finalizer `name`.
pub fn finalizer_action(object: &Metadata, name: &str) -> FinalizerAction {
    match (object.is_being_deleted(), has(object, name)) {
        (false, false) => FinalizerAction::Ensure,
        (false, true) => FinalizerAction::Reconcile,
        (true, true) => FinalizerAction::CleanUp,
        (true, false) => FinalizerAction::Nothing,
    }
}

/// Returns whether the object has the finalizer `name`.
pub fn has(object: &Metadata, name: &str) -> bool {
    object.finalizers.iter().any(|finalizer| &**finalizer == name)
}

/// Returns the patch that adds a finalizer, or `None` if the object already has it.
pub fn addition(object: &Metadata, name: &str) -> Option<Patch> {
    let all = object.finalizers.iter().map(|finalizer| &**finalizer).chain([name]);
    (!has(object, name)).then(|| patch(object, all.collect()))
}

/// Returns the patch that removes a finalizer, or `None` if the object does not have it.
pub fn removal(object: &Metadata, name: &str) -> Option<Patch> {
    let rest = object.finalizers.iter().map(|finalizer| &**finalizer).filter(|finalizer| *finalizer != name);
    has(object, name).then(|| patch(object, rest.collect()))
}

fn patch(object: &Metadata, finalizers: Vec<&str>) -> Patch {
    let Metadata { uid, resource_version, .. } = object;
    // In a merge patch, `null` removes the list. An empty list would be kept.
    let finalizers = if finalizers.is_empty() { serde_json::Value::Null } else { json!(finalizers) };
    Patch::merge(
        &json!({"metadata": {"uid": uid, "resourceVersion": resource_version, "finalizers": finalizers}}),
    )
}

/// A finalizer for the objects of a kind. Cheap to clone.
///
/// ```
/// # async fn example(client: setpoint::Client, backups: setpoint::Kind, backup: setpoint::Object) -> Result<(), setpoint::ClientError> {
/// use setpoint::finalizer::{FinalizerAction, Finalizer};
/// let finalizer = Finalizer::new(client, backups, "example.com/backup");
/// match finalizer.action(&backup) {
///     FinalizerAction::Ensure | FinalizerAction::Reconcile => {
///         finalizer.ensure(&backup).await?;
///         // … create what the object needs …
///     }
///     FinalizerAction::CleanUp => {
///         // … delete it again …
///         finalizer.release(&backup).await?;
///     }
///     FinalizerAction::Nothing => {}
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Finalizer {
    client: Client,
    kind: Kind,
    name: &'static str,
}

impl Finalizer {
    /// Creates the finalizer `name` (for example `example.com/backup`) for objects of `kind`.
    pub fn new(client: Client, kind: Kind, name: &'static str) -> Self {
        Self { client, kind, name }
    }

    /// Decides what to do with an object.
    pub fn action(&self, object: &Object) -> FinalizerAction {
        finalizer_action(object.meta(), self.name)
    }

    /// Adds the finalizer unless the object already has it. Returns the resulting object.
    pub async fn ensure(&self, object: &Object) -> Result<Object, ClientError> {
        match addition(object.meta(), self.name) {
            None => Ok(object.clone()),
            Some(patch) => self.client.patch(&self.kind, object.key(), Subresource::None, patch).await,
        }
    }

    /// Removes the finalizer. Succeeds if the object no longer exists.
    pub async fn release(&self, object: &Object) -> Result<(), ClientError> {
        let Some(patch) = removal(object.meta(), self.name) else { return Ok(()) };
        match self.client.patch(&self.kind, object.key(), Subresource::None, patch).await {
            Err(error) if error.is_not_found() => Ok(()),
            released => released.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::client::fake;

    const NAME: &str = "example.com/backup";

    fn object(finalizers: &[&str], deleted: bool) -> Object {
        let mut metadata = json!({"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "7",
            "finalizers": finalizers});
        if deleted {
            metadata["deletionTimestamp"] = json!("2025-01-01T00:00:00Z");
        }
        Object::from_json(json!({"metadata": metadata}).to_string().into()).expect("an object")
    }

    #[test]
    fn the_action_depends_on_the_finalizer_and_the_deletion() {
        let check = |finalizers: &[&str], deleted, expected| {
            assert_eq!(finalizer_action(object(finalizers, deleted).meta(), NAME), expected);
        };
        check(&["other"], false, FinalizerAction::Ensure);
        check(&["other", NAME], false, FinalizerAction::Reconcile);
        check(&[NAME], true, FinalizerAction::CleanUp);
        check(&["other"], true, FinalizerAction::Nothing);
    }

    fn finalizer(answer: fn(&fake::Received) -> fake::Answer) -> (Finalizer, fake::Log) {
        let (client, log) = fake::client(answer);
        (Finalizer::new(client, Kind::new("example.com", "v1", "Backup", "backups", true), NAME), log)
    }

    fn finalizers(log: &fake::Log) -> Value {
        let [received] = &log.all()[..] else { panic!("one request: {:?}", log.lines()) };
        assert_eq!(received.target, "/apis/example.com/v1/namespaces/shop/backups/a");
        assert_eq!(received.json()["metadata"]["resourceVersion"], "7");
        received.json()["metadata"]["finalizers"].clone()
    }

    #[tokio::test]
    async fn the_finalizers_of_others_are_kept() {
        let (finalizer, log) = finalizer(fake::echo);
        finalizer.ensure(&object(&["other"], false)).await.expect("patched");
        assert_eq!(finalizers(&log), json!(["other", NAME]));
        let (finalizer, log) = self::finalizer(fake::echo);
        finalizer.release(&object(&[NAME, "other"], true)).await.expect("patched");
        assert_eq!(finalizers(&log), json!(["other"]));
        let (finalizer, log) = self::finalizer(fake::echo);
        finalizer.release(&object(&[NAME], true)).await.expect("patched");
        assert_eq!(finalizers(&log), Value::Null);
    }

    #[tokio::test]
    async fn an_unchanged_object_is_not_written() {
        let (finalizer, log) = finalizer(fake::echo);
        finalizer.ensure(&object(&[NAME], false)).await.expect("nothing to do");
        finalizer.release(&object(&[], true)).await.expect("nothing to do");
        assert_eq!(log.lines(), [""; 0]);
    }

    #[tokio::test]
    async fn an_object_that_is_gone_is_released() {
        let gone =
            |_: &fake::Received| Some((404, json!({"kind": "Status", "reason": "NotFound", "code": 404})));
        let (finalizer, _) = finalizer(gone);
        finalizer.release(&object(&[NAME], true)).await.expect("it is gone");
    }
}
