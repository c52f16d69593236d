//! ClusterTrustBundle publishing: publishes the CA of the API server's serving certificates for pods to trust.
//!
//! Owns: the ClusterTrustBundles of the signer `kubernetes.io/kube-apiserver-serving`.
//! Watches: ClusterTrustBundles.
//! Writes: creates, updates and deletes the signer's bundles.
//! Metrics: `clustertrustbundle_publisher_*`.
//!
//! Invariants:
//! - the signer has one bundle, named after its content;
//! - other bundles of the signer are deleted, but not before the correct one exists.

use serde::Deserialize;
use serde_json::json;
use setpoint::client::{DeleteOptions, Optional, Subresource};
use setpoint::metrics::Metrics;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, Clock, Context, Event, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Runnable,
    UpdateBody,
};
use sha2::{Digest, Sha256};

use super::GROUP;
use crate::metrics::SYNC_SECONDS;
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;

pub(crate) const ENTRY: Entry = Entry {
    name: "kube-apiserver-serving-clustertrustbundle-publisher-controller",
    aliases: &[],
    on_by_default: true,
    gates: &["ClusterTrustBundle"],
    summary: "publishes the CA of the API server's serving certificates as a ClusterTrustBundle",
    watches: &[Access::to(GROUP, "clustertrustbundles", &["list", "watch"])],
    writes: &[Access::to(GROUP, "clustertrustbundles", &["create", "delete", "update"]), EVENTS],
    default_workers: 1,
    build,
};

const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Bundle {
    spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    signer_name: String,
    trust_bundle: String,
}

setpoint::view!(Bundle of k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle);

struct Publisher {
    client: Client,
    clock: Clock,
    metrics: Metrics,
    bundles: Lister<Bundle>,
    authority: String,
}

/// Without a CA there is nothing to publish.
fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let Some(authority) = options.root_ca.clone() else { return Vec::new() };
    let bundles = context.informers.of::<Bundle>();
    let queue = wiring::queue(context, "ca_cert_publisher_cluster_trust_bundles");
    let wanted = Key::cluster(name_of(&authority));
    queue.add(wanted.clone());
    let changed = queue.clone();
    bundles.add_handler(move |event: &Event| {
        let ours = |bundle: &setpoint::Object| {
            bundle.view::<Bundle>().is_ok_and(|bundle| bundle.spec.signer_name == SIGNER)
        };
        if event.states().any(ours) {
            changed.add(wanted.clone());
        }
    });
    let publisher = Publisher {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        metrics: context.metrics.clone(),
        bundles: bundles.lister(),
        authority,
    };
    vec![Box::new(wiring::part(ENTRY.name, queue, publisher, [&bundles]))]
}

/// Returns the bundle name: the signer and a prefix of the content's digest.
fn name_of(authority: &str) -> String {
    let digest = Sha256::digest(authority);
    let hex: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("{}:{hex}", SIGNER.replace('/', ":"))
}

impl Reconciler for Publisher {
    type Key = Key;

    /// The key is that of the correct bundle.
    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let start = self.clock.instant();
        let published = self.publish(key).await;
        let code = published.as_ref().map_or_else(|error| error.code().unwrap_or(500), |()| 200);
        let (code, took) = (code.to_string(), self.clock.instant() - start);
        let labels = [("code", code.as_str())];
        let help = "Number of syncs that occurred in cluster trust bundle publisher.";
        self.metrics.count("clustertrustbundle_publisher_sync", help, &labels, 1);
        let (name, help) = (
            "clustertrustbundle_publisher_sync_duration_seconds",
            "The time it took to sync a cluster trust bundle.",
        );
        self.metrics.observe(name, help, SYNC_SECONDS, &labels, took.as_secs_f64());
        published.map(|()| Outcome::Settled)
    }
}

impl Publisher {
    async fn publish(&self, key: &Key) -> Result<(), ReconcileError> {
        match self.bundles.get(key)? {
            None => self.create(key).await?,
            Some(bundle) if bundle.spec.trust_bundle != self.authority => self.correct(&bundle).await?,
            Some(_) => {}
        }
        for other in self.bundles.list(None)? {
            if other.spec.signer_name == SIGNER && other.key() != key {
                self.remove(&other).await?;
            }
        }
        Ok(())
    }

    async fn create(&self, key: &Key) -> Result<(), ReconcileError> {
        let kind = Kind::of::<Bundle>();
        let body = json!({
            "apiVersion": kind.api_version(),
            "kind": kind.kind(),
            "metadata": {"name": key.name()},
            "spec": {"signerName": SIGNER, "trustBundle": self.authority},
        });
        match self.client.create(&kind, None, &body).await {
            // Created earlier, but not in the cache yet.
            Err(error) if error.is_already_exists() => Ok(()),
            created => created.map(drop).attempting(format!("create trust bundle {key}")),
        }
    }

    async fn correct(&self, bundle: &Cached<Bundle>) -> Result<(), ReconcileError> {
        let body = UpdateBody::of(bundle.object()).set(&["spec", "trustBundle"], &self.authority);
        let updated = self.client.update(&Kind::of::<Bundle>(), bundle.key(), Subresource::None, &body).await;
        updated.map(drop).attempting(format!("correct trust bundle {}", bundle.key()))
    }

    async fn remove(&self, bundle: &Cached<Bundle>) -> Result<(), ReconcileError> {
        let delete = DeleteOptions::of_uid(bundle.meta().uid.to_string());
        let deleted = self.client.delete(&Kind::of::<Bundle>(), bundle.key(), &delete).await.optional();
        deleted.map(drop).attempting(format!("remove trust bundle {}", bundle.key()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_named_after_its_signer_and_its_content() {
        let name = name_of("abc");
        assert_eq!(name, "kubernetes.io:kube-apiserver-serving:ba7816bf8f01cfea414140de");
    }
}
