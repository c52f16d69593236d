//! The server: its configuration, its shared state, and its entry point.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response};
use jiff::Timestamp;
use serde_json::json;
use setpoint_clock::{Clock, Rng};
use setpoint_store::{Record, Revision, Store};
use setpoint_token::TokenSigner;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::webhooks::Webhooks;
use crate::admission::{self, AdmissionMetrics, DynPlugin, Policies};
use crate::aggregation::{Aggregation, AggregationConfig, publish_trust, register_built_in};
use crate::apply::Transitions;
use crate::audit::{Audit, AuditConfig};
use crate::auth::legacy_tokens::Tracking;
use crate::auth::{
    Attributes, AuthMetrics, Authenticator, Authorizer, Authorizers, MastersOnly, ServiceAccounts, User,
    bootstrap,
};
use crate::body::Body;
use crate::chain::{self, Caller, Payload};
use crate::custom::conversion::Conversions;
use crate::custom::definitions::Definitions;
use crate::egress::EgressConfig;
use crate::features::Features;
use crate::flow::{Flow, FlowSettings, WatchLimits, Watches};
use crate::health::HealthCheck;
use crate::json::Json;
use crate::kind::Kind;
use crate::kubelet::{KubeletConfig, Kubelets};
use crate::loopback::managed_by;
use crate::metrics::ServerMetrics;
use crate::registry::{CurrentRegistry, Gvr, Registry, Served};
use crate::request::ResourceTarget;
use crate::rest::watch::{Recent, RecordWatch};
use crate::selector::Selection;
use crate::serve::ServeSettings;
use crate::services::{self, ServiceAllocator};
use crate::status::{Named, Status};
use crate::system_objects::{self, RecreatePolicy, ServerAddresses, SystemObject};

/// The configuration of a server.
pub struct Config {
    pub store: Arc<dyn Store>,
    pub clock: Clock,
    pub rng: Rng,
    pub kinds: Vec<Kind>,
    /// The enabled feature gates.
    pub features: Features,
    /// The ranges of cluster IPs: one, or one per family separated by a comma.
    pub service_cidr: String,
    /// The range of node ports: the first and the last.
    pub node_ports: (u16, u16),
    /// Authenticates requests.
    pub authenticator: Authenticator,
    /// Settings for issuing and verifying service account tokens.
    pub service_accounts: ServiceAccounts,
    /// Signs service account tokens; without it none are issued or accepted.
    pub token_signer: Option<TokenSigner>,
    pub authorizer: Arc<dyn Authorizer>,
    /// Authentication and authorization metrics.
    pub auth_metrics: Arc<AuthMetrics>,
    /// Whether to write the bootstrap roles at startup.
    pub bootstrap_roles: bool,
    /// The port for clients outside the cluster: the target of the `kubernetes` service.
    pub secure_port: u16,
    /// The address for these clients, if there is one: the endpoint of that service.
    pub advertise_address: Option<IpAddr>,
    /// Admission plugins, in order.
    pub admission: Vec<Box<dyn DynPlugin>>,
    /// How to reach webhooks that are configured by objects, and kubelets.
    pub egress: EgressConfig,
    /// How requests are forwarded to extension API servers.
    pub aggregation: AggregationConfig,
    pub kubelets: KubeletConfig,
    /// Timeout of requests that are not long-running.
    pub request_timeout: Duration,
    /// Audit configuration; `None` disables auditing.
    pub audit: Option<AuditConfig>,
    /// Additional checks of `/healthz` and `/readyz`.
    pub health_checks: Vec<HealthCheck>,
    /// Limits on requests in flight; without them no request waits or is rejected.
    pub flow: Option<FlowSettings>,
    pub watch_limits: WatchLimits,
    /// Minimum duration of a watch that sets no timeout of its own; the maximum is twice that.
    pub min_request_timeout: Duration,
    pub serving: ServeSettings,
    /// The name of this host, which identifies the server among those on the same store. Without it, the server keeps no
    /// Lease.
    pub hostname: Option<String>,
    /// Additional metrics for `/metrics`, in the Prometheus text format.
    pub metrics: Option<Metrics>,
    /// Answers below `/debug/setpoint`: what the controllers in this process are doing.
    pub introspection: Option<Introspect>,
}

