//! A trusted issuer.

use std::sync::Arc;

use parking_lot::RwLock;
use setpoint_clock::Clock;
use setpoint_token::Algorithm;
use setpoint_webhook::{Client, Endpoint, Settings, TlsSettings};

use super::claims::Mapper;
use super::config::IssuerConfig;
use super::distributed::{Resolver, Terms};
use super::keys::Keys;
use super::verify;
use crate::auth::User;
use crate::auth::config_file::ConfigError;
use crate::auth::union::Outbound;

/// Response size limit; discovery documents and key sets are a few KiB.
const ANSWER_BYTES: usize = 1 << 20;

pub(super) struct Issuer {
    config: IssuerConfig,
    mapper: Mapper,
    client: Client,
    clock: Clock,
    /// `None` until discovery succeeds.
    keys: RwLock<Option<Arc<Keys>>>,
    resolver: Resolver,
}

impl Issuer {
    pub(super) fn new(config: &IssuerConfig, outbound: &Outbound) -> Result<Self, ConfigError> {
        let issuer = &config.issuer;
        if !issuer.egress_selector_type.is_empty() {
            let kind = &issuer.egress_selector_type;
            return Err(ConfigError(format!(
                "oidc: egress lookup required with egress selector type {kind:?}"
            )));
        }
        let authorities = Some(issuer.certificate_authority.clone()).filter(|pem| !pem.is_empty());
        let tls = TlsSettings { authorities: authorities.map(String::into_bytes), ..TlsSettings::default() };
        let url = issuer.url.parse().map_err(|why| ConfigError(format!("issuer {:?}: {why}", issuer.url)))?;
        let settings = Settings { answer_bytes: ANSWER_BYTES, ..Settings::default() };
        Ok(Self {
            config: config.clone(),
            mapper: Mapper::new(config).map_err(ConfigError)?,
            client: outbound.client(Endpoint::new(url, tls), settings)?,
            clock: outbound.clock.clone(),
            keys: RwLock::new(None),
            resolver: Resolver::default(),
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.config.issuer.url
    }

    /// Runs discovery to find the issuer's keys, unless already done.
    pub(super) async fn discover(&self) -> Result<(), String> {
        if self.keys.read().is_some() {
            return Ok(());
        }
        let discovery_url = Some(self.config.issuer.discovery_url.as_str()).filter(|url| !url.is_empty());
        let keys = Keys::discover(self.url(), discovery_url, &self.client, &self.clock).await?;
        *self.keys.write() = Some(Arc::new(keys));
        Ok(())
    }

    /// Authenticates a token; `None` if it is from another issuer.
    pub(super) async fn authenticate(
        &self,
        token: &str,
        algorithms: &[Algorithm],
    ) -> Result<Option<User>, String> {
        if verify::issuer_of(token).as_deref() != Some(self.url()) {
            return Ok(None);
        }
        let keys = self.keys.read().clone().ok_or("oidc: authenticator not initialized")?;
        let now = self.clock.now();
        let audiences = &self.config.issuer.audiences;
        let claims = verify::verified(token, &keys, audiences, algorithms, now).await;
        let mut claims = claims.map_err(|why| format!("oidc: verify token: {why}"))?;
        if let Some(claim) = self.mapper.groups_claim() {
            let (client, clock) = (&self.client, &self.clock);
            let terms = Terms { client, clock, audiences, algorithms, now };
            let expanded = self.resolver.expand(claim, &mut claims, &terms).await;
            expanded.map_err(|why| format!("oidc: could not expand distributed claims: {why}"))?;
        }
        self.mapper.user(&claims).map(Some)
    }
}
