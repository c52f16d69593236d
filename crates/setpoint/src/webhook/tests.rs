//! Tests of reviews, and of a server over TLS.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::certificate;
use super::*;
use crate::client::fake;
use crate::source::{ObjectList, Selection, Source, WatchItem};
use crate::{Client, ClientError, Clock, Key, Manager, Object, Rng, Runtime};

fn webhooks() -> Webhooks {
    Webhooks::new("test")
        .default(|map: &mut ConfigMap| {
            map.data.get_or_insert_default().entry("colour".into()).or_insert("red".into());
        })
        .validate(|map: &ConfigMap| match map.data.as_ref().and_then(|data| data.get("colour")) {
            Some(colour) if colour == "pink" => Err(Denied::invalid("data.colour", "pink is not a colour")),
            Some(colour) if colour == "grey" => Ok(Allowed::with_warning("how dull")),
            Some(colour) if colour == "none" => panic!("no colour"),
            _ => Ok(Allowed::default()),
        })
        .convert_kind(&widgets("v2"), |mut widget: Value, to: &str| match to {
            "example.com/v2" => {
                widget["spec"] = json!({"replicas": widget["spec"]["size"]});
                Ok(widget)
            }
            _ => Err(format!("{to} is not served")),
        })
}

fn widgets(version: &str) -> Kind {
    Kind::new("example.com", version, "Widget", "widgets", true)
}

fn review(object: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "7", "operation": "CREATE", "object": object, "oldObject": null, "dryRun": false,
        "userInfo": {"username": "jane", "groups": null},
    }})
}

async fn respond(path: &str, body: Value) -> (u16, Value) {
    let (code, body) = webhooks().respond(path, body.to_string().as_bytes()).await;
    (code, serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into()))
}

fn map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data, "unknown": true})
}

#[tokio::test]
async fn objects_are_validated() {
    let check = async |data: Value, expected: Value| {
        let (code, answer) = respond("/validate/core/v1/configmaps", review(&map(data))).await;
        assert_eq!((code, &answer["response"]), (200, &expected));
    };
    check(json!({"colour": "red"}), json!({"uid": "7", "allowed": true})).await;
    check(json!({"colour": "grey"}), json!({"uid": "7", "allowed": true, "warnings": ["how dull"]})).await;
    let message = "data.colour: pink is not a colour";
    let cause = json!({"field": "data.colour", "message": message, "reason": "FieldValueInvalid"});
    let status =
        json!({"code": 422, "message": message, "reason": "Invalid", "details": {"causes": [cause]}});
    check(json!({"colour": "pink"}), json!({"uid": "7", "allowed": false, "status": status})).await;
    let (code, answer) = respond("/validate/core/v1/configmaps", review(&map(json!(7)))).await;
    assert_eq!((code, &answer["response"]["status"]["code"]), (200, &json!(400)));
}

#[tokio::test]
async fn defaults_are_a_patch_that_keeps_unknown_fields() {
    let patch = async |object: Value| {
        let (_, answer) = respond("/mutate/core/v1/configmaps", review(&object)).await;
        let bytes: Option<k8s_openapi::ByteString> =
            serde_json::from_value(answer["response"]["patch"].clone()).ok();
        bytes.and_then(|bytes| serde_json::from_slice::<Value>(&bytes.0).ok())
    };
    let added = json!([{"op": "add", "path": "/data/colour", "value": "red"}]);
    assert_eq!(patch(map(json!({"a": "b"}))).await, Some(added));
    assert_eq!(patch(map(json!({"colour": "blue"}))).await, None);
}

#[tokio::test]
async fn bad_reviews_and_panics_fail_one_request() {
    let check = async |path: &str, body: Value, code: u16| {
        let answer = respond(path, body).await;
        assert_eq!(answer.0, code, "{}", answer.1);
    };
    check("/validate/core/v1/pods", review(&map(json!({}))), 404).await;
    check("/validate/core/v1/configmaps", json!({"kind": "Pod"}), 400).await;
    check("/validate/core/v1/configmaps", json!({"kind": "AdmissionReview"}), 400).await;
    check("/validate/core/v1/configmaps", review(&map(json!({"colour": "none"}))), 500).await;
    check("/convert/example.com/widgets", json!({"kind": "ConversionReview"}), 400).await;
    assert_eq!(webhooks().respond("/validate/core/v1/configmaps", b"{").await.0, 400);
}

