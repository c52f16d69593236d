//! Clients for the webhooks that users configure: by URL or by Service, with a CA bundle.
//!
//! Each configuration has one client with its own connection pool. A Service is resolved for every new connection, so
//! that calls follow its endpoints.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::Uri;
use parking_lot::Mutex;
use setpoint_clock::{Clock, Rng};
use tokio::sync::Semaphore;

use crate::client::Client;
use crate::dial::{Dial, Dialed};
use crate::kubeconfig::{Credential, Endpoint, HostUsers};
use crate::settings::Settings;
use crate::tls::{TlsError, TlsSettings};

/// The maximum number of clients, as in v1.34. An idle one holds at most 25 connections for 90 s.
const CAPACITY: usize = 200;

/// The location and CA of a webhook: the `clientConfig` of its configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientConfig {
    pub place: Location,
    /// As PEM. The system's CAs are trusted if it is empty.
    pub ca_bundle: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    Url(String),
    Service { service: ServiceReference, path: String },
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceReference {
    pub namespace: String,
    pub name: String,
    pub port: u16,
}

impl ServiceReference {
    /// Returns the DNS name of the Service in the cluster, which its certificate must be valid for.
    pub fn host(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

/// An address to dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// An IP address or a DNS name.
    pub host: String,
    pub port: u16,
}

/// Resolves a Service to an address.
pub trait Resolve: Send + Sync + 'static {
    /// The error message is returned to clients.
    fn resolve(&self, service: ServiceReference) -> BoxFuture<'static, io::Result<Address>>;
}

/// Why a client cannot be created for a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{0}")]
    Tls(#[from] TlsError),
    #[error("Unparsable URL: {0}")]
    Url(String),
}

/// Clients by configuration.
pub struct Clients {
    dial: Arc<dyn Dial>,
    resolve: Arc<dyn Resolve>,
    users: HostUsers,
    settings: Settings,
    clock: Clock,
    rng: Rng,
    kept: Mutex<CachedClient>,
}

#[derive(Default)]
struct CachedClient {
    clients: BTreeMap<ClientConfig, (u64, Client)>,
    /// Counts uses, to find the least recently used client.
    uses: u64,
}

impl Clients {
    pub fn new(
        dial: Arc<dyn Dial>,
        resolve: Arc<dyn Resolve>,
        users: HostUsers,
        settings: Settings,
        clock: Clock,
        rng: Rng,
    ) -> Self {
        Self { dial, resolve, users, settings, clock, rng, kept: Mutex::default() }
    }

    /// Returns the client of a configuration, creating it if necessary.
    pub fn get(&self, config: &ClientConfig) -> Result<Client, ClientError> {
        if let Some(client) = self.kept.lock().find(config) {
            return Ok(client);
        }
        let client = self.make(config)?;
        self.kept.lock().insert(config.clone(), client.clone());
        Ok(client)
    }

    /// Drops the clients of configurations that are no longer in use. Calls in flight continue.
    pub fn retain(&self, is_used: impl Fn(&ClientConfig) -> bool) {
        self.kept.lock().clients.retain(|config, _| is_used(config));
    }

    fn make(&self, config: &ClientConfig) -> Result<Client, ClientError> {
        let (endpoint, dial) = match &config.place {
            Location::Url(url) => (self.of_url(url, &config.ca_bundle)?, self.dial.clone()),
            Location::Service { service, path } => {
                let url = format!("https://{}:{}{}", service.host(), service.port, joined(path));
                let target = format!("{}:{}", service.host(), service.port);
                let endpoint = self.endpoint(&url, &target, &config.ca_bundle, true)?;
                (endpoint, self.service_dial(service))
            }
        };
        let (settings, clock) = (self.settings.clone(), self.clock.clone());
        Ok(Client::new(endpoint, settings, dial, clock, self.rng.fork())?)
    }

    fn of_url(&self, url: &str, ca_bundle: &[u8]) -> Result<Endpoint, ClientError> {
        let bad = |why: &dyn std::fmt::Display| ClientError::Url(why.to_string());
        let parsed: Uri = url.parse().map_err(|why: http::uri::InvalidUri| bad(&why))?;
        let authority = parsed.authority().ok_or_else(|| bad(&"there is no host"))?;
        let target = match authority.port_u16() {
            Some(_) => authority.as_str().to_owned(),
            None => format!("{}:443", authority.host()),
        };
        let scheme = parsed.scheme_str().unwrap_or("https");
        let url = format!("{scheme}://{authority}{}", joined(parsed.path()));
        self.endpoint(&url, &target, ca_bundle, !is_local(authority.host()))
    }

