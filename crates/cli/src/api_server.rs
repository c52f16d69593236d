//! The API server of `setpoint up` and `setpoint apiserver`: what their flags say, and what runs beside it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::future;
use rustix::process::{Resource, getrlimit, setrlimit};
use setpoint::leader::host_name;
use setpoint::{Clock, Runtime};
use setpoint_apiserver::admission::{AdmissionConfiguration, DynPlugin};
use setpoint_apiserver::aggregation::{AggregationConfig, ClusterTrust, FrontProxyTrust};
use setpoint_apiserver::auth::{FrontProxy, Outbound};
use setpoint_apiserver::egress::EgressConfig;
use setpoint_apiserver::services::first_address;
use setpoint_apiserver::tls::LOOPBACK_NAME;
use setpoint_apiserver::{ApiServer, Config, admission};
use setpoint_cluster::Cluster;
use setpoint_controllers::FeatureGates;
use setpoint_encryption::Encryption;
use setpoint_store::{DurableOptions, DurableStore, MemoryStore, Store};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::apiserver_flags::admission::AdmissionFlags;
use crate::apiserver_flags::apis::ApiFlags;
use crate::apiserver_flags::audit::AuditFlags;
use crate::apiserver_flags::authentication::AuthenticationFlags;
use crate::apiserver_flags::authorization::AuthorizationFlags;
use crate::apiserver_flags::encryption::{EncryptionFlags, health_checks};
use crate::apiserver_flags::etcd::EtcdFlags;
use crate::apiserver_flags::limits::LimitFlags;
use crate::apiserver_flags::proxying::ProxyingFlags;
use crate::apiserver_flags::serving::ServingFlags;
use crate::apiserver_flags::snapshots::{ScheduledSnapshots, SnapshotFlags};
use crate::kubeconfig;
use crate::pki::{
    Credentials, Directory, FRONT_PROXY_CLIENT, KUBELET_CLIENT, ProxyClient, ProxyClientSource, Served,
};

/// How long the delivery of audit events may take after the server has stopped: one request to a webhook.
const AUDIT_DRAIN: Duration = Duration::from_secs(30);

/// What the flags of a command say about its API server.
pub(crate) struct Settings<'a> {
    pub(crate) port: u16,
    /// The flag that sets the port, for messages.
    pub(crate) port_flag: &'static str,
    pub(crate) bind_address: IpAddr,
    /// The address at which others reach it. Unset, it is found out.
    pub(crate) advertise_address: Option<IpAddr>,
    /// The directory of the store and the certificates. `None`: all state is in memory.
    pub(crate) data_dir: Option<&'a Path>,
    pub(crate) service_cluster_ip_range: &'a str,
    pub(crate) node_ports: (u16, u16),
    /// Whether this server is an endpoint of the `kubernetes` Service.
    pub(crate) is_endpoint: bool,
    pub(crate) enable_admission_plugins: Vec<String>,
    pub(crate) disable_admission_plugins: &'a [String],
    pub(crate) feature_gates: &'a FeatureGates,
    pub(crate) apis: &'a ApiFlags,
    pub(crate) admission: &'a AdmissionFlags,
    pub(crate) authentication: &'a AuthenticationFlags,
    pub(crate) authorization: &'a AuthorizationFlags,
    pub(crate) audit: &'a AuditFlags,
    pub(crate) serving: &'a ServingFlags,
    pub(crate) proxying: &'a ProxyingFlags,
    pub(crate) encryption: &'a EncryptionFlags,
    pub(crate) etcd: &'a EtcdFlags,
    pub(crate) snapshots: &'a SnapshotFlags,
    pub(crate) limits: &'a LimitFlags,
}

/// What the flags allow and forbid, found out before anything is opened.
pub(crate) struct Checked {
    admission: Vec<Box<dyn DynPlugin>>,
    pub(crate) egress: EgressConfig,
}

/// An API server that is ready to start.
pub(crate) struct Prepared {
    pub(crate) config: Config,
    pub(crate) parts: Parts,
}

/// What an API server needs besides its configuration.
pub(crate) struct Parts {
    listener: TcpListener,
    /// `https://host:port`.
    pub(crate) url: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) credentials: Credentials,
    pub(crate) encryption: Option<Arc<Encryption>>,
    served: Served,
    front_proxies: FrontProxies,
    kubelet_client: ProxyClient,
    snapshots: Option<ScheduledSnapshots>,
    clock: Clock,
}

