//! Node objects and their heartbeats.
//!
//! One task renews the leases of all nodes, spread evenly over the renewal period: a thousand nodes are a hundred small
//! writes a second, never a burst.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use setpoint::client::{Patch, Subresource};
use setpoint::conditions::whole_seconds;
use setpoint::{Client, ClientError, Context, Key, Kind, Object, Recorder, Runtime};

use crate::agent::FleetOptions;
use crate::outage::Outages;
use crate::pressure::{Pressure, conditions};

/// Like the kubelet: a lease of 40 s, renewed every 10 s.
const LEASE_DURATION_SECONDS: u64 = 40;
/// Like the kubelet.
const RENEWAL_TRIES: u32 = 5;
const RENEWAL_PERIOD: Duration = Duration::from_secs(10);

/// How soon a failed registration is retried.
const REGISTRATION_RETRY: Duration = Duration::from_secs(1);

/// The label of simulated nodes.
pub(crate) const SIMULATED: &str = "node.setpoint.dev/simulated";

/// The nodes of this process.
#[derive(Clone)]
pub(crate) struct Fleet {
    runtime: Runtime,
    kubelets: Arc<[Kubelet]>,
    zones: usize,
    outages: Outages,
}

/// A node's own identity and client for the API server.
pub(crate) struct Kubelet {
    pub(crate) name: String,
    pub(crate) client: Client,
    pub(crate) recorder: Recorder,
}

impl Fleet {
    /// `of_node` returns the context in which a node acts as itself.
    pub(crate) fn new(runtime: Runtime, of_node: impl Fn(&str) -> Context, options: &FleetOptions) -> Self {
        let kubelet = |index: usize| {
            let name = format!("node-{index}");
            let context = of_node(&name);
            let recorder = context.recorder("kubelet").on_host(&*name);
            Kubelet { name, client: context.client, recorder }
        };
        let kubelets = (0..options.nodes).map(kubelet).collect();
        Self { runtime, kubelets, zones: options.zones.max(1), outages: Outages::default() }
    }

    /// Returns a node by index.
    pub(crate) fn kubelet(&self, index: usize) -> &Kubelet {
        &self.kubelets[index]
    }

    /// Returns the state of failing nodes.
    pub(crate) fn outages(&self) -> &Outages {
        &self.outages
    }

    /// Returns the index of a node, if it belongs to the fleet.
    pub(crate) fn index(&self, node: &str) -> Option<usize> {
        let index: usize = node.strip_prefix("node-")?.parse().ok()?;
        (self.kubelets.get(index)?.name == node).then_some(index)
    }

    /// Registers every node, then renews their leases forever. A node whose lease is gone registers again.
    pub(crate) async fn run(self) {
        let mut leases = Vec::with_capacity(self.kubelets.len());
        for kubelet in &*self.kubelets {
            leases.push(self.registered(leases.len(), kubelet).await);
        }
        let Some(gap) = RENEWAL_PERIOD.checked_div(self.kubelets.len() as u32) else {
            return std::future::pending().await;
        };
        loop {
            for (index, kubelet) in self.kubelets.iter().enumerate() {
                let name = &*kubelet.name;
                self.runtime.clock.sleep(gap).await;
                if self.outages.has(name) {
                    continue;
                }
                // A node that cannot be reached waits for its next turn, so that the leases of others do not expire.
                match self.sign_of_life(index, kubelet, &leases[index]).await {
                    Ok(None) => {}
                    Ok(Some(recreated)) => leases[index] = recreated,
                    Err(error) => tracing::debug!(node = name, %error, "cannot renew the lease"),
                }
            }
        }
    }

    /// Registers a node, retrying until it succeeds. Returns the uid of its lease.
    async fn registered(&self, index: usize, kubelet: &Kubelet) -> Box<str> {
        loop {
            match self.register(index, kubelet).await {
                Ok(lease) => return lease,
                Err(error) => {
                    let name = &*kubelet.name;
                    tracing::warn!(node = name, %error, "cannot register the node, retrying");
                    self.runtime.clock.sleep(REGISTRATION_RETRY).await;
                }
            }
        }
    }

    /// Creates the Node and its lease if missing, and reports the node ready.
    async fn register(&self, index: usize, kubelet: &Kubelet) -> Result<Box<str>, ClientError> {
        let (name, client) = (&*kubelet.name, &kubelet.client);
        let now = self.runtime.clock.now();
        let node_key = Key::cluster(name);
        let registered =
            create_or_get(client, &node_kind(), &node_key, &node(name, &zone(index % self.zones))).await?;
        let uid = &registered.meta().uid;
        let status = json!({"metadata": {"uid": uid}, "status": node_status(index, name, &self.outages.pressure(name), now)});
        let patch = Patch::Strategic(status.to_string().into());
        client.patch(&node_kind(), &node_key, Subresource::Status, patch).await?;
        let lease_key = Key::namespaced(LEASES, name);
        let lease = create_or_get(client, &lease_kind(), &lease_key, &lease(name, uid, now)).await?;
        Ok(lease.meta().uid.clone())
    }