/// Answers a path and a query with a JSON document, if the path exists.
pub type Introspect = Arc<dyn Fn(&str, &[(&str, &str)]) -> Option<String> + Send + Sync>;

/// Writes metrics as text.
pub type Metrics = Arc<dyn Fn() -> String + Send + Sync>;

impl Config {
    /// Returns the defaults of `setpoint up` on this store.
    pub fn new(store: Arc<dyn Store>, clock: Clock, rng: Rng) -> Self {
        Self {
            store,
            clock,
            rng,
            kinds: crate::kinds::all(),
            features: Features::default(),
            service_cidr: "10.0.0.0/16".into(),
            node_ports: (30000, 32767),
            authenticator: Authenticator::new(),
            service_accounts: ServiceAccounts::default(),
            token_signer: None,
            authorizer: Arc::new(MastersOnly),
            auth_metrics: Arc::default(),
            bootstrap_roles: false,
            secure_port: 6443,
            advertise_address: None,
            admission: admission::default_plugins(),
            egress: EgressConfig::default(),
            aggregation: AggregationConfig::default(),
            kubelets: KubeletConfig::default(),
            request_timeout: Duration::from_secs(60),
            audit: None,
            health_checks: Vec::new(),
            flow: None,
            watch_limits: WatchLimits::default(),
            min_request_timeout: Duration::from_secs(1800),
            serving: ServeSettings::default(),
            hostname: None,
            metrics: None,
            introspection: None,
        }
    }

    /// Serves what these features add to the defaults.
    #[must_use]
    pub fn with_features(self, features: Features) -> Self {
        Self { kinds: crate::kinds::with(&features), features, ..self }
    }

    /// Authorizes by RBAC, with the bootstrap roles, instead of allowing only `system:masters`.
    #[must_use]
    pub fn with_roles(self) -> Self {
        let (clock, rng) = (self.clock.clone(), self.rng.clone());
        let authorizer = Authorizers::nodes_and_roles(self.store.clone(), clock, rng);
        let auth_metrics = authorizer.metrics();
        Self { authorizer: Arc::new(authorizer), auth_metrics, bootstrap_roles: true, ..self }
    }

    /// Authorizes by the bootstrap roles without storing them: for simulations that start by the thousand. Stored
    /// roles have no effect there.
    #[must_use]
    pub fn with_built_in_roles(self) -> Self {
        let (clock, rng) = (self.clock.clone(), self.rng.clone());
        let authorizer = Authorizers::built_in(self.store.clone(), &self.features, clock, rng);
        let auth_metrics = authorizer.metrics();
        Self { authorizer: Arc::new(authorizer), auth_metrics, ..self }
    }
}

/// Why a server failed to start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the range of service addresses {cidr:?} is not usable: {problem}")]
    ServiceRange { cidr: String, problem: String },
    #[error("a kind cannot be served")]
    Kind(#[from] crate::registry::UnknownSchema),
    #[error("cannot prepare the store: {0}")]
    Store(Box<Status>),
}

/// The API server. Cheap to clone; clones share one server.
#[derive(Clone)]
pub struct ApiServer(pub(crate) Arc<Server>);

