//! A server's ordered authorizers, and their replacement at run time.

use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use setpoint_clock::{Clock, Rng};
use setpoint_store::Store;
use setpoint_webhook::{Client, Dial, Endpoint, Settings, Tcp};
use tokio_util::sync::CancellationToken;

use super::access_webhook::AccessWebhook;
use super::aggregate::aggregate;
use super::always::Always;
use super::authorization_config::{AuthorizationConfig, AuthorizerKind};
use super::authorize::{Attributes, Authorizer, Decision, UserRules, Verdict};
use super::config_file::ConfigError;
use super::metrics::{AuthMetrics, Config};
use super::node::Nodes;
use super::rbac::{Rbac, RoleRef, Rule};
use super::reload::{POLL_INTERVAL, Watched};
use super::{MASTERS, User, bootstrap};
use crate::features::Features;

/// Dependencies for connecting to other servers.
#[derive(Clone)]
pub struct Outbound {
    pub dial: Arc<dyn Dial>,
    pub clock: Clock,
    pub rng: Rng,
    pub metrics: Arc<AuthMetrics>,
}

impl Outbound {
    /// Creates the dependencies for connecting over the network.
    pub fn new(clock: Clock, rng: Rng) -> Self {
        Self { dial: Arc::new(Tcp), clock, rng, metrics: Arc::default() }
    }

    pub(crate) fn client(&self, endpoint: Endpoint, settings: Settings) -> Result<Client, ConfigError> {
        let (dial, clock, rng) = (self.dial.clone(), self.clock.clone(), self.rng.fork());
        Client::new(endpoint, settings, dial, clock, rng).map_err(|why| ConfigError(why.to_string()))
    }
}

/// Consults authorizers in order until one decides. `system:masters` may do everything regardless.
pub struct Authorizers {
    nodes: Arc<Nodes>,
    roles: Arc<Rbac>,
    outbound: Outbound,
    /// The authorizer types that the server was started with: a new configuration must have the same, except for
    /// webhooks.
    types: Vec<&'static str>,
    current: RwLock<Arc<[Member]>>,
    file: Option<Mutex<Watched>>,
}

struct Member {
    kind: &'static str,
    name: String,
    authorizer: Arc<dyn Authorizer>,
}

impl Authorizers {
    pub fn new(
        store: Arc<dyn Store>,
        config: &AuthorizationConfig,
        outbound: Outbound,
    ) -> Result<Self, ConfigError> {
        let mut authorizers = Self {
            nodes: Arc::new(Nodes::new(store.clone())),
            roles: Arc::new(Rbac::new(store)),
            outbound,
            types: config.types(),
            current: RwLock::new(Arc::new([])),
            file: None,
        };
        authorizers.current = RwLock::new(authorizers.build(config)?);
        Ok(authorizers)
    }

    /// Creates the node and RBAC authorizers.
    pub fn nodes_and_roles(store: Arc<dyn Store>, clock: Clock, rng: Rng) -> Self {
        Self::of(Nodes::new(store.clone()), Rbac::new(store), clock, rng)
    }

    /// Like [`nodes_and_roles`](Self::nodes_and_roles), but with the bootstrap roles only, regardless of the store:
    /// for simulations that start by the thousand and need no roles of their own.
    pub fn built_in(store: Arc<dyn Store>, features: &Features, clock: Clock, rng: Rng) -> Self {
        let (roles, rules) = bootstrap::built_in(features);
        Self::of(Nodes::with_rules(store.clone(), rules), Rbac::fixed(store, roles), clock, rng)
    }

    fn of(nodes: Nodes, roles: Rbac, clock: Clock, rng: Rng) -> Self {
        let (nodes, roles) = (Arc::new(nodes), Arc::new(roles));
        let member = |kind, name: &str, authorizer| Member { kind, name: name.to_owned(), authorizer };
        let members: [Member; 2] =
            [member("Node", "node", nodes.clone()), member("RBAC", "rbac", roles.clone())];
        let types = vec!["Node", "RBAC"];
        let current = RwLock::new(members.into());
        Self { nodes, roles, outbound: Outbound::new(clock, rng), types, current, file: None }
    }

    /// Watches a file whose text is already in effect.
    #[must_use]
    pub fn following(self, file: &Path, text: &str) -> Self {
        self.outbound.metrics.configured(Config::Authorization, text);
        Self { file: Some(Watched::new(file, text).into()), ..self }
    }

