//! Properties are checked when an Application is written.

use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint_oam::admission::{self, Admission};
use setpoint_sim::TestCluster;

use super::*;

/// Runs a test in a cluster with the webhook.
fn with_webhook(test: impl AsyncFnOnce(&Running, &Admission)) {
    let webhook: Arc<OnceLock<Admission>> = Arc::default();
    let (built, called) = (webhook.clone(), webhook.clone());
    let build = move |context: &setpoint::Context| {
        _ = built.set(Admission::new(context));
        setpoint_oam::applications(context)
    };
    let answer = move |review: Value| called.get().map(|webhook| webhook.review(&review)).unwrap_or_default();
    let cluster = TestCluster::new().with(build).webhook(admission::HOST, admission::PATH, answer);
    cluster.run(async |cluster| {
        install(cluster).await;
        let place = json!({"url": format!("https://{}{}", admission::HOST, admission::PATH)});
        admission::register(&cluster.client(), &place).await.expect("the webhook is registered");
        let webhook = webhook.get().expect("the manager was built");
        while !webhook.is_ready() {
            cluster.clock().sleep(std::time::Duration::from_millis(10)).await;
        }
        // The definitions are in the caches once the last of them is.
        cluster.clock().sleep(std::time::Duration::from_secs(1)).await;
        test(cluster, webhook).await;
    });
}

fn front(properties: Value) -> Value {
    json!({"components": [{"name": "front", "type": "webservice", "properties": properties,
        "traits": [{"type": "scaler", "properties": {"replicas": 2}}]}]})
}

#[test]
fn properties_of_the_wrong_type_are_refused() {
    with_webhook(async |cluster, _| {
        let create = async |spec: Value| {
            let app = application("shop", spec);
            cluster.client().create(&applications(), Some("default"), &app).await
        };
        let wrong = create(front(json!({"image": 3}))).await.unwrap_err().to_string();
        assert!(wrong.contains("spec.components[0].properties.image"), "{wrong}");
        let missing = create(front(json!({}))).await.unwrap_err().to_string();
        assert!(missing.contains("image"), "{missing}");
        let mut spec = front(json!({"image": "nginx"}));
        spec["components"][0]["traits"][0]["properties"]["replicas"] = "many".into();
        let of_trait = create(spec).await.unwrap_err().to_string();
        assert!(of_trait.contains("spec.components[0].traits[0].properties.replicas"), "{of_trait}");
        create(front(json!({"image": "nginx"}))).await.expect("it is right");
    });
}

#[test]
fn what_inputs_and_overrides_supply_may_be_missing() {
    with_webhook(async |cluster, _| {
        let mut spec = front(json!({}));
        spec["policies"] = json!([{"name": "o", "type": "override", "properties": {"components": [
            {"name": "front", "properties": {"image": "nginx"}}]}}]);
        create_app(cluster, "overridden", spec).await;
        let mut spec = front(json!({}));
        spec["components"][0]["inputs"] = json!([{"from": "chosen", "parameterKey": "image"}]);
        create_app(cluster, "supplied", spec).await;
    });
}

#[test]
fn unknown_properties_and_types_are_no_reason_to_refuse() {
    with_webhook(async |cluster, webhook| {
        let spec = front(json!({"image": "nginx", "imag": "typo"}));
        let review = json!({"request": {"uid": "1", "operation": "CREATE", "namespace": "default",
            "object": application("shop", spec.clone())}});
        let response = webhook.review(&review)["response"].clone();
        assert_eq!(response["warnings"], json!(["unknown property spec.components[0].properties.imag"]));
        assert_eq!(response["allowed"], true);
        create_app(cluster, "shop", spec).await;
        create_app(cluster, "later", json!({"components": [{"name": "x", "type": "unheard"}]})).await;
    });
}

#[test]
fn deletions_and_other_changes_are_never_refused() {
    with_webhook(async |cluster, _| {
        create_app(cluster, "shop", front(json!({"image": "nginx"}))).await;
        // The definition changes so that the application no longer fits.
        let kind = setpoint::Kind::new(
            "core.oam.dev",
            "v1beta1",
            "ComponentDefinition",
            "componentdefinitions",
            true,
        );
        let key = setpoint::Key::namespaced("vela-system", "webservice");
        let other = json!({"spec": {"schematic": {"cue": {"template": "parameter: image: int"}}}});
        cluster.client().patch(&kind, &key, Subresource::None, Patch::merge(&other)).await.unwrap();
        cluster.clock().sleep(std::time::Duration::from_secs(1)).await;
        patch(cluster, &applications(), "shop", json!({"metadata": {"labels": {"a": "b"}}})).await;
        cluster
            .client()
            .delete(&applications(), &super::key("shop"), &DeleteOptions::default())
            .await
            .unwrap();
        gone(cluster, &applications(), "shop").await;
    });
}
