//! Empties a terminating namespace, reports progress, and finalizes it.

use std::time::Duration;

use jiff::Timestamp;
use setpoint::client::{Optional, Subresource};
use setpoint::discovery::{Discovered, Resource, discover};
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, Clock, Key, Kind, Lister, Object, Outcome, ReconcileError, Reconciler, UpdateBody,
};

use super::content::{Cleared, clear};
use super::findings::Findings;
use super::view::Namespace;

/// How often a write is attempted on conflict. A namespace has few writers.
const ATTEMPTS: usize = 5;

pub(super) struct Namespaces {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) kind: Kind,
    pub(super) listed: Lister<Namespace>,
    /// How often a namespace kept by other finalizers is checked.
    pub(super) period: Duration,
}

impl Reconciler for Namespaces {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        if self.listed.get(key)?.is_none() {
            return Ok(Outcome::Settled);
        }
        // Read past the cache: others write to a namespace while it is being deleted.
        let Some(namespace) = self.get(key).await? else { return Ok(Outcome::Settled) };
        let Some(deleted_at) = namespace.meta().deletion_timestamp else { return Ok(Outcome::Settled) };
        let Some(namespace) = self.mark_terminating(namespace).await? else { return Ok(Outcome::Settled) };
        if namespace.spec.finalizers.is_empty() {
            return Ok(self.kept_by_others());
        }
        let mut findings = Findings::default();
        let estimate = self.empty(key.name(), deleted_at, &mut findings).await;
        let namespace = self.report(namespace, &findings).await?;
        if let Some(error) = findings.error() {
            return Err(ReconcileError::retry(format!("empty namespace {key}: {error}")));
        }
        if !estimate.is_zero() {
            return Ok(Outcome::CheckAfter(Duration::from_secs(estimate.as_secs() / 2 + 1)));
        }
        self.finalize(namespace).await?;
        Ok(self.kept_by_others())
    }
}

impl Namespaces {
    /// Other finalizers may keep the namespace for long, and new content may appear meanwhile.
    fn kept_by_others(&self) -> Outcome {
        if self.period.is_zero() { Outcome::Settled } else { Outcome::CheckAfter(self.period) }
    }

    async fn get(&self, key: &Key) -> Result<Option<Cached<Namespace>>, ReconcileError> {
        let found = self.client.get(&self.kind, key).await.optional();
        read(found.attempting(format!("read namespace {key}"))?)
    }

    /// Sets the phase to Terminating.
    async fn mark_terminating(
        &self,
        namespace: Cached<Namespace>,
    ) -> Result<Option<Cached<Namespace>>, ReconcileError> {
        if namespace.status.phase == "Terminating" {
            return Ok(Some(namespace));
        }
        let edit = |namespace: &Object| {
            serde_json::to_vec(&UpdateBody::of(namespace).set(&["status", "phase"], &"Terminating"))
        };
        self.write(namespace, Subresource::Status, |namespace| edit(namespace.object())).await
    }

    /// Deletes all content, pods first. Returns how long the rest may take.
    async fn empty(&self, namespace: &str, deleted_at: Timestamp, findings: &mut Findings) -> Duration {
        let discovered = match discover(&self.client).await {
            Ok(discovered) => discovered,
            Err(error) => {
                findings.discovery_failed(&error.to_string());
                return Duration::ZERO;
            }
        };
        findings.discovered_partly(discovered.failures());
        let (pods, others) = deletable(&discovered, findings);
        let mut longest = Duration::ZERO;
        for resource in pods {
            let cleared = self.clear(resource, namespace, deleted_at, findings).await;
            longest = longest.max(cleared.estimate);
            if cleared.remaining > 0 {
                // Keep what pods use until they are gone.
                return longest;
            }
        }
        for resource in others {
            let Cleared { remaining, finalizers, estimate, .. } =
                self.clear(resource, namespace, deleted_at, findings).await;
            longest = longest.max(estimate);
            if remaining > 0 {
                findings.left_over(&resource.kind, remaining, &finalizers);
            }
        }
        longest
    }

