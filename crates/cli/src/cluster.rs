//! `setpoint cluster`: the clusters that applications are deployed to. Credentials are stored as KubeVela stores them.

use std::path::PathBuf;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use kube::config::Kubeconfig;
use serde_json::{Map, Value, json};
use setpoint::client::{DeleteOptions, Optional, Subresource};
use setpoint::{Key, Kind};
use setpoint_oam::Credential;
use setpoint_oam::names::{CLUSTER_CREDENTIAL_TYPE, LOCAL_CLUSTER, SYSTEM_NAMESPACE};

use crate::app::connection::{ClusterFlags, Connection};
use crate::app::output::{Format, print, print_objects, table};

const CLUSTER_GROUP: &str = "cluster.core.oam.dev/";
const ALIAS: &str = "cluster.core.oam.dev/cluster-alias";
/// How often records are read again that change while a cluster is detached. A reconcile in progress may still record an
/// object.
const DETACH_ROUNDS: usize = 5;

#[derive(Debug, Subcommand)]
pub(crate) enum Cluster {
    /// Register a cluster by its kubeconfig.
    Join(Join),
    /// List the registered clusters.
    List(List),
    /// Rename a cluster.
    Rename(Rename),
    /// Unregister a cluster and drop its records; applied objects remain in it.
    Detach(Detach),
}

#[derive(Debug, Args)]
pub(crate) struct Join {
    /// Kubeconfig of the cluster to register.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Name of the cluster [default: that in the kubeconfig].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Labels of the cluster, for the topology policies of applications.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    labels: Vec<(String, String)>,
    /// Replace the credential of a cluster that is registered.
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    hub: ClusterFlags,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    hub: ClusterFlags,
    /// Output format.
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,
}

#[derive(Debug, Args)]
pub(crate) struct Rename {
    /// Name of the cluster.
    #[arg(value_name = "NAME")]
    name: String,
    /// New name.
    #[arg(value_name = "NEW-NAME")]
    new_name: String,
    #[command(flatten)]
    hub: ClusterFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Detach {
    /// Name of the cluster.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    hub: ClusterFlags,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) fn secrets() -> Kind {
    Kind::new("", "v1", "Secret", "secrets", true)
}

fn key(name: &str) -> Key {
    Key::namespaced(SYSTEM_NAMESPACE, name)
}

pub(crate) async fn run(command: Cluster) -> anyhow::Result<()> {
    match command {
        Cluster::Join(arguments) => join(&arguments).await,
        Cluster::List(arguments) => list(&arguments).await,
        Cluster::Rename(arguments) => rename(&arguments).await,
        Cluster::Detach(arguments) => detach(&arguments).await,
    }
}

async fn join(arguments: &Join) -> anyhow::Result<()> {
    let file = arguments.file.display();
    let config = Kubeconfig::read_from(&arguments.file);
    let config = config.with_context(|| format!("cannot read the kubeconfig {file}"))?;
    let (of_file, cluster, user) = current(&config).with_context(|| format!("{file}"))?;
    let name = arguments.name.clone().unwrap_or(of_file);
    check_name(&name)?;
    let secret = secret(&name, &arguments.labels, &cluster, &user).with_context(|| format!("{file}"))?;
    let connection = arguments.hub.connect().await?;
    let client = &connection.client;
    let found = client.get(&secrets(), &key(&name)).await.optional()?;
    let done = match found {
        None => {
            client.create(&secrets(), Some(SYSTEM_NAMESPACE), &secret).await?;
            "joined"
        }
        Some(_) if !arguments.overwrite => {
            bail!("cluster {name} already exists; use --overwrite to replace its credential")
        }
        Some(found) => {
            let mut body: Value = found.decode()?;
            if body["metadata"]["labels"][CLUSTER_CREDENTIAL_TYPE].is_null() {
                bail!("Secret {SYSTEM_NAMESPACE}/{name} already exists and is not a cluster credential");
            }
            body["data"] = secret["data"].clone();
            for (label, value) in secret["metadata"]["labels"].as_object().into_iter().flatten() {
                body["metadata"]["labels"][label] = value.clone();
            }
            client.update(&secrets(), &key(&name), Subresource::None, &body).await?;
            "updated"
        }
    };
    print(&format!("cluster/{name} {done}\n"))
}

fn check_name(name: &str) -> anyhow::Result<()> {
    let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-.".contains(letter);
    match name {
        LOCAL_CLUSTER => bail!("the name {LOCAL_CLUSTER} is reserved for the local cluster"),
        name if !name.is_empty() && name.len() <= 63 && name.chars().all(fits) => Ok(()),
        name => {
            bail!("{name:?} is not a valid cluster name: expected lower-case letters, digits, '-' and '.'")
        }
    }
}

/// A field of a kubeconfig that is text.
fn text<'a>(fields: &'a Value, name: &str) -> Option<&'a str> {
    fields[name].as_str().filter(|text| !text.is_empty())
}

