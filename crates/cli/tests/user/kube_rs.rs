//! kube-rs: typical use from a Rust program.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{AsyncBufReadExt, TryStreamExt};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    AttachParams, DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, CustomResource, CustomResourceExt};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, from_value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::binary::{Up, eventually};
use crate::clients::certificates;

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
    assert_eq!(built.spec.size, 1, "the status endpoint does not change the spec");
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

#[tokio::test]
async fn a_rust_program_talks_to_pods() {
    let up = Up::start(&["--nodes", "1"]);
    let (backend, address) = echo().await;
    let pods: Api<Pod> = Api::namespaced(client(&up).await, "default");
    let log = "one\n1s two\n2s three";
    let pod = json!({
        "metadata": {"name": "web", "annotations": {
            "node.setpoint.dev/log": log, "node.setpoint.dev/run-for": "8s", "node.setpoint.dev/backend": address,
        }},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "web", "image": "nginx"}]},
    });
    pods.create(&PostParams::default(), &from_value(pod).expect("a pod")).await.expect("it creates");
    up.kubectl(&["wait", "--for=condition=Ready", "pod/web", "--timeout=30s"]);

    let exec = AttachParams::default().stdin(true);
    let script = ["sh", "-c", "read name; echo hello $name; echo warm >&2; exit 6"];
    let mut process = pods.exec("web", script, &exec).await.expect("it starts");
    let (mut out, mut err) = (String::new(), String::new());
    let mut stdin = process.stdin().expect("it was requested");
    stdin.write_all(b"world\n").await.expect("it reads");
    let (mut stdout, mut stderr) = (process.stdout().expect("stdout"), process.stderr().expect("stderr"));
    let reading = async { tokio::join!(stdout.read_to_string(&mut out), stderr.read_to_string(&mut err)) };
    let (status, _) = tokio::join!(process.take_status().expect("not taken"), reading);
    assert_eq!((out.as_str(), err.as_str()), ("hello world\n", "warm\n"));
    let causes = status.and_then(|status| status.details).and_then(|details| details.causes);
    let causes = causes.expect("it failed");
    assert_eq!(causes[0].message.as_deref(), Some("6"));

    let mut forwarder = pods.portforward("web", &[80]).await.expect("it connects");
    let mut stream = forwarder.take_stream(80).expect("not taken");
    stream.write_all(b"ping").await.expect("it reads");
    let mut echoed = [0; 4];
    stream.read_exact(&mut echoed).await.expect("it answers");
    assert_eq!(&echoed, b"ping");
    drop(stream);
    forwarder.abort();

    let following = LogParams { follow: true, ..LogParams::default() };
    let mut lines = pods.log_stream("web", &following).await.expect("it has a log").lines();
    let mut seen = Vec::new();
    while let Some(line) = lines.try_next().await.expect("it can be read") {
        seen.push(line);
    }
    assert_eq!(seen, ["one", "two", "three"], "the stream ends with the container");
    backend.abort();
}

/// Serves one connection that returns what it gets.
async fn echo() -> (JoinHandle<()>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let serving = tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let (mut reader, mut writer) = connection.split();
            // A client that is gone ends it.
            _ = tokio::io::copy(&mut reader, &mut writer).await;
        }
    });
    (serving, address)
}

/// Denies what is red, and notes on everything else who has written it.
fn reviewed(review: &Value) -> Value {
    let request = &review["request"];
    let mut response = if request["object"]["data"]["color"] == "red" {
        json!({"allowed": false, "status": {"code": 422, "reason": "Invalid", "message": "red is not allowed"}})
    } else {
        let writer = &request["userInfo"]["username"];
        let patch = json!([{"op": "add", "path": "/data/writer", "value": writer}]).to_string();
        json!({"allowed": true, "warnings": ["noted"], "patchType": "JSONPatch", "patch": STANDARD.encode(patch)})
    };
    response["uid"] = request["uid"].clone();
    json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})
}

async fn review(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let answer = reviewed(&serde_json::from_slice(&body).expect("a review")).to_string();
    let mut response = Response::new(Full::new(answer.into()));
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    Ok(response)
}

