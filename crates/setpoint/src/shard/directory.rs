//! The Leases of a sharded controller: the memberships and the map. They are listed together and written one by one.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::client::{ClientError, DeleteOptions, Subresource};
use crate::leader::{LeaderElectionRecord, lease_kind, record_of};
use crate::source::Selection;
use crate::{Client, Key, Kind, Object};

/// The label that marks the Leases of a controller. Its value is the controller's name.
const LABEL: &str = "setpoint.dev/sharded";
/// The annotation with the map: a JSON list of the owners of shards 0, 1, 2 and so on. Empty strings mean no owner.
const OWNERS: &str = "setpoint.dev/owners";

/// The location of the Leases.
pub(super) struct Directory {
    client: Client,
    kind: Kind,
    namespace: String,
    name: String,
}

/// A consistent snapshot of all Leases.
#[derive(Default)]
pub(super) struct Listing {
    /// By member name.
    pub(super) members: BTreeMap<String, (Object, LeaderElectionRecord)>,
    map: Option<Object>,
    pub(super) owners: Vec<String>,
}

impl Directory {
    pub(super) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self { client, kind: lease_kind(), namespace: namespace.into(), name: name.into() }
    }

    /// Lists all Leases at once. A missing map, or one with too few shards, is filled up with shards that have no
    /// owner.
    pub(super) async fn list(&self, shards: u32) -> Result<Listing, ClientError> {
        let selection = Selection {
            namespace: Some(self.namespace.clone()),
            labels: Some(format!("{LABEL}={}", self.name)),
            ..Selection::default()
        };
        let mut listing = Listing::default();
        for lease in self.client.list(&self.kind, &selection).await?.objects {
            if lease.key().name() == self.map_name() {
                listing.owners = owners_of(&lease);
                listing.map = Some(lease);
            } else if let Some(member) = lease.key().name().strip_prefix(&self.member_prefix()) {
                let (member, record) = (member.to_owned(), record_of(&lease)?);
                listing.members.insert(member, (lease, record));
            }
        }
        listing.owners.resize(shards as usize, String::new());
        Ok(listing)
    }

    /// Writes a membership, if it has not changed since it was seen. Creates it if there was none.
    pub(super) async fn write_member(
        &self,
        member: &str,
        seen: Option<&Object>,
        record: &LeaderElectionRecord,
    ) -> Result<Object, ClientError> {
        self.write(&format!("{}{member}", self.member_prefix()), seen, &json!(record), Value::Null).await
    }

    /// Removes a membership, if it has not changed since it was seen.
    pub(super) async fn remove_member(&self, seen: &Object) -> Result<(), ClientError> {
        let resource_version = Some(seen.meta().resource_version.to_string());
        let delete = DeleteOptions { resource_version, ..DeleteOptions::of_uid(&*seen.meta().uid) };
        self.client.delete(&self.kind, seen.key(), &delete).await
    }

    /// Writes the map, if it has not changed since it was listed.
    pub(super) async fn write_map(&self, listing: &Listing, owners: &[String]) -> Result<(), ClientError> {
        let owners = json!({OWNERS: json!(owners).to_string()});
        self.write(&self.map_name(), listing.map.as_ref(), &json!({}), owners).await.map(drop)
    }

    async fn write(
        &self,
        name: &str,
        seen: Option<&Object>,
        spec: &Value,
        annotations: Value,
    ) -> Result<Object, ClientError> {
        let version = seen.map(|lease| lease.meta().resource_version.to_string());
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "resourceVersion": version,
                "labels": {LABEL: self.name},
                "annotations": annotations,
            },
            "spec": spec,
        });
        let key = Key::namespaced(&*self.namespace, name);
        match seen {
            Some(_) => self.client.update(&self.kind, &key, Subresource::None, &lease).await,
            None => self.client.create(&self.kind, Some(&self.namespace), &lease).await,
        }
    }

    fn map_name(&self) -> String {
        format!("{}-shards", self.name)
    }

    fn member_prefix(&self) -> String {
        format!("{}-member-", self.name)
    }
}

fn owners_of(map: &Object) -> Vec<String> {
    let map: Value = map.decode().unwrap_or_default();
    let text = map["metadata"]["annotations"][OWNERS].as_str().unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}