/// State shared by all requests.
pub struct Server {
    /// This server, for tasks that outlive a request.
    pub(crate) this: Weak<Server>,
    pub(crate) place: ServerAddresses,
    pub store: Arc<dyn Store>,
    pub clock: Clock,
    pub rng: Rng,
    pub registry: CurrentRegistry,
    pub(crate) authenticator: Authenticator,
    pub(crate) service_accounts: ServiceAccounts,
    pub(crate) auth_metrics: Arc<AuthMetrics>,
    pub(crate) token_signer: Option<TokenSigner>,
    pub(crate) features: Features,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) admission: Vec<Box<dyn DynPlugin>>,
    pub(crate) webhooks: Webhooks,
    pub(crate) aggregation: Aggregation,
    pub(crate) kubelets: Arc<Kubelets>,
    pub(crate) policies: Policies,
    pub(crate) admission_metrics: AdmissionMetrics,
    pub(crate) services: ServiceAllocator,
    pub(crate) health_checks: Vec<HealthCheck>,
    pub(crate) metrics: Option<Metrics>,
    pub(crate) introspection: Option<Introspect>,
    pub(crate) measured: ServerMetrics,
    pub(crate) body_room: chain::DecodeBudget,
    /// Encoded events shared by watchers of the same representation.
    pub(crate) recent_events: Arc<Recent>,
    pub(crate) definitions: Definitions,
    pub(crate) conversions: Arc<Conversions>,
    pub(crate) transitions: Transitions,
    pub(crate) token_tracking: Tracking,
    /// Timeout of requests that are not long-running.
    pub(crate) request_timeout: Duration,
    pub(crate) audit: Option<Arc<Audit>>,
    pub(crate) flow: Option<Flow>,
    pub(crate) watches: Watches,
    pub(crate) min_request_timeout: Duration,
    pub(crate) serving: ServeSettings,
    pub(crate) hostname: Option<String>,
    /// Cancelled when shutdown begins: the server is no longer ready.
    pub(crate) stopping: CancellationToken,
    /// Mutating requests in progress.
    pub(crate) tasks: TaskTracker,
    /// Ends open watches when cancelled.
    pub(crate) closing: CancellationToken,
}

