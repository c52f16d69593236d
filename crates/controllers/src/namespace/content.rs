//! Deletes all objects of one kind in a namespace.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use setpoint::client::{DeleteOptions, PropagationPolicy};
use setpoint::discovery::Resource;
use setpoint::source::Selection;
use setpoint::{Client, ClientError, Object};

/// How long to wait for finalizers to be removed before checking the namespace again.
const FINALIZER_ESTIMATE: Duration = Duration::from_secs(15);

/// The result of deleting a kind.
#[derive(Debug, Default)]
pub(super) struct Cleared {
    /// The number of remaining objects.
    pub(super) remaining: usize,
    /// The number of objects that each finalizer keeps.
    pub(super) finalizers: BTreeMap<String, usize>,
    /// How long their deletion may take; zero if unknown.
    pub(super) estimate: Duration,
    pub(super) failure: Option<String>,
}

/// Deletes all objects of a resource in a namespace that has been terminating since `deleted_at`.
pub(super) async fn clear(
    client: &Client,
    resource: &Resource,
    namespace: &str,
    deleted_at: Timestamp,
    now: Timestamp,
) -> Cleared {
    let content = Content { client, resource, namespace };
    let mut estimate = Duration::ZERO;
    match content.clear(&mut estimate, deleted_at, now).await {
        Ok(left) => content.judge(left, estimate),
        Err(error) => Cleared { estimate, failure: Some(error.to_string()), ..Cleared::default() },
    }
}

struct Content<'a> {
    client: &'a Client,
    resource: &'a Resource,
    namespace: &'a str,
}

impl Content<'_> {
    /// Deletes the objects and returns those that are left.
    async fn clear(
        &self,
        estimate: &mut Duration,
        deleted_at: Timestamp,
        now: Timestamp,
    ) -> Result<Vec<Object>, ClientError> {
        let Some(objects) = self.list().await? else {
            // Resources that cannot be listed can only be deleted as a collection.
            self.delete_collection().await?;
            return Ok(Vec::new());
        };
        if objects.is_empty() {
            return Ok(objects);
        }
        if self.is_pods() {
            *estimate = termination_estimate(&objects, deleted_at, now);
        }
        if !self.delete_collection().await? {
            self.delete_each(&objects).await?;
        }
        Ok(self.list().await?.unwrap_or_default())
    }

    fn is_pods(&self) -> bool {
        let kind = &self.resource.kind;
        kind.group().is_empty() && kind.plural() == "pods"
    }

    /// Lists the objects. `None` if the resource cannot be listed.
    async fn list(&self) -> Result<Option<Vec<Object>>, ClientError> {
        if !self.resource.supports(&["list"]) {
            return Ok(None);
        }
        // Pods are read in full for their grace periods.
        let metadata_only = !self.is_pods();
        let namespace = Some(self.namespace.to_owned());
        let selection = Selection { namespace, metadata_only, ..Selection::default() };
        supported(self.client.list(&self.resource.kind, &selection).await.map(|listed| listed.objects))
    }

    /// Deletes the collection. Returns `false` if that is not supported.
    async fn delete_collection(&self) -> Result<bool, ClientError> {
        if !self.resource.supports(&["deletecollection"]) {
            return Ok(false);
        }
        let deleted =
            self.client.delete_collection(&self.resource.kind, Some(self.namespace), &background()).await;
        Ok(supported(deleted)?.is_some())
    }

    async fn delete_each(&self, objects: &[Object]) -> Result<(), ClientError> {
        for object in objects {
            let delete = DeleteOptions { uid: Some(object.meta().uid.to_string()), ..background() };
            let deleted = self.client.delete(&self.resource.kind, object.key(), &delete).await;
            // On a uid conflict the name was reused; the list of remaining objects will show the new object.
            match supported(deleted) {
                Err(error) if error.is_conflict() => {}
                deleted => _ = deleted?,
            }
        }
        Ok(())
    }

    fn judge(&self, left: Vec<Object>, estimate: Duration) -> Cleared {
        let mut finalizers = BTreeMap::new();
        for finalizer in left.iter().flat_map(|object| object.meta().finalizers.iter()) {
            *finalizers.entry(finalizer.to_string()).or_default() += 1;
        }
        let remaining = left.len();
        if remaining == 0 {
            return Cleared::default();
        }
        let (estimate, failure) = match (estimate.is_zero(), finalizers.is_empty()) {
            (false, _) => (estimate, None),
            (true, false) => (FINALIZER_ESTIMATE, None),
            (true, true) => (estimate, Some(self.unexpected())),
        };
        Cleared { remaining, finalizers, estimate, failure }
    }

    fn unexpected(&self) -> String {
        let (kind, namespace) = (&self.resource.kind, self.namespace);
        let resource = format!("{}/{}, Resource={}", kind.group(), kind.version(), kind.plural());
        format!("unexpected items still remain in namespace: {namespace} for gvr: {resource}")
    }
}

fn background() -> DeleteOptions {
    DeleteOptions { propagation: Some(PropagationPolicy::Background), ..DeleteOptions::default() }
}

/// Returns `None` if the API server does not support the call, or no longer does.
fn supported<T>(result: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if matches!(error.code(), Some(404 | 405)) => Ok(None),
        Err(error) => Err(error),
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Pod {
    spec: PodSpec,
    status: PodStatus,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    termination_grace_period_seconds: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodStatus {
    phase: String,
}

/// Returns the longest grace period of any unfinished pod. Zero once the namespace has waited that long.
fn termination_estimate(pods: &[Object], deleted_at: Timestamp, now: Timestamp) -> Duration {
    let grace = pods.iter().filter_map(|pod| pod.decode::<Pod>().ok()).filter_map(|pod| {
        let ended = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
        pod.spec.termination_grace_period_seconds.filter(|_| !ended)
    });
    let estimate =
        Duration::from_secs(grace.max().and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0));
    let waited = Duration::try_from(now.duration_since(deleted_at)).unwrap_or_default();
    if waited >= estimate { Duration::ZERO } else { estimate }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(pods: &[(Option<i64>, &str)], waited: i64, expected: u64) {
        let object = |(grace, phase): &(Option<i64>, &str)| {
            let pod = json!({"metadata": {"name": "p"}, "spec": {"terminationGracePeriodSeconds": grace},
                             "status": {"phase": phase}});
            Object::from_json(pod.to_string().into()).unwrap()
        };
        let objects: Vec<Object> = pods.iter().map(object).collect();
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        assert_eq!(
            termination_estimate(&objects, at(0), at(waited)),
            Duration::from_secs(expected),
            "{pods:?}"
        );
    }

    #[test]
    fn the_longest_grace_of_a_pod_that_has_not_ended_is_waited_for_once() {
        check(&[], 0, 0);
        check(&[(Some(30), "Running"), (Some(60), "Pending")], 0, 60);
        check(&[(Some(30), "Running"), (Some(60), "Succeeded"), (Some(90), "Failed")], 10, 30);
        check(&[(Some(30), "Running")], 30, 0);
        check(&[(None, "Running")], 0, 0);
        check(&[(Some(-1), "Running")], 0, 0);
    }
}
