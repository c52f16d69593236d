//! Kubeconfig files: the URL of a webhook, the trusted certificates, and the credentials.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use parking_lot::Mutex;
use serde::Deserialize;
use setpoint_clock::{Clock, Instant};

use crate::error::CallError;
use crate::tls::{ClientIdentity, TlsSettings};

/// An endpoint to call.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub url: Uri,
    pub tls: TlsSettings,
    pub(crate) credential: Credential,
}

impl Endpoint {
    /// Creates an endpoint without credentials.
    pub fn new(url: Uri, tls: TlsSettings) -> Self {
        Self { url, tls, credential: Credential::None }
    }
}

/// A credential other than a client certificate.
#[derive(Clone)]
pub(crate) enum Credential {
    None,
    Header(HeaderValue),
    /// A token file, reread every minute so that the token can be rotated.
    File(Arc<TokenFile>),
}

pub(crate) struct TokenFile {
    path: PathBuf,
    read: Mutex<Option<(Instant, HeaderValue)>>,
}

/// How long a token read from a file is used, as in v1.34.
const TOKEN_AGE: Duration = Duration::from_secs(60);

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credential")
    }
}

impl Credential {
    pub(crate) fn bearer(token: &str) -> Result<HeaderValue, CallError> {
        let header = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut header =
            header.map_err(|_| CallError::Request("the bearer token is no header value".into()))?;
        header.set_sensitive(true);
        Ok(header)
    }

    pub(crate) fn header(&self, clock: &Clock) -> Result<Option<HeaderValue>, CallError> {
        match self {
            Self::None => Ok(None),
            Self::Header(value) => Ok(Some(value.clone())),
            Self::File(file) => file.header(clock.instant()).map(Some),
        }
    }
}

impl TokenFile {
    fn header(&self, now: Instant) -> Result<HeaderValue, CallError> {
        let mut read = self.read.lock();
        if let Some((at, header)) = &*read
            && now.duration_since(*at) < TOKEN_AGE
        {
            return Ok(header.clone());
        }
        let text = fs::read_to_string(&self.path)
            .map_err(|why| CallError::Request(format!("cannot read {}: {why}", self.path.display())))?;
        let header = Credential::bearer(text.trim())?;
        *read = Some((now, header.clone()));
        Ok(header)
    }
}

/// An error in a kubeconfig file.
#[derive(Debug, thiserror::Error)]
#[error("kubeconfig {}: {problem}", file.display())]
pub struct KubeconfigError {
    pub file: PathBuf,
    pub problem: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
struct RawKubeconfig {
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
    contexts: Vec<NamedContext>,
    current_context: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Clone, Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
struct Cluster {
    server: String,
    tls_server_name: String,
    insecure_skip_tls_verify: bool,
    certificate_authority: String,
    certificate_authority_data: String,
    proxy_url: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Clone, Deserialize, Default)]
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
    #[serde(rename = "as")]
    impersonate: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Clone, Deserialize, Default)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}

impl Endpoint {
    /// Returns the endpoint of the file's current context. Paths in the file are relative to it.
    pub fn from_kubeconfig(file: &Path) -> Result<Self, KubeconfigError> {
        load(file, RawKubeconfig::endpoint)
    }
}

/// The users of a kubeconfig file by host: the identities that the server uses for its clients' webhooks.
#[derive(Clone, Debug, Default)]
pub struct HostUsers {
    by_host: BTreeMap<String, HostUser>,
    /// The user of the current context, for hosts without their own.
    current: Option<HostUser>,
}

/// The server's credentials for a host.
#[derive(Clone, Debug)]
pub(crate) struct HostUser {
    pub(crate) identity: Option<ClientIdentity>,
    pub(crate) credential: Credential,
}

impl HostUsers {
    pub fn from_kubeconfig(file: &Path) -> Result<Self, KubeconfigError> {
        load(file, RawKubeconfig::host_users)
    }

    /// Returns the user for `HOST:PORT`, in v1.34's order: that name, a name with `*` for the first labels, the same
    /// without the port if it is 443, `*`, and the user of the current context.
    pub(crate) fn of(&self, target: &str) -> Option<&HostUser> {
        let named = |host: &str| {
            let dots = host.match_indices('.').map(|(at, _)| &host[at + 1..]);
            let wild = dots.map(|rest| self.by_host.get(&format!("*.{rest}")));
            std::iter::once(self.by_host.get(host)).chain(wild).flatten().next()
        };
        let bare = target.strip_suffix(":443");
        let bare = bare.map(|host| host.trim_start_matches('[').trim_end_matches(']'));
        named(target)
            .or_else(|| bare.and_then(named))
            .or_else(|| self.by_host.get("*"))
            .or(self.current.as_ref())
    }
}