#[tokio::test]
async fn conversion_keeps_the_metadata() {
    let object = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a", "uid": "u"},
        "spec": {"size": 3}});
    let convert = async |to: &str| {
        let request = json!({"uid": "7", "desiredAPIVersion": to, "objects": [object]});
        let review =
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request});
        respond("/convert/example.com/widgets", review).await.1["response"].take()
    };
    let response = convert("example.com/v2").await;
    let converted = json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": "a", "uid": "u"},
        "spec": {"replicas": 3}});
    assert_eq!(
        (&response["result"]["status"], &response["convertedObjects"][0]),
        (&json!("Success"), &converted)
    );
    let response = convert("example.com/v3").await;
    assert_eq!(
        response["result"],
        json!({"status": "Failure", "message": "a: example.com/v3 is not served"})
    );
}

#[tokio::test]
async fn several_webhooks_of_a_kind_are_all_called() {
    let refuse = |why: &'static str| move |_: &ConfigMap| Err::<(), _>(Denied::invalid("data", why));
    let both = Webhooks::new("test").validate(refuse("first")).validate(refuse("second"));
    assert_eq!(both.paths(), ["/validate/core/v1/configmaps", "/validate/core/v1/configmaps/2"]);
    for (path, expected) in both.paths().iter().zip(["data: first", "data: second"]) {
        let (_, body) = both.respond(path, review(&map(json!({}))).to_string().as_bytes()).await;
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(answer["response"]["status"]["message"], expected);
    }
    let configurations = both.configurations(&Endpoint::service("shop", "operator"), None);
    let names: Vec<_> =
        configurations[0].1["webhooks"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["validate.v1.configmaps.core", "validate-2.v1.configmaps.core"]);
}

#[tokio::test]
async fn an_old_object_that_cannot_be_decoded_can_be_repaired() {
    let mut repair = review(&map(json!({"colour": "red"})));
    repair["request"]["operation"] = "UPDATE".into();
    repair["request"]["oldObject"] = json!({"metadata": {"name": "a"}, "data": "none"});
    let (_, answer) = respond("/validate/core/v1/configmaps", repair).await;
    assert_eq!(answer["response"]["allowed"], true);
}

#[test]
fn a_webhook_is_configured_for_its_kind_and_place() {
    let endpoint = Endpoint::service("shop", "operator");
    let configured = webhooks().configurations(&endpoint, Some("PEM"));
    let kinds: Vec<_> = configured.iter().map(|(kind, _)| kind.kind()).collect();
    assert_eq!(kinds, ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]);
    let webhook = &configured[1].1["webhooks"][0];
    assert_eq!(webhook["name"], "validate.v1.configmaps.core");
    assert_eq!(webhook["rules"][0]["operations"], json!(["CREATE", "UPDATE"]));
    let service =
        json!({"namespace": "shop", "name": "operator", "path": "/validate/core/v1/configmaps", "port": 443});
    assert_eq!(webhook["clientConfig"], json!({"service": service, "caBundle": "UEVN"}));
    let url = Endpoint::Url { host: "::1".into(), port: 9443 };
    let conversion = &webhooks().conversions(&url, None)[0];
    assert_eq!(conversion["metadata"]["name"], "widgets.example.com");
    let expected = json!({"url": "https://[::1]:9443/convert/example.com/widgets"});
    assert_eq!(conversion["spec"]["conversion"]["webhook"]["clientConfig"], expected);
}

/// Lists what has been written through the client.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<(String, Value)>>>);

impl Source for Written {
    fn list<'a>(
        &'a self,
        kind: &'a Kind,
        _: &'a Selection,
    ) -> BoxFuture<'a, Result<ObjectList, ClientError>> {
        let written = self.0.lock();
        let objects = written.iter().filter(|(path, _)| path.contains(kind.plural()));
        let objects =
            objects.map(|(_, it)| Object::from_json(it.to_string().into()).expect("an object")).collect();
        Box::pin(async { Ok(ObjectList { objects, resource_version: "1".into(), undecodable: 0 }) })
    }

    /// Ends immediately, so that the informer relists.
    fn watch<'a>(
        &'a self,
        _: &'a Kind,
        _: &'a Selection,
        _: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<WatchItem, ClientError>>, ClientError>> {
        Box::pin(async {
            Ok(stream::iter([Err(ClientError::from_reply(410, &Default::default(), b""))]).boxed())
        })
    }
}