    /// Renews the lease of a node. If the lease is gone, or the node is considered lost, registers it again and returns
    /// the uid of its lease.
    async fn sign_of_life(
        &self,
        index: usize,
        kubelet: &Kubelet,
        lease: &str,
    ) -> Result<Option<Box<str>>, ClientError> {
        let renewed = self.renew_with_retries(kubelet, lease).await;
        match renewed {
            Ok(()) if !self.outages.is_thought_lost(&kubelet.name) => {
                self.offer(kubelet).await.map(|()| None)
            }
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
            _ => self.register(index, kubelet).await.map(Some),
        }
    }

    /// Writes the node's allocatable resources and pressure conditions, if they changed.
    async fn offer(&self, Kubelet { name, client, .. }: &Kubelet) -> Result<(), ClientError> {
        let key = Key::cluster(name.as_str());
        if self.outages.has_to_say(name) {
            let conditions = conditions(&self.outages.pressure(name), self.runtime.clock.now());
            let patch = Patch::strategic(&json!({"status": {"conditions": conditions}}));
            client.patch_ignoring_response(&node_kind(), &key, Subresource::Status, patch).await?;
        }
        let Some(change) = self.outages.offer(name) else { return Ok(()) };
        let patch = Patch::Strategic(change.to_string().into());
        client.patch_ignoring_response(&node_kind(), &key, Subresource::Status, patch).await
    }

    /// Renews a lease with immediate retries, like the kubelet: after four lost renewals in a row, pods would be
    /// evicted from the node.
    async fn renew_with_retries(&self, kubelet: &Kubelet, uid: &str) -> Result<(), ClientError> {
        for _ in 1..RENEWAL_TRIES {
            match self.renew(kubelet, uid).await {
                Err(error) if !error.is_not_found() && !error.is_conflict() => {
                    tracing::debug!(node = kubelet.name, %error, "cannot renew the lease, retrying");
                }
                answered => return answered,
            }
        }
        self.renew(kubelet, uid).await
    }

    /// Renews a lease once, checking its uid.
    async fn renew(&self, Kubelet { name, client, .. }: &Kubelet, uid: &str) -> Result<(), ClientError> {
        let renew_time = micro_time(self.runtime.clock.now());
        let renewal =
            json!({"metadata": {"uid": uid}, "spec": {"holderIdentity": name, "renewTime": renew_time}});
        let patch = Patch::Merge(renewal.to_string().into());
        let key = Key::namespaced(LEASES, name.as_str());
        client.patch_ignoring_response(&lease_kind(), &key, Subresource::None, patch).await
    }
}

async fn create_or_get(client: &Client, kind: &Kind, key: &Key, body: &Value) -> Result<Object, ClientError> {
    match client.create(kind, key.namespace(), body).await {
        Err(error) if error.is_already_exists() => client.get(kind, key).await,
        created => created,
    }
}

/// The namespace of node leases.
const LEASES: &str = "kube-node-lease";

fn node_kind() -> Kind {
    Kind::of::<k8s_openapi::api::core::v1::Node>()
}

fn lease_kind() -> Kind {
    Kind::of::<k8s_openapi::api::coordination::v1::Lease>()
}

/// Returns a node's address, which differs from those of pods and Services.
pub(crate) fn host_ip(index: usize) -> String {
    format!("172.20.{}.{}", index / 250 % 250, index % 250 + 1)
}

/// Returns a zone's name: a letter, or several if there are more zones than letters.
fn zone(mut index: usize) -> String {
    let mut letters = Vec::new();
    loop {
        letters.push(char::from(b'a' + (index % 26) as u8));
        if index < 26 {
            return format!("zone-{}", letters.iter().rev().collect::<String>());
        }
        index = index / 26 - 1;
    }
}

fn node(name: &str, zone: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux",
            "beta.kubernetes.io/arch": "amd64",
            SIMULATED: "true",
            "topology.kubernetes.io/region": "local",
            "topology.kubernetes.io/zone": zone,
        }},
        "spec": {},
    })
}

fn node_status(index: usize, name: &str, short_of: &[Pressure], now: Timestamp) -> Value {
    let mut conditions = conditions(short_of, now);
    conditions.push(json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
        "lastHeartbeatTime": second(now), "lastTransitionTime": second(now),
    }));
    let capacity = json!({"cpu": "32", "memory": "256Gi", "pods": "256", "ephemeral-storage": "1Ti"});
    json!({
        "capacity": &capacity,
        "allocatable": &capacity,
        "addresses": [{"type": "InternalIP", "address": host_ip(index)}, {"type": "Hostname", "address": name}],
        "conditions": conditions,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "kubeletVersion": "v1.34.0", "kubeProxyVersion": "",
            "containerRuntimeVersion": concat!("setpoint://", env!("CARGO_PKG_VERSION")),
            "operatingSystem": "linux", "architecture": "amd64", "osImage": "setpoint simulated node",
            "kernelVersion": "0.0.0", "machineID": name, "systemUUID": name, "bootID": name,
        },
    })
}

fn lease(name: &str, node_uid: &str, now: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASES, "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_DURATION_SECONDS, "renewTime": micro_time(now)},
    })
}

fn second(time: Timestamp) -> String {
    whole_seconds(time).to_string()
}

fn micro_time(time: Timestamp) -> String {
    format!("{time:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_name_for_every_zone() {
        let check = |index, expected: &str| assert_eq!(zone(index), expected);
        check(0, "zone-a");
        check(25, "zone-z");
        check(26, "zone-aa");
        check(27, "zone-ab");
        check(701, "zone-zz");
        check(702, "zone-aaa");
    }
}
