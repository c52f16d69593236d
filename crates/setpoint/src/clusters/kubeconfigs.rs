//! Clusters from Secrets with kubeconfigs: a cluster joins when its Secret is created, and leaves when it is deleted.
//!
//! Owns: the clusters of a fleet. Watches: Secrets. Writes: events on Secrets that cannot be used.
//!
//! A kubeconfig can name programs to run and files to read. Users who may write the Secrets must not get those
//! of this process, so such kubeconfigs are rejected.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig};
use parking_lot::Mutex;
use serde_json::Value;

use super::{Connection, Fleet};
use crate::source::{KubeSource, Selection};
use crate::{
    Client, Context, Controller, EventType, Informer, Key, Kind, Object, Outcome, ReconcileError, Reconciler,
    Runtime,
};

const NAME: &str = "clusters-from-secrets";
/// The label and the field of the Kubernetes project's own multi-cluster managers.
const LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig=true";
const FIELD: &str = "kubeconfig";

/// Connects to a cluster.
pub trait Connect: Send + Sync + 'static {
    /// Prepares access, without sending anything. The error says what is wrong with the kubeconfig.
    fn connect<'a>(
        &'a self,
        name: &'a str,
        kubeconfig: &'a str,
        runtime: &'a Runtime,
    ) -> BoxFuture<'a, Result<Connection, String>>;
}

/// Connects as the kubeconfig says.
struct Direct;

impl Connect for Direct {
    fn connect<'a>(
        &'a self,
        _: &'a str,
        kubeconfig: &'a str,
        runtime: &'a Runtime,
    ) -> BoxFuture<'a, Result<Connection, String>> {
        Box::pin(async move {
            let parsed = Kubeconfig::from_yaml(kubeconfig).map_err(|error| error.to_string())?;
            check(&parsed)?;
            let config = kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await;
            let config = config.map_err(|error| error.to_string())?;
            let client = kube::Client::try_from(config).map_err(|error| error.to_string())?;
            let client = Client::new(client).with_user_agent("setpoint-fleet");
            let source = Arc::new(KubeSource::new(client.clone(), runtime.clone()));
            Ok(Connection { client, source })
        })
    }
}

/// Rejects kubeconfigs that name programs or files of this machine.
fn check(kubeconfig: &Kubeconfig) -> Result<(), String> {
    let users = kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref());
    let clusters = kubeconfig.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref());
    let of_users = users.flat_map(|user| {
        let AuthInfo { token_file, client_certificate, client_key, auth_provider, exec, .. } = user;
        [
            ("users[].user.tokenFile", token_file.is_some()),
            ("users[].user.client-certificate", client_certificate.is_some()),
            ("users[].user.client-key", client_key.is_some()),
            ("users[].user.auth-provider", auth_provider.is_some()),
            ("users[].user.exec", exec.is_some()),
        ]
    });
    let of_clusters = clusters.map(|cluster| {
        let Cluster { certificate_authority, .. } = cluster;
        ("clusters[].cluster.certificate-authority", certificate_authority.is_some())
    });
    match of_users.chain(of_clusters).find(|(_, is_set)| *is_set) {
        Some((field, _)) => {
            Err(format!("{field}: expected data in the kubeconfig itself, not a file or a program"))
        }
        None => Ok(()),
    }
}

/// Secrets whose kubeconfigs lead to clusters. The name of a Secret is the name of its cluster.
///
/// Kubeconfigs that run programs or name files are rejected, with an event on the Secret.
///
/// ```
/// use setpoint::clusters::{Fleet, KubeconfigSecrets};
/// # fn example(context: &setpoint::Context) {
/// let fleet = Fleet::new(context);
/// let secrets = KubeconfigSecrets::in_namespace("clusters").labelled("team=shop").field("value");
/// let controller = secrets.join(context, &fleet);
/// # }
/// ```
pub struct KubeconfigSecrets {
    namespace: String,
    labels: String,
    field: String,
    connect: Arc<dyn Connect>,
}

impl KubeconfigSecrets {
    /// Takes the Secrets of a namespace with the label `sigs.k8s.io/multicluster-runtime-kubeconfig: "true"`, and the
    /// kubeconfig in their field `kubeconfig`.
    pub fn in_namespace(namespace: &str) -> Self {
        let (namespace, labels, field) = (namespace.to_owned(), LABEL.to_owned(), FIELD.to_owned());
        Self { namespace, labels, field, connect: Arc::new(Direct) }
    }

    /// Takes the Secrets that a label selector selects instead.
    pub fn labelled(self, selector: &str) -> Self {
        Self { labels: selector.to_owned(), ..self }
    }

    /// Reads the kubeconfig from another field.
    pub fn field(self, field: &str) -> Self {
        Self { field: field.to_owned(), ..self }
    }