/// Reads a file. Relative paths in it are relative to its directory.
fn load<T>(file: &Path, read: fn(&RawKubeconfig, &Path) -> Result<T, String>) -> Result<T, KubeconfigError> {
    let failed = |problem: String| KubeconfigError { file: file.to_owned(), problem };
    let text = fs::read_to_string(file).map_err(|why| failed(why.to_string()))?;
    let written: RawKubeconfig = serde_saphyr::from_str(&text).map_err(|why| failed(why.to_string()))?;
    read(&written, file.parent().unwrap_or(Path::new(""))).map_err(failed)
}

impl RawKubeconfig {
    fn endpoint(&self, directory: &Path) -> Result<Endpoint, String> {
        let context = self.context()?;
        let cluster = self.clusters.iter().find(|named| named.name == context.cluster);
        let cluster =
            &cluster.ok_or_else(|| format!("cluster {:?} does not exist", context.cluster))?.cluster;
        let user = match context.user.as_str() {
            "" => User::default(),
            name => {
                let found = self.users.iter().find(|named| named.name == name);
                found.ok_or_else(|| format!("user {name:?} does not exist"))?.user.clone()
            }
        };
        let tls = cluster.tls(&user, directory)?;
        Ok(Endpoint { url: cluster.url()?, tls, credential: user.credential(directory)? })
    }

    fn host_users(&self, directory: &Path) -> Result<HostUsers, String> {
        let user = |named: &NamedUser| {
            let failed = |why: String| format!("user {:?}: {why}", named.name);
            let identity = named.user.identity(directory).map_err(failed)?;
            let credential = named.user.credential(directory).map_err(failed)?;
            Ok((named.name.clone(), HostUser { identity, credential }))
        };
        let by_host: BTreeMap<String, HostUser> =
            self.users.iter().map(user).collect::<Result<_, String>>()?;
        let context = self.contexts.iter().find(|named| named.name == self.current_context);
        let current = context.and_then(|named| by_host.get(&named.context.user)).cloned();
        Ok(HostUsers { by_host, current })
    }

    fn context(&self) -> Result<Context, String> {
        if self.current_context.is_empty() {
            return Err("current-context is not set".into());
        }
        let found = self.contexts.iter().find(|named| named.name == self.current_context);
        let context = found.ok_or_else(|| format!("context {:?} does not exist", self.current_context))?;
        Ok(context.context.clone())
    }
}

impl Cluster {
    fn url(&self) -> Result<Uri, String> {
        if self.server.is_empty() {
            return Err("cluster.server is required".into());
        }
        if !self.proxy_url.is_empty() {
            return Err("cluster.proxy-url is not supported".into());
        }
        let has_tls = self.insecure_skip_tls_verify
            || !self.certificate_authority.is_empty()
            || !self.certificate_authority_data.is_empty();
        let text = match (self.server.contains("://"), has_tls) {
            (true, _) => self.server.clone(),
            (false, true) => format!("https://{}", self.server),
            (false, false) => format!("http://{}", self.server),
        };
        let url: Uri = text.parse().map_err(|why| format!("cluster.server {:?}: {why}", self.server))?;
        let is_known = matches!(url.scheme_str(), Some("http" | "https"));
        if !is_known || url.host().is_none_or(str::is_empty) {
            return Err(format!("cluster.server {:?} must be an http or https URL with a host", self.server));
        }
        if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("cluster.server must not contain a user".into());
        }
        Ok(url)
    }

    fn tls(&self, user: &User, directory: &Path) -> Result<TlsSettings, String> {
        let authorities = data_or_file(
            "certificate-authority",
            &self.certificate_authority_data,
            &self.certificate_authority,
            directory,
        )?;
        if self.insecure_skip_tls_verify && authorities.is_some() {
            return Err("specifying a root certificates file with the insecure flag is not allowed".into());
        }
        let server_name = Some(self.tls_server_name.clone()).filter(|name| !name.is_empty());
        let identity = user.identity(directory)?;
        let is_insecure = self.insecure_skip_tls_verify;
        Ok(TlsSettings { authorities, server_name, is_insecure, identity, ..TlsSettings::default() })
    }
}