    fn endpoint(
        &self,
        url: &str,
        target: &str,
        ca_bundle: &[u8],
        http1_only: bool,
    ) -> Result<Endpoint, ClientError> {
        let url: Uri = url.parse().map_err(|why: http::uri::InvalidUri| ClientError::Url(why.to_string()))?;
        let user = self.users.of(target);
        let tls = TlsSettings {
            authorities: (!ca_bundle.is_empty()).then(|| ca_bundle.to_vec()),
            identity: user.and_then(|user| user.identity.clone()),
            // Connections within this process have no TLS, so the system's CAs need not be loaded.
            is_insecure: url.host().is_some_and(|host| self.dial.is_in_process(host)),
            // On a shared connection, responses that wait for a place would block those that have one.
            http1_only: http1_only || self.settings.responses < Semaphore::MAX_PERMITS,
            ..TlsSettings::default()
        };
        let credential = user.map_or(Credential::None, |user| user.credential.clone());
        Ok(Endpoint { url, tls, credential })
    }

    fn service_dial(&self, service: &ServiceReference) -> Arc<dyn Dial> {
        let (service, dial, resolve) = (service.clone(), self.dial.clone(), self.resolve.clone());
        Arc::new(ServiceDial { service, dial, resolve })
    }
}

impl CachedClient {
    fn find(&mut self, config: &ClientConfig) -> Option<Client> {
        let (used, client) = self.clients.get_mut(config)?;
        self.uses += 1;
        *used = self.uses;
        Some(client.clone())
    }

    fn insert(&mut self, config: ClientConfig, client: Client) {
        if self.clients.len() >= CAPACITY
            && let Some(oldest) = self.clients.iter().min_by_key(|(_, (used, _))| *used)
        {
            let oldest = oldest.0.clone();
            self.clients.remove(&oldest);
        }
        self.uses += 1;
        self.clients.insert(config, (self.uses, client));
    }
}

/// Cleans a path as Go's `path.Join("/", path)` does.
fn joined(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => _ = segments.pop(),
            segment => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

/// Whether the host of a URL is this machine.
fn is_local(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = host.parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Dials endpoints of a Service.
struct ServiceDial {
    service: ServiceReference,
    dial: Arc<dyn Dial>,
    resolve: Arc<dyn Resolve>,
}

impl Dial for ServiceDial {
    fn dial(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Dialed>> {
        let dial = self.dial.clone();
        if dial.is_in_process(&host) {
            return dial.dial(host, port);
        }
        let resolving = self.resolve.resolve(self.service.clone());
        Box::pin(async move {
            let Address { host, port } = resolving.await?;
            dial.dial(host, port).await
        })
    }

    fn is_in_process(&self, host: &str) -> bool {
        self.dial.is_in_process(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_process::InProcess;

    struct UnreachableResolver;

    impl Resolve for UnreachableResolver {
        fn resolve(&self, service: ServiceReference) -> BoxFuture<'static, io::Result<Address>> {
            Box::pin(std::future::ready(Err(io::Error::other(format!(
                "service {:?} not found",
                service.name
            )))))
        }
    }

    #[test]
    fn clients_are_kept_up_to_a_bound_and_while_they_are_used() {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        let (dial, resolve) = (Arc::new(InProcess::default()), Arc::new(UnreachableResolver));
        let settings = Settings::default();
        let clients = Clients::new(dial, resolve, HostUsers::default(), settings, clock, Rng::seeded(1));
        let config = |number: usize| ClientConfig {
            place: Location::Url(format!("https://hook.example/{number}")),
            ca_bundle: Vec::new(),
        };
        for number in 0..=CAPACITY {
            clients.get(&config(number)).unwrap();
            clients.get(&config(0)).unwrap();
        }
        let is_kept = |number: usize| clients.kept.lock().clients.contains_key(&config(number));
        assert_eq!(clients.kept.lock().clients.len(), CAPACITY);
        assert!(is_kept(0) && !is_kept(1) && is_kept(CAPACITY), "the one that was not used for longest goes");
        clients.retain(|used| *used == config(5));
        assert_eq!(clients.kept.lock().clients.len(), 1);
    }

    #[test]
    fn paths_are_cleaned_as_go_does() {
        for (path, expected) in
            [("", "/"), ("/", "/"), ("x", "/x"), ("/x/", "/x"), ("//a//b/../c/.", "/a/c"), ("/../x", "/x")]
        {
            assert_eq!(joined(path), expected, "{path:?}");
        }
    }

    #[test]
    fn only_loopback_is_local() {
        for (host, expected) in
            [("localhost", true), ("127.0.0.9", true), ("[::1]", true), ("10.0.0.1", false), ("a.b", false)]
        {
            assert_eq!(is_local(host), expected, "{host}");
        }
    }
}
