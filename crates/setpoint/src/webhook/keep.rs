//! Keeps the certificates, the webhook configurations and `spec.conversion` of CRDs up to date. Runs in the leader.

use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::Webhooks;
use super::certificate::{self, Certificates, Material};
use super::configure::Endpoint;
use crate::client::IgnoreErrors;
use crate::reconcile::ErrorContext;
use crate::source::Selection;
use crate::{Cached, Context, Informer, Key, Kind, ReconcileError, Runnable};

/// How often everything is checked. A check reads caches and writes only differences.
const INTERVAL: Duration = Duration::from_secs(10);
const SYNC_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct Keeper {
    context: Context,
    webhooks: Webhooks,
    endpoint: Endpoint,
    certificates: Certificates,
    secret: Option<Informer>,
    /// The objects that refer to the webhooks, each with the informer for just that object.
    configured: Vec<(Kind, String, Informer)>,
}

/// Returns the informer for the Secret with the certificates.
pub(super) fn secret(context: &Context, certificates: &Certificates) -> Option<Informer> {
    let Certificates::Secret(key) = certificates else { return None };
    Some(informer_of(context, &Kind::of::<Secret>(), key))
}

/// Returns the informer for a single object.
fn informer_of(context: &Context, kind: &Kind, key: &Key) -> Informer {
    let selection = Selection {
        namespace: key.namespace().map(str::to_owned),
        fields: Some(format!("metadata.name={}", key.name())),
        ..Selection::default()
    };
    context.informers.select(kind, selection)
}

/// Returns the certificates in the cached Secret, without its other values.
pub(super) fn material(secret: &Informer, key: &Key) -> Option<Material> {
    let found = secret.lister::<Secret>().get(key).ok()??;
    let values = found.data.iter().flatten();
    Some(
        values
            .filter(|(name, _)| certificate::NAMES.contains(&name.as_str()))
            .filter_map(|(name, value)| Some((name.clone(), String::from_utf8(value.0.clone()).ok()?)))
            .collect(),
    )
}

impl Keeper {
    pub(super) fn new(
        context: Context,
        webhooks: Webhooks,
        endpoint: Endpoint,
        certificates: Certificates,
        secret: Option<Informer>,
    ) -> Self {
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let definitions = Kind::of::<CustomResourceDefinition>();
        let conversions = webhooks.conversions(&endpoint, None);
        let conversions = conversions.iter().map(|object| (definitions.clone(), name(object)));
        let configurations = webhooks.configurations(&endpoint, None);
        let configurations = configurations.iter().map(|(kind, object)| (kind.clone(), name(object)));
        let configured = configurations.chain(conversions).map(|(kind, name)| {
            let informer = informer_of(&context, &kind, &Key::cluster(&name));
            (kind, name, informer)
        });
        let configured = configured.collect();
        Self { context, webhooks, endpoint, certificates, secret, configured }
    }

    async fn check(&self) -> Result<(), ReconcileError> {
        let bundle = match (&self.certificates, &self.secret) {
            (Certificates::Secret(key), Some(secret)) => {
                // The first check writes the Secret. A later one configures webhooks with the certificates that the
                // cache then shows.
                self.renew(secret, key).await?;
                let Some(bundle) = material(secret, key).as_ref().and_then(certificate::bundle) else {
                    return Ok(());
                };
                Some(bundle)
            }
            (Certificates::Files(directory), _) => {
                let read = certificate::read(directory).map_err(|error| ReconcileError::Retry {
                    attempted: "read the CA bundle of webhooks".into(),
                    source: Some(Box::new(error)),
                });
                read?.remove("ca.crt")
            }
            (Certificates::Secret(_), None) => return Ok(()),
        };
        self.configure(bundle.as_deref()).await
    }

