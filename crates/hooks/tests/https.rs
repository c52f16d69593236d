//! Hooks over HTTPS: CAs, client certificates and other credentials. TLS is real, over connections in memory.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use setpoint_hooks::{Commands, Network};
use setpoint_webhook::{Dial, Dialed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use super::*;

/// A CA that issues certificates.
struct Authority {
    pem: String,
    der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
struct Issued {
    certificate: String,
    der: CertificateDer<'static>,
    key: KeyPair,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Self { pem: certificate.pem(), der: certificate.der().clone(), issuer: Issuer::new(params, key) }
    }

    fn issue(&self, host: &str, usage: ExtendedKeyUsagePurpose) -> Issued {
        let mut params = CertificateParams::new([host.to_owned()]).expect("a name");
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Issued { certificate: certificate.pem(), der: certificate.der().clone(), key }
    }
}

/// The hook's server: it demands a client certificate of one CA, and answers like [`maps`].
#[derive(Clone)]
struct Server {
    acceptor: TlsAcceptor,
    wanted: Wanted,
}

/// The header `authorization` that the server demands.
#[derive(Clone, Default)]
struct Wanted(Arc<Mutex<Option<String>>>);

impl Wanted {
    fn set(&self, value: &str) {
        *self.0.lock().expect("no panic") = Some(value.to_owned());
    }

    fn is_satisfied(&self, head: &str) -> bool {
        let wanted = self.0.lock().expect("no panic").clone();
        let given = head.lines().find_map(|line| line.strip_prefix("authorization: "));
        wanted.is_none_or(|wanted| given == Some(&wanted))
    }
}

impl Server {
    fn new(own: Issued, clients: &Authority, wanted: &Wanted) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(clients.der.clone()).expect("a CA");
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.key.serialize_der()));
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config =
            config.expect("versions").with_client_cert_verifier(verifier.build().expect("a verifier"));
        let config = config.with_single_cert(vec![own.der], key).expect("a certificate");
        Self { acceptor: TlsAcceptor::from(Arc::new(config)), wanted: wanted.clone() }
    }

    async fn serve(self, stream: tokio::io::DuplexStream) -> io::Result<()> {
        let mut stream = self.acceptor.accept(stream).await?;
        let mut read = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&read).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head
                    .lines()
                    .find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
                let length: usize = length.and_then(|length| length.parse().ok()).unwrap_or_default();
                if body.len() >= length && !self.wanted.is_satisfied(head) {
                    let refusal = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
                    stream.write_all(refusal.as_bytes()).await?;
                    read.clear();
                    continue;
                }
                if body.len() >= length {
                    let request = serde_json::from_str(body).expect("a request");
                    let answer = maps(&request).to_string();
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len());
                    stream.write_all((head + &answer).as_bytes()).await?;
                    read.clear();
                    continue;
                }
            }
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        }
    }
}

impl Dial for Server {
    fn dial(&self, _: String, _: u16) -> BoxFuture<'static, io::Result<Dialed>> {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        tokio::spawn(self.clone().serve(theirs));
        Box::pin(std::future::ready(Ok(Box::new(ours) as Dialed)))
    }
}

fn secrets() -> Kind {
    Kind::new("", "v1", "Secret", "secrets", true)
}

