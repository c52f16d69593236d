//! `setpoint node`: fails, recovers and lists the simulated nodes of a running control plane.

use std::path::Path;

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use setpoint::client::{Patch, Subresource};
use setpoint::{Client, Key, Kind};
use setpoint_node::annotation::FAILED;

use crate::args::{Node, NodeNames};

pub(crate) async fn run(command: Node) -> anyhow::Result<()> {
    match command {
        Node::Fail(nodes) => mark(&nodes, json!("true"), "failed").await,
        Node::Recover(nodes) => mark(&nodes, Value::Null, "recovered").await,
        Node::List(target) => list(&client(&target.kubeconfig).await?).await,
    }
}

async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let read = Kubeconfig::read_from(kubeconfig);
    let read = read.with_context(|| format!("cannot read the kubeconfig {}", kubeconfig.display()))?;
    let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    Ok(Client::new(kube::Client::try_from(config).context("cannot connect to the API server")?))
}

fn nodes() -> Kind {
    Kind::new("", "v1", "Node", "nodes", false)
}

async fn mark(NodeNames { names, target }: &NodeNames, mark: Value, done: &str) -> anyhow::Result<()> {
    let client = client(&target.kubeconfig).await?;
    let patch = json!({"metadata": {"annotations": {FAILED: mark}}});
    for name in names {
        let patched = client
            .patch(&nodes(), &Key::cluster(name.as_str()), Subresource::None, Patch::merge(&patch))
            .await;
        patched.with_context(|| format!("cannot annotate node {name}"))?;
        println!("node/{name} {done}");
    }
    Ok(())
}

async fn list(client: &Client) -> anyhow::Result<()> {
    let listed = client.list(&nodes(), &Default::default()).await.context("cannot list the nodes")?;
    println!("{:<16} {:<10} {:<12} FAILED", "NAME", "STATUS", "ZONE");
    for object in &listed.objects {
        let node: Value = object.decode()?;
        let zone = object.meta().label("topology.kubernetes.io/zone").unwrap_or("<none>");
        println!("{:<16} {:<10} {zone:<12} {}", object.meta().name, status(&node), fails(&node));
    }
    Ok(())
}

/// Returns the node's status in kubectl's words.
fn status(node: &Value) -> &'static str {
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions.and_then(|all| all.iter().find(|condition| condition["type"] == "Ready"));
    match ready.and_then(|condition| condition["status"].as_str()) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
}

fn fails(node: &Value) -> &'static str {
    if node["metadata"]["annotations"][FAILED] == "true" { "yes" } else { "no" }
}