impl ApiServer {
    /// Starts with the contents of the store and creates missing system namespaces.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let registry = Registry::new(config.kinds)?;
        let (cidrs, ports) = (&config.service_cidr, config.node_ports);
        let services = ServiceAllocator::new(cidrs, ports, &config.store, config.rng.fork())?;
        let cluster_ip = services::first_address(&config.service_cidr).map(|address| address.to_string());
        let place = ServerAddresses {
            range: config.service_cidr,
            cluster_ip: cluster_ip.unwrap_or_default(),
            address: config.advertise_address,
            port: config.secure_port,
        };
        let audit = config.audit.map(|audit| Audit::start(audit, &config.clock));
        let flow =
            config.flow.map(|settings| Flow::new(settings, config.store.clone(), config.clock.clone()));
        let webhooks = Webhooks::new(&config.egress, &config.store, &config.clock, &config.rng);
        let aggregation =
            Aggregation::new(config.aggregation, &config.egress, &config.store, &config.clock, &config.rng);
        let kubelets = Arc::new(Kubelets::new(config.kubelets, config.egress.dial.clone()));
        let policies = Policies::new(config.store.clone());
        let closing = CancellationToken::new();
        let conversions =
            Conversions::new(&config.egress, &config.store, &config.clock, &config.rng, closing.clone());
        let conversions = Arc::new(conversions);
        let server = Arc::new_cyclic(|this| Server {
            this: this.clone(),
            place,
            flow,
            watches: Watches::new(config.watch_limits),
            min_request_timeout: config.min_request_timeout,
            serving: config.serving,
            hostname: config.hostname,
            stopping: CancellationToken::new(),
            store: config.store,
            clock: config.clock,
            rng: config.rng,
            registry: CurrentRegistry::new(registry),
            authenticator: config.authenticator,
            service_accounts: config.service_accounts.settled(config.token_signer.as_ref()),
            auth_metrics: config.auth_metrics,
            token_signer: config.token_signer,
            features: config.features.clone(),
            authorizer: config.authorizer,
            admission: config.admission,
            webhooks,
            aggregation,
            kubelets,
            policies,
            admission_metrics: AdmissionMetrics::default(),
            services,
            health_checks: config.health_checks,
            metrics: config.metrics,
            introspection: config.introspection,
            measured: ServerMetrics::default(),
            body_room: chain::DecodeBudget::default(),
            recent_events: Arc::default(),
            definitions: Definitions::default(),
            conversions,
            transitions: Transitions::default(),
            token_tracking: Tracking::default(),
            request_timeout: config.request_timeout,
            audit,
            tasks: TaskTracker::new(),
            closing,
        });
        server.reconcile_definitions().await;
        let server = Self(server);
        let now = crate::metadata::seconds(server.0.now());
        for own in system_objects::all(&server.0, &now) {
            server.ensure(&own).await.map_err(|why| StartError::Store(Box::new(why)))?;
        }
        let failed = |why| StartError::Store(Box::new(why));
        register_built_in(&server.0).await.map_err(failed)?;
        publish_trust(&server.0).await;
        server.0.keep_token_tracking().await;
        services::repair::repair(&server.0).await.map_err(|why| StartError::Store(Box::new(why)))?;
        if config.bootstrap_roles {
            bootstrap::ensure(&server, &config.features)
                .await
                .map_err(|why| StartError::Store(Box::new(why)))?;
        }
        server.compact_bootstrap_writes().await;
        server.0.webhooks.start();
        Ok(server)
    }

    /// Compacts the initial writes to a new store: as in v1.34, the first versions are too old to be watched or
    /// listed.
    async fn compact_bootstrap_writes(&self) {
        let store = &self.0.store;
        if store.compacted() == 0
            && let Err(error) = store.compact(store.revision()).await
        {
            tracing::warn!(%error, "cannot compact the bootstrap writes");
        }
    }

    /// Recreates deleted objects that the server owns: those that return soon, or all that return at run time.
    pub(crate) async fn recreate_system_objects(&self, only_soon: bool) {
        let now = crate::metadata::seconds(self.0.now());
        let returns = |own: &SystemObject| match own.returns {
            RecreatePolicy::NextStart => false,
            RecreatePolicy::Soon => true,
            RecreatePolicy::WithinAMinute => !only_soon,
        };
        for own in system_objects::all(&self.0, &now).into_iter().filter(returns) {
            if self.is_missing(&own).await
                && let Err(why) = self.ensure(&own).await
            {
                tracing::warn!(%why, resource = own.resource.resource, "cannot create a system object");
            }
        }
    }

    async fn is_missing(&self, own: &SystemObject) -> bool {
        let Ok(served) = self.0.served(&own.resource) else { return false };
        let metadata = own.object.at("metadata");
        let key = served.key(Some(metadata.text("namespace")), metadata.text("name"));
        matches!(self.0.store.get(&key, None).await, Ok(None))
    }

    /// Creates an object that the server owns, unless it exists.
    async fn ensure(&self, own: &SystemObject) -> Result<(), Status> {
        if self.registry().get(&own.resource).is_none() {
            return Ok(());
        }
        let metadata = own.object.at("metadata");
        let (namespace, name) = (metadata.text("namespace"), metadata.text("name"));
        let path = managed_by(own.manager, &system_objects::path(&own.resource, namespace, ""));
        let this = system_objects::path(&own.resource, namespace, name);
        // Includes 422: an existing service is invalid because it already holds its own address.
        let created = self.0.loopback_request(Method::POST, &path, &own.object, &[409, 422]).await?;
        match (&own.status, created) {
            (Some((manager, status)), true) => {
                let path = format!("{}&force=true", managed_by(manager, &format!("{this}/status")));
                let served = self.0.served(&own.resource)?;
                let mut applied = json!({"metadata": {"name": name}, "status": status});
                served.name_kind(&mut applied);
                self.0.loopback_apply(&path, &applied, &[]).await?;
            }
            (_, false) if own.follows => {
                _ = self.0.loopback_request(Method::PUT, &this, &own.object, &[]).await?
            }
            _ => {}
        }
        Ok(())
    }

    /// Handles a request. HTTP and in-process clients both use this entry point.
    pub async fn handle(&self, user: impl Into<Arc<User>>, request: Request<Bytes>) -> Response<Body> {
        chain::handle(&self.0, Caller::InProcess(user.into()), request.map(Payload::Read)).await
    }

    /// Handles a request as if from a connection without a client certificate: its headers identify the sender.
    pub async fn handle_unauthenticated(&self, request: Request<Bytes>) -> Response<Body> {
        let (certificate, peer) = (Arc::default(), IpAddr::from([127, 0, 0, 1]));
        let caller = Caller::Connection { certificate, peer, slot: None };
        chain::handle(&self.0, caller, request.map(Payload::Read)).await
    }

    /// Waits for writes in progress, whether or not their clients still wait for the response.
    pub async fn finish_writes(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Delivers buffered audit events. Call this when there are no more requests.
    pub async fn close_audit(&self) {
        if let Some(audit) = &self.0.audit {
            audit.close().await;
        }
    }

    /// Whether a user may read a selection of objects; `verb` is `list` or `watch`.
    pub async fn may_read(
        &self,
        user: &User,
        verb: &str,
        gvr: &Gvr,
        selection: &Selection,
    ) -> Result<(), Status> {
        let target = ResourceTarget {
            group: gvr.group.clone(),
            version: gvr.version.clone(),
            resource: gvr.resource.clone(),
            namespace: selection.namespace.clone(),
            field_selector: selection.fields.clone().unwrap_or_default(),
            ..ResourceTarget::default()
        };
        let attributes = Attributes { user, verb, path: "", resource: Some(&target) };
        let decision = self.0.authorizer.authorize(&attributes).await;
        if decision.is_allowed() { Ok(()) } else { Err(attributes.forbidden(decision.reason())) }
    }

    /// Lists the records of a selection, in the version of the resource, with the revision of the read.
    pub async fn list_records(
        &self,
        gvr: &Gvr,
        selection: &Selection,
    ) -> Result<(Vec<Arc<Record>>, Revision), Status> {
        let served = self.0.served(gvr)?;
        let choice = selection.parse(&served)?;
        let page = self.0.store.list(&choice.range(&served), setpoint_store::ListOptions::default()).await;
        let page = page.map_err(|why| self.0.refusal(why))?;
        let records = self.0.conversions.records(&served, page.records).await?;
        Ok((choice.select_records(records, &served).await, page.revision))
    }

    /// Encodes records for this resource, without managed fields. Usually these are the store's own bytes.
    pub fn shown(&self, gvr: &Gvr, records: &[Arc<Record>]) -> Result<Vec<Bytes>, Status> {
        let served = self.0.served(gvr)?;
        records.iter().map(|record| served.bare_bytes(record)).collect()
    }

    /// Watches the changes of a selection after a revision.
    pub async fn watch_records(
        &self,
        gvr: &Gvr,
        selection: &Selection,
        from: Revision,
    ) -> Result<RecordWatch, Status> {
        let served = self.0.served(gvr)?;
        let choice = selection.parse(&served)?;
        self.0.watch(served, choice, from)
    }

    /// Returns the facts about a record of this resource: labels, owners, timestamps.
    pub fn facts<'a>(&self, gvr: &Gvr, record: &'a Record) -> Result<&'a crate::facts::Facts, Status> {
        let served = self.0.served(gvr)?;
        Ok(crate::facts::Facts::of(record, &served))
    }

    /// Returns the kinds currently served.
    pub fn registry(&self) -> Arc<Registry> {
        self.0.registry.snapshot()
    }

    /// Whether requests for a group version are forwarded to another server, available or not.
    pub async fn forwards(&self, group: &str, version: &str) -> bool {
        let found = self.0.api_services(|services| services.remote(group, version).is_some()).await;
        found.unwrap_or(false)
    }

    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Returns a generator whose numbers follow from this server's seed.
    pub fn fork_rng(&self) -> Rng {
        self.0.rng.fork()
    }

    /// Returns the latest revision.
    pub fn revision(&self) -> Revision {
        self.0.store.revision()
    }

    /// Ends all open watches. Requests are still handled.
    pub fn close_watches(&self) {
        self.0.closing.cancel();
    }
}