impl Settings<'_> {
    /// Checks what can be checked without opening anything.
    pub(crate) fn check(&self) -> anyhow::Result<Checked> {
        self.proxying.check(self.feature_gates)?;
        let configuration = self.admission.configuration()?;
        let admission = self.plugins(&configuration)?;
        let egress = self.admission.egress(&configuration, self.proxying.routes_to_endpoints())?;
        Ok(Checked { admission, egress })
    }

    fn plugins(&self, configuration: &AdmissionConfiguration) -> anyhow::Result<Vec<Box<dyn DynPlugin>>> {
        let (enable, disable) = (&self.enable_admission_plugins, self.disable_admission_plugins);
        Ok(admission::configured_plugins(enable, disable, configuration)?)
    }

    /// Returns the address at which others reach this server.
    fn advertised(&self) -> Option<IpAddr> {
        self.advertise_address.or_else(|| advertised(self.bind_address))
    }

    /// Returns where clients on this host reach the server, under a name that its certificate has.
    fn url(&self, listening: SocketAddr) -> String {
        let host = match listening.ip() {
            any if any.is_unspecified() => self.advertised().unwrap_or(Ipv4Addr::LOCALHOST.into()),
            one => one,
        };
        format!("https://{}", SocketAddr::new(host, listening.port()))
    }

    /// Opens the store and the certificates, and listens.
    pub(crate) async fn prepare(&self, checked: Checked, runtime: &Runtime) -> anyhow::Result<Prepared> {
        let settings = self;
        let mut service_accounts = settings.authentication.service_accounts()?;
        let listener = listen(settings).await?;
        let url = settings.url(listener.local_addr()?);
        let encryption = settings.encryption.load(runtime).await?;
        let Opened { store, durable } = open(settings, runtime, encryption.as_ref()).await?;
        let snapshots = settings.snapshots.prepare(durable.as_ref(), settings.data_dir, &runtime.clock)?;
        let pki = Directory::new(settings.data_dir.map(|directory| directory.join("pki")));
        let credentials = Credentials::prepare(&pki, settings.authentication.token_signer()?, &runtime.clock)
            .context("cannot prepare the certificates")?;
        service_accounts.keys.extend(credentials.retired_keys.iter().cloned());
        let front_proxies = FrontProxies::prepare(settings, &pki, &runtime.clock)
            .context("cannot prepare the certificates of front proxies")?;
        let kubelet_client = kubelet_client(settings, &pki, &credentials, &runtime.clock)
            .context("cannot prepare the client certificate for kubelets")?;
        let served = served(settings, &pki, &credentials, &front_proxies, &runtime.clock)?;

        let outbound = Outbound::new(runtime.clock.clone(), runtime.rng.fork());
        let allows_everything = settings.authorization.allows_everything();
        let front_proxy = front_proxies.trusted.as_ref().map(|(_, headers)| headers.clone());
        let authenticator = settings.authentication.authenticator(
            &service_accounts,
            &outbound,
            allows_everything,
            front_proxy,
        )?;
        let authorizers = settings.authorization.authorizers(store.clone(), outbound.clone())?;
        let config = Config::new(store.clone(), runtime.clock.clone(), runtime.rng.fork()).with_roles();
        let mut config = Config {
            service_cidr: settings.service_cluster_ip_range.to_owned(),
            node_ports: settings.node_ports,
            secure_port: listener.local_addr()?.port(),
            advertise_address: settings.advertised().filter(|_| settings.is_endpoint),
            hostname: Some(host_name()),
            authenticator,
            service_accounts,
            authorizer: Arc::new(authorizers),
            auth_metrics: outbound.metrics.clone(),
            admission: checked.admission,
            egress: checked.egress,
            aggregation: aggregation(settings, &front_proxies, &served),
            kubelets: settings.proxying.kubelets(kubelet_client.identity())?,
            audit: settings.audit.config(&outbound)?,
            health_checks: health_checks(encryption.as_ref()),
            token_signer: Some(credentials.token_signer.clone()),
            ..Cluster::with_gates(config, settings.feature_gates)
        };
        config = settings.limits.apply(config)?;
        settings.apis.apply(&mut config)?;
        let clock = runtime.clock.clone();
        let parts = Parts {
            listener,
            url,
            store,
            credentials,
            encryption,
            served,
            front_proxies,
            kubelet_client,
            snapshots,
            clock,
        };
        Ok(Prepared { config, parts })
    }
}

