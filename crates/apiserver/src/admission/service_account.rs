//! Assigns each pod a service account of its namespace, and mounts that account's token.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Operation, Plugin, Review};
use crate::json::{Json, JsonMut};
use crate::kinds::pod::references::MIRROR;
use crate::metadata;
use crate::status::Status;

pub struct ServiceAccount;

const DEFAULT: &str = "default";
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_VOLUME: &str = "kube-api-access-";
/// Lifetime of the mounted token: an hour and a few seconds. It is renewed long before it expires, and clients that
/// read it only once still work.
const TOKEN_SECONDS: u64 = 3607;
const ENFORCE_MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";

/// A controller creates the default account of a new namespace, so wait for it.
const DEFAULT_ATTEMPTS: u32 = 10;
const MIN_PAUSE: Duration = Duration::from_millis(100);

impl Plugin for ServiceAccount {
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Create && review.is_for("", "pods")
    }

    async fn mutate(&self, review: &Review<'_>, pod: &mut Value, _: Option<&Value>) -> Result<(), Status> {
        if metadata::of(pod).at("annotations").has(MIRROR) {
            return check_mirror(review, pod);
        }
        let spec = pod.object_mut("spec");
        spec.or_text("serviceAccountName", DEFAULT);
        let name = spec.text("serviceAccountName").to_string();
        // The deprecated alias of the field.
        spec.set("serviceAccount", name.as_str());
        let account = look_up(review, pod, &name).await?;
        if should_mount(&account, pod) {
            mount_token(review, pod);
        }
        take_pull_secrets(&account, pod);
        if enforces_mountable(&account) {
            check_secrets(&account, pod).map_err(|why| review.forbidden(Some(pod), why))?;
        }
        Ok(())
    }
}

fn check_mirror(review: &Review<'_>, pod: &Value) -> Result<(), Status> {
    let spec = pod.at("spec");
    let refuse = |why: &str| Err(review.forbidden(Some(pod), why));
    if !spec.text("serviceAccountName").is_empty() {
        return refuse("a mirror pod may not reference service accounts");
    }
    if !secret_references(spec).is_empty() {
        return refuse("a mirror pod may not reference secrets");
    }
    let mut sources = spec.list("volumes").iter().flat_map(|volume| volume.at("projected").list("sources"));
    if sources.any(|source| source.has("serviceAccountToken")) {
        return refuse("a mirror pod may not use ServiceAccountToken volume projections");
    }
    Ok(())
}

async fn look_up(review: &Review<'_>, pod: &Value, name: &str) -> Result<Value, Status> {
    let server = review.server;
    let namespace = review.namespace.unwrap_or("");
    let attempts = if name == DEFAULT { DEFAULT_ATTEMPTS } else { 1 };
    let registry = server.registry.snapshot();
    let served = registry.resource("", "v1", "serviceaccounts").ok_or_else(Status::no_such_resource)?;
    let key = served.key(review.namespace, name);
    for attempt in 0..attempts {
        if attempt > 0 {
            server.clock.sleep(MIN_PAUSE.mul_f64(1.0 + server.rng.fraction())).await;
            review.check_awaited()?;
        }
        if let Some(record) = server.store.get(&key, None).await.map_err(|why| server.refusal(why))? {
            return served.decode_bare(&record);
        }
    }
    let why =
        format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
    Err(review.forbidden(Some(pod), why))
}

/// Whether to mount the token. The pod's setting takes precedence over the account's; the default is to mount it.
fn should_mount(account: &Value, pod: &Value) -> bool {
    let word = |object: &Value| object.boolean("automountServiceAccountToken");
    word(pod.at("spec")).or_else(|| word(account)).unwrap_or(true)
}

