//! Lets the API server use the API of kubelets. These ask it whether the user of its certificate may.
//!
//! The binding gives that user the least that works. One that exists is left as it is.

use anyhow::Context;
use serde_json::json;
use setpoint::{Client, Kind};

use crate::pki::KUBELET_CLIENT;

const BINDING: &str = "setpoint:kubelet-api-admin";
/// A default role of Kubernetes: logs, exec, port-forward, metrics and health of nodes.
const ROLE: &str = "system:kubelet-api-admin";

pub(crate) async fn allow(client: &Client) -> anyhow::Result<()> {
    let group = "rbac.authorization.k8s.io";
    let kind = Kind::new(group, "v1", "ClusterRoleBinding", "clusterrolebindings", false);
    let binding = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.kind(),
        "metadata": {"name": BINDING},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"apiGroup": group, "kind": "User", "name": KUBELET_CLIENT.user}],
    });
    match client.create(&kind, None, &binding).await {
        Err(error) if !error.is_already_exists() => {
            Err(error).context("cannot authorize the API server to access kubelets")
        }
        _ => Ok(()),
    }
}
