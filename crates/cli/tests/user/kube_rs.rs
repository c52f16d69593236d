//! kube-rs: typical use from a Rust program.

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, from_value, json};

use crate::binary::Up;

#[derive(Clone, Debug, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Gadget", namespaced, status = "GadgetStatus")]
struct GadgetSpec {
    size: i32,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct GadgetStatus {
    built: bool,
}

pub(crate) async fn config(up: &Up) -> Config {
    let kubeconfig = Kubeconfig::read_from(up.kubeconfig()).expect("it was written");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    config.expect("it is complete")
}

pub(crate) async fn client(up: &Up) -> Client {
    Client::try_from(config(up).await).expect("it can be connected to")
}

fn config_map(value: Value) -> ConfigMap {
    from_value(value).expect("a ConfigMap")
}

#[tokio::test]
async fn a_rust_program_creates_watches_patches_applies_and_deletes() {
    let up = Up::start(&["--nodes", "0"]);
    let maps: Api<ConfigMap> = Api::namespaced(client(&up).await, "default");
    let listed = maps.list(&ListParams::default().labels("app=web")).await.expect("it lists");
    let version = listed.metadata.resource_version.expect("a list has a version");
    let web = config_map(json!({"metadata": {"name": "web", "labels": {"app": "web"}}, "data": {"a": "1"}}));
    maps.create(&PostParams::default(), &web).await.expect("it creates");
    let merge = Patch::Merge(json!({"data": {"a": "2"}}));
    let patched = maps.patch("web", &PatchParams::default(), &merge).await.expect("it patches");
    assert_eq!(patched.data.as_ref().map(|data| &*data["a"]), Some("2"));
    let applied = Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "3"}}));
    maps.patch("web", &PatchParams::apply("me"), &applied).await.expect("it applies");
    let conflicting = Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "4"}}));
    let refused = maps.patch("web", &PatchParams::apply("me"), &conflicting).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 409));
    maps.delete("web", &DeleteParams::default()).await.expect("it deletes");

    let mut seen = Vec::new();
    let watching = WatchParams::default().labels("app=web").timeout(30);
    let mut events = Box::pin(maps.watch(&watching, &version).await.expect("it watches"));
    while seen.len() < 4 {
        match events.try_next().await.expect("events can be read").expect("the watch goes on") {
            WatchEvent::Added(_) => seen.push("added"),
            WatchEvent::Modified(_) => seen.push("modified"),
            WatchEvent::Deleted(_) => seen.push("deleted"),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => panic!("{status:?}"),
        }
    }
    assert_eq!(seen, ["added", "modified", "modified", "deleted"]);
}

#[tokio::test]
async fn a_derived_custom_resource_is_served() {
    let up = Up::start(&["--nodes", "0"]);
    let client = client(&up).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &Gadget::crd()).await.expect("it is accepted");
    up.kubectl(&["wait", "--for=condition=Established", "crd/gadgets.example.com", "--timeout=30s"]);
    let gadgets: Api<Gadget> = Api::namespaced(client, "default");
    gadgets
        .create(&PostParams::default(), &Gadget::new("g", GadgetSpec { size: 1 }))
        .await
        .expect("it creates");
    let status = Patch::Merge(json!({"status": {"built": true}, "spec": {"size": 9}}));
    let built = gadgets.patch_status("g", &PatchParams::default(), &status).await.expect("it patches");
    assert!(built.status.is_some_and(|status| status.built));
    assert_eq!(built.spec.size, 1, "the spec is not the status endpoint's to change");
    let applied =
        Patch::Apply(json!({"apiVersion": "example.com/v1", "kind": "Gadget", "spec": {"size": 2}}));
    let params = PatchParams::apply("me").force();
    let applied = gadgets.patch("g", &params, &applied).await.expect("it applies");
    assert_eq!(applied.spec.size, 2);
    let listed = gadgets.list(&ListParams::default()).await.expect("it lists");
    let version = listed.metadata.resource_version.expect("a list has a version");
    gadgets.delete("g", &DeleteParams::default()).await.expect("it deletes");
    let mut events =
        Box::pin(gadgets.watch(&WatchParams::default().timeout(30), &version).await.expect("it watches"));
    let gone = events.try_next().await.expect("events can be read");
    assert!(matches!(gone, Some(WatchEvent::Deleted(gadget)) if gadget.spec.size == 2));
}
