//! The secure port: address, TLS, authentication and authorization flags.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::{ArgAction, Args};
use rustls::ServerConfig;
use setpoint::Clock;
use setpoint_apiserver::auth::FrontProxy;
use setpoint_apiserver::tls::{
    MinVersion, NamedCertificate, Protocol as TlsProtocol, SniCertificates, certified,
};
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;

use super::certificates;
use super::connection::from_file;
use super::connections::Protocol;
use super::delegated::Delegated;
use super::signing::read;
use super::trust::Trust;
use crate::apiserver_flags::serving::named_files;
use crate::pki::NamedFiles;

/// The maximum number of connections waiting to be accepted.
const BACKLOG: u32 = 128;

#[derive(Debug, Args)]
#[command(next_help_heading = "Secure port")]
pub(crate) struct Serving {
    /// Address of the secure port.
    #[arg(long, default_value = "0.0.0.0")]
    bind_address: IpAddr,
    /// HTTPS port for health checks, metrics and configuration; 0 disables it.
    #[arg(long, default_value_t = 10257, value_name = "PORT")]
    secure_port: u16,
    /// Certificate of the secure port [default: a self-signed one].
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of --tls-cert-file.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Minimum TLS version: VersionTLS12 or VersionTLS13.
    #[arg(long, default_value = "VersionTLS12", value_name = "VERSION")]
    tls_min_version: MinVersion,
    /// TLS 1.2 cipher suites, by Go's names [default: all secure ones].
    #[arg(long, value_delimiter = ',', value_name = "SUITES")]
    tls_cipher_suites: Vec<String>,
    /// Kubeconfig for TokenReviews [default: the pod's service account, in a pod].
    #[arg(long, value_name = "FILE")]
    authentication_kubeconfig: Option<PathBuf>,
    /// Kubeconfig for SubjectAccessReviews [default: the pod's service account, in a pod].
    #[arg(long, value_name = "FILE")]
    authorization_kubeconfig: Option<PathBuf>,
    /// Paths served without authorization.
    #[arg(long, value_delimiter = ',', default_value = "/healthz,/readyz,/livez", value_name = "PATHS")]
    authorization_always_allow_paths: Vec<String>,
    /// CA bundle for client certificates.
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// CA bundle for front proxies, which pass the user in request headers.
    #[arg(long, value_name = "FILE")]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Common names accepted in front proxy certificates [default: any].
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    requestheader_allowed_names: Vec<String>,
    /// Request headers with the user name.
    #[arg(long, value_delimiter = ',', default_value = "x-remote-user", value_name = "HEADERS")]
    requestheader_username_headers: Vec<String>,
    /// Request headers with the user's UID.
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    requestheader_uid_headers: Vec<String>,
    /// Request headers with groups.
    #[arg(long, value_delimiter = ',', default_value = "x-remote-group", value_name = "HEADERS")]
    requestheader_group_headers: Vec<String>,
    /// Prefixes of request headers with extra user info.
    #[arg(long, value_delimiter = ',', default_value = "x-remote-extra-", value_name = "PREFIXES")]
    requestheader_extra_headers_prefix: Vec<String>,
    /// Directory to keep the self-signed certificate in [default: keep it in memory].
    #[arg(long, value_name = "DIR")]
    cert_dir: Option<PathBuf>,
    /// Certificate and key for some server names: CERT,KEY or CERT,KEY:NAME,NAME. May be repeated.
    #[arg(long, value_name = "FILES", value_parser = named_files)]
    tls_sni_cert_key: Vec<NamedFiles>,
    /// Serve HTTP/1.1 only.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false,
        action = ArgAction::Set, value_name = "BOOL")]
    disable_http2_serving: bool,
    /// Maximum number of concurrent HTTP/2 streams per connection; 0 uses the default.
    #[arg(long, default_value_t = 0, value_name = "N")]
    http2_max_streams_per_connection: u32,
    /// Bind with SO_REUSEADDR, so that lingering connections of an earlier process do not block the port.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false,
        action = ArgAction::Set, value_name = "BOOL")]
    permit_address_sharing: bool,
    /// Bind with SO_REUSEPORT, so that several processes can share the port.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false,
        action = ArgAction::Set, value_name = "BOOL")]
    permit_port_sharing: bool,
    /// Metrics to leave out.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) disabled_metrics: Vec<String>,
}

impl Serving {
    /// Binds the secure port. Returns `None` if it is disabled.
    pub(crate) async fn listen(&self) -> anyhow::Result<Option<TcpListener>> {
        if self.secure_port == 0 {
            return Ok(None);
        }
        let address = (self.bind_address, self.secure_port);
        let listener = self.bind(address.into()).with_context(|| {
            format!("cannot listen on {}:{}: choose another port with --secure-port", address.0, address.1)
        })?;
        Ok(Some(listener))
    }

