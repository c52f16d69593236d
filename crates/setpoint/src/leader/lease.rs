//! A Lease, read and written with its resource version as precondition.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use crate::client::{ClientError, Optional, Subresource};
use crate::recorder::Reference;
use crate::{Client, Key, Kind, Object};

/// The holder of a lease, and its times: the `spec` of a Lease, as client-go writes it.
///
/// ```
/// use setpoint::leader::LeaderElectionRecord;
/// let record: LeaderElectionRecord = serde_json::from_str(r#"{"holderIdentity":"pod-a","leaseDurationSeconds":15}"#).unwrap();
/// assert_eq!(record.holder_identity, "pod-a");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderElectionRecord {
    /// The holder's identity. Empty if the lease was released.
    pub holder_identity: String,
    /// How long others wait after they saw a renewal before they take over.
    pub lease_duration_seconds: u32,
    /// When the holder acquired it.
    #[serde(serialize_with = "microseconds")]
    pub acquire_time: Option<Timestamp>,
    /// When the holder last renewed it.
    #[serde(serialize_with = "microseconds")]
    pub renew_time: Option<Timestamp>,
    /// How often the holder has changed.
    pub lease_transitions: u32,
}

/// Formats times with six decimals, as a Lease requires.
fn microseconds<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.collect_str(&format_args!("{time:.6}")),
        None => serializer.serialize_none(),
    }
}

impl LeaderElectionRecord {
    /// Returns how long the lease is valid after a change was seen.
    pub fn lease_duration(&self) -> Duration {
        Duration::from_secs(self.lease_duration_seconds.into())
    }
}

/// A Lease, and its version as last seen.
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

    /// Reads the Lease. Returns `None` if it does not exist.
    pub(crate) async fn get(&mut self) -> Result<Option<LeaderElectionRecord>, ClientError> {
        let found = self.client.get(&self.kind, &self.key).await.optional()?;
        let record = found.as_ref().map(record_of).transpose()?;
        self.seen = found;
        Ok(record)
    }

    /// Creates the Lease with this record.
    pub(crate) async fn create(
        &mut self,
        record: &LeaderElectionRecord,
        labels: &Value,
    ) -> Result<(), ClientError> {
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.key.name(), "namespace": self.key.namespace(), "labels": labels},
            "spec": record,
        });
        self.seen = Some(self.client.create(&self.kind, self.key.namespace(), &body).await?);
        Ok(())
    }

    /// Replaces the record, if the Lease has not changed since it was last seen.
    pub(crate) async fn update(&mut self, record: &LeaderElectionRecord) -> Result<(), ClientError> {
        let seen = self.seen.as_ref().ok_or_else(|| unseen(&self.key))?;
        let mut lease: Value =
            seen.decode().map_err(|error| ClientError::InvalidResponse(Box::new(error)))?;
        lease["spec"] = json!(record);
        self.seen = Some(self.client.update(&self.kind, &self.key, Subresource::None, &lease).await?);
        Ok(())
    }

    /// Returns the reference for events about the Lease.
    pub(crate) fn reference(&self) -> Option<Reference> {
        self.seen.as_ref().map(|lease| Reference::to(&self.kind, lease))
    }
}

pub(crate) fn kind() -> Kind {
    Kind::new("coordination.k8s.io", "v1", "Lease", "leases", true)
}

/// Extracts the record from a Lease.
pub(crate) fn record_of(lease: &Object) -> Result<LeaderElectionRecord, ClientError> {
    #[derive(Deserialize)]
    struct Spec {
        #[serde(default)]
        spec: Nullable,
    }
    let Spec { spec } = lease.decode().map_err(|error| ClientError::InvalidResponse(Box::new(error)))?;
    Ok(LeaderElectionRecord {
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
    ClientError::InvalidResponse(format!("the lease {key} was not read before it was written").into())
}