/// Returns the name, the cluster and the user of the current context.
fn current(config: &Kubeconfig) -> anyhow::Result<(String, Value, Value)> {
    let name = config.current_context.as_ref().context("current-context is not set")?;
    let context = config.contexts.iter().find(|context| context.name == *name);
    let context = context.and_then(|context| context.context.as_ref());
    let context = context.with_context(|| format!("context {name} not found"))?;
    let cluster = config.clusters.iter().find(|cluster| cluster.name == context.cluster);
    let cluster = cluster.and_then(|cluster| cluster.cluster.as_ref());
    let cluster = cluster.with_context(|| format!("cluster {} not found", context.cluster))?;
    let user_name = context.user.clone().unwrap_or_default();
    let user = config.auth_infos.iter().find(|user| user.name == user_name);
    let user = user.and_then(|user| user.auth_info.as_ref());
    let user = user.with_context(|| format!("user {user_name} not found"))?;
    Ok((context.cluster.clone(), serde_json::to_value(cluster)?, serde_json::to_value(user)?))
}

/// Returns the Secret with the credential of a kubeconfig.
fn secret(name: &str, labels: &[(String, String)], cluster: &Value, user: &Value) -> anyhow::Result<Value> {
    let mut data = Map::new();
    let endpoint = text(cluster, "server").context("the cluster has no server")?;
    data.insert("endpoint".into(), STANDARD.encode(endpoint).into());
    if let Some(field) =
        ["proxy-url", "tls-server-name"].into_iter().find(|field| text(cluster, field).is_some())
    {
        bail!("{field} is not supported");
    }
    if cluster["insecure-skip-tls-verify"] != true {
        let authority = encoded(cluster, "certificate-authority")?;
        data.insert("ca.crt".into(), authority.unwrap_or_default().into());
    }
    let kind = match token(user)? {
        Some(token) => {
            data.insert("token".into(), STANDARD.encode(token.trim()).into());
            "ServiceAccountToken"
        }
        None => {
            let (certificate, key) = (encoded(user, "client-certificate")?, encoded(user, "client-key")?);
            let (Some(certificate), Some(key)) = (certificate, key) else {
                bail!("the user has neither a token nor a client certificate");
            };
            data.insert("tls.crt".into(), certificate.into());
            data.insert("tls.key".into(), key.into());
            "X509Certificate"
        }
    };
    let mut all: Map<String, Value> =
        labels.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
    all.insert(CLUSTER_CREDENTIAL_TYPE.to_owned(), kind.into());
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
        "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE, "labels": all}});
    Credential::of_secret(&secret).map_err(anyhow::Error::msg)?;
    Ok(secret)
}

fn token(user: &Value) -> anyhow::Result<Option<String>> {
    match (text(user, "token"), text(user, "tokenFile")) {
        (Some(token), _) => Ok(Some(token.to_owned())),
        (None, Some(path)) => {
            let read = std::fs::read_to_string(path);
            Ok(Some(read.with_context(|| format!("cannot read the token {path}"))?))
        }
        (None, None) => Ok(None),
    }
}

/// Returns the base64 of a field that a kubeconfig has as such or in a file.
fn encoded(fields: &Value, name: &str) -> anyhow::Result<Option<String>> {
    match (text(fields, &format!("{name}-data")), text(fields, name)) {
        (Some(data), _) => Ok(Some(data.to_owned())),
        (None, Some(file)) => {
            let read = std::fs::read(file).with_context(|| format!("cannot read the {name} {file}"))?;
            Ok(Some(STANDARD.encode(read)))
        }
        (None, None) => Ok(None),
    }
}

async fn registered(connection: &Connection) -> anyhow::Result<Vec<Value>> {
    let labels = Some(CLUSTER_CREDENTIAL_TYPE.to_owned());
    connection.list(&secrets(), Some(SYSTEM_NAMESPACE), labels).await
}

