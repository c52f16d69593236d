//! `setpoint up`: runs a whole control plane in this process.

use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use futures::future;
use rustix::process::{Resource, getrlimit, setrlimit};
use setpoint::{Clock, Rng, Runtime};
use setpoint_apiserver::admission::AdmissionConfiguration;
use setpoint_apiserver::aggregation::{AggregationConfig, ClusterTrust, FrontProxyTrust};
use setpoint_apiserver::auth::{FrontProxy, Outbound};
use setpoint_apiserver::services::first_address;
use setpoint_apiserver::tls::LOOPBACK_NAME;
use setpoint_apiserver::{Config, Introspect, Metrics, admission};
use setpoint_cluster::webhooks::json_response;
use setpoint_cluster::{Build, Cluster, Components, add_webhooks};
use setpoint_controllers::{Options, VolumeBinderSettings};
use setpoint_encryption::Encryption;
use setpoint_oam::admission::{self as application_checks, Admission};
use setpoint_store::{DurableOptions, DurableStore, MemoryStore, Store};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::apiserver_flags::encryption::health_checks;
use crate::args::Up;
use crate::controller_manager::controller_flags::selection;
use crate::member_clusters::MemberClusters;
use crate::operator::Operators;
use crate::pki::{
    Credentials, Directory, FRONT_PROXY_CLIENT, KUBELET_CLIENT, ProxyClient, ProxyClientSource, Served,
};
use crate::requests::Requests;
use crate::reviews::Reviews;
use crate::{kubeconfig, kubelet_access, process};

/// How long the delivery of audit events may take after the server has stopped: one request to a webhook.
const AUDIT_DRAIN: Duration = Duration::from_secs(30);

