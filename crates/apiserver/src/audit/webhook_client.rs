//! The client of the audit webhook: one HTTPS server, named by a kubeconfig file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;

use super::backend::SendError;
use super::webhook::Post;

/// How long one post may take, as in v1.34: kubeconfig files set no time-out.
const TIMEOUT: Duration = Duration::from_secs(30);
/// As much of an answer is read: only its code counts.
const ANSWER_BYTES: usize = 64 << 10;

/// A kubeconfig file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("kubeconfig {}: {problem}", file.display())]
pub struct WebhookConfigError {
    file: PathBuf,
    problem: String,
}

/// Posts to the server of a kubeconfig file.
pub struct WebhookClient {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: Uri,
    credential: Option<HeaderValue>,
}

impl WebhookClient {
    /// The server of the file's current context. Paths in the file are relative to it.
    pub fn from_kubeconfig(file: &Path) -> Result<Self, WebhookConfigError> {
        let failed = |problem: String| WebhookConfigError { file: file.to_owned(), problem };
        let text = std::fs::read_to_string(file).map_err(|why| failed(why.to_string()))?;
        let written: Written = serde_saphyr::from_str(&text).map_err(|why| failed(why.to_string()))?;
        written.client(file.parent().unwrap_or(Path::new(""))).map_err(failed)
    }