async fn list(arguments: &List) -> anyhow::Result<()> {
    let connection = arguments.hub.connect().await?;
    let mut found = registered(&connection).await?;
    match arguments.output {
        None | Some(Format::Wide) => print(&listed(&found)),
        Some(format) => {
            found.iter_mut().for_each(hide);
            print_objects(&found, format, true)
        }
    }
}

/// Takes the credential out of a Secret: a list shows which clusters there are, not how to enter them.
fn hide(secret: &mut Value) {
    if let Some(data) = secret["data"].as_object_mut() {
        data.retain(|field, _| field == "endpoint");
    }
    drop_last_applied(&mut secret["metadata"]["annotations"]);
}

/// Removes what kubectl keeps: all of the object, credentials included.
fn drop_last_applied(annotations: &mut Value) {
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}

fn listed(secrets: &[Value]) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let or_none = |text: String| if text.is_empty() { "<none>".to_owned() } else { text };
    let row = |secret: &Value| {
        let meta = &secret["metadata"];
        let endpoint = STANDARD.decode(text(&secret["data"]["endpoint"])).unwrap_or_default();
        let labels = meta["labels"].as_object().into_iter().flatten();
        let labels = labels.filter(|(name, _)| !name.starts_with(CLUSTER_GROUP));
        let labels: Vec<String> = labels.map(|(name, value)| format!("{name}={}", text(value))).collect();
        vec![
            text(&meta["name"]),
            or_none(text(&meta["annotations"][ALIAS])),
            text(&meta["labels"][CLUSTER_CREDENTIAL_TYPE]),
            String::from_utf8_lossy(&endpoint).trim().to_owned(),
            or_none(labels.join(",")),
        ]
    };
    let none = "<none>".to_owned();
    let local = vec![LOCAL_CLUSTER.to_owned(), none.clone(), "Internal".into(), "-".into(), none];
    let rows: Vec<_> = std::iter::once(local).chain(secrets.iter().map(row)).collect();
    table(&["CLUSTER", "ALIAS", "TYPE", "ENDPOINT", "LABELS"], &rows)
}

/// Reads the Secret of a registered cluster.
async fn of_cluster(connection: &Connection, name: &str) -> anyhow::Result<Value> {
    if name == LOCAL_CLUSTER {
        bail!("the local cluster {LOCAL_CLUSTER} is not registered");
    }
    let found = connection.client.get(&secrets(), &key(name)).await.optional()?;
    let found: Option<Value> = found.map(|found| found.decode()).transpose()?;
    let found = found.filter(|found| !found["metadata"]["labels"][CLUSTER_CREDENTIAL_TYPE].is_null());
    found.with_context(|| format!("cluster {name} not found"))
}

/// Objects are recorded with the name of their cluster, so one that is in use keeps it.
async fn rename(arguments: &Rename) -> anyhow::Result<()> {
    let (name, new_name) = (&arguments.name, &arguments.new_name);
    check_name(new_name)?;
    let connection = arguments.hub.connect().await?;
    let secret = of_cluster(&connection, name).await?;
    let used = trackers_of(&connection, name).await?;
    if let Some(tracker) = used.first() {
        bail!("cluster {name} is in use: ResourceTracker {} refers to it", tracker["metadata"]["name"]);
    }
    let meta = &secret["metadata"];
    let mut annotations = meta["annotations"].clone();
    drop_last_applied(&mut annotations);
    let renamed = json!({"apiVersion": "v1", "kind": "Secret", "type": secret["type"], "data": secret["data"],
        "metadata": {"name": new_name, "labels": meta["labels"], "annotations": annotations}});
    let created = connection.client.create(&secrets(), Some(SYSTEM_NAMESPACE), &renamed).await;
    created.with_context(|| format!("cannot create cluster {new_name}"))?;
    delete(&connection, &secret).await?;
    print(&format!("cluster/{name} renamed to {new_name}\n"))
}