    /// Connects in another way, for example through a proxy or, in a simulation, within the process.
    pub fn connecting(self, connect: impl Connect) -> Self {
        Self { connect: Arc::new(connect), ..self }
    }

    /// Returns the controller that has clusters join and leave a fleet.
    pub fn join(self, context: &Context, fleet: &Fleet) -> Controller {
        let secrets = Kind::new("", "v1", "Secret", "secrets", true);
        let selection = Selection {
            namespace: Some(self.namespace.clone()),
            labels: Some(self.labels.clone()),
            ..Selection::default()
        };
        let fleet = fleet.clone();
        Controller::for_kind(context, NAME, &secrets)
            .selecting(selection)
            .run_with(|wiring| Joining {
                from: self,
                fleet,
                context: wiring.context().clone(),
                secrets: wiring.primary().clone(),
                joined: Mutex::default(),
            })
            // The same cluster must not join and leave at the same time, and connecting is quick.
            .workers(1)
    }
}

/// Has clusters join and leave.
struct Joining {
    from: KubeconfigSecrets,
    fleet: Fleet,
    context: Context,
    secrets: Informer,
    /// The kubeconfigs of the clusters that have joined. Bounded by the fleet.
    joined: Mutex<BTreeMap<String, String>>,
}

impl Reconciler for Joining {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let secret = self.secrets.objects().get(key).filter(|secret| !secret.meta().is_being_deleted());
        let Some(secret) = secret else {
            self.leave(key.name());
            return Ok(Outcome::Settled);
        };
        match self.bring(&secret).await {
            Ok(()) => Ok(Outcome::Settled),
            Err(why) => {
                self.leave(key.name());
                let secret = secret.of_kind(self.secrets.kind());
                self.context.event(&secret, EventType::Warning, "InvalidKubeconfig", why.clone());
                Err(ReconcileError::terminal(format!("Secret {key}: {why}")))
            }
        }
    }
}

impl Joining {
    async fn bring(&self, secret: &Object) -> Result<(), String> {
        let name = secret.key().name();
        let kubeconfig = kubeconfig_in(secret, &self.from.field)?;
        if self.joined.lock().get(name) == Some(&kubeconfig) {
            return Ok(());
        }
        let connected = self.from.connect.connect(name, &kubeconfig, &self.context.runtime).await;
        let connection = connected.map_err(|why| format!("data.{}: {why}", self.from.field))?;
        self.fleet.join(name, connection).map_err(|error| error.to_string())?;
        self.joined.lock().insert(name.to_owned(), kubeconfig);
        tracing::info!(cluster = name, "a cluster has joined");
        Ok(())
    }

    fn leave(&self, name: &str) {
        if self.joined.lock().remove(name).is_some() {
            self.fleet.leave(name);
            tracing::info!(cluster = name, "a cluster has left");
        }
    }
}

fn kubeconfig_in(secret: &Object, field: &str) -> Result<String, String> {
    #[derive(serde::Deserialize)]
    struct Secret {
        #[serde(default)]
        data: Option<BTreeMap<String, Value>>,
    }
    let missing = || format!("data.{field}: expected a kubeconfig");
    let Secret { data } = secret.decode().map_err(|error| error.to_string())?;
    let data = data.unwrap_or_default();
    let encoded = data.get(field).ok_or_else(missing)?;
    let decoded: k8s_openapi::ByteString =
        serde_json::from_value(encoded.clone()).map_err(|error| format!("data.{field}: {error}"))?;
    String::from_utf8(decoded.0).map_err(|_| missing())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_names_no_files_and_no_programs() {
        let cluster = "{name: c, cluster: {server: 'https://h:6443'}}";
        let refused = |user: &str, cluster: &str| {
            let text = format!(
                "{{apiVersion: v1, kind: Config, current-context: c, users: [{{name: u, user: {user}}}], clusters: [{cluster}], contexts: [{{name: c, context: {{cluster: c, user: u}}}}]}}"
            );
            check(&Kubeconfig::from_yaml(&text).expect("it is valid")).err()
        };
        assert_eq!(refused("{token: t}", cluster), None);
        assert_eq!(refused("{client-certificate-data: eA==, client-key-data: eA==}", cluster), None);
        for (user, field) in [
            ("{tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token}", "tokenFile"),
            ("{client-certificate: /x, client-key-data: eA==}", "client-certificate"),
            ("{client-key: /x}", "client-key"),
            ("{auth-provider: {name: gcp, config: {cmd-path: /bin/sh}}}", "auth-provider"),
            ("{exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}}", "exec"),
        ] {
            assert!(refused(user, cluster).expect(field).contains(field));
        }
        let with_file = "{name: c, cluster: {server: 'https://h', certificate-authority: /etc/shadow}}";
        assert!(refused("{token: t}", with_file).expect("a file").contains("certificate-authority"));
    }
}
