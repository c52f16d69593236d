//! Signs the ConfigMap `cluster-info` with every bootstrap token that is enabled for signing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use setpoint::client::{Optional, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Client, Clock, Context, Event, Key, Kind, Lister, Object, Outcome, ReconcileError, Reconciler, Runnable,
    UpdateBody,
};

use super::jws::detached;
use super::view::{Secret, content};
use super::{NAMESPACE, is_token, is_token_secret};
use crate::registry::{Access, Entry, Options};
use crate::wiring;
use crate::workload::encoding::null_is_empty;

pub(crate) const ENTRY: Entry = Entry {
    name: "bootstrap-signer-controller",
    aliases: &["bootstrapsigner"],
    on_by_default: false,
    gates: &[],
    summary: "signs the cluster-info ConfigMap that joining nodes use to discover the cluster",
    watches: &[Access::watch("", "secrets"), Access::watch("", "configmaps")],
    writes: &[Access::to("", "configmaps", &["update"])],
    default_workers: 1,
    build,
};

const CONFIG_MAP: (&str, &str) = ("kube-public", "cluster-info");
const KUBECONFIG: &str = "kubeconfig";
const SIGNATURE: &str = "jws-kubeconfig-";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ConfigMap {
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) data: BTreeMap<String, String>,
}

setpoint::view!(ConfigMap of k8s_openapi::api::core::v1::ConfigMap);

fn build(context: &Context, _: &Options) -> Vec<Box<dyn Runnable>> {
    let secrets = context.informers.of::<Secret>();
    let config_maps = context.informers.of::<ConfigMap>();
    let queue = wiring::queue(context, "bootstrap_signer_queue");
    let signed = || Key::namespaced(CONFIG_MAP.0, CONFIG_MAP.1);
    let wake = queue.clone();
    secrets.add_handler(move |event: &Event| {
        if is_token(event) {
            wake.add(signed());
        }
    });
    let wake = queue.clone();
    config_maps.add_handler(move |event: &Event| {
        if *event.object().key() == signed() && !matches!(event, Event::Deleted { .. }) {
            wake.add(signed());
        }
    });
    let signer = Signer {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        secrets: secrets.lister(),
        config_maps: config_maps.lister(),
    };
    let controller = wiring::part(ENTRY.name, queue, signer, [&secrets, &config_maps]);
    vec![Box::new(controller)]
}

struct Signer {
    client: Client,
    clock: Clock,
    secrets: Lister<Secret>,
    config_maps: Lister<ConfigMap>,
}

impl Reconciler for Signer {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(config_map) = self.config_maps.get(key)? else { return Ok(Outcome::Settled) };
        let tokens = self.secrets.objects().list(Some(NAMESPACE));
        let tokens: Vec<Object> = tokens.into_iter().filter(is_token_secret).collect();
        let Some(data) = signed(&config_map.data, &tokens, self.clock.now()) else {
            return Ok(Outcome::Settled);
        };
        let edit = UpdateBody::of(config_map.object()).set(&["data"], &data);
        let updated = self.client.update(&Kind::of::<ConfigMap>(), key, Subresource::None, &edit).await;
        updated.optional().attempting(format!("sign config map {key}"))?;
        Ok(Outcome::Settled)
    }
}

/// Returns the data with the signatures of exactly these tokens. `None` if nothing changes or there is nothing to sign.
pub(super) fn signed(
    data: &BTreeMap<String, String>,
    tokens: &[Object],
    now: Timestamp,
) -> Option<BTreeMap<String, String>> {
    let kubeconfig = data.get(KUBECONFIG)?;
    let mut wanted: BTreeMap<String, String> = data
        .iter()
        .filter(|(name, _)| !name.starts_with(SIGNATURE))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    for secret in tokens {
        if let Some(token) = content(secret).signing_token(secret.key().name(), now) {
            wanted.insert(format!("{SIGNATURE}{}", token.id), detached(kubeconfig, &token));
        }
    }
    (wanted != *data).then_some(wanted)
}
