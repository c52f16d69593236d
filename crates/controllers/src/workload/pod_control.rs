//! Creates, deletes, adopts and releases pods on behalf of an owner, and records it as events.
//!
//! What always holds:
//! - a call whose answer got lost is made again and has no effect twice: a new pod has its name
//!   before it is sent, a deletion names the uid of what it deletes;
//! - what succeeded and what failed is recorded on the owner, except that a namespace is going away.

use setpoint::client::{Delete, Part, Patch};
use setpoint::owner;
use setpoint::{Client, ClientError, EventType, Kind, Metadata, Object, OwnerRef, Recorder, Rng};

use super::template::PodTemplate;

/// How often a call whose answer got lost is made again, at once. An outage that outlasts this is left
/// to the back-off of the queue.
const REPEATS: usize = 2;

/// The longest name of an object, and the longest of one whose last five characters are random.
const MAX_NAME: usize = 253;
pub(crate) const MAX_GENERATED_BASE: usize = 58;
const SUFFIX: usize = 5;

/// The hands of a controller whose owners have pods. Cheap to clone.
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

    /// Creates a pod from a template. The owner's reference is `owner_ref`.
    pub(crate) async fn create(
        &self,
        owner: &Object,
        owner_ref: &OwnerRef,
        template: &PodTemplate,
    ) -> Result<(), ClientError> {
        self.create_named(owner, owner_ref, template, &name_prefix(&owner.meta().name)).await
    }

    /// The same, for a pod whose name begins otherwise than its owner's.
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
            until_answered(|| self.client.create_and_forget(&self.pods, namespace, &body)).await;
        match created {
            Ok(()) => {
                self.record(owner, EventType::Normal, "SuccessfulCreate", format!("Created pod: {name}"))
            }
            // The name is this call's own, so the pod is the work of a try whose answer got lost.
            Err(error) if repeated && error.is_already_exists() => {
                self.record(owner, EventType::Normal, "SuccessfulCreate", format!("Created pod: {name}"));
            }
            Err(error) => {
                let error = about(error, &name, prefix);
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

    /// Deletes a pod; `false` if it was gone already.
    pub(crate) async fn delete(&self, owner: &Object, pod: &Object) -> Result<bool, ClientError> {
        let delete = Delete { uid: Some(pod.meta().uid.to_string()), ..Delete::default() };
        let (deleted, _) = until_answered(|| self.client.delete(&self.pods, pod.key(), &delete)).await;
        match deleted {
            Ok(_) => {
                let name = &pod.meta().name;
                self.record(owner, EventType::Normal, "SuccessfulDelete", format!("Deleted pod: {name}"));
                Ok(true)
            }
            // A conflict is about the uid: the pod is gone and another one has its name.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(false),
            Err(error) => {
                self.record(owner, EventType::Warning, "FailedDelete", format!("Error deleting: {error}"));
                Err(error)
            }
        }
    }

    /// Makes the owner the controller of an orphan; `false` if the pod is gone.
    pub(crate) async fn adopt(&self, owner_ref: &OwnerRef, pod: &Object) -> Result<bool, ClientError> {
        let patch = owner::adoption(owner_ref, pod.meta());
        match self.patch(pod, patch).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lets a pod go that is no longer selected. It is no failure if it is gone, or already let go.
    pub(crate) async fn release(&self, holder: &Metadata, pod: &Object) -> Result<(), ClientError> {
        match self.patch(pod, owner::release(&holder.uid, pod.meta())).await {
            Err(error) if error.is_not_found() || error.is_invalid() => Ok(()),
            result => result,
        }
    }

    async fn patch(&self, pod: &Object, patch: Patch) -> Result<(), ClientError> {
        self.client.patch_and_forget(&self.pods, pod.key(), Part::Main, patch).await
    }

    fn record(&self, owner: &Object, event_type: EventType, reason: &str, message: String) {
        self.recorder.event(&self.owners, owner, event_type, reason, message);
    }
}

/// Makes a call that may be made more than once until there is an answer to it, a few times; tells
/// whether it took more than one.
pub(crate) async fn until_answered<T, F>(mut call: impl FnMut() -> F) -> (Result<T, ClientError>, bool)
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

/// Whether a create failed because its namespace is going away: then all further ones will.
pub(crate) fn namespace_is_terminating(error: &ClientError) -> bool {
    error.has_cause("NamespaceTerminating")
}

/// The error as it is about any pod of its owner: the name was this try's own, and a failure that is
/// told under another name each time would look like many.
fn about(error: ClientError, name: &str, prefix: &str) -> ClientError {
    match error {
        ClientError::Api { code, reason, message, causes, retry_after_seconds } => {
            let message = message.replace(name, prefix);
            ClientError::Api { code, reason, message, causes, retry_after_seconds }
        }
        other => other,
    }
}

/// What the names of an owner's pods begin with: the dash is left out where it would not fit.
pub(crate) fn name_prefix(owner: &str) -> String {
    if owner.len() < MAX_NAME { format!("{owner}-") } else { owner.to_owned() }
}

/// A name as the API server generates it.
pub(crate) fn generated_name(prefix: &str, rng: &Rng) -> String {
    let base = prefix.get(..MAX_GENERATED_BASE).unwrap_or(prefix);
    format!("{base}{}", rng.suffix(SUFFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_the_same_each_time() {
        let body = br#"{"kind":"Status","reason":"Forbidden","message":"pods \"web-abcde\" is forbidden: no","code":403}"#;
        let error = ClientError::from_reply(403, &Default::default(), body);
        assert_eq!(about(error, "web-abcde", "web-").to_string(), "pods \"web-\" is forbidden: no");
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
