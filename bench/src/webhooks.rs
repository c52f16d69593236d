//! Creates per second through one validating webhook. The webhook is a process of its own, called over TLS.
//!
//! With `PEER_URL` and `PEER_TOKEN`, another API server does the same work in the same run, with the same webhook
//! process. Its user has to be allowed to do everything.

use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::control_plane::{ControlPlane, TOKEN, block_on, call};
use crate::report::{Report, grouped};
use crate::requests::{CREATES_LOAD, Target, config_map};

/// The argument that starts the webhook instead of a benchmark.
pub(crate) const SERVER: &str = "webhook-server";

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const NAME: &str = "bench.setpoint.dev";
/// The name of objects that the webhook denies.
const DENIED: &str = "denied";

pub(crate) fn run() {
    block_on(measure());
}

async fn measure() {
    let webhook = Webhook::start();
    let mut report = Report::new("Creates through a validating webhook", &["a second", "without it"]);
    let plane = ControlPlane::start(&["--nodes", "0", "--no-scheduler"]).await;
    let own = Target { url: plane.url().await, token: TOKEN.into(), directory: plane.directory().to_owned() };
    row(&mut report, "setpoint", &plane.client().await, &own, &webhook).await;
    if let Ok(url) = std::env::var("PEER_URL") {
        let token = std::env::var("PEER_TOKEN").expect("PEER_TOKEN goes with PEER_URL");
        let peer = Target { url, token, directory: own.directory.clone() };
        row(&mut report, "peer", &client_of(&peer), &peer, &webhook).await;
    }
    report.print();
}

async fn row(report: &mut Report, name: &str, client: &kube::Client, target: &Target, webhook: &Webhook) {
    let namespace = |nth: u32| format!("webhook-{nth}");
    for nth in [0, 1] {
        let body = json!({"metadata": {"name": namespace(nth)}}).to_string();
        call(client, Method::POST, "/api/v1/namespaces", body).await;
    }
    let path = |nth: u32| format!("/api/v1/namespaces/{}/configmaps", namespace(nth));
    let without = target.wrk(&CREATES_LOAD, &path(0));
    call(client, Method::POST, CONFIGURATIONS, webhook.configuration()).await;
    while !denies(client, &path(1)).await {
        // An API server may take a moment to notice a configuration.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let with = target.wrk(&CREATES_LOAD, &path(1));
    assert!(denies(client, &path(1)).await, "the webhook is called to the end");
    call(client, Method::DELETE, &format!("{CONFIGURATIONS}/{NAME}"), String::new()).await;
    report.row(name, [grouped(with), grouped(without)]);
}

/// Returns whether the webhook is called: it denies one name.
async fn denies(client: &kube::Client, path: &str) -> bool {
    let request = Request::post(format!("{path}?dryRun=All")).header("content-type", "application/json");
    let request = request.body(config_map(DENIED).into_bytes()).expect("a well-formed request");
    client.request_text(request).await.is_err()
}

fn client_of(target: &Target) -> kube::Client {
    let mut config = kube::Config::new(target.url.parse().expect("PEER_URL is a URL"));
    config.accept_invalid_certs = true;
    config.auth_info.token = Some(target.token.clone().into());
    kube::Client::try_from(config).expect("a complete configuration")
}

/// The webhook's process, killed when dropped.
struct Webhook {
    process: Child,
    port: u16,
    certificate: String,
}

impl Webhook {
    fn start() -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let mut process =
            Command::new(program).arg(SERVER).stdout(Stdio::piped()).spawn().expect("this program starts");
        let mut line = String::new();
        let output = process.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("the webhook reports its port");
        let report: Value = serde_json::from_str(&line).expect("the webhook reports JSON");
        let port = report["port"].as_u64().and_then(|port| u16::try_from(port).ok()).expect("a port");
        Self { process, port, certificate: report["certificate"].as_str().expect("a certificate").to_owned() }
    }

    fn configuration(&self) -> String {
        let url = format!("https://localhost:{}/validate", self.port);
        let bundle = k8s_openapi::ByteString(self.certificate.clone().into_bytes());
        json!({
            "metadata": {"name": NAME},
            "webhooks": [{
                "name": NAME,
                "clientConfig": {"url": url, "caBundle": bundle},
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"],
                }],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }],
        })
        .to_string()
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Serves the webhook until the process is killed. Prints its port and certificate as a line of JSON.
pub(crate) fn serve() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(async {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        println!("{}", json!({"port": port, "certificate": own.cert.pem()}));
        let tls = acceptor(&own);
        loop {
            let Ok((socket, _)) = listener.accept().await else { continue };
            socket.set_nodelay(true).ok();
            let tls = tls.clone();
            tokio::spawn(async move {
                let Ok(stream) = tls.accept(socket).await else { return };
                let connection = Builder::new(TokioExecutor::new());
                connection.serve_connection(TokioIo::new(stream), service_fn(answer)).await.ok();
            });
        }
    });
}

fn acceptor(own: &rcgen::CertifiedKey<rcgen::KeyPair>) -> TlsAcceptor {
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).expect("a key");
    let config = ServerConfig::builder().with_no_client_auth();
    let mut config = config.with_single_cert(vec![own.cert.der().clone()], key).expect("a pair");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let allowed = review["request"]["name"] != DENIED;
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": review["request"]["uid"], "allowed": allowed},
    });
    let response = Response::builder().header("content-type", "application/json");
    Ok(response.body(Full::new(answer.to_string().into())).expect("a well-formed response"))
}