    async fn clear(
        &self,
        resource: &Resource,
        namespace: &str,
        deleted_at: Timestamp,
        findings: &mut Findings,
    ) -> Cleared {
        let mut cleared = clear(&self.client, resource, namespace, deleted_at, self.clock.now()).await;
        if let Some(failure) = cleared.failure.take() {
            findings.failed(failure);
        }
        cleared
    }

    /// Writes the conditions if they changed. A failure to write them is ignored.
    async fn report(
        &self,
        namespace: Cached<Namespace>,
        findings: &Findings,
    ) -> Result<Cached<Namespace>, ReconcileError> {
        let mut status = namespace.status.clone();
        findings.report(&mut status.conditions, self.clock.now());
        if status == namespace.status {
            return Ok(namespace);
        }
        let body = UpdateBody::of(namespace.object()).set(&["status"], &status);
        match self.client.update(&self.kind, namespace.key(), Subresource::Status, &body).await {
            Ok(written) => Ok(Cached::new(written)?),
            Err(error) => {
                tracing::warn!(namespace = %namespace.key(), %error, "cannot write the conditions of a namespace");
                Ok(namespace)
            }
        }
    }

    /// Removes this controller's finalizer. The namespace is deleted with its last finalizer.
    async fn finalize(&self, namespace: Cached<Namespace>) -> Result<(), ReconcileError> {
        let edit = |namespace: &Cached<Namespace>| {
            let left = namespace.finalizers_left();
            serde_json::to_vec(&UpdateBody::of(namespace.object()).set(&["spec", "finalizers"], &left))
        };
        self.write(namespace, Subresource::Finalize, edit).await.map(drop)
    }

    /// Writes an edit, retrying on conflict. `None` if the namespace is gone.
    async fn write(
        &self,
        mut namespace: Cached<Namespace>,
        part: Subresource,
        edit: impl Fn(&Cached<Namespace>) -> serde_json::Result<Vec<u8>>,
    ) -> Result<Option<Cached<Namespace>>, ReconcileError> {
        let (key, uid) = (namespace.key().clone(), namespace.meta().uid.clone());
        let attempted = || format!("update namespace {key}");
        for attempt in 1.. {
            let body = edit(&namespace).map_err(|error| failed_to(attempted(), error))?;
            let written = self.client.update_encoded(&self.kind, &key, part, body.into()).await.optional();
            match written {
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => {}
                written => return read(written.attempting(attempted())?),
            }
            let Some(latest) = self.get(&key).await? else { return Ok(None) };
            if latest.meta().uid != uid {
                return Ok(None);
            }
            namespace = latest;
        }
        unreachable!("the last attempt returns")
    }
}

/// Returns pods, and all other deletable resources of a namespace.
fn deletable<'a>(
    discovered: &'a Discovered,
    findings: &mut Findings,
) -> (Vec<&'a Resource>, Vec<&'a Resource>) {
    let mut resources: Vec<&Resource> = discovered
        .preferred()
        .filter(|resource| resource.kind.namespaced() && resource.supports(&["delete"]))
        .collect();
    resources.retain(|resource| {
        let parsable = !resource.kind.group().contains('/');
        if !parsable {
            findings.unparsable(&resource.kind.api_version());
        }
        parsable
    });
    let is_pods = |kind: &Kind| kind.group().is_empty() && kind.plural() == "pods";
    resources.into_iter().partition(|resource| is_pods(&resource.kind))
}

fn read(object: Option<Object>) -> Result<Option<Cached<Namespace>>, ReconcileError> {
    Ok(object.map(Cached::new).transpose()?)
}

fn failed_to(attempted: String, error: serde_json::Error) -> ReconcileError {
    ReconcileError::Terminal { attempted, source: Some(Box::new(error)) }
}