pub(crate) async fn run(arguments: Up) -> anyhow::Result<()> {
    allow_connections();
    let controllers = selection(&arguments.controllers)?;
    arguments.controllers.warn_of_gates();
    arguments.proxying.check(&arguments.controllers.feature_gates)?;
    let configuration = arguments.admission.configuration()?;
    let admission = admission_plugins(&arguments, &configuration)?;
    let egress = arguments.admission.egress(&configuration, arguments.proxying.routes_to_endpoints())?;
    let requests = Requests::new(egress.dial.clone()).context("cannot prepare requests of workflow steps")?;
    let dial_members = egress.dial.clone();
    let dial_hooks = egress.dial.clone();
    let mut service_accounts = arguments.authentication.service_accounts()?;
    let runtime = Runtime { clock: Clock::system(), rng: Rng::from_entropy() };
    let members = MemberClusters::new(dial_members, &runtime);
    let operators = arguments.operators.as_deref();
    let operators = operators
        .map(|path| Operators::read(path, dial_hooks, &runtime.clock))
        .transpose()
        .context("--operators")?;
    let listener = listen(&arguments).await?;
    let server = format!("https://{}", listener.local_addr()?);
    let encryption = arguments.encryption.load(&runtime).await?;
    let store = store(&arguments, &runtime, encryption.as_ref()).await?;
    let pki = Directory::new((!arguments.in_memory).then(|| arguments.data_dir.join("pki")));
    let credentials = Credentials::prepare(&pki, arguments.authentication.token_signer()?, &runtime.clock)
        .context("cannot prepare the certificates")?;
    service_accounts.keys.extend(credentials.retired_keys.iter().cloned());
    let front_proxies = FrontProxies::prepare(&arguments, &pki, &runtime.clock)
        .context("cannot prepare the certificates of front proxies")?;
    let kubelet_client = kubelet_client(&arguments, &pki, &credentials, &runtime.clock)
        .context("cannot prepare the client certificate for kubelets")?;
    let served = served(&arguments, &pki, &credentials, &front_proxies, &runtime.clock)?;

    let outbound = Outbound::new(runtime.clock.clone(), runtime.rng.fork());
    let allows_everything = arguments.authorization.allows_everything();
    let front_proxy = front_proxies.trusted.as_ref().map(|(_, headers)| headers.clone());
    let authenticator = arguments.authentication.authenticator(
        &service_accounts,
        &outbound,
        allows_everything,
        front_proxy,
    )?;
    let authorizers = arguments.authorization.authorizers(store.clone(), outbound.clone())?;

    let controller_metrics = ControllerMetrics::default();
    let config = Config::new(store.clone(), runtime.clock.clone(), runtime.rng.fork()).with_roles();
    let mut config = Config {
        service_cidr: arguments.service_cluster_ip_range.clone(),
        secure_port: listener.local_addr()?.port(),
        advertise_address: advertised(arguments.bind_address),
        authenticator,
        service_accounts,
        authorizer: Arc::new(authorizers),
        auth_metrics: outbound.metrics.clone(),
        admission,
        egress,
        aggregation: aggregation(&arguments, &front_proxies, &served),
        kubelets: arguments.proxying.kubelets(kubelet_client.identity())?,
        audit: arguments.audit.config(&outbound)?,
        health_checks: health_checks(encryption.as_ref()),
        metrics: Some(metrics_of(&controller_metrics, encryption.clone())),
        introspection: Some(introspection_of(&controller_metrics)),
        token_signer: Some(credentials.token_signer.clone()),
        ..Cluster::with_gates(config, &arguments.controllers.feature_gates)
    };
    config = arguments.limits.apply(config)?;
    arguments.apis.apply(&mut config)?;
    if arguments.nodes > 0 {
        Cluster::serve_metrics(&mut config);
    }
    let webhooks = arguments.applications.then(|| add_webhooks(&mut config, application_checks::HOST));
    let cluster = Cluster::with_pod_backends(config, runtime, arguments.pod_backends()).await?;
    let parts = Components {
        controllers,
        controller_options: options(&arguments, &credentials)?,
        controller_accounts: true,
        scheduler: !arguments.no_scheduler,
        nodes: arguments.nodes,
        zones: arguments.zones.get(),
        node_events: true,
        missing_images: arguments.missing_images.clone(),
        own: custom_controllers(&arguments, Arc::new(requests), Arc::new(members), operators.as_ref()),
        ..Components::default()
    };
    if arguments.proxying.kubelet_client().is_none() {
        kubelet_access::allow(&cluster.client()).await?;
    }
    if arguments.default_storage_class {
        make_default_storage_class(&cluster.client()).await?;
    }
    if arguments.applications {
        install_applications(&cluster).await?;
    }
    if let Some(operators) = &operators {
        operators.apply(&cluster.client(), &cluster.runtime().clock).await.context("--operators")?;
    }
    let stop = stop_signal()?;
    write_kubeconfig(&arguments, &server, &credentials)?;
    announce(&arguments, &server, &parts);

    // Controllers drain while the API server still responds. Watches and connections end after them, and not before
    // load balancers have had time to notice.
    let drained = CancellationToken::new();
    let manager = cluster.manager(&parts);
    _ = controller_metrics.set(manager.context().metrics.clone());
    if let Some(webhooks) = &webhooks {
        let reviews = Reviews::new(Admission::new(manager.context()));
        webhooks.handle_with(application_checks::HOST, application_checks::PATH, move |review| {
            let reviews = reviews.clone();
            async move { Some(json_response(200, &reviews.review(review).await)) }
        });
    }
    let delaying = async {
        stop.cancelled().await;
        cluster.api().begin_shutdown();
        cluster.runtime().clock.sleep(arguments.limits.shutdown_delay()).await;
    };
    let managing = async {
        // If the manager ends on its own, stop everything else.
        let managed = async {
            manager.run(stop.clone()).await;
            stop.cancel();
        };
        tokio::join!(managed, delaying);
        drained.cancel();
    };
    let serving = cluster.api().clone().serve(listener, served.tls().clone(), drained.clone());
    let maintaining = cluster.api().maintain(drained.clone());
    let following = async {
        if let Some(encryption) = &encryption {
            encryption.follow_file(drained.clone()).await;
        }
    };
    let certificates = future::join3(
        served.follow(drained.clone()),
        front_proxies.client.follow(drained.clone()),
        kubelet_client.follow(drained.clone()),
    );
    let reloading = async {
        if let Some(operators) = &operators {
            let following = operators.follow(cluster.client(), cluster.runtime().clock.clone());
            drained.run_until_cancelled(following).await;
        }
    };
    tokio::join!(managing, serving, maintaining, following, certificates, reloading);
    if tokio::time::timeout(AUDIT_DRAIN, cluster.api().close_audit()).await.is_err() {
        tracing::warn!("some audit events were not delivered before the server stopped");
    }
    store.close().await;
    Ok(())
}

