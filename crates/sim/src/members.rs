//! Further API servers in the world of a test, which its controllers reach by name.
//!
//! They share the world's clock and faults: a write to one of them counts like a write to the world's own API server,
//! and runs are compared by the objects of all API servers. Each has a link, which can be cut.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use setpoint::source::Source;
use setpoint::{Client, Key, Kind, Rng, Runtime};
use setpoint_cluster::{Cluster, Components, Connect};
use setpoint_store::MemoryStore;

use crate::client::Faulty;
use crate::faults::Faults;
use crate::graph::{Counts, Graph, History};
use crate::link::Link;
use crate::permissions::Requests;
use crate::snapshot;
use crate::world::World;

/// API servers by name. Cheap to clone.
///
/// ```
/// use setpoint_cluster::Components;
/// use setpoint_sim::{Members, World};
/// World::simulate(1, Components::default(), Vec::new(), async |world| {
///     let members = Members::default();
///     members.start(world, "east").await;
///     let (client, _) = members.connect("east").unwrap();
///     assert!(client.get_path(&["version"], &[]).await.is_ok());
///     members.link("east").cut();
///     assert!(client.get_path(&["version"], &[]).await.is_err());
/// });
/// ```
#[derive(Clone, Default)]
pub struct Members(Arc<Mutex<BTreeMap<String, Member>>>);

#[derive(Clone)]
pub(crate) struct Member {
    cluster: Cluster,
    store: Arc<MemoryStore>,
    link: Link,
    faults: Faults,
}

impl Members {
    /// Starts an API server in a world. One of the same name is replaced.
    pub async fn start(&self, world: &World, name: &str) {
        let clock = world.clock().clone();
        let seed = name.bytes().fold(1, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        let runtime = Runtime { clock: clock.clone(), rng: Rng::seeded(seed) };
        // Not from a snapshot: clusters are distinguished by the UIDs of their objects.
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let config = snapshot::config(store.clone(), &runtime, &Components::default());
        let cluster = Cluster::with_config(config, runtime).await.expect("an empty store can be started on");
        let (link, faults) = (Link::new(&clock), world.faults().clone());
        let member = Member { cluster, store, link, faults };
        world.joined(name, &member);
        self.0.lock().insert(name.to_owned(), member);
    }

    fn get(&self, name: &str) -> Member {
        self.0.lock().get(name).cloned().unwrap_or_else(|| panic!("API server {name} has not been started"))
    }

    /// Returns a controller's connection to an API server, with all permissions, subject to faults and to the link.
    /// `None` if the server has not been started.
    pub fn connect(&self, name: &str) -> Option<(Client, Arc<dyn Source>)> {
        let Member { cluster, link, faults, .. } = self.0.lock().get(name)?.clone();
        let requests = Requests::default();
        let connection = Faulty { inner: cluster.connection(), faults, link: Some(link), requests };
        let admin = setpoint_cluster::identity::admin();
        Some((Client::new(connection.client(&admin)), connection.source(&admin)))
    }

    /// Returns the link to an API server.
    pub fn link(&self, name: &str) -> Link {
        self.get(name).link
    }

    /// Returns the user's client of an API server, which is not subject to faults.
    pub fn client(&self, name: &str) -> Client {
        self.get(name).cluster.client()
    }

    /// Returns the current object of an API server.
    pub async fn find(&self, name: &str, kind: &Kind, key: &Key) -> Option<Value> {
        match self.client(name).get(kind, key).await {
            Ok(object) => Some(object.decode().expect("the API server answers with JSON")),
            Err(error) if error.is_not_found() => None,
            Err(error) => panic!("cannot get {kind} {key} of {name}: {error}"),
        }
    }
}

impl Member {
    pub(crate) async fn graph(&self) -> Graph {
        Graph::of(self.cluster.api()).await
    }

    pub(crate) fn counts(&self) -> Counts {
        History::of(&*self.store, &self.cluster.api().registry()).counts()
    }
}