    /// Creates or updates the Secret, if its certificates have to change.
    async fn renew(&self, secret: &Informer, key: &Key) -> Result<(), ReconcileError> {
        synced(secret).await?;
        let found = secret.lister::<Secret>().get(key)?;
        let current = material(secret, key).unwrap_or_default();
        if certificate::is_of_others(&current) {
            let why = "it has certificates without the key of their CA, so others manage it";
            return Err(ReconcileError::terminal(format!("renew the certificates in Secret {key}: {why}")));
        }
        let renewed = certificate::renewed(&current, &self.endpoint.host(), self.context.now());
        let renewed = renewed.map_err(|error| ReconcileError::Retry {
            attempted: format!("create a certificate for Secret {key}"),
            source: Some(Box::new(error)),
        })?;
        let Some(material) = renewed else { return Ok(()) };
        let data = material.into_iter().map(|(name, text)| (name, ByteString(text.into_bytes()))).collect();
        self.write(key, found, data).await.attempting(|| format!("write the certificates to Secret {key}"))
    }

    async fn write(
        &self,
        key: &Key,
        found: Option<Cached<Secret>>,
        data: std::collections::BTreeMap<String, ByteString>,
    ) -> Result<(), crate::ClientError> {
        let api = &self.context.api;
        match found {
            Some(found) => {
                let mut all = found.data.clone().unwrap_or_default();
                all.retain(|name, _| !certificate::NAMES.contains(&name.as_str()));
                all.extend(data);
                let secret = Secret { data: Some(all), ..Secret::clone(&found) };
                api.update(&secret).await.ignore_conflict()
            }
            None => {
                let type_ = Some("kubernetes.io/tls".to_owned());
                let secret =
                    Secret { metadata: key.metadata(), data: Some(data), type_, ..Secret::default() };
                api.create(&secret).await.ignore_already_exists()
            }
        }
    }

    /// Applies the webhook configurations, and the conversion of CRDs that exist.
    async fn configure(&self, bundle: Option<&str>) -> Result<(), ReconcileError> {
        let definitions = Kind::of::<CustomResourceDefinition>();
        let conversions = self.webhooks.conversions(&self.endpoint, bundle);
        let conversions = conversions.into_iter().map(|object| (definitions.clone(), object));
        let configurations = self.webhooks.configurations(&self.endpoint, bundle);
        // A failure does not prevent the others from being configured.
        let mut result = Ok(());
        for (kind, object) in configurations.into_iter().chain(conversions) {
            result = result.and(self.ensure(&kind, &object).await);
        }
        result
    }

    async fn ensure(&self, kind: &Kind, object: &Value) -> Result<(), ReconcileError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let known = self.configured.iter().find(|(known, of, _)| known == kind && of == name);
        let Some((_, _, informer)) = known else { return Ok(()) };
        synced(informer).await?;
        let observed = informer.objects().get(&Key::cluster(name));
        if observed.is_none() && *kind == Kind::of::<CustomResourceDefinition>() {
            tracing::info!(name, "the CRD does not exist yet, so its conversion is not configured");
            return Ok(());
        }
        let api = self.context.api.of_kind(kind);
        let applied = api.apply_unless(object, |_| observed).await;
        applied.map(drop).attempting(|| format!("configure the webhooks of {} {name}", kind.kind()))
    }
}

/// Waits for a cache to sync. Fails if it cannot be listed, so that the other objects are still checked.
async fn synced(informer: &Informer) -> Result<(), ReconcileError> {
    let synced = tokio::time::timeout(SYNC_TIMEOUT, informer.wait_for_sync()).await;
    let attempted = || format!("list {}", informer.kind().plural());
    synced.map(drop).map_err(|_| ReconcileError::retry(attempted()))
}

impl Runnable for Keeper {
    fn name(&self) -> &str {
        "webhook-configuration"
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let checking = async {
                loop {
                    if let Err(error) = self.check().await {
                        tracing::warn!(error = error.report(), "cannot configure webhooks, retrying");
                    }
                    self.context.runtime.clock.sleep(INTERVAL).await;
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = checking => {}
            }
        })
    }
}
