//! Objects that every namespace gets.

use serde_json::{Value, json};
use setpoint::client::Part;
use setpoint::client::Propagation::Background;
use setpoint_controllers::{Options, TokenSigner};

use super::land::{land, land_with};

#[test]
fn every_active_namespace_has_a_default_service_account() {
    land(&["serviceaccount"], async |land| {
        land.create("Namespace", "new", json!({})).await;
        land.pass(1).await;
        assert!(land.has("ServiceAccount", "new/default").await);
        assert!(land.has("ServiceAccount", "default").await, "also those from before");
        land.delete("ServiceAccount", "new/default", Background).await;
        land.pass(1).await;
        assert!(land.has("ServiceAccount", "new/default").await);

        land.delete("Namespace", "new", Background).await;
        land.delete("ServiceAccount", "new/default", Background).await;
        land.pass(5).await;
        assert!(!land.has("ServiceAccount", "new/default").await, "it is not active any more");
    });
}

#[test]
fn every_namespace_has_the_root_certificate() {
    let options = Options { root_ca: Some("-----BEGIN CERTIFICATE-----".into()), ..Options::default() };
    land_with(&["root-ca-cert-publisher"], options, async |land| {
        land.create("Namespace", "new", json!({})).await;
        land.pass(1).await;
        let published = land.get("ConfigMap", "new/kube-root-ca.crt").await.expect("it is published");
        assert_eq!(published["data"], json!({"ca.crt": "-----BEGIN CERTIFICATE-----"}));
        let changed = json!({"data": {"more": "x"}, "metadata": {"annotations": {"mine": "y"}}});
        land.patch("ConfigMap", "new/kube-root-ca.crt", Part::Main, changed).await;
        land.pass(1).await;
        let corrected = land.get("ConfigMap", "new/kube-root-ca.crt").await.unwrap();
        assert_eq!(corrected["data"], published["data"]);
        assert_eq!(corrected["metadata"]["annotations"]["mine"], "y");
        land.delete("ConfigMap", "new/kube-root-ca.crt", Background).await;
        land.pass(1).await;
        assert!(land.has("ConfigMap", "new/kube-root-ca.crt").await);
    });
}

fn signer() -> TokenSigner {
    TokenSigner::from_pem(&TokenSigner::generate_key().unwrap()).unwrap()
}

fn token_secret() -> Value {
    let annotations = json!({"kubernetes.io/service-account.name": "robot"});
    json!({"metadata": {"annotations": annotations}, "type": "kubernetes.io/service-account-token"})
}

#[test]
fn a_secret_that_asks_for_a_token_lives_and_dies_with_its_account() {
    let options = Options { root_ca: Some("CA".into()), token_signer: Some(signer()), ..Options::default() };
    land_with(&["serviceaccount-token"], options, async |land| {
        let account = land.create("ServiceAccount", "robot", json!({"secrets": [{"name": "t"}]})).await;
        land.create("Secret", "t", token_secret()).await;
        land.create("Secret", "other", json!({"data": {"k": "dg=="}})).await;
        land.pass(1).await;
        let filled = land.get("Secret", "t").await.unwrap();
        assert_eq!(filled["metadata"]["annotations"]["kubernetes.io/service-account.uid"], json!(account));
        assert_eq!(filled["data"]["ca.crt"], "Q0E=");
        assert_eq!(filled["data"]["namespace"], "ZGVmYXVsdA==");
        assert!(filled["data"]["token"].as_str().unwrap().len() > 100);

        land.patch("Secret", "t", Part::Main, json!({"data": null})).await;
        land.pass(1).await;
        assert!(land.get("Secret", "t").await.unwrap()["data"]["token"].is_string());

        land.delete("Secret", "t", Background).await;
        land.pass(1).await;
        assert!(
            land.get("ServiceAccount", "robot").await.unwrap()["secrets"].is_null(),
            "it is off the list"
        );

        land.create("Secret", "u", token_secret()).await;
        land.pass(1).await;
        land.delete("ServiceAccount", "robot", Background).await;
        land.pass(1).await;
        assert!(!land.has("Secret", "u").await);
        assert!(land.has("Secret", "other").await);
    });
}
