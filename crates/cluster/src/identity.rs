//! Who the parts of a control plane speak as: v1.34's own identities, each with the roles that every cluster binds to
//! it. None of them is in `system:masters`.

use setpoint_apiserver::auth::{User, service_account_groups, service_account_name};
use setpoint_controllers::Entry;

/// Where the service accounts of controllers are.
pub(crate) const NAMESPACE: &str = "kube-system";

/// What the shared informers read as, and the controllers that have no account of their own.
pub fn manager() -> User {
    User::authenticated("system:kube-controller-manager", "", Vec::new())
}

/// A controller: its service account, or the manager where v1.34's has none.
pub fn controller(entry: &Entry) -> User {
    match entry.account() {
        Some(account) => {
            let name = service_account_name(NAMESPACE, account);
            User::authenticated(name, "", service_account_groups(NAMESPACE))
        }
        None => manager(),
    }
}

pub fn scheduler() -> User {
    User::authenticated("system:kube-scheduler", "", Vec::new())
}

/// The kubelet of a node.
pub fn node(name: &str) -> User {
    User::authenticated(format!("system:node:{name}"), "", vec!["system:nodes".into()])
}

/// What drives all simulated nodes from one cache: it reads the pods and nodes of the whole cluster, which a kubelet
/// may not. It writes nothing.
pub fn node_simulator() -> User {
    User::authenticated("system:setpoint:node-simulator", "", Vec::new())
}

/// A user who may do everything: for people and tests, not for parts of the control plane.
pub fn admin() -> User {
    User::system("system:admin")
}
