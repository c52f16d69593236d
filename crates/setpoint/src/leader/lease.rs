//! A Lease as a record of who holds something, read and written with its version as precondition.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use crate::client::{ClientError, Optional, Part};
use crate::recorder::Reference;
use crate::{Client, Key, Kind, Object};

/// Who holds a lease, since when and until when: the `spec` of a Lease, as client-go writes it.
///
/// ```
/// use setpoint::leader::Record;
/// let record: Record = serde_json::from_str(r#"{"holderIdentity":"pod-a","leaseDurationSeconds":15}"#).unwrap();
/// assert_eq!(record.holder_identity, "pod-a");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// Who holds it; empty if it was released.
    pub holder_identity: String,
    /// How long others leave it to its holder after they saw it renewed.
    pub lease_duration_seconds: u32,
    /// Since when the holder holds it.
    #[serde(serialize_with = "microseconds")]
    pub acquire_time: Option<Timestamp>,
    /// When the holder last said that it still does.
    #[serde(serialize_with = "microseconds")]
    pub renew_time: Option<Timestamp>,
    /// How often it has gone to another holder.
    pub lease_transitions: u32,
}

/// Times of a Lease have six decimals, always.
fn microseconds<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.collect_str(&format_args!("{time:.6}")),
        None => serializer.serialize_none(),
    }
}

impl Record {
    /// How long it is valid after it was seen to change.
    pub fn lease_duration(&self) -> Duration {
        Duration::from_secs(self.lease_duration_seconds.into())
    }
}

/// One Lease, and its version as last seen.
pub(crate) struct Lease {
    client: Client,
    kind: Kind,
    key: Key,
    seen: Option<Object>,
}

impl Lease {
    pub(crate) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self { client, kind: kind(), key: Key::namespaced(namespace, name), seen: None }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Reads it; `None` if there is no such Lease.
    pub(crate) async fn get(&mut self) -> Result<Option<Record>, ClientError> {
        let found = self.client.get(&self.kind, &self.key).await.optional()?;
        let record = found.as_ref().map(record_of).transpose()?;
        self.seen = found;
        Ok(record)
    }

    /// Creates it with this record.
    pub(crate) async fn create(&mut self, record: &Record, labels: &Value) -> Result<(), ClientError> {
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.key.name(), "namespace": self.key.namespace(), "labels": labels},
            "spec": record,
        });
        self.seen = Some(self.client.create(&self.kind, self.key.namespace(), &body).await?);
        Ok(())
    }

    /// Replaces the record, if nobody has changed the Lease since it was last seen.
    pub(crate) async fn update(&mut self, record: &Record) -> Result<(), ClientError> {
        let seen = self.seen.as_ref().ok_or_else(|| unseen(&self.key))?;
        let mut lease: Value = seen.decode().map_err(|error| ClientError::Answer(Box::new(error)))?;
        lease["spec"] = json!(record);
        self.seen = Some(self.client.update(&self.kind, &self.key, Part::Main, &lease).await?);
        Ok(())
    }

    /// What events about it refer to.
    pub(crate) fn reference(&self) -> Option<Reference> {
        self.seen.as_ref().map(|lease| Reference::to(&self.kind, lease))
    }
}

pub(crate) fn kind() -> Kind {
    Kind::new("coordination.k8s.io", "v1", "Lease", "leases", true)
}

/// The record in a Lease.
pub(crate) fn record_of(lease: &Object) -> Result<Record, ClientError> {
    #[derive(Deserialize)]
    struct Spec {
        #[serde(default)]
        spec: Nullable,
    }
    let Spec { spec } = lease.decode().map_err(|error| ClientError::Answer(Box::new(error)))?;
    Ok(Record {
        holder_identity: spec.holder_identity.unwrap_or_default(),
        lease_duration_seconds: spec.lease_duration_seconds.unwrap_or_default(),
        acquire_time: spec.acquire_time,
        renew_time: spec.renew_time,
        lease_transitions: spec.lease_transitions.unwrap_or_default(),
    })
}

/// Every field of a Lease may be absent.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Nullable {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u32>,
    acquire_time: Option<Timestamp>,
    renew_time: Option<Timestamp>,
    lease_transitions: Option<u32>,
}

fn unseen(key: &Key) -> ClientError {
    ClientError::Answer(format!("the lease {key} was not read before it was written").into())
}