impl Parts {
    /// Serves until `stop`, then ends requests, watches and connections, and closes the store.
    pub(crate) async fn serve(self, api: &ApiServer, stop: CancellationToken) {
        let serving = api.clone().serve(self.listener, self.served.tls().clone(), stop.clone());
        let maintaining = api.maintain(stop.clone());
        let following = async {
            if let Some(encryption) = &self.encryption {
                encryption.follow_file(stop.clone()).await;
            }
        };
        let certificates = future::join3(
            self.served.follow(stop.clone()),
            self.front_proxies.client.follow(stop.clone()),
            self.kubelet_client.follow(stop.clone()),
        );
        let saving = async {
            if let Some(snapshots) = self.snapshots {
                snapshots.run(stop.clone()).await;
            }
        };
        tokio::join!(serving, maintaining, following, certificates, saving);
        if tokio::time::timeout(AUDIT_DRAIN, api.close_audit()).await.is_err() {
            tracing::warn!("some audit events were not delivered before the server stopped");
        }
        self.store.close().await;
    }

    /// Waits for `stop`, then makes the server unready, and waits until load balancers had time to notice.
    pub(crate) fn delay(
        &self,
        api: &ApiServer,
        limits: &LimitFlags,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + use<> {
        let (api, clock, delay) = (api.clone(), self.clock.clone(), limits.shutdown_delay());
        async move {
            stop.cancelled().await;
            api.begin_shutdown();
            clock.sleep(delay).await;
        }
    }
}

/// Raises the limit on open files, because every watcher may hold a connection, and shells often limit programs to a
/// thousand. Without permission to raise it, the server accepts as many as it can.
pub(crate) fn allow_connections() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "cannot raise the limit on open files");
    }
}