fn mount_token(review: &Review<'_>, pod: &mut Value) {
    let spec = pod.object_mut("spec");
    let existing = spec.list("volumes").iter().map(|volume| volume.text("name"));
    let existing = existing.filter(|name| name.starts_with(TOKEN_VOLUME)).map(ToString::to_string).next();
    let has_volume = existing.is_some();
    let name = existing.unwrap_or_else(|| format!("{TOKEN_VOLUME}{}", review.server.rng.suffix(5)));
    let mut is_mounted = false;
    for containers in ["initContainers", "containers"] {
        for container in spec.list_mut(containers) {
            let taken =
                container.list("volumeMounts").iter().any(|mount| mount.text("mountPath") == TOKEN_PATH);
            if !taken {
                let mount = json!({ "name": name, "readOnly": true, "mountPath": TOKEN_PATH });
                push(container, "volumeMounts", mount);
                is_mounted = true;
            }
        }
    }
    if is_mounted && !has_volume {
        push(spec, "volumes", token_volume(&name));
    }
}

fn push(object: &mut Value, field: &str, element: Value) {
    match object.at_mut(field) {
        Some(Value::Array(list)) => list.push(element),
        _ => object.set(field, vec![element]),
    }
}

fn token_volume(name: &str) -> Value {
    json!({
        "name": name,
        "projected": {
            "defaultMode": 420,
            "sources": [
                { "serviceAccountToken": { "expirationSeconds": TOKEN_SECONDS, "path": "token" } },
                { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                { "downwardAPI": { "items": [{
                    "path": "namespace",
                    "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" },
                }] } },
            ],
        },
    })
}

fn take_pull_secrets(account: &Value, pod: &mut Value) {
    let spec = pod.object_mut("spec");
    let secrets = account.list("imagePullSecrets");
    if spec.list("imagePullSecrets").is_empty() && !secrets.is_empty() {
        let names: Vec<Value> = secrets.iter().map(|secret| json!({ "name": secret.text("name") })).collect();
        spec.set("imagePullSecrets", names);
    }
}

fn enforces_mountable(account: &Value) -> bool {
    let word = metadata::of(account).at("annotations").text(ENFORCE_MOUNTABLE);
    matches!(word, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// Returns the secrets that a pod's volumes and containers refer to, with the wording for where.
fn secret_references(spec: &Value) -> Vec<(String, String)> {
    let mut references = Vec::new();
    for volume in spec.list("volumes") {
        let name = volume.at("secret").text("secretName");
        if volume.has("secret") {
            references.push((name.to_string(), format!("volume with secret.secretName={name:?}")));
        }
    }
    for (containers, word) in [("initContainers", "init container"), ("containers", "container")] {
        for container in spec.list(containers) {
            let who = format!("{word} {}", container.text("name"));
            for variable in container.list("env") {
                let reference = variable.at("valueFrom").at("secretKeyRef");
                if reference.is_object() {
                    let name = reference.text("name");
                    let variable = variable.text("name");
                    let place =
                        format!("{who} with envVar {variable} referencing secret.secretName={name:?}");
                    references.push((name.to_string(), place));
                }
            }
            for source in container.list("envFrom").iter().filter(|source| source.has("secretRef")) {
                let name = source.at("secretRef").text("name");
                let place = format!("{who} with envFrom referencing secret.secretName={name:?}");
                references.push((name.to_string(), place));
            }
        }
    }
    references
}

/// Checks that the account lists every secret that the pod refers to.
fn check_secrets(account: &Value, pod: &Value) -> Result<(), String> {
    let spec = pod.at("spec");
    let who = metadata::of(account).text("name");
    let lists =
        |field: &str, name: &str| account.list(field).iter().any(|secret| secret.text("name") == name);
    for (name, place) in secret_references(spec) {
        if !lists("secrets", &name) {
            return Err(format!(
                "{place} is not allowed because service account {who} does not reference that secret"
            ));
        }
    }
    for (at, secret) in spec.list("imagePullSecrets").iter().enumerate() {
        let name = secret.text("name");
        if !lists("imagePullSecrets", name) {
            return Err(format!(
                "imagePullSecrets[{at}].name={name:?} is not allowed because service account {who} does not \
                 reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}
