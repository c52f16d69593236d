//! Objects that every namespace gets.

use serde_json::{Value, json};
use setpoint::client::PropagationPolicy::Background;
use setpoint::client::Subresource;
use setpoint_controllers::{Options, TokenSigner};

use super::cluster::{cluster, cluster_with};

#[test]
fn every_active_namespace_has_a_default_service_account() {
    cluster(&["serviceaccount"], async |cluster| {
        cluster.create("Namespace", "new", json!({})).await;
        cluster.pass(1).await;
        assert!(cluster.has("ServiceAccount", "new/default").await);
        assert!(cluster.has("ServiceAccount", "default").await, "also those from before");
        cluster.delete("ServiceAccount", "new/default", Background).await;
        cluster.pass(1).await;
        assert!(cluster.has("ServiceAccount", "new/default").await);

        cluster.delete("Namespace", "new", Background).await;
        cluster.delete("ServiceAccount", "new/default", Background).await;
        cluster.pass(5).await;
        assert!(!cluster.has("ServiceAccount", "new/default").await, "it is not active any more");
    });
}

#[test]
fn every_namespace_has_the_root_certificate() {
    let options = Options { root_ca: Some("-----BEGIN CERTIFICATE-----".into()), ..Options::default() };
    cluster_with(&["root-ca-cert-publisher"], options, async |cluster| {
        cluster.create("Namespace", "new", json!({})).await;
        cluster.pass(1).await;
        let published = cluster.get("ConfigMap", "new/kube-root-ca.crt").await.expect("it is published");
        assert_eq!(published["data"], json!({"ca.crt": "-----BEGIN CERTIFICATE-----"}));
        let changed = json!({"data": {"more": "x"}, "metadata": {"annotations": {"mine": "y"}}});
        cluster.patch("ConfigMap", "new/kube-root-ca.crt", Subresource::None, changed).await;
        cluster.pass(1).await;
        let corrected = cluster.get("ConfigMap", "new/kube-root-ca.crt").await.unwrap();
        assert_eq!(corrected["data"], published["data"]);
        assert_eq!(corrected["metadata"]["annotations"]["mine"], "y");
        cluster.delete("ConfigMap", "new/kube-root-ca.crt", Background).await;
        cluster.pass(1).await;
        assert!(cluster.has("ConfigMap", "new/kube-root-ca.crt").await);
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
fn a_token_secret_is_filled_and_is_deleted_with_its_account() {
    let options = Options { root_ca: Some("CA".into()), token_signer: Some(signer()), ..Options::default() };
    cluster_with(&["serviceaccount-token"], options, async |cluster| {
        let account = cluster.create("ServiceAccount", "robot", json!({"secrets": [{"name": "t"}]})).await;
        cluster.create("Secret", "t", token_secret()).await;
        cluster.create("Secret", "other", json!({"data": {"k": "dg=="}})).await;
        cluster.pass(1).await;
        let filled = cluster.get("Secret", "t").await.unwrap();
        assert_eq!(filled["metadata"]["annotations"]["kubernetes.io/service-account.uid"], json!(account));
        assert_eq!(filled["data"]["ca.crt"], "Q0E=");
        assert_eq!(filled["data"]["namespace"], "ZGVmYXVsdA==");
        assert!(filled["data"]["token"].as_str().unwrap().len() > 100);

        cluster.patch("Secret", "t", Subresource::None, json!({"data": null})).await;
        cluster.pass(1).await;
        assert!(cluster.get("Secret", "t").await.unwrap()["data"]["token"].is_string());

        cluster.delete("Secret", "t", Background).await;
        cluster.pass(1).await;
        assert!(
            cluster.get("ServiceAccount", "robot").await.unwrap()["secrets"].is_null(),
            "it is off the list"
        );

        cluster.create("Secret", "u", token_secret()).await;
        cluster.pass(1).await;
        cluster.delete("ServiceAccount", "robot", Background).await;
        cluster.pass(1).await;
        assert!(!cluster.has("Secret", "u").await);
        assert!(cluster.has("Secret", "other").await);
    });
}