impl Server {
    pub(crate) fn served(&self, gvr: &Gvr) -> Result<Arc<Served>, Status> {
        self.registry.snapshot().get(gvr).cloned().ok_or_else(Status::no_such_resource)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Converts a store error to a response.
    pub(crate) fn refusal(&self, error: setpoint_store::Error) -> Status {
        use setpoint_store::Error;
        match error {
            Error::Compacted { .. } => Status::expired("The provided resource version is too old."),
            Error::Future { requested, newest } => Status::too_large_resource_version(requested, newest),
            Error::Conflict { .. } => Status::conflict(Named::default(), "", crate::rest::MODIFIED),
            Error::Closed => Status::unavailable("the server is shutting down"),
            Error::Full => Status::unavailable(FULL),
            // v1.34 passes etcd's own words on.
            Error::Unavailable(why) | Error::Refused(why) => Status::unknown(why),
            error @ (Error::Io(_) | Error::Transform(_)) => Status::internal(error),
        }
    }

    /// Converts a written object to the other served versions in the background, if a webhook does that.
    pub(crate) fn convert_in_background(&self, served: &Arc<Served>, record: &Arc<Record>) {
        if !served.is_converted_by_webhook() {
            return;
        }
        let registry = self.registry.snapshot();
        let is_other = |other: &&Arc<Served>| {
            other.kind.stored_as == served.kind.stored_as && other.kind.version != served.kind.version
        };
        let versions = registry.group(&served.kind.group).into_iter().flat_map(|group| &group.versions);
        let of_kind = versions.filter_map(|version| version.resources.get(&served.kind.plural));
        of_kind.filter(is_other).for_each(|other| self.conversions.convert_in_background(other, record));
    }

    /// Whether objects of this kind have addresses and ports.
    pub(crate) fn claims_for(&self, served: &Served) -> bool {
        served.kind.stored_as == services::SERVICES
    }
}

/// The error for writes while the disk is full.
const FULL: &str = "the disk of the data directory is full, so the write was not stored: free some space there. Reads \
     and watches continue, and writes work again as soon as there is space; no restart is needed";

/// Warnings for the client, collected while its request is handled.
#[derive(Default)]
pub struct Warnings(parking_lot::Mutex<Vec<String>>);

/// The total length of warnings in a response, in characters, as in v1.34. If exceeded, each warning is truncated.
const WARNING_CHARACTERS: usize = 4 << 10;
const CUT_WARNING_CHARACTERS: usize = 256;
/// Maximum number of distinct warnings: more than a response has room for, as each takes at least about 20 bytes.
pub(crate) const MAX_WARNINGS: usize = 256;

impl Warnings {
    pub fn add(&self, text: impl Into<String>) {
        let text = text.into();
        let mut all = self.0.lock();
        if !text.is_empty() && all.len() < MAX_WARNINGS && !all.contains(&text) {
            all.push(text);
        }
    }