/// Installs the kinds and definitions of applications, and the webhook that checks them in this process.
async fn install_applications(cluster: &Cluster) -> anyhow::Result<()> {
    let (client, clock) = (cluster.client(), &cluster.runtime().clock);
    setpoint_oam::install(&client, clock).await.context("cannot install the kinds of applications")?;
    let place = serde_json::json!({"url": format!("https://{}{}", application_checks::HOST, application_checks::PATH)});
    application_checks::register(&client, &place).await.context("cannot register the webhook of applications")
}

/// Returns the controllers beside the built-in ones.
fn custom_controllers(
    arguments: &Up,
    requests: Arc<Requests>,
    members: Arc<MemberClusters>,
    operators: Option<&Operators>,
) -> Vec<Build> {
    let operators = operators.map(Operators::build);
    let applications = arguments.applications.then(|| applications(requests, members));
    operators.into_iter().chain(applications).collect()
}

/// Returns the controllers of applications.
fn applications(requests: Arc<Requests>, members: Arc<MemberClusters>) -> Build {
    Arc::new(move |context| {
        let mut options = setpoint_oam::Options::default();
        options.egress = Some(requests.clone());
        options.connect = Some(members.clone());
        setpoint_oam::runnables_with(context, &options)
    })
}

/// NodeRestriction is on unless it is disabled, because simulated nodes use their own identities.
fn admission_plugins(
    arguments: &Up,
    configuration: &AdmissionConfiguration,
) -> anyhow::Result<Vec<Box<dyn admission::DynPlugin>>> {
    let (mut enable, disable) =
        (arguments.enable_admission_plugins.clone(), &arguments.disable_admission_plugins);
    if !disable.iter().any(|name| name == admission::NODE_RESTRICTION) {
        enable.push(admission::NODE_RESTRICTION.to_owned());
    }
    Ok(admission::configured_plugins(&enable, disable, configuration)?)
}

/// Creates the StorageClass for claims that name none, unless it exists.
async fn make_default_storage_class(client: &setpoint::Client) -> anyhow::Result<()> {
    let class = serde_json::json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": "standard",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/host-path",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    let kind = setpoint::Kind::new("storage.k8s.io", "v1", "StorageClass", "storageclasses", false);
    match client.create(&kind, None, &class).await {
        Err(error) if !error.is_already_exists() => {
            Err(error).context("cannot create the default StorageClass")
        }
        _ => Ok(()),
    }
}

/// The metrics of the controllers, once they have started.
type ControllerMetrics = Arc<OnceLock<setpoint::metrics::Metrics>>;

/// Returns the metrics of everything but the API server: the controllers, encryption at rest and the process.
fn metrics_of(controller_metrics: &ControllerMetrics, encryption: Option<Arc<Encryption>>) -> Metrics {
    let controller_metrics = controller_metrics.clone();
    Arc::new(move || {
        let controllers =
            controller_metrics.get().map_or_else(String::new, setpoint::metrics::Metrics::encode);
        let encryption = encryption.as_ref().map_or_else(String::new, |encryption| encryption.metrics());
        controllers + &encryption + &process::process_metrics()
    })
}

/// Returns what the controllers say about themselves, once they have started.
fn introspection_of(controller_metrics: &ControllerMetrics) -> Introspect {
    let controller_metrics = controller_metrics.clone();
    Arc::new(move |path, query| {
        let answer = controller_metrics.get()?.introspection().handle(path, query)?;
        Some(answer.to_string())
    })
}

fn options(arguments: &Up, credentials: &Credentials) -> anyhow::Result<Options> {
    let mut options = Options {
        gates: arguments.controllers.feature_gates.clone(),
        root_ca: Some(credentials.bundle()),
        token_signer: Some(credentials.token_signer.clone()),
        // One machine simulates all nodes, so a local path is as good as any storage.
        volume_binder: VolumeBinderSettings { host_path_provisioner: true, ..Default::default() },
        signers: credentials.signers()?,
        node_ranges: arguments.network.node_ranges(&arguments.service_cluster_ip_range)?,
        load_balancer_pool: arguments.load_balancer_range,
        ..Options::default()
    };
    arguments.controllers.flags.apply(&mut options)?;
    Ok(options)
}

/// Raises the limit on open files, because every watcher may hold a connection, and shells often limit programs to a
/// thousand. Without permission to raise it, the server accepts as many as it can.
fn allow_connections() {
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

async fn listen(arguments: &Up) -> anyhow::Result<TcpListener> {
    let address = (arguments.bind_address, arguments.port);
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {}:{}: choose another port with --port", address.0, address.1)
    })
}