    /// Applies the file's text if it has changed, and returns it.
    fn look(&self, file: &Mutex<Watched>) -> Result<Option<String>, String> {
        let changed = file.lock().changed().map_err(|why| why.to_string())?;
        let Some(text) = changed else { return Ok(None) };
        file.lock().mark_handled(text.clone());
        let config = AuthorizationConfig::parse(&text).map_err(|why| why.to_string())?;
        self.replace(&config).map_err(|why| why.to_string())?;
        Ok(Some(text))
    }

    pub fn metrics(&self) -> Arc<AuthMetrics> {
        self.outbound.metrics.clone()
    }

    /// Switches to another configuration. If it is invalid, nothing changes.
    pub fn replace(&self, config: &AuthorizationConfig) -> Result<(), ConfigError> {
        let types = config.types();
        let missing: Vec<_> = self.types.iter().filter(|kind| !types.contains(kind)).copied().collect();
        if !missing.is_empty() {
            return Err(ConfigError(format!("missing required types: [{}]", missing.join(" "))));
        }
        if let Some(added) = types.iter().find(|kind| !self.types.contains(kind)) {
            return Err(ConfigError(format!(
                "authorizer type {added} is not allowed if it was not enabled at initial server startup"
            )));
        }
        *self.current.write() = self.build(config)?;
        Ok(())
    }

    fn build(&self, config: &AuthorizationConfig) -> Result<Arc<[Member]>, ConfigError> {
        let build = |(name, kind): &(String, AuthorizerKind)| {
            let authorizer: Arc<dyn Authorizer> = match kind {
                AuthorizerKind::Node => self.nodes.clone(),
                AuthorizerKind::Rbac => self.roles.clone(),
                AuthorizerKind::AlwaysAllow => Arc::new(Always::Allow),
                AuthorizerKind::AlwaysDeny => Arc::new(Always::Deny),
                AuthorizerKind::Webhook(options) => {
                    Arc::new(AccessWebhook::new(name, options, &self.outbound)?)
                }
            };
            Ok(Member { kind: kind.name(), name: name.clone(), authorizer })
        };
        config.authorizers.iter().map(build).collect()
    }

    async fn ask(&self, attributes: &Attributes<'_>) -> Decision {
        let members = self.current.read().clone();
        let (mut reasons, mut errors) = (Vec::new(), Vec::new());
        for member in &*members {
            let decision = member.authorizer.authorize(attributes).await;
            if decision.verdict != Verdict::NoOpinion {
                self.outbound.metrics.decided(member.kind, &member.name, decision.is_allowed());
                return decision;
            }
            errors.extend(decision.error);
            reasons.extend(Some(decision.reason).filter(|reason| !reason.is_empty()));
        }
        Decision { verdict: Verdict::NoOpinion, reason: reasons.join("\n"), error: aggregate(&errors) }
    }
}

impl Authorizer for Authorizers {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        if attributes.user.is_in(MASTERS) {
            return Box::pin(std::future::ready(Decision::allow("")));
        }
        Box::pin(self.ask(attributes))
    }

    fn rules<'a>(&'a self, user: &'a User, namespace: Option<&'a str>) -> BoxFuture<'a, UserRules> {
        Box::pin(async move {
            let members = self.current.read().clone();
            let mut all = UserRules::default();
            for member in &*members {
                let held = member.authorizer.rules(user, namespace).await;
                all.rules.extend(held.rules);
                all.errors.extend(held.errors);
                all.is_incomplete |= held.is_incomplete;
            }
            all
        })
    }

    fn role_rules<'a>(&'a self, user: &'a User, namespace: Option<&'a str>) -> BoxFuture<'a, UserRules> {
        self.roles.rules(user, namespace)
    }

    fn follow(&self, stop: CancellationToken) -> BoxFuture<'_, ()> {
        let Some(file) = &self.file else { return Box::pin(std::future::ready(())) };
        Box::pin(async move {
            loop {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = self.outbound.clock.sleep(POLL_INTERVAL) => {}
                }
                let reloaded = |text: Option<&str>| {
                    let now = self.outbound.clock.now();
                    self.outbound.metrics.reloaded(Config::Authorization, text, now);
                };
                match self.look(file) {
                    Ok(None) => {}
                    Ok(Some(text)) => reloaded(Some(&text)),
                    Err(why) => {
                        tracing::error!(why, "cannot reload the authorization configuration");
                        reloaded(None);
                    }
                }
            }
        })
    }

    fn role<'a>(
        &'a self,
        role: &'a RoleRef,
        namespace: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Vec<Rule>, String>> {
        self.roles.role(role, namespace)
    }
}
