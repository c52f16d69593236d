//! Certificate signing requests: approval, signing and cleanup.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::json;
use setpoint::Key;
use setpoint::client::Subresource;
use setpoint_cluster::Components;
use setpoint_controllers::{CertificateAuthority, Options, Signers};
use setpoint_sim::World;

use super::scenarios::{create, kind, parts, patch, survives_with, until};

/// Generated for these tests and used nowhere else. Ed25519, so that the same text has the same signature.
const CA_KEY: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIDPUPliRcNdIq7Y5rOHImbqL3UnpZpxpOwmm9kLzIA9K
-----END PRIVATE KEY-----\n";
pub(crate) const CA: &str = "-----BEGIN CERTIFICATE-----
MIIBOjCB7aADAgECAhRmQ68LtyGs2WdExxdcTrip2IHLsDAFBgMrZXAwEjEQMA4G
A1UEAwwHdGVzdC1jYTAgFw0yNjExMTUxNzMzMjBaGA8yMTI2MTAyMjE3MzMyMFow
EjEQMA4GA1UEAwwHdGVzdC1jYTAqMAUGAytlcAMhAA58q4VCXkb1saZPevJH7iZ+
3uyTckMGBx1o6HOmHX88o1MwUTAdBgNVHQ4EFgQUUTlvFby4rHHsM6RzeSEDHluT
gvMwHwYDVR0jBBgwFoAUUTlvFby4rHHsM6RzeSEDHluTgvMwDwYDVR0TAQH/BAUw
AwEB/zAFBgMrZXADQQAS4KaOSW49FSy8UbnslRauUIwiQL1sXni8dNkqRpxT0cSk
wgKpXQNi26cJrwWCjd9/aucSG7Cn+OzS0PbrXksE
-----END CERTIFICATE-----\n";
/// For system:node:n, in base64.
const OF_A_NODE: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlHdU1HSUNBUUF3THpFVk1CTUdBMVVFQ2d3TWMzbHpkR1Z0T201dlpHVnpNUll3RkFZRFZRUUREQTF6ZVhOMApaVzA2Ym05a1pUcHVNQ293QlFZREsyVndBeUVBUGVmRVhQOWdZR0ZMU0diZjIrUm1VcDR1NXRXbHBuVUE1alJ0ClYvdFNMRTZnQURBRkJnTXJaWEFEUVFCU2kxaVdZQkphaXYxN3luNnViRzQ5Y0NCb1QwTkNhQkdTTGxxNTd0SmUKc2dGbWcvdVRZUllncDlRWWtXRVF5cWE4djlKenVjNWRxVmF2SklJWGQzY0YKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";
/// For user1, in base64.
const OF_A_USER: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIWk1JR01BZ0VBTUN3eEREQUtCZ05WQkFvTUEyUmxkakVNTUFvR0ExVUVDZ3dEYjNCek1RNHdEQVlEVlFRRApEQVYxYzJWeU1UQXFNQVVHQXl0bGNBTWhBT2lDeGVNOEF3dVowZ1pFUGxBSzk3ekF5cFJOc3JMejZUSDNzYnZVCnpXNXlvQzB3S3dZSktvWklodmNOQVFrT01SNHdIREFhQmdOVkhSRUVFekFSZ2dsaExtVjRZVzF3YkdXSEJBb0EKQUFjd0JRWURLMlZ3QTBFQS8yQnhjZlVNWkduZ3JoajZ5K3NGWWFpbERRSlFXa3ZoRnMzT1pjeW51a2dLUXk3KwpVWE4zQlkxY2NpQlh1SmdVTWhkbWhBT0V4dTBQeW9PNk4rbHVDdz09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";

fn signing(controllers: &[&str]) -> Components {
    let authority = CertificateAuthority::from_pem(CA, CA_KEY).expect("an authority");
    let controller_options = Options { signers: Signers::all(authority), ..Options::default() };
    Components { controller_options, ..parts(controllers) }
}

async fn ask(world: &World, name: &str, signer: &str, request: &str, usages: serde_json::Value) {
    let spec = json!({"request": request, "signerName": signer, "usages": usages});
    create(world, "CertificateSigningRequest", name, json!({"spec": spec})).await;
}

async fn approve(world: &World, name: &str) {
    let approved = json!([{"type": "Approved", "status": "True", "reason": "Test", "message": "m"}]);
    let body = json!({"status": {"conditions": approved}});
    patch(world, "CertificateSigningRequest", name, Subresource::Approval, body).await;
}

/// A kubelet gets its certificate automatically, a user after an approval, and an invalid request gets none.
fn certificates(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let client = json!(["digital signature", "client auth"]);
        ask(world, "kubelet", "kubernetes.io/kube-apiserver-client-kubelet", OF_A_NODE, client.clone()).await;
        ask(world, "user", "kubernetes.io/kube-apiserver-client", OF_A_USER, client.clone()).await;
        ask(world, "wrong", "kubernetes.io/kubelet-serving", OF_A_USER, json!(["server auth"])).await;
        approve(world, "user").await;
        approve(world, "wrong").await;
        for name in ["kubelet", "user"] {
            let issued = |request: &serde_json::Value| request["status"]["certificate"].is_string();
            until(world, "CertificateSigningRequest", name, issued).await;
        }
        until(world, "CertificateSigningRequest", "wrong", |request| {
            request["status"]["conditions"][1]["reason"] == "SignerValidationFailure"
        })
        .await;
    }
    .boxed_local()
}

#[test]
fn certificates_survive_every_crash_and_every_stale_or_hidden_event() {
    survives_with("certificates", signing(&["csrsigning", "csrapproving", "csrcleaner"]), certificates);
}

#[test]
fn an_answered_request_is_deleted_after_an_hour() {
    World::simulate(1, signing(&["csrsigning", "csrapproving", "csrcleaner"]), Vec::new(), async |world| {
        certificates(world).await;
        let (request, key) = (kind("CertificateSigningRequest"), Key::cluster("kubelet"));
        world.pass(Duration::from_secs(3000)).await;
        assert!(world.get(&request, &key).await.is_some());
        // Its hour ends just after the cleaner has run.
        world.pass(Duration::from_secs(3000)).await;
        world.until(&request, &key, |request| request.is_none()).await;
    });
}