fn client(written: &Written) -> Client {
    let written = written.clone();
    let (client, _) = fake::client(move |received| {
        let mut object = received.json();
        let metadata = object["metadata"].as_object_mut().expect("metadata");
        metadata.extend([("uid".to_owned(), json!("u")), ("resourceVersion".to_owned(), json!("1"))]);
        let path = received.target.split('?').next().unwrap_or_default().to_owned();
        written.0.lock().push((path, object.clone()));
        Some((200, object))
    });
    client
}

/// Posts a review over TLS, trusting only a CA bundle.
async fn post(port: u16, ca: &str, path: &str, body: Vec<u8>) -> (u16, Vec<u8>) {
    let mut roots = rustls::RootCertStore::empty();
    for der in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(der.expect("PEM")).expect("a CA");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    let stream =
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("trusted");
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.expect("HTTP");
    tokio::spawn(connection);
    let request =
        http::Request::post(path).header("host", "127.0.0.1").body(Full::new(bytes::Bytes::from(body)));
    let response = sender.send_request(request.expect("a request")).await.expect("a response");
    let code = response.status().as_u16();
    (code, response.into_body().collect().await.expect("a body").to_bytes().to_vec())
}

#[tokio::test]
async fn a_manager_serves_webhooks_over_tls_with_its_own_certificate() {
    let (written, clock) = (Written::default(), Clock::system());
    let runtime = Runtime { clock: clock.clone(), rng: Rng::seeded(1) };
    let probe = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = probe.local_addr().expect("an address").port();
    drop(probe);
    let server = WebhookServer {
        address: ([127, 0, 0, 1], port).into(),
        endpoint: Endpoint::Url { host: "127.0.0.1".into(), port },
        certificates: Certificates::Secret(Key::namespaced("shop", "webhook")),
    };
    let manager = Manager::new(client(&written), Arc::new(written.clone()), runtime);
    let manager = manager.with_webhooks(webhooks(), server).expect("the port is free");
    let context = manager.context().clone();
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    let configured = async {
        while !written.0.lock().iter().any(|(path, _)| path.contains("validatingwebhook")) {
            clock.sleep(Duration::from_millis(50)).await;
        }
        while !context.health.readyz().ok {
            clock.sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), configured).await.expect("configured");
    let ca = {
        let written = written.0.lock();
        let (_, configuration) =
            written.iter().find(|(path, _)| path.contains("validatingwebhook")).expect("there");
        let bundle = configuration["webhooks"][0]["clientConfig"]["caBundle"].clone();
        let bundle: k8s_openapi::ByteString = serde_json::from_value(bundle).expect("base64");
        String::from_utf8(bundle.0).expect("PEM")
    };
    let pink = review(&map(json!({"colour": "pink"}))).to_string().into_bytes();
    let (code, body) = post(port, &ca, "/validate/core/v1/configmaps", pink).await;
    let answer: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!((code, &answer["response"]["allowed"]), (200, &json!(false)));
    let (code, _) = post(port, &ca, "/validate/core/v1/configmaps", vec![b' '; (16 << 20) + 1]).await;
    assert_eq!(code, 413);
    let metrics = context.metrics.encode();
    let counted =
        r#"controller_runtime_webhook_requests_total{webhook="/validate/core/v1/configmaps",code="200"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
    stop.cancel();
    running.await.expect("no panic");
}

#[test]
fn mounted_certificates_are_read_with_an_optional_authority() {
    let directory = tempfile::tempdir().expect("a directory");
    let made =
        certificate::renewed(&Default::default(), "a", "2025-01-01T00:00:00Z".parse().expect("a time"));
    let made = made.expect("created").expect("new");
    assert!(certificate::read(directory.path()).is_err(), "nothing is mounted yet");
    for name in ["tls.crt", "tls.key"] {
        std::fs::write(directory.path().join(name), &made[name]).expect("written");
    }
    let read = certificate::read(directory.path()).expect("read");
    certificate::certified(&read).expect("it can be served");
    assert_eq!(certificate::bundle(&read), None);
    std::fs::write(directory.path().join("ca.crt"), &made["ca.crt"]).expect("written");
    assert!(certificate::bundle(&certificate::read(directory.path()).expect("read")).is_some());
}
