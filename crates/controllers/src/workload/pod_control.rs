//! Creates, deletes, adopts and releases pods for an owner, and records events.
//!
//! Invariants:
//! - a call with a lost response is repeated without effect: a new pod's name is chosen before the request, and a
//!   delete carries the uid;
//! - successes and failures are recorded on the owner, except when the namespace is terminating.

use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint::owner;
use setpoint::{Client, ClientError, EventType, Kind, Metadata, Object, OwnerRef, Recorder, Rng};

use super::template::PodTemplate;

/// How often a call with a lost response is repeated immediately. Longer outages are left to the queue's backoff.
const REPEATS: usize = 2;

/// The maximum length of a name, and of its prefix if five random characters are added.
const MAX_NAME: usize = 253;
pub(crate) const MAX_GENERATED_BASE: usize = 58;
const SUFFIX: usize = 5;

/// Writes pods for a controller. Cheap to clone.
#[derive(Clone)]
pub(crate) struct PodControl {
    client: Client,
    recorder: Recorder,
    rng: Rng,
    pods: Kind,
    owners: Kind,
}

impl PodControl {
    pub(crate) fn new(context: &setpoint::Context, owners: Kind, component: &'static str) -> Self {
        Self {
            client: context.client.clone(),
            recorder: context.recorder(component),
            rng: context.runtime.rng.clone(),
            pods: Kind::of::<super::pod::Pod>(),
            owners,
        }
    }

    /// Creates a pod from a template. `owner_ref` is its controller reference.
    pub(crate) async fn create(
        &self,
        owner: &Object,
        owner_ref: &OwnerRef,
        template: &PodTemplate,
    ) -> Result<(), ClientError> {
        self.create_named(owner, owner_ref, template, &name_prefix(&owner.meta().name)).await
    }

    /// Creates a pod with a name prefix other than its owner's name.
    pub(crate) async fn create_named(
        &self,
        owner: &Object,
        owner_ref: &OwnerRef,
        template: &PodTemplate,
        prefix: &str,
    ) -> Result<(), ClientError> {
        let name = generated_name(prefix, &self.rng);
        let body = template.pod(&name, prefix, owner_ref);
        let namespace = owner.key().namespace();
        let (created, repeated) =
            retry_unanswered(|| self.client.create_ignoring_response(&self.pods, namespace, &body)).await;
        match created {
            Ok(()) => {
                self.record(owner, EventType::Normal, "SuccessfulCreate", format!("Created pod: {name}"))
            }
            // The name is unique to this call, so an earlier attempt with a lost response created the pod.
            Err(error) if repeated && error.is_already_exists() => {
                self.record(owner, EventType::Normal, "SuccessfulCreate", format!("Created pod: {name}"));
            }
            Err(error) => {
                let error = with_name_prefix(error, &name, prefix);
                if !namespace_is_terminating(&error) {
                    self.record(
                        owner,
                        EventType::Warning,
                        "FailedCreate",
                        format!("Error creating: {error}"),
                    );
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Deletes a pod. Returns `false` if it was already gone.
    pub(crate) async fn delete(&self, owner: &Object, pod: &Object) -> Result<bool, ClientError> {
        let delete = DeleteOptions { uid: Some(pod.meta().uid.to_string()), ..DeleteOptions::default() };
        let (deleted, _) = retry_unanswered(|| self.client.delete(&self.pods, pod.key(), &delete)).await;
        match deleted {
            Ok(_) => {
                let name = &pod.meta().name;
                self.record(owner, EventType::Normal, "SuccessfulDelete", format!("Deleted pod: {name}"));
                Ok(true)
            }
            // On a uid conflict the pod is gone and its name is reused.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(false),
            Err(error) => {
                self.record(owner, EventType::Warning, "FailedDelete", format!("Error deleting: {error}"));
                Err(error)
            }
        }
    }

    /// Adopts an orphan. Returns `false` if the pod is gone.
    pub(crate) async fn adopt(&self, owner_ref: &OwnerRef, pod: &Object) -> Result<bool, ClientError> {
        let patch = owner::adoption(owner_ref, pod.meta());
        match self.patch(pod, patch).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Releases a pod that is no longer selected. Not an error if it is gone or already released.
    pub(crate) async fn release(&self, holder: &Metadata, pod: &Object) -> Result<(), ClientError> {
        match self.patch(pod, owner::release(&holder.uid, pod.meta())).await {
            Err(error) if error.is_not_found() || error.is_invalid() => Ok(()),
            result => result,
        }
    }

    async fn patch(&self, pod: &Object, patch: Patch) -> Result<(), ClientError> {
        self.client.patch_ignoring_response(&self.pods, pod.key(), Subresource::None, patch).await
    }

    fn record(&self, owner: &Object, event_type: EventType, reason: &str, message: String) {
        self.recorder.event(&self.owners, owner, event_type, reason, message);
    }
}

/// Repeats an idempotent call a few times until there is a response. Also returns whether it was repeated.
pub(crate) async fn retry_unanswered<T, F>(mut call: impl FnMut() -> F) -> (Result<T, ClientError>, bool)
where
    F: Future<Output = Result<T, ClientError>>,
{
    let mut result = call().await;
    let mut repeats = 0;
    while repeats < REPEATS && matches!(result, Err(ClientError::Transport(_))) {
        result = call().await;
        repeats += 1;
    }
    (result, repeats > 0)
}

/// Whether a create failed because the namespace is terminating. All further ones will fail too.
pub(crate) fn namespace_is_terminating(error: &ClientError) -> bool {
    error.has_cause("NamespaceTerminating")
}

/// Replaces the random pod name in an error by its prefix. Otherwise every attempt would look like a different failure.
fn with_name_prefix(error: ClientError, name: &str, prefix: &str) -> ClientError {
    match error {
        ClientError::Api { code, reason, message, causes, retry_after_seconds } => {
            let message = message.replace(name, prefix);
            ClientError::Api { code, reason, message, causes, retry_after_seconds }
        }
        other => other,
    }
}

/// Returns the name prefix of an owner's pods. The dash is omitted if it does not fit.
pub(crate) fn name_prefix(owner: &str) -> String {
    if owner.len() < MAX_NAME { format!("{owner}-") } else { owner.to_owned() }
}

/// Generates a name like the API server.
pub(crate) fn generated_name(prefix: &str, rng: &Rng) -> String {
    let base = prefix.get(..MAX_GENERATED_BASE).unwrap_or(prefix);
    format!("{base}{}", rng.suffix(SUFFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_failure_has_the_same_message() {
        let body = br#"{"kind":"Status","reason":"Forbidden","message":"pods \"web-abcde\" is forbidden: no","code":403}"#;
        let error = ClientError::from_reply(403, &Default::default(), body);
        assert_eq!(
            with_name_prefix(error, "web-abcde", "web-").to_string(),
            "pods \"web-\" is forbidden: no"
        );
    }

    #[test]
    fn names_are_as_the_api_server_generates_them() {
        let rng = Rng::seeded(1);
        assert_eq!(name_prefix("web"), "web-");
        assert_eq!(name_prefix(&"w".repeat(252)).len(), 253);
        assert_eq!(name_prefix(&"w".repeat(253)), "w".repeat(253));
        let short = generated_name("web-", &rng);
        assert!(short.starts_with("web-") && short.len() == 9, "{short}");
        assert_eq!(generated_name(&"w".repeat(100), &rng).len(), 63);
    }
}