async fn store(
    arguments: &Up,
    runtime: &Runtime,
    encryption: Option<&Arc<Encryption>>,
) -> anyhow::Result<Arc<dyn Store>> {
    let clock = runtime.clock.clone();
    if arguments.in_memory {
        if encryption.is_some() {
            tracing::warn!("--in-memory: nothing is stored, so nothing is encrypted");
        }
        return Ok(Arc::new(MemoryStore::new(clock)));
    }
    let features = Cluster::features(&arguments.controllers.feature_gates);
    if let Some(store) = arguments.etcd.open(encryption, &features, &clock).await? {
        return Ok(store);
    }
    let (directory, options) = (&arguments.data_dir, DurableOptions::default());
    let opened = match encryption {
        Some(encryption) => DurableStore::open_encrypted(directory, clock, options, encryption.clone()).await,
        None => DurableStore::open_with(directory, clock, options),
    };
    Ok(Arc::new(opened.with_context(|| format!("cannot open the data directory {}", directory.display()))?))
}

/// Loads the serving certificates and trusted CAs.
fn served(
    arguments: &Up,
    pki: &Directory,
    credentials: &Credentials,
    front_proxies: &FrontProxies,
    clock: &Clock,
) -> anyhow::Result<Served> {
    let service = first_address(&arguments.service_cluster_ip_range);
    let mut addresses: Vec<IpAddr> =
        [Some(arguments.bind_address), advertised(arguments.bind_address), service]
            .into_iter()
            .flatten()
            .collect();
    addresses.retain(|address| !address.is_unspecified());
    let reads_uid = arguments.controllers.feature_gates.on("AllowParsingUserUIDFromCertAuth");
    let authorities = front_proxies.trusted.as_ref().map(|(authorities, _)| authorities.clone());
    let files = arguments.serving.files(pki, addresses, reads_uid, authorities)?;
    Served::start(files, arguments.serving.protocol()?, credentials.authority(), clock)
        .context("cannot prepare the certificates")
}

/// Uses the client certificate that the flags name, or generates one, as kubeadm does.
fn kubelet_client(
    arguments: &Up,
    pki: &Directory,
    credentials: &Credentials,
    clock: &Clock,
) -> anyhow::Result<ProxyClient> {
    let source = match arguments.proxying.kubelet_client() {
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
    fn prepare(arguments: &Up, pki: &Directory, clock: &Clock) -> anyhow::Result<Self> {
        let (files, trusted) = (arguments.proxying.proxy_client(), arguments.authentication.front_proxies()?);
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

fn aggregation(arguments: &Up, front_proxies: &FrontProxies, served: &Served) -> AggregationConfig {
    let (clients, front_proxy) = (served.client_authorities(), front_proxies.trust());
    let trust = move || ClusterTrust { client_ca: clients.read().clone(), front_proxy: front_proxy.clone() };
    AggregationConfig {
        identity: front_proxies.client.identity(),
        rejects_redirects: arguments.proxying.rejects_redirects(),
        trust: Some(Arc::new(trust)),
    }
}

fn write_kubeconfig(arguments: &Up, server: &str, credentials: &Credentials) -> anyhow::Result<()> {
    let access = kubeconfig::Access {
        server,
        certificate_authority: &credentials.bundle(),
        client_certificate: &credentials.admin.certificate,
        client_key: &credentials.admin.key,
        server_name: arguments.serving.shows_other_certificate().then_some(LOOPBACK_NAME),
    };
    kubeconfig::write(&arguments.kubeconfig, &access)
}

fn announce(arguments: &Up, server: &str, parts: &Components) {
    let state = match arguments.in_memory {
        true => "in memory".to_owned(),
        false => format!("in {}", arguments.data_dir.display()),
    };
    let scheduler = if parts.scheduler { "a scheduler" } else { "no scheduler" };
    let (controllers, nodes) = (parts.controllers.len(), parts.nodes);
    eprintln!("setpoint is up at {server}: {controllers} controllers, {scheduler}, {nodes} simulated nodes");
    eprintln!("State is kept {state}. Press Ctrl-C to stop.");
    eprintln!("Try:  export KUBECONFIG={}", arguments.kubeconfig.display());
    eprintln!("      kubectl get nodes,namespaces");
}

/// Returns a token that SIGTERM or SIGINT cancels. A second signal exits the process immediately.
pub(crate) fn stop_signal() -> anyhow::Result<CancellationToken> {
    Ok(setpoint::manager::stop_signal()?)
}