/// Serves reviews over TLS. Returns the port.
async fn serve_reviews(certificates: &Path) -> (JoinHandle<()>, u16) {
    let pem = |name: &str| fs::read(certificates.join(name)).expect("a file");
    let certificate = CertificateDer::from_pem_slice(&pem("certificate.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(&pem("key.pem")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = tls.expect("versions").with_no_client_auth().with_single_cert(vec![certificate], key);
    let acceptor = TlsAcceptor::from(Arc::new(tls.expect("a pair")));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let serving = tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(connection).await else { continue };
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(review)));
        }
    });
    (serving, port)
}

/// A configuration that has ConfigMaps reviewed at this place.
fn configuration(mut place: Value, certificates: &Path) -> MutatingWebhookConfiguration {
    let authority = fs::read(certificates.join("certificate.pem")).expect("a file");
    place["caBundle"] = STANDARD.encode(authority).into();
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]});
    let webhook = json!({
        "name": "colors.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": place, "rules": [rule],
    });
    from_value(json!({"metadata": {"name": "colors"}, "webhooks": [webhook]})).expect("a configuration")
}

fn colored(color: &str) -> ConfigMap {
    config_map(json!({"metadata": {"name": color}, "data": {"color": color}}))
}

#[tokio::test]
async fn a_rust_program_serves_a_webhook() {
    let up = Up::start(&["--nodes", "0"]);
    let (client, certificates) = (client(&up).await, certificates());
    let (serving, port) = serve_reviews(certificates.path()).await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let place = json!({"url": format!("https://localhost:{port}/")});
    let colors = configuration(place, certificates.path());
    configurations.create(&PostParams::default(), &colors).await.expect("it creates");
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let created = maps.create(&PostParams::default(), &colored("blue")).await.expect("it is allowed");
    assert_eq!(created.data.as_ref().map(|data| &*data["writer"]), Some("kubernetes-admin"));
    let refused = maps.create(&PostParams::default(), &colored("red")).await.expect_err("it is denied");
    let kube::Error::Api(status) = refused else { panic!("{refused:?}") };
    let expected = "admission webhook \"colors.example.com\" denied the request: red is not allowed";
    assert_eq!((status.code, &*status.reason, &*status.message), (422, "Invalid", expected));
    configurations.delete("colors", &DeleteParams::default()).await.expect("it deletes");
    maps.create(&PostParams::default(), &colored("red")).await.expect("no one minds");
    serving.abort();
}

/// An operator in a debugger: its manifests are applied unchanged but for the annotation of the pod.
#[tokio::test]
async fn a_local_process_serves_the_webhook_of_a_service() {
    let up = Up::start(&["--nodes", "1"]);
    let (client, certificates) = (client(&up).await, certificates());
    let (serving, port) = serve_reviews(certificates.path()).await;
    let manifests = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "reviews"},
            "spec": {"selector": {"app": "reviews"}, "ports": [{"port": 443, "targetPort": 9443}]},
        },
        {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "reviews", "labels": {"app": "reviews"},
                "annotations": {"node.setpoint.dev/backend": format!("127.0.0.1:{port}")}},
            "spec": {"containers": [{"name": "reviews", "image": "example.com/reviews"}]},
        },
    ]});
    up.kubectl_with(&["apply", "-f", "-"], &manifests.to_string());
    up.kubectl(&["wait", "--for=condition=Ready", "pod/reviews", "--timeout=30s"]);
    let ready = "jsonpath={.items[*].endpoints[*].conditions.ready}";
    let slices = ["get", "endpointslices", "-l", "kubernetes.io/service-name=reviews", "-o", ready];
    eventually("the Service has an endpoint", || up.try_kubectl(&slices, "").out == "true");
    let place = json!({"service": {"namespace": "default", "name": "reviews", "path": "/mutate"}});
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let colors = configuration(place, certificates.path());
    configurations.create(&PostParams::default(), &colors).await.expect("it creates");
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let created = maps.create(&PostParams::default(), &colored("blue")).await.expect("it is allowed");
    assert_eq!(created.data.as_ref().map(|data| &*data["writer"]), Some("kubernetes-admin"));
    serving.abort();
}
