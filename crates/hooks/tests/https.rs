//! Hooks over HTTPS: CAs and client certificates from Secrets. TLS is real, over connections in memory.

use std::io;

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
struct Server(TlsAcceptor);

impl Server {
    fn new(own: Issued, clients: &Authority) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(clients.der.clone()).expect("a CA");
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.key.serialize_der()));
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config =
            config.expect("versions").with_client_cert_verifier(verifier.build().expect("a verifier"));
        Self(TlsAcceptor::from(Arc::new(config.with_single_cert(vec![own.der], key).expect("a certificate"))))
    }

    async fn serve(self, stream: tokio::io::DuplexStream) -> io::Result<()> {
        let mut stream = self.0.accept(stream).await?;
        let mut read = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&read).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head
                    .lines()
                    .find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
                let length: usize = length.and_then(|length| length.parse().ok()).unwrap_or_default();
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
    let (own, clients) = (Authority::new("servers"), Authority::new("clients"));
    let server = Server::new(own.issue("hook.example", ExtendedKeyUsagePurpose::ServerAuth), &clients);
    let network = Network::new(Arc::new(server), Commands::new(&setpoint::Clock::system()));
    with_options(Options::new(network), async |cluster| test(cluster, &own, &clients).await);
}

async fn until_error(world: &World, name: &str, words: &str) {
    for _ in 0..120 {
        if messages(world, name, "SyncError").await.iter().any(|message| message.contains(words)) {
            return;
        }
        world.pass(std::time::Duration::from_secs(1)).await;
    }
    panic!("no such error: {:?}", messages(world, name, "SyncError").await);
}

#[test]
fn a_hook_is_verified_and_verifies_its_caller() {
    with_server(async |cluster, own, clients| {
        let client = clients.issue("operator", ExtendedKeyUsagePurpose::ClientAuth);
        secret(cluster, "hook-ca", &[("ca.crt", &own.pem)]).await;
        secret(
            cluster,
            "hook-client",
            &[("tls.crt", &client.certificate), ("tls.key", &client.key.serialize_pem())],
        )
        .await;
        create_controller(cluster, controller(true)).await;
        create_thing(cluster, "a", json!({"value": "1"})).await;
        until_value(cluster, &config_maps(), "a-0", "/data/value", json!("1")).await;
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
        let client = clients.issue("operator", ExtendedKeyUsagePurpose::ClientAuth);
        secret(cluster, "hook-ca", &[("ca.crt", &clients.pem)]).await;
        secret(
            cluster,
            "hook-client",
            &[("tls.crt", &client.certificate), ("tls.key", &client.key.serialize_pem())],
        )
        .await;
        create_controller(cluster, controller(true)).await;
        create_thing(cluster, "a", json!({"value": "1"})).await;
        until_error(cluster, "a", "certificate").await;
        patch(cluster, &secrets(), &key("hook-ca"), json!({"data": data(&[("ca.crt", &own.pem)])})).await;
        until_value(cluster, &config_maps(), "a-0", "/data/value", json!("1")).await;
    });
}
