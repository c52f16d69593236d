//! The identities of the parts of a control plane: v1.34's own, each with the roles that every cluster binds to it.
//! None of them is in `system:masters`.

use setpoint_apiserver::auth::{User, service_account_groups, service_account_name};
use setpoint_controllers::Entry;

/// The namespace of the controllers' service accounts.
pub(crate) const NAMESPACE: &str = "kube-system";

/// Returns the identity of the shared informers, and of controllers without their own account.
pub fn manager() -> User {
    User::authenticated("system:kube-controller-manager", "", Vec::new())
}

/// Returns the identity of a controller: its service account, or the manager's if v1.34's has none.
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

/// Returns the identity of a node's kubelet.
pub fn node(name: &str) -> User {
    User::authenticated(format!("system:node:{name}"), "", vec!["system:nodes".into()])
}

/// Returns the identity that drives all simulated nodes from one cache. It reads the pods and nodes of the whole
/// cluster, and the ConfigMaps that script their logs, which a kubelet may not. It writes nothing.
pub fn node_simulator() -> User {
    User::authenticated("system:setpoint:node-simulator", "", Vec::new())
}

/// Returns a user with all permissions, for users and tests, not for parts of the control plane.
pub fn admin() -> User {
    User::system("system:admin")
}