fn data(values: &[(&str, &str)]) -> Value {
    values
        .iter()
        .map(|(name, value)| ((*name).to_owned(), STANDARD.encode(value).into()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

async fn secret(world: &World, name: &str, values: &[(&str, &str)]) {
    make(world, &secrets(), json!({"metadata": {"name": name}, "data": data(values)})).await;
}

/// A CompositeController whose hook is called over HTTPS.
fn controller(with_certificate: bool) -> Value {
    let mut controller = composite("maps", "InPlace");
    let mut webhook = json!({
        "url": "https://hook.example/sync",
        "caBundle": {"secretRef": {"name": "hook-ca", "namespace": "default"}},
    });
    if with_certificate {
        webhook["clientTLS"] = json!({"secretRef": {"name": "hook-client", "namespace": "default"}});
    }
    controller["spec"]["hooks"]["sync"] = json!({"webhook": webhook});
    controller
}

/// Runs a test with a hook over HTTPS, the CA of its certificate and that of its clients.
fn with_server(test: impl AsyncFnOnce(&Running, &Authority, &Authority)) {
    with_wanted(&Wanted::default(), test);
}

/// Runs a test with a hook that demands a header.
fn with_wanted(wanted: &Wanted, test: impl AsyncFnOnce(&Running, &Authority, &Authority)) {
    let (own, clients) = (Authority::new("servers"), Authority::new("clients"));
    let issued = own.issue("hook.example", ExtendedKeyUsagePurpose::ServerAuth);
    let server = Server::new(issued, &clients, wanted);
    let network = Network::new(Arc::new(server), Commands::new(&setpoint::Clock::system()));
    with_options(Options::new(network), async |cluster| test(cluster, &own, &clients).await);
}

/// Creates the Secrets with the CA of the server and the certificate of its caller.
async fn create_certificates(world: &World, own: &Authority, clients: &Authority) {
    secret(world, "hook-ca", &[("ca.crt", &own.pem)]).await;
    let client = clients.issue("operator", ExtendedKeyUsagePurpose::ClientAuth);
    let key = client.key.serialize_pem();
    secret(world, "hook-client", &[("tls.crt", &client.certificate), ("tls.key", &key)]).await;
}

/// A CompositeController whose hook has further fields.
fn controller_with(fields: Value) -> Value {
    let mut controller = controller(true);
    let webhook = controller["spec"]["hooks"]["sync"]["webhook"].as_object_mut().expect("an object");
    webhook.extend(fields.as_object().expect("an object").clone());
    controller
}

/// Creates a controller and a thing, and waits until the hook has been called.
async fn until_called(world: &World, controller: Value) {
    create_controller(world, controller).await;
    create_thing(world, "a", json!({"value": "1"})).await;
    until_value(world, &config_maps(), "a-0", "/data/value", json!("1")).await;
}

async fn until_error(world: &World, name: &str, words: &str) {
    for _ in 0..120 {
        if messages(world, name, "SyncError").await.iter().any(|message| message.contains(words)) {
            return;
        }
        world.pass(Duration::from_secs(1)).await;
    }
    panic!("no such error: {:?}", messages(world, name, "SyncError").await);
}

#[test]
fn a_hook_is_verified_and_verifies_its_caller() {
    with_server(async |cluster, own, clients| {
        create_certificates(cluster, own, clients).await;
        until_called(cluster, controller(true)).await;
    });
}

#[test]
fn a_ca_is_in_the_controller_itself_or_in_a_config_map_too() {
    with_server(async |cluster, own, clients| {
        create_certificates(cluster, own, clients).await;
        until_called(cluster, controller_with(json!({"caBundle": {"inline": own.pem}}))).await;
    });
    with_server(async |cluster, own, clients| {
        create_certificates(cluster, own, clients).await;
        let map = json!({"metadata": {"name": "cas"}, "data": {"ca.crt": "", "own.crt": own.pem}});
        make(cluster, &config_maps(), map).await;
        let reference = json!({"name": "cas", "namespace": "default", "key": "own.crt"});
        until_called(cluster, controller_with(json!({"caBundle": {"configMapRef": reference}}))).await;
    });
}

#[test]
fn a_token_is_sent_and_read_again_when_it_changes() {
    let wanted = Wanted::default();
    wanted.set("Bearer one");
    with_wanted(&wanted, async |cluster, own, clients| {
        create_certificates(cluster, own, clients).await;
        secret(cluster, "hook-token", &[("token", "one\n")]).await;
        let reference = json!({"name": "hook-token", "namespace": "default", "key": "token"});
        until_called(cluster, controller_with(json!({"authorization": {"secretRef": reference}}))).await;

        wanted.set("Bearer two");
        patch(cluster, &things(), &key("a"), json!({"spec": {"value": "2"}})).await;
        until_error(cluster, "a", "401").await;
        patch(cluster, &secrets(), &key("hook-token"), json!({"data": data(&[("token", "two")])})).await;
        cluster.pass(Duration::from_secs(600)).await;
        until_value(cluster, &config_maps(), "a-0", "/data/value", json!("2")).await;
    });
}

#[test]
fn a_user_name_and_a_password_are_sent() {
    let wanted = Wanted::default();
    wanted.set(&format!("Basic {}", STANDARD.encode("operator:hunter2")));
    with_wanted(&wanted, async |cluster, own, clients| {
        create_certificates(cluster, own, clients).await;
        secret(cluster, "hook-user", &[("username", "operator"), ("pass", "hunter2")]).await;
        let reference = json!({"name": "hook-user", "namespace": "default"});
        let basic = json!({"secretRef": reference, "passwordKey": "pass"});
        until_called(cluster, controller_with(json!({"basicAuth": basic}))).await;
    });
}

#[test]
fn credentials_of_a_host_are_used_unless_a_hook_has_its_own() {
    let wanted = Wanted::default();
    wanted.set("Bearer one");
    with_wanted(&wanted, async |cluster, own, clients| {
        create_certificates(cluster, own, clients).await;
        secret(cluster, "hook-token", &[("token", "one")]).await;
        let mut controller = controller(true);
        let webhook = controller["spec"]["hooks"]["sync"]["webhook"].take();
        controller["spec"]["hooks"]["sync"]["webhook"] = json!({"url": webhook["url"]});
        controller["spec"]["endpointConfigs"] = json!([{
            "host": "HOOK.example:443", "caBundle": webhook["caBundle"], "clientTLS": webhook["clientTLS"],
            "authorization": {"secretRef": {"name": "hook-token", "namespace": "default", "key": "token"}},
        }]);
        until_called(cluster, controller.clone()).await;

        // Its own credentials are all that it has: there is no token.
        controller["metadata"]["name"] = "others".into();
        controller["spec"]["parentResource"]["labelSelector"] = json!({"matchLabels": {"of": "others"}});
        controller["spec"]["hooks"]["sync"]["webhook"] = webhook;
        create_controller(cluster, controller).await;
        let mut other = thing("b", json!({"value": "1"}));
        other["metadata"]["labels"] = json!({"of": "others"});
        make(cluster, &things(), other).await;
        until_error(cluster, "b", "401").await;
    });
}

#[test]
fn a_caller_without_a_certificate_is_refused() {
    with_server(async |cluster, own, _| {
        secret(cluster, "hook-ca", &[("ca.crt", &own.pem)]).await;
        create_controller(cluster, controller(false)).await;
        create_thing(cluster, "a", json!({"value": "1"})).await;
        until_error(cluster, "a", "ertificate").await;
        assert!(cluster.get(&config_maps(), &key("a-0")).await.is_none());
    });
}

#[test]
fn another_ca_is_refused_until_the_secret_has_the_right_one() {
    with_server(async |cluster, own, clients| {
        create_certificates(cluster, clients, clients).await;
        create_controller(cluster, controller(true)).await;
        create_thing(cluster, "a", json!({"value": "1"})).await;
        until_error(cluster, "a", "certificate").await;
        patch(cluster, &secrets(), &key("hook-ca"), json!({"data": data(&[("ca.crt", &own.pem)])})).await;
        until_value(cluster, &config_maps(), "a-0", "/data/value", json!("1")).await;
    });
}
