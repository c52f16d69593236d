//! The ConfigMaps, Secrets and tokens that a pod's containers use, read with the permissions of its node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Container, Secret, ServiceAccountTokenProjection, Volume};
use serde_json::{Value, json};
use setpoint::{Client, ClientError, Key, Kind};

use super::pod::Pod;

/// The keys and values of a ConfigMap or Secret.
pub(crate) type Data = BTreeMap<String, Arc<Vec<u8>>>;

/// The objects read for a pod. `None` for missing ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    config_maps: BTreeMap<String, Option<Data>>,
    secrets: BTreeMap<String, Option<Data>>,
}

/// The names of the objects that a pod refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct References {
    config_maps: BTreeSet<String>,
    secrets: BTreeSet<String>,
}

impl References {
    /// From the volumes of a pod and the variables of its containers.
    pub(crate) fn of(pod: &Pod) -> Self {
        let mut references = Self::default();
        pod.all_containers().for_each(|container| references.add_container(container));
        pod.spec.volumes.iter().for_each(|volume| references.add_volume(volume));
        references
    }

    pub(crate) fn are_none(&self) -> bool {
        self.config_maps.is_empty() && self.secrets.is_empty()
    }

    fn add_container(&mut self, container: &Container) {
        for from in container.env_from.iter().flatten() {
            self.config_maps.extend(from.config_map_ref.as_ref().map(|map| map.name.clone()));
            self.secrets.extend(from.secret_ref.as_ref().map(|secret| secret.name.clone()));
        }
        for from in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
            self.config_maps.extend(from.config_map_key_ref.as_ref().map(|map| map.name.clone()));
            self.secrets.extend(from.secret_key_ref.as_ref().map(|secret| secret.name.clone()));
        }
    }

    fn add_volume(&mut self, volume: &Volume) {
        self.config_maps.extend(volume.config_map.as_ref().map(|map| map.name.clone()));
        self.secrets.extend(volume.secret.as_ref().and_then(|secret| secret.secret_name.clone()));
        let projected = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
        for source in projected {
            self.config_maps.extend(source.config_map.as_ref().map(|map| map.name.clone()));
            self.secrets.extend(source.secret.as_ref().map(|secret| secret.name.clone()));
        }
    }
}

impl Sources {
    /// Reads the objects that a pod refers to.
    pub(crate) async fn read(
        client: &Client,
        namespace: &str,
        references: &References,
    ) -> Result<Self, ClientError> {
        let (mut sources, mut left) = (Self::default(), MAX_BYTES);
        for name in &references.config_maps {
            let found = found(client, &Kind::of::<ConfigMap>(), namespace, name).await?;
            let data = found.map(data_of_config_map).filter(|data| fits(data, &mut left));
            sources.config_maps.insert(name.clone(), data);
        }
        for name in &references.secrets {
            let found = found(client, &Kind::of::<Secret>(), namespace, name).await?;
            let data = found.map(data_of_secret).filter(|data| fits(data, &mut left));
            sources.secrets.insert(name.clone(), data);
        }
        Ok(sources)
    }

    /// Returns the data of a ConfigMap. `None` if it may be missing and is.
    pub(crate) fn config_map(&self, name: &str, is_optional: bool) -> Result<Option<&Data>, String> {
        one(&self.config_maps, "configmap", name, is_optional)
    }

    pub(crate) fn secret(&self, name: &str, is_optional: bool) -> Result<Option<&Data>, String> {
        one(&self.secrets, "secret", name, is_optional)
    }

    #[cfg(test)]
    pub(crate) fn fixed(
        config_maps: &[(&str, &[(&str, &str)])],
        secrets: &[(&str, &[(&str, &str)])],
    ) -> Self {
        let data = |pairs: &[(&str, &str)]| {
            Some(
                pairs
                    .iter()
                    .map(|(key, value)| ((*key).to_owned(), Arc::new(value.as_bytes().to_vec())))
                    .collect(),
            )
        };
        let all = |objects: &[(&str, &[(&str, &str)])]| {
            objects.iter().map(|(name, pairs)| ((*name).to_owned(), data(pairs))).collect()
        };
        Self { config_maps: all(config_maps), secrets: all(secrets) }
    }
}

/// The maximum size of the objects read for a pod: that of its files. Objects that do not fit count as missing.
const MAX_BYTES: usize = 32 << 20;

/// Subtracts the size of an object from the remaining budget.
fn fits(data: &Data, left: &mut usize) -> bool {
    let bytes: usize = data.iter().map(|(key, value)| key.len() + value.len()).sum();
    let rest = left.checked_sub(bytes);
    *left = rest.unwrap_or(*left);
    rest.is_some()
}