    fn bind(&self, address: SocketAddr) -> std::io::Result<TcpListener> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(self.permit_address_sharing)?;
        socket.set_reuseport(self.permit_port_sharing)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    }

    /// Returns the HTTP settings of connections.
    pub(crate) fn protocol(&self) -> Protocol {
        let most = self.http2_max_streams_per_connection;
        Protocol { http2: !self.disable_http2_serving, most_streams: (most > 0).then_some(most) }
    }

    /// Returns the client for authenticating and authorizing the clients of the secure port. In shadow mode it only
    /// creates reviews.
    pub(crate) async fn delegated(&self, clock: &Clock, in_shadow: bool) -> anyhow::Result<Delegated> {
        let client = async |flag: &str, path: &Option<PathBuf>| -> anyhow::Result<Option<kube::Client>> {
            let config = match path {
                Some(path) => from_file(path, None).await.with_context(|| format!("--{flag}"))?,
                None => match in_cluster(flag) {
                    Some(config) => config,
                    None => return Ok(None),
                },
            };
            let client = kube::Client::try_from(config).with_context(|| format!("--{flag}"))?;
            Ok(Some(if in_shadow { setpoint_shadow::reviewer(client) } else { client }))
        };
        Ok(Delegated {
            authentication: client("authentication-kubeconfig", &self.authentication_kubeconfig).await?,
            authorization: client("authorization-kubeconfig", &self.authorization_kubeconfig).await?,
            always_allow: self.authorization_always_allow_paths.clone(),
            trust: self.trust(clock)?,
        })
    }

    fn trust(&self, clock: &Clock) -> anyhow::Result<Trust> {
        let pem = |flag: &str, path: &Option<PathBuf>| path.as_ref().map(|path| read(flag, path)).transpose();
        let users = pem("client-ca-file", &self.client_ca_file)?;
        let proxies = pem("requestheader-client-ca-file", &self.requestheader_client_ca_file)?;
        let front_proxy = FrontProxy {
            allowed_names: self.requestheader_allowed_names.clone(),
            username_headers: self.requestheader_username_headers.clone(),
            uid_headers: self.requestheader_uid_headers.clone(),
            group_headers: self.requestheader_group_headers.clone(),
            extra_prefixes: self.requestheader_extra_headers_prefix.clone(),
        };
        Trust::new(users.as_deref(), proxies.as_deref(), front_proxy, clock.clone())
            .context("--client-ca-file and --requestheader-client-ca-file")
    }

    /// Builds the TLS acceptor of the secure port.
    pub(crate) fn acceptor(&self, clock: &Clock) -> anyhow::Result<TlsAcceptor> {
        let (certificate, key) = match (&self.tls_cert_file, &self.tls_private_key_file) {
            (Some(certificate), Some(key)) => {
                (read("tls-cert-file", certificate)?, read("tls-private-key-file", key)?)
            }
            _ => certificates::own(self.cert_dir.as_deref(), self.bind_address, clock)?,
        };
        let protocol =
            TlsProtocol::new(self.tls_min_version, &self.tls_cipher_suites).context("--tls-cipher-suites")?;
        let builder = ServerConfig::builder_with_provider(protocol.provider().clone())
            .with_protocol_versions(protocol.versions())
            .context("--tls-min-version and --tls-cipher-suites leave no cipher suite")?;
        let builder = match self.trust(clock)?.verifier(protocol.provider()) {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let usual = certified(&certificate, &key).context("--tls-cert-file and --tls-private-key-file")?;
        let named = self.tls_sni_cert_key.iter().map(|files| {
            let (certificate, key) = (&files.pair.certificate, &files.pair.key);
            let read = |path| read("tls-sni-cert-key", path);
            let certificate = certified(&read(certificate)?, &read(key)?)
                .with_context(|| format!("--tls-sni-cert-key {},{}", certificate.display(), key.display()))?;
            Ok(NamedCertificate { certificate: Arc::new(certificate), names: files.names.clone() })
        });
        let resolver = SniCertificates::new(Arc::new(usual), &named.collect::<anyhow::Result<Vec<_>>>()?)?;
        let mut config = builder.with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = match self.disable_http2_serving {
            true => vec![b"http/1.1".to_vec()],
            false => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        };
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// Returns a pod's configuration, for a flag that names no kubeconfig. `None` outside of a pod.
fn in_cluster(flag: &str) -> Option<kube::Config> {
    // client-go checks this variable too.
    std::env::var_os("KUBERNETES_SERVICE_HOST")?;
    kube::Config::incluster()
        .inspect_err(|error| tracing::warn!(%error, "cannot read the in-cluster configuration for --{flag}"))
        .ok()
}