/// Returns the address at which others reach this host: the bind address, unless that is local. Otherwise the source
/// address of outgoing packets. Nothing is sent to find out.
fn advertised(bind_address: IpAddr) -> Option<IpAddr> {
    let is_own = |address: &IpAddr| address.is_loopback() || address.is_unspecified();
    if !is_own(&bind_address) {
        return Some(bind_address);
    }
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    // An address reserved for documentation, which no host has.
    socket.connect(("192.0.2.1", 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !is_own(address))
}

async fn listen(settings: &Settings<'_>) -> anyhow::Result<TcpListener> {
    let address = (settings.bind_address, settings.port);
    TcpListener::bind(address).await.with_context(|| {
        format!(
            "cannot listen on {}:{}: choose another port with {}",
            address.0, address.1, settings.port_flag
        )
    })
}

/// An open store.
struct Opened {
    store: Arc<dyn Store>,
    /// The same, if it is in a data directory.
    durable: Option<Arc<DurableStore>>,
}

async fn open(
    settings: &Settings<'_>,
    runtime: &Runtime,
    encryption: Option<&Arc<Encryption>>,
) -> anyhow::Result<Opened> {
    let clock = runtime.clock.clone();
    let Some(directory) = settings.data_dir else {
        if encryption.is_some() {
            tracing::warn!("--in-memory: nothing is stored, so nothing is encrypted");
        }
        return Ok(Opened { store: Arc::new(MemoryStore::new(clock)), durable: None });
    };
    let features = Cluster::features(settings.feature_gates);
    if let Some(store) = settings.etcd.open(encryption, &features, &clock).await? {
        return Ok(Opened { store, durable: None });
    }
    let options = DurableOptions::default();
    let opened = match encryption {
        Some(encryption) => DurableStore::open_encrypted(directory, clock, options, encryption.clone()).await,
        None => DurableStore::open_with(directory, clock, options),
    };
    let opened = opened.with_context(|| format!("cannot open the data directory {}", directory.display()))?;
    let durable = Arc::new(opened);
    Ok(Opened { store: durable.clone(), durable: Some(durable) })
}

/// Loads the serving certificates and trusted CAs.
fn served(
    settings: &Settings<'_>,
    pki: &Directory,
    credentials: &Credentials,
    front_proxies: &FrontProxies,
    clock: &Clock,
) -> anyhow::Result<Served> {
    let service = first_address(settings.service_cluster_ip_range);
    let mut addresses: Vec<IpAddr> =
        [Some(settings.bind_address), settings.advertised(), service].into_iter().flatten().collect();
    addresses.retain(|address| !address.is_unspecified());
    let reads_uid = settings.feature_gates.on("AllowParsingUserUIDFromCertAuth");
    let authorities = front_proxies.trusted.as_ref().map(|(authorities, _)| authorities.clone());
    let files = settings.serving.files(pki, addresses, reads_uid, authorities)?;
    Served::start(files, settings.serving.protocol()?, credentials.authority(), clock)
        .context("cannot prepare the certificates")
}

/// Uses the client certificate that the flags name, or generates one, as kubeadm does.
fn kubelet_client(
    settings: &Settings<'_>,
    pki: &Directory,
    credentials: &Credentials,
    clock: &Clock,
) -> anyhow::Result<ProxyClient> {
    let source = match settings.proxying.kubelet_client() {
        Some(files) => ProxyClientSource::Files(files),
        None => ProxyClientSource::Generated {
            directory: pki.clone(),
            authority: credentials.authority().clone(),
            certificate: KUBELET_CLIENT,
        },
    };
    ProxyClient::start(source, "kubelets", clock)
}

/// The certificate for aggregated API servers, and the front proxies that this server itself trusts.
struct FrontProxies {
    client: ProxyClient,
    /// Their CAs as PEM, and the headers in which they name the user.
    trusted: Option<(String, FrontProxy)>,
}

impl FrontProxies {
    /// Uses what the flags name. If they name nothing, generates a CA and a certificate, as kubeadm does.
    fn prepare(settings: &Settings<'_>, pki: &Directory, clock: &Clock) -> anyhow::Result<Self> {
        let (files, trusted) = (settings.proxying.proxy_client(), settings.authentication.front_proxies()?);
        let (source, trusted) = match (files, trusted) {
            (Some(files), trusted) => (ProxyClientSource::Files(files), trusted),
            (None, Some(trusted)) => (ProxyClientSource::None, Some(trusted)),
            (None, None) => {
                let authority = pki.front_proxy_authority(clock.now())?;
                let certificate = pki.front_proxy_authorities(&authority, clock.now())?;
                let (directory, names) = (pki.clone(), vec![FRONT_PROXY_CLIENT.user.to_owned()]);
                let source =
                    ProxyClientSource::Generated { directory, authority, certificate: FRONT_PROXY_CLIENT };
                (source, Some((certificate, FrontProxy { allowed_names: names, ..FrontProxy::standard() })))
            }
        };
        Ok(Self { client: ProxyClient::start(source, "aggregated API servers", clock)?, trusted })
    }

    /// What aggregated API servers need to know of them.
    fn trust(&self) -> Option<FrontProxyTrust> {
        let (ca, headers) = self.trusted.clone()?;
        Some(FrontProxyTrust {
            ca,
            allowed_names: headers.allowed_names,
            username_headers: headers.username_headers,
            uid_headers: headers.uid_headers,
            group_headers: headers.group_headers,
            extra_prefixes: headers.extra_prefixes,
        })
    }
}

fn aggregation(settings: &Settings<'_>, front_proxies: &FrontProxies, served: &Served) -> AggregationConfig {
    let (clients, front_proxy) = (served.client_authorities(), front_proxies.trust());
    let trust = move || ClusterTrust { client_ca: clients.read().clone(), front_proxy: front_proxy.clone() };
    AggregationConfig {
        identity: front_proxies.client.identity(),
        rejects_redirects: settings.proxying.rejects_redirects(),
        trust: Some(Arc::new(trust)),
    }
}

/// Writes the kubeconfig of the administrator.
pub(crate) fn write_kubeconfig(
    settings: &Settings<'_>,
    path: &Path,
    server: &str,
    credentials: &Credentials,
) -> anyhow::Result<()> {
    let access = kubeconfig::Access {
        server,
        certificate_authority: &credentials.bundle(),
        client_certificate: &credentials.admin.certificate,
        client_key: &credentials.admin.key,
        server_name: settings.serving.shows_other_certificate().then_some(LOOPBACK_NAME),
    };
    kubeconfig::write(path, &access)
}
