//! Root CA publisher: publishes the CA certificate of the API server in every namespace.
//!
//! Owns: the ConfigMap `kube-root-ca.crt` of each namespace.
//! Watches: Namespaces, ConfigMaps.
//! Writes: creates and updates that ConfigMap.
//! Metrics: `root_ca_cert_publisher_*`.
//!
//! Invariants:
//! - the ConfigMap contains the certificate and nothing else;
//! - nothing is written if nothing changes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use setpoint::client::Subresource;
use setpoint::metrics::Metrics;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, Clock, Context, Event, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Runnable,
    UpdateBody,
};

use crate::metrics::SYNC_SECONDS;
use crate::namespace::view::Namespace;
use crate::registry::{Access, Entry, Options};
use crate::wiring;

pub(crate) const ENTRY: Entry = Entry {
    name: "root-ca-certificate-publisher-controller",
    aliases: &["root-ca-cert-publisher"],
    on_by_default: true,
    gates: &[],
    summary: "publishes the API server's CA certificate in every namespace",
    watches: &[Access::watch("", "namespaces"), Access::watch("", "configmaps")],
    writes: &[Access::to("", "configmaps", &["create", "update"])],
    default_workers: 1,
    build,
};

/// How soon to check a created ConfigMap again: if it is deleted before the cache has shown it, no event reports that.
const RECHECK_AFTER: Duration = Duration::from_secs(60);

const NAME: &str = "kube-root-ca.crt";
const FIELD: &str = "ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const DESCRIBED: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                         endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                         guaranteed across distributions of Kubernetes clusters.";

#[derive(Deserialize, Default)]
#[serde(default)]
struct ConfigMap {
    metadata: Annotated,
    data: Option<BTreeMap<String, String>>,
}

setpoint::view!(ConfigMap of k8s_openapi::api::core::v1::ConfigMap);

#[derive(Deserialize, Default)]
#[serde(default)]
struct Annotated {
    annotations: Option<BTreeMap<String, String>>,
}

struct Publisher {
    client: Client,
    clock: Clock,
    metrics: Metrics,
    kind: Kind,
    config_maps: Lister<ConfigMap>,
    certificate: String,
}

/// Without a certificate there is nothing to publish.
fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let Some(certificate) = options.root_ca.clone() else { return Vec::new() };
    let namespaces = context.informers.of::<Namespace>();
    let config_maps = context.informers.of::<ConfigMap>();
    let queue = wiring::queue(context, "root_ca_cert_publisher");
    let changed = queue.clone();
    namespaces.add_handler(move |event: &Event| match event {
        Event::Deleted { .. } => {}
        event => changed.add(event.object().key().clone()),
    });
    let touched = queue.clone();
    config_maps.add_handler(move |event: &Event| match event {
        Event::Added { .. } => {}
        event => {
            let key = event.object().key();
            if let (Some(namespace), NAME) = (key.namespace(), key.name()) {
                touched.add(Key::cluster(namespace));
            }
        }
    });
    let publisher = Publisher {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        metrics: context.metrics.clone(),
        kind: Kind::of::<ConfigMap>(),
        config_maps: config_maps.lister(),
        certificate,
    };
    let controller = wiring::controller(&ENTRY, options, queue, publisher, [&namespaces, &config_maps]);
    vec![Box::new(controller)]
}

impl Reconciler for Publisher {
    type Key = Key;

    /// The key is that of a namespace.
    async fn reconcile(&self, namespace: &Key) -> Result<Outcome, ReconcileError> {
        let began = self.clock.instant();
        let published = self.publish(namespace).await;
        let code = published.as_ref().err().map_or(200, |error| error.code().unwrap_or(500));
        self.count(code, self.clock.instant().saturating_duration_since(began));
        published
    }
}

impl Publisher {
    fn count(&self, code: u16, took: Duration) {
        let help = "Number of namespace syncs happened in root ca cert publisher.";
        let code = code.to_string();
        let labels = [("code", &*code)];
        self.metrics.count("root_ca_cert_publisher_sync", help, &labels, 1);
        let name = "root_ca_cert_publisher_sync_duration_seconds";
        self.metrics.observe(name, help, SYNC_SECONDS, &labels, took.as_secs_f64());
    }

    async fn publish(&self, namespace: &Key) -> Result<Outcome, ReconcileError> {
        let key = Key::namespaced(namespace.name(), NAME);
        match self.config_maps.get(&key)? {
            None if self.create(&key).await? => return Ok(Outcome::CheckAfter(RECHECK_AFTER)),
            Some(published) if !self.is_up_to_date(&published) => self.correct(&published).await?,
            _ => {}
        }
        Ok(Outcome::Settled)
    }

    fn data(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(FIELD.to_owned(), self.certificate.clone())])
    }

    fn is_up_to_date(&self, published: &ConfigMap) -> bool {
        let annotations = published.metadata.annotations.as_ref();
        let described = annotations.and_then(|annotations| annotations.get(DESCRIPTION));
        published.data.as_ref() == Some(&self.data())
            && described.is_some_and(|description| !description.is_empty())
    }

    /// Creates the ConfigMap. Returns `false` if the namespace is gone or terminating.
    async fn create(&self, key: &Key) -> Result<bool, ReconcileError> {
        let annotations = json!({DESCRIPTION: DESCRIBED});
        let metadata = json!({"name": key.name(), "namespace": key.namespace(), "annotations": annotations});
        let body =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": self.data()});
        match self.client.create(&self.kind, key.namespace(), &body).await {
            // The namespace is gone or terminating.
            Err(error) if error.is_not_found() || error.has_cause("NamespaceTerminating") => Ok(false),
            created => created.map(|_| true).attempting(format!("create config map {key}")),
        }
    }

    async fn correct(&self, published: &Cached<ConfigMap>) -> Result<(), ReconcileError> {
        let body = UpdateBody::of(published.object())
            .set(&["data"], &self.data())
            .set(&["metadata", "annotations", DESCRIPTION], &DESCRIBED);
        let updated = self.client.update(&self.kind, published.key(), Subresource::None, &body).await;
        updated.map(drop).attempting(format!("update config map {}", published.key()))
    }
}