fn one<'s>(
    objects: &'s BTreeMap<String, Option<Data>>,
    kind: &str,
    name: &str,
    is_optional: bool,
) -> Result<Option<&'s Data>, String> {
    match objects.get(name).and_then(Option::as_ref) {
        None if !is_optional => Err(format!("{kind} {name:?} not found")),
        found => Ok(found),
    }
}

async fn found<T: serde::de::DeserializeOwned>(
    client: &Client,
    kind: &Kind,
    namespace: &str,
    name: &str,
) -> Result<Option<T>, ClientError> {
    match client.get(kind, &Key::namespaced(namespace, name)).await {
        Err(error) if error.is_not_found() => Ok(None),
        // What the API server serves decodes, unless it is newer than these types.
        read => Ok(read?.decode().ok()),
    }
}

fn data_of_config_map(map: ConfigMap) -> Data {
    let text = map.data.into_iter().flatten().map(|(key, value)| (key, Arc::new(value.into_bytes())));
    let binary = map.binary_data.into_iter().flatten().map(|(key, value)| (key, Arc::new(value.0)));
    text.chain(binary).collect()
}

fn data_of_secret(secret: Secret) -> Data {
    secret.data.into_iter().flatten().map(|(key, value)| (key, Arc::new(value.0))).collect()
}

/// A token of a pod's service account.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    text: String,
    /// When it is replaced: a kubelet does that after 80% of its lifetime.
    renewed_at: Timestamp,
}

/// The tokens of a pod, by audience and lifetime. There are as many as projections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens(BTreeMap<(String, i64), Token>);

fn token_key(projection: &ServiceAccountTokenProjection) -> (String, i64) {
    (projection.audience.clone().unwrap_or_default(), projection.expiration_seconds.unwrap_or(3600))
}

impl Tokens {
    pub(crate) fn get(&self, projection: &ServiceAccountTokenProjection) -> Option<&str> {
        self.0.get(&token_key(projection)).map(|token| token.text.as_str())
    }

    /// Requests the tokens that are missing or due. A server that issues none leaves the files out.
    pub(crate) async fn renew(&mut self, client: &Client, pod: &Pod, now: Timestamp) {
        let projected = pod.spec.volumes.iter().filter_map(|volume| volume.projected.as_ref());
        let sources = projected.flat_map(|projected| projected.sources.iter().flatten());
        for projection in sources.filter_map(|source| source.service_account_token.as_ref()) {
            let key = token_key(projection);
            if self.0.get(&key).is_some_and(|token| token.renewed_at > now) {
                continue;
            }
            match request_token(client, pod, &key).await {
                Some(text) => {
                    let renewed_at = now + SignedDuration::from_secs(key.1.clamp(0, 86400) / 5 * 4);
                    self.0.insert(key, Token { text, renewed_at });
                }
                None => _ = self.0.remove(&key),
            }
        }
    }
}

async fn request_token(client: &Client, pod: &Pod, (audience, seconds): &(String, i64)) -> Option<String> {
    let account = match pod.spec.service_account_name.as_str() {
        "" => "default",
        name => name,
    };
    let path = format!("/api/v1/namespaces/{}/serviceaccounts/{account}/token", pod.metadata.namespace);
    let bound =
        json!({"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid});
    let mut spec = json!({"expirationSeconds": seconds, "boundObjectRef": bound});
    if !audience.is_empty() {
        spec["audiences"] = json!([audience]);
    }
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes()).ok()?;
    match client.kube().request::<Value>(request).await {
        Ok(response) => response["status"]["token"].as_str().map(str::to_owned),
        Err(error) => {
            tracing::debug!(pod = pod.metadata.name, %error, "no token for the simulated pod");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::pod::pod_of;

    #[test]
    fn a_pod_refers_to_what_its_volumes_and_variables_name() {
        let pod = pod_of(json!({"spec": {
            "volumes": [
                {"name": "a", "configMap": {"name": "m1"}},
                {"name": "b", "secret": {"secretName": "s1"}},
                {"name": "c", "projected": {"sources": [{"configMap": {"name": "m2"}}, {"secret": {"name": "s2"}}]}},
                {"name": "d", "emptyDir": {}},
            ],
            "initContainers": [{"name": "i", "envFrom": [{"configMapRef": {"name": "m3"}}, {"secretRef": {"name": "s3"}}]}],
            "containers": [{"name": "c", "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m4", "key": "k"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s4", "key": "k"}}}]}],
        }}));
        let references = References::of(&pod);
        let names = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!(names(&references.config_maps), "m1 m2 m3 m4");
        assert_eq!(names(&references.secrets), "s1 s2 s3 s4");
        assert!(References::of(&pod_of(json!({}))).are_none());
    }
}