    async fn send(&self, body: Bytes) -> Result<(), SendError> {
        let mut request = Request::post(&self.url)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, */*")
            .header(USER_AGENT, concat!("setpoint/", env!("CARGO_PKG_VERSION")));
        if let Some(credential) = &self.credential {
            request = request.header(AUTHORIZATION, credential);
        }
        let failed = |why: &dyn std::error::Error| {
            SendError::new(format!("cannot post to {}: {}", self.url, causes(why)))
        };
        let request = request.body(Full::new(body)).map_err(|why| failed(&why))?;
        let response = self.http.request(request).await.map_err(|why| failed(&why))?;
        let status = response.status();
        // Read to the end, so that the connection can be used again.
        let _ = Limited::new(response.into_body(), ANSWER_BYTES).collect().await;
        match status.as_u16() {
            200..=206 => Ok(()),
            _ => Err(SendError::new(format!("the audit webhook answered {status}"))),
        }
    }
}

impl Post for WebhookClient {
    fn post(&self, body: Bytes) -> BoxFuture<'_, Result<(), SendError>> {
        let sending = tokio::time::timeout(TIMEOUT, self.send(body));
        let late = |_| Err(SendError::new("the audit webhook did not answer within 30s"));
        sending.map(move |outcome| outcome.unwrap_or_else(late)).boxed()
    }
}

/// An error with what caused it.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Written {
    clusters: Vec<Named>,
    users: Vec<Named>,
    contexts: Vec<Named>,
    current_context: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
    cluster: Cluster,
    user: User,
    context: Context,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Cluster {
    server: String,
    tls_server_name: String,
    insecure_skip_tls_verify: bool,
    certificate_authority: String,
    certificate_authority_data: String,
    proxy_url: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct User {
    client_certificate: String,
    client_certificate_data: String,
    client_key: String,
    client_key_data: String,
    token: String,
    #[serde(rename = "tokenFile")]
    token_file: String,
    username: String,
    password: String,
    exec: Option<serde_json::Value>,
    auth_provider: Option<serde_json::Value>,
}

fn find<'a>(all: &'a [Named], kind: &str, name: &str) -> Result<&'a Named, String> {
    all.iter().find(|named| named.name == name).ok_or_else(|| format!("{kind} {name:?} does not exist"))
}

impl Written {
    fn client(&self, directory: &Path) -> Result<WebhookClient, String> {
        if self.current_context.is_empty() {
            return Err("current-context is not set".into());
        }
        let context = &find(&self.contexts, "context", &self.current_context)?.context;
        let cluster = &find(&self.clusters, "cluster", &context.cluster)?.cluster;
        let nobody = User::default();
        let user = match context.user.as_str() {
            "" => &nobody,
            name => &find(&self.users, "user", name)?.user,
        };
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(cluster.tls(user, directory)?).https_or_http();
        let connector = match cluster.tls_server_name.as_str() {
            "" => connector,
            name => {
                let name =
                    ServerName::try_from(name.to_owned()).map_err(|why| format!("tls-server-name: {why}"))?;
                connector.with_server_name_resolver(FixedServerNameResolver::new(name))
            }
        };
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(connector.enable_all_versions().build());
        Ok(WebhookClient { http, url: cluster.url()?, credential: user.credential(directory)? })
    }
}

impl Cluster {
    /// The URL to post to, with the time-out as clients of Kubernetes send it.
    fn url(&self) -> Result<Uri, String> {
        if !self.proxy_url.is_empty() {
            return Err("proxy-url is not supported".into());
        }
        let bad = |why: &dyn std::fmt::Display| format!("server {:?}: {why}", self.server);
        let url: Uri = self.server.parse().map_err(|why| bad(&why))?;
        if !matches!(url.scheme_str(), Some("https" | "http")) {
            return Err(bad(&"expected a URL that begins with https://"));
        }
        let query = url.query().map(|query| format!("{query}&")).unwrap_or_default();
        let timed = format!("{}?{query}timeout={}s", url.path(), TIMEOUT.as_secs());
        let mut parts = url.into_parts();
        parts.path_and_query = Some(timed.parse().map_err(|why| bad(&why))?);
        Uri::from_parts(parts).map_err(|why| bad(&why))
    }

    fn tls(&self, user: &User, directory: &Path) -> Result<ClientConfig, String> {
        if self.insecure_skip_tls_verify {
            return Err("insecure-skip-tls-verify is not supported: give a certificate-authority".into());
        }
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(|why| why.to_string())?;
        let authority = data(&self.certificate_authority_data, &self.certificate_authority, directory)
            .map_err(|why| format!("certificate-authority: {why}"))?;
        let mut roots = RootCertStore::empty();
        let certificates: Vec<_> =
            CertificateDer::pem_slice_iter(&authority).filter_map(Result::ok).collect();
        let (added, _) = roots.add_parsable_certificates(certificates);
        if added == 0 && !self.server.starts_with("http://") {
            return Err("certificate-authority: expected PEM with at least one certificate".into());
        }
        let builder = builder.with_root_certificates(roots);
        let certificate = data(&user.client_certificate_data, &user.client_certificate, directory)
            .map_err(|why| format!("client-certificate: {why}"))?;
        let key = data(&user.client_key_data, &user.client_key, directory)
            .map_err(|why| format!("client-key: {why}"))?;
        if certificate.is_empty() {
            return Ok(builder.with_no_client_auth());
        }
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&certificate).filter_map(Result::ok).collect();
        let key = PrivateKeyDer::from_pem_slice(&key).ok();
        let key = key.ok_or("client-key: expected a private key as PEM")?;
        builder.with_client_auth_cert(chain, key).map_err(|why| format!("client-certificate: {why}"))
    }
}

impl User {
    fn credential(&self, directory: &Path) -> Result<Option<HeaderValue>, String> {
        if self.exec.is_some() || self.auth_provider.is_some() {
            return Err(
                "exec and auth-provider are not supported: give a token or a client certificate".into()
            );
        }
        let token = match (self.token.as_str(), self.token_file.as_str()) {
            (_, file) if !file.is_empty() => {
                let path = directory.join(file);
                std::fs::read_to_string(&path)
                    .map_err(|why| format!("tokenFile {}: {why}", path.display()))?
            }
            (token, _) => token.to_owned(),
        };
        let header = match (token.trim(), self.username.as_str()) {
            ("", "") => return Ok(None),
            ("", name) => format!("Basic {}", STANDARD.encode(format!("{name}:{}", self.password))),
            (token, _) => format!("Bearer {token}"),
        };
        let mut header = HeaderValue::from_str(&header).map_err(|_| "the credential is no header value")?;
        header.set_sensitive(true);
        Ok(Some(header))
    }
}

/// What is written in the file itself, or in the file it names.
fn data(written: &str, file: &str, directory: &Path) -> Result<Vec<u8>, String> {
    match (written, file) {
        ("", "") => Ok(Vec::new()),
        ("", file) => {
            let path = directory.join(file);
            std::fs::read(&path).map_err(|why| format!("{}: {why}", path.display()))
        }
        (written, _) => STANDARD.decode(written).map_err(|why| format!("expected base64: {why}")),
    }
}