    /// Writes the warnings to a response's headers.
    pub(crate) fn attach(self, response: &mut Response<Body>) {
        let mut texts = self.0.into_inner();
        texts.retain(|text| !text.chars().any(char::is_control));
        for text in within_limit(&texts) {
            if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{}\"", quoted(text)).as_bytes()) {
                response.headers_mut().append(http::header::WARNING, value);
            }
        }
    }
}

/// Returns all warnings, or the beginnings of the first ones if they are too long together.
fn within_limit(texts: &[String]) -> Vec<&str> {
    let total: usize = texts.iter().map(|text| text.chars().count()).sum();
    if total <= WARNING_CHARACTERS {
        return texts.iter().map(String::as_str).collect();
    }
    let mut written = 0;
    let mut cut = Vec::new();
    for text in texts {
        if written >= WARNING_CHARACTERS {
            break;
        }
        let end = text.char_indices().nth(CUT_WARNING_CHARACTERS).map_or(text.len(), |(at, _)| at);
        written += text[..end].chars().count();
        cut.push(&text[..end]);
    }
    cut
}

/// Escapes quotes and backslashes for a quoted string in a header.
fn quoted(text: &str) -> String {
    let mut inside = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\\' => inside.extend(['\\', character]),
            character => inside.push(character),
        }
    }
    inside
}