/// Can be repeated: the credential may be gone, and records may still name the cluster.
async fn detach(arguments: &Detach) -> anyhow::Result<()> {
    check_name(&arguments.name)?;
    let (name, connection) = (&arguments.name, arguments.hub.connect().await?);
    match of_cluster(&connection, name).await {
        Ok(secret) => delete(&connection, &secret).await?,
        Err(error) if trackers_of(&connection, name).await?.is_empty() => return Err(error),
        Err(_) => {}
    }
    let mut forgotten = 0;
    for _ in 0..DETACH_ROUNDS {
        let named = trackers_of(&connection, name).await?;
        if named.is_empty() {
            print(&format!("cluster/{name} detached\n"))?;
            if forgotten > 0 {
                eprintln!("{forgotten} applied objects remain in it.");
            }
            return Ok(());
        }
        for tracker in named {
            forgotten += forget(&connection, tracker, name).await?;
        }
    }
    bail!(
        "applications still record objects in cluster {name}: remove it from their topologies, and run this again"
    )
}

/// Removes the objects of a cluster from a record, unless it has changed meanwhile. Returns how many they were.
async fn forget(connection: &Connection, mut tracker: Value, cluster: &str) -> anyhow::Result<usize> {
    let mut forgotten = 0;
    if let Some(entries) = tracker["spec"]["managedResources"].as_array_mut() {
        let before = entries.len();
        entries.retain(|entry| entry["cluster"] != cluster);
        forgotten = before - entries.len();
    }
    let name = tracker["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let key = Key::cluster(name.as_str());
    match connection.client.update(&trackers(), &key, Subresource::None, &tracker).await {
        Ok(_) => Ok(forgotten),
        Err(error) if error.is_conflict() || error.is_not_found() => Ok(0),
        Err(error) => Err(error).with_context(|| format!("cannot update ResourceTracker {name}")),
    }
}

async fn delete(connection: &Connection, secret: &Value) -> anyhow::Result<()> {
    let name = secret["metadata"]["name"].as_str().unwrap_or_default();
    let options = DeleteOptions::of_uid(secret["metadata"]["uid"].as_str().unwrap_or_default());
    let deleted = connection.client.delete(&secrets(), &key(name), &options).await.optional();
    deleted.map(drop).with_context(|| format!("cannot delete Secret {SYSTEM_NAMESPACE}/{name}"))
}

fn trackers() -> Kind {
    Kind::new("core.oam.dev", "v1beta1", "ResourceTracker", "resourcetrackers", false)
}

/// Returns the records that name objects of a cluster.
async fn trackers_of(connection: &Connection, cluster: &str) -> anyhow::Result<Vec<Value>> {
    let names = |tracker: &Value| {
        let mut entries = tracker["spec"]["managedResources"].as_array().into_iter().flatten();
        entries.any(|entry| entry["cluster"] == cluster)
    };
    let mut all = connection.list(&trackers(), None, None).await?;
    all.iter_mut().try_for_each(setpoint_oam::unpack_tracker).map_err(anyhow::Error::msg)?;
    Ok(all.into_iter().filter(names).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(user: &Value) -> anyhow::Result<Value> {
        let cluster = json!({"server": "https://h:6443", "certificate-authority-data": "cGVt"});
        secret("east", &[("zone".into(), "a".into())], &cluster, user)
    }

    #[test]
    fn a_kubeconfig_becomes_a_credential_as_kubevela_stores_it() {
        let secret = joined(&json!({"token": "t"})).unwrap();
        assert_eq!(
            secret["data"],
            json!({"endpoint": "aHR0cHM6Ly9oOjY0NDM=", "ca.crt": "cGVt", "token": "dA=="})
        );
        assert_eq!(secret["metadata"]["labels"][CLUSTER_CREDENTIAL_TYPE], "ServiceAccountToken");
        assert_eq!(secret["metadata"]["labels"]["zone"], "a");
        let certificate = json!({"client-certificate-data": "Yw==", "client-key-data": "aw=="});
        assert_eq!(joined(&certificate).unwrap()["data"]["tls.key"], "aw==");
        let error = joined(&json!({})).unwrap_err().to_string();
        assert!(error.contains("neither a token nor a client certificate"), "{error}");
    }

    #[test]
    fn the_list_shows_no_credentials() {
        let mut secret = joined(&json!({"token": "t"})).unwrap();
        let text = listed(std::slice::from_ref(&secret));
        assert!(
            text.contains("east") && text.contains("https://h:6443") && text.contains("zone=a"),
            "{text}"
        );
        hide(&mut secret);
        assert!(secret["data"]["token"].is_null());
    }

    #[test]
    fn names_that_cannot_be_used_are_refused() {
        for name in ["", "local", "East", "a/b"] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_name("east-1").is_ok());
    }
}