impl User {
    fn identity(&self, directory: &Path) -> Result<Option<ClientIdentity>, String> {
        let certificate = data_or_file(
            "client-certificate",
            &self.client_certificate_data,
            &self.client_certificate,
            directory,
        )?;
        let key = data_or_file("client-key", &self.client_key_data, &self.client_key, directory)?;
        match (certificate, key) {
            (Some(certificate), Some(key)) => Ok(Some(ClientIdentity { certificate, key })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(
                "client-key-data or client-key must be specified to use the clientCert authentication method"
                    .into(),
            ),
            (None, Some(_)) => {
                Err("client-certificate-data or client-certificate must be specified to use the client key"
                    .into())
            }
        }
    }

    fn credential(&self, directory: &Path) -> Result<Credential, String> {
        if self.exec.is_some() {
            return Err("user.exec: credential plugins are not supported".into());
        }
        if self.auth_provider.is_some() {
            return Err("user.auth-provider is not supported".into());
        }
        if !self.impersonate.is_empty() {
            return Err("user.as: impersonation is not supported".into());
        }
        if !self.token_file.is_empty() {
            let path = directory.join(&self.token_file);
            return Ok(Credential::File(Arc::new(TokenFile { path, read: Mutex::default() })));
        }
        if !self.token.is_empty() {
            return Credential::bearer(&self.token)
                .map(Credential::Header)
                .map_err(|_| "user.token is not a valid header value".into());
        }
        if !self.username.is_empty() {
            let pair = STANDARD.encode(format!("{}:{}", self.username, self.password));
            let mut header =
                HeaderValue::from_str(&format!("Basic {pair}")).map_err(|why| why.to_string())?;
            header.set_sensitive(true);
            return Ok(Credential::Header(header));
        }
        Ok(Credential::None)
    }
}

/// Returns inline base64 data, or else the contents of a file.
fn data_or_file(field: &str, data: &str, file: &str, directory: &Path) -> Result<Option<Vec<u8>>, String> {
    if !data.is_empty() {
        let decoded = STANDARD.decode(data.trim());
        return decoded.map(Some).map_err(|why| format!("{field}-data is not base64: {why}"));
    }
    if file.is_empty() {
        return Ok(None);
    }
    let path = directory.join(file);
    fs::read(&path).map(Some).map_err(|why| format!("{field}: unable to read {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(cluster: &str, user: &str) -> Result<Endpoint, String> {
        let text = format!(
            "clusters: [{{name: c, cluster: {cluster}}}]\nusers: [{{name: u, user: {user}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
        );
        let written: RawKubeconfig = serde_saphyr::from_str(&text).map_err(|why| why.to_string())?;
        written.endpoint(Path::new("/nowhere"))
    }

    #[test]
    fn a_current_context_names_a_cluster_and_a_user() {
        let found = endpoint("{server: 'https://a.example/x', tls-server-name: b}", "{token: t}").unwrap();
        assert_eq!(found.url.to_string(), "https://a.example/x");
        assert_eq!(found.tls.server_name.as_deref(), Some("b"));
        assert!(matches!(found.credential, Credential::Header(_)));
        let plain = endpoint("{server: 'localhost:80'}", "{}").unwrap();
        assert_eq!(plain.url.to_string(), "http://localhost:80/");
    }

    #[test]
    fn a_host_has_the_user_with_the_most_specific_name() {
        let text = "users: [{name: 'a.b.svc:443', user: {token: exact}}, {name: 'c.b.svc', user: {token: bare}}, \
            {name: '*.b.svc', user: {token: wild}}, {name: '*.svc:8443', user: {token: port}}, \
            {name: '*', user: {token: any}}]";
        let written: RawKubeconfig = serde_saphyr::from_str(text).unwrap();
        let users = written.host_users(Path::new("/")).unwrap();
        for (target, expected) in [
            ("a.b.svc:443", "exact"),
            ("c.b.svc:443", "bare"),
            ("d.b.svc:443", "wild"),
            ("d.b.svc:8443", "port"),
            ("other.example:443", "any"),
            ("[::1]:443", "any"),
        ] {
            let Some(HostUser { credential: Credential::Header(header), .. }) = users.of(target) else {
                panic!("{target} has no user");
            };
            assert_eq!(header.to_str().unwrap(), format!("Bearer {expected}"), "{target}");
        }
        assert!(HostUsers::default().of("a.b.svc:443").is_none());
    }

    #[test]
    fn unusable_fields_are_rejected_by_name() {
        let https = "{server: 'https://a'}";
        for (cluster, user, expected) in [
            ("{server: ''}", "{}", "server is required"),
            ("{server: 'ftp://a'}", "{}", "must be an http or https URL"),
            ("{server: 'https://a', proxy-url: 'http://p'}", "{}", "proxy-url"),
            ("{server: 'https://u:p@a'}", "{}", "must not contain a user"),
            ("{server: 'https://a', certificate-authority-data: '!'}", "{}", "certificate-authority-data"),
            (
                "{server: 'https://a', certificate-authority: missing}",
                "{}",
                "unable to read /nowhere/missing",
            ),
            (https, "{exec: {command: x}}", "credential plugins"),
            (https, "{auth-provider: {name: x}}", "auth-provider"),
            (https, "{client-certificate-data: YQ==}", "client-key"),
            (https, "{token: \"a\\nb\"}", "user.token"),
        ] {
            let problem = endpoint(cluster, user).unwrap_err();
            assert!(problem.contains(expected), "{cluster} {user}: {problem}");
        }
    }
}
