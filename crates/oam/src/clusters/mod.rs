//! Clusters other than the one that the applications are in.
//!
//! ```text
//!  Secret ─► Credential ─► Member: a client, informers, whether it is reachable
//!                            ▲                       │
//!                  probes every few seconds          └─► wakes the applications that use it
//!
//!  credential.rs  credentials, as KubeVela's cluster gateway stores them          (pure)
//!  members.rs     the clusters in use, shared by all controllers
//!  probe.rs       whether they are reachable; runs their informers
//!  inventory.rs   which clusters there are, and their labels                      (pure)
//! ```
//!
//! Invariants:
//! - Requests to an unreachable cluster fail immediately, until a probe succeeds. Such a cluster never blocks a worker
//!   for longer than one timeout.
//! - The objects of an unreachable cluster are neither deleted nor dropped from the records.
//! - A member belongs to one credential. When its Secret changes, the next use connects with the new one.

pub(crate) mod credential;
pub(crate) mod inventory;
pub(crate) mod members;
mod probe;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::apply::cluster::{Cluster, ClusterError};
use crate::names::{LOCAL_CLUSTER, SERVICE_ACCOUNT};
use inventory::Inventory;
use members::{Member, Members};

/// A controller's access to all clusters. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Clusters {
    local: Cluster,
    members: Members,
    /// Access to the members in use. Bounded by them.
    used: Arc<Mutex<Used>>,
    /// The user to act as. `None` for this program itself.
    user: Option<String>,
}

/// Access by name, with its member.
type Used = BTreeMap<String, (Arc<Member>, Cluster)>;

impl Clusters {
    pub(crate) fn new(local: Cluster, members: Members) -> Self {
        Self { local, members, used: Arc::default(), user: None }
    }

    /// Returns access with the permissions of a service account, in every cluster. Without a name, those of this
    /// program.
    pub(crate) fn acting_as_account(&self, namespace: &str, name: &str) -> Result<Self, String> {
        match name {
            "" => Ok(self.clone()),
            name if is_account_name(name) => {
                let user = format!("system:serviceaccount:{namespace}:{name}");
                Ok(Self { local: self.local.acting_as(&user), user: Some(user), ..self.clone() })
            }
            name => Err(format!("annotation {SERVICE_ACCOUNT}: {name:?} is no name of a ServiceAccount")),
        }
    }

    /// The cluster that the applications are in.
    pub(crate) fn local(&self) -> &Cluster {
        &self.local
    }

    /// Returns a cluster by name. No name is the local one.
    pub(crate) fn get(&self, name: &str) -> Result<Cluster, ClusterError> {
        if matches!(name, "" | LOCAL_CLUSTER) {
            return Ok(self.local.clone());
        }
        let mut used = self.used.lock();
        let member = self.members.get(name).inspect_err(|_| drop(used.remove(name)))?;
        let cluster = match used.get(name) {
            Some((known, cluster)) if Arc::ptr_eq(known, &member) => cluster.clone(),
            _ => {
                let cluster = self.local.of_member(&member);
                used.insert(name.to_owned(), (member, cluster.clone()));
                cluster
            }
        };
        drop(used);
        Ok(match &self.user {
            Some(user) => cluster.acting_as(user),
            None => cluster,
        })
    }

    /// Returns the current clusters.
    pub(crate) async fn inventory(&self) -> Result<Inventory, ClusterError> {
        self.members.inventory().await
    }
}

/// Names of service accounts are DNS subdomains.
fn is_account_name(name: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-.".contains(letter);
    name.len() <= 253 && name.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_those_of_service_accounts_are_refused() {
        assert!(is_account_name("deployer") && is_account_name("a.b-1"));
        for name in ["x:y", "a\nb", "Deployer", &"x".repeat(254)] {
            assert!(!is_account_name(name), "{name:?}");
        }
    }
}
