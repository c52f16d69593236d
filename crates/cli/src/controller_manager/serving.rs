//! How the secure port presents itself, and to whom it answers.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use rustls::ServerConfig;
use setpoint::Clock;
use setpoint_apiserver::tls::Authority;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::connection::from_file;
use super::delegated::Delegated;
use super::signing::read;
use super::trust::Trust;

#[derive(Debug, Args)]
#[command(next_help_heading = "Secure port")]
pub(crate) struct Serving {
    /// The address of the secure port.
    #[arg(long, default_value = "0.0.0.0")]
    bind_address: IpAddr,
    /// The port for health, metrics and configuration; 0 for none.
    #[arg(long, default_value_t = 10257, value_name = "PORT")]
    secure_port: u16,
    /// The certificate of the secure port; without it one is made that nobody else signs.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// The oldest version of TLS that is spoken.
    #[arg(long, default_value = "VersionTLS12", value_name = "VERSION", value_parser = ["VersionTLS12", "VersionTLS13"])]
    tls_min_version: String,
    /// The cipher suites for TLS 1.2, by their names in Go; all that are safe, without it.
    #[arg(long, value_delimiter = ',', value_name = "SUITES")]
    tls_cipher_suites: Vec<String>,
    /// The kubeconfig of the API server that is asked about tokens.
    #[arg(long, value_name = "FILE")]
    authentication_kubeconfig: Option<PathBuf>,
    /// The kubeconfig of the API server that is asked what is allowed.
    #[arg(long, value_name = "FILE")]
    authorization_kubeconfig: Option<PathBuf>,
    /// Paths that are for everybody.
    #[arg(long, value_delimiter = ',', default_value = "/healthz,/readyz,/livez", value_name = "PATHS")]
    authorization_always_allow_paths: Vec<String>,
    /// The authority of users' client certificates.
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// The authority of proxies, which say in headers for whom they ask.
    #[arg(long, value_name = "FILE")]
    requestheader_client_ca_file: Option<PathBuf>,
}

impl Serving {
    /// Where to listen; `None` if there is no secure port.
    pub(crate) async fn listen(&self) -> anyhow::Result<Option<TcpListener>> {
        if self.secure_port == 0 {
            return Ok(None);
        }
        let address = (self.bind_address, self.secure_port);
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("cannot listen on {}:{}: choose another port with --secure-port", address.0, address.1)
        })?;
        Ok(Some(listener))
    }

    pub(crate) async fn delegated(&self) -> anyhow::Result<Delegated> {
        let client = async |flag: &str, path: &Option<PathBuf>| -> anyhow::Result<Option<kube::Client>> {
            let Some(path) = path else { return Ok(None) };
            let config = from_file(path, None).await.with_context(|| format!("--{flag}"))?;
            Ok(Some(kube::Client::try_from(config).with_context(|| format!("--{flag}"))?))
        };
        Ok(Delegated {
            authentication: client("authentication-kubeconfig", &self.authentication_kubeconfig).await?,
            authorization: client("authorization-kubeconfig", &self.authorization_kubeconfig).await?,
            always_allow: self.authorization_always_allow_paths.clone(),
            trust: self.trust()?,
        })
    }

    fn trust(&self) -> anyhow::Result<Trust> {
        let pem = |flag: &str, path: &Option<PathBuf>| path.as_ref().map(|path| read(flag, path)).transpose();
        let users = pem("client-ca-file", &self.client_ca_file)?;
        let proxies = pem("requestheader-client-ca-file", &self.requestheader_client_ca_file)?;
        Trust::new(users.as_deref(), proxies.as_deref())
            .context("--client-ca-file and --requestheader-client-ca-file")
    }

    /// What speaks TLS for the secure port.
    pub(crate) fn acceptor(&self, clock: &Clock) -> anyhow::Result<TlsAcceptor> {
        let (certificate, key) = match (&self.tls_cert_file, &self.tls_private_key_file) {
            (Some(certificate), Some(key)) => {
                (read("tls-cert-file", certificate)?, read("tls-private-key-file", key)?)
            }
            _ => {
                let own = Authority::generate(clock.now())?;
                let server = own.server_certificate(&[self.bind_address], clock.now())?;
                (server.certificate, server.key)
            }
        };
        let mut provider = rustls::crypto::ring::default_provider();
        restrict(&mut provider, &self.tls_cipher_suites)?;
        let versions: &[&rustls::SupportedProtocolVersion] = match self.tls_min_version.as_str() {
            "VersionTLS13" => &[&rustls::version::TLS13],
            _ => &[&rustls::version::TLS12, &rustls::version::TLS13],
        };
        let builder = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(versions)
            .context("--tls-min-version and --tls-cipher-suites leave nothing to speak")?;
        let trust = self.trust()?;
        let builder = match trust.is_empty() {
            true => builder.with_no_client_auth(),
            false => builder.with_client_cert_verifier(Arc::new(trust)),
        };
        let certificates = rustls_pemfile::certs(&mut certificate.as_bytes())
            .collect::<Result<_, _>>()
            .context("--tls-cert-file")?;
        let key = rustls_pemfile::private_key(&mut key.as_bytes()).context("--tls-private-key-file")?;
        let key = key.context("--tls-private-key-file: there is no private key in it")?;
        let mut config = builder.with_single_cert(certificates, key).context("--tls-cert-file")?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// Leaves the suites that are named; those of TLS 1.3 cannot be chosen, as in Go.
fn restrict(provider: &mut rustls::crypto::CryptoProvider, names: &[String]) -> anyhow::Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let shown = |suite: &rustls::SupportedCipherSuite| format!("{:?}", suite.suite());
    let is_13 = |suite: &rustls::SupportedCipherSuite| suite.tls13().is_some();
    let wanted: Vec<String> = names.iter().map(|name| name.trim_end_matches("_SHA256").to_owned()).collect();
    let known: Vec<String> = provider.cipher_suites.iter().map(shown).collect();
    for name in names {
        let found = known.iter().any(|known| known == name || known.trim_end_matches("_SHA256") == name);
        if !found {
            bail!("--tls-cipher-suites: {name} is none of {}", known.join(", "));
        }
    }
    provider.cipher_suites.retain(|suite| {
        is_13(suite) || wanted.contains(&shown(suite).trim_end_matches("_SHA256").to_owned())
    });
    Ok(())
}
