//! `setpoint up`: a whole control plane in this process.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use rustix::process::{Resource, getrlimit, setrlimit};
use setpoint::{Clock, Rng, Runtime};
use setpoint_apiserver::auth::Outbound;
use setpoint_apiserver::{Config, Metrics, admission};
use setpoint_cluster::{Cluster, Parts};
use setpoint_controllers::{Options, VolumeBinderSettings};
use setpoint_store::{DurableStore, MemoryStore, Store};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::args::Up;
use crate::controller_manager::controller_flags::selection;
use crate::kubeconfig;
use crate::pki::Credentials;
use crate::process;

pub(crate) async fn run(arguments: Up) -> anyhow::Result<()> {
    allow_connections();
    let controllers = selection(&arguments.controllers)?;
    arguments.controllers.warn_of_gates();
    let admission =
        admission::plugins(&arguments.enable_admission_plugins, &arguments.disable_admission_plugins)?;
    let service_accounts = arguments.authentication.service_accounts()?;
    let runtime = Runtime { clock: Clock::system(), rng: Rng::from_entropy() };
    let listener = listen(&arguments).await?;
    let server = format!("https://{}", listener.local_addr()?);
    let store = store(&arguments, &runtime)?;
    let credentials = credentials(&arguments, &runtime.clock)?;

    let outbound = Outbound::new(runtime.clock.clone(), runtime.rng.fork());
    let allows_everything = arguments.authorization.allows_everything();
    let authenticator =
        arguments.authentication.authenticator(&service_accounts, &outbound, allows_everything)?;
    let authorizers = arguments.authorization.authorizers(store.clone(), outbound.clone())?;

    let figures = Figures::default();
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
        metrics: Some(figures_of(&figures)),
        token_signer: Some(credentials.token_signer.clone()),
        ..Cluster::with_gates(config, &arguments.controllers.feature_gates)
    };
    arguments.apis.apply(&mut config)?;
    if arguments.nodes > 0 {
        Cluster::serve_metrics(&mut config);
    }
    let cluster = Cluster::with_config(config, runtime).await?;
    let parts = Parts {
        controllers,
        controller_options: options(&arguments, &credentials)?,
        scheduler: !arguments.no_scheduler,
        nodes: arguments.nodes,
        zones: arguments.zones.get(),
        talkative_nodes: true,
        own: Vec::new(),
    };
    if arguments.default_storage_class {
        make_default_storage_class(&cluster.client()).await?;
    }
    let stop = stop_signal()?;
    write_kubeconfig(&arguments.kubeconfig, &server, &credentials)?;
    announce(&arguments, &server, &parts);

    // Controllers drain against an API server that still answers; watches and connections end after them.
    let drained = CancellationToken::new();
    let manager = cluster.manager(&parts);
    _ = figures.set(manager.context().metrics.clone());
    let managing = async {
        manager.run(stop).await;
        drained.cancel();
    };
    let serving = cluster.api().clone().serve(listener, credentials.server, drained.clone());
    let maintaining = cluster.api().maintain(drained.clone());
    tokio::join!(managing, serving, maintaining);
    store.close().await;
    Ok(())
}

/// The class of claims that name none; one that is there already stays as it is.
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
            Err(error).context("cannot make the default StorageClass")
        }
        _ => Ok(()),
    }
}

/// What the controllers measure, once they are there.
type Figures = Arc<OnceLock<setpoint::metrics::Metrics>>;

/// What `/metrics` says of all but the API server: the controllers and the process.
fn figures_of(figures: &Figures) -> Metrics {
    let figures = figures.clone();
    Arc::new(move || {
        let controllers = figures.get().map_or_else(String::new, setpoint::metrics::Metrics::encode);
        controllers + &process::figures()
    })
}

fn options(arguments: &Up, credentials: &Credentials) -> anyhow::Result<Options> {
    let mut options = Options {
        gates: arguments.controllers.feature_gates.clone(),
        root_ca: Some(credentials.authority_certificate().to_owned()),
        token_signer: Some(credentials.token_signer.clone()),
        // One machine plays all nodes: a path on it is as good as any storage.
        volume_binder: VolumeBinderSettings { host_path_provisioner: true, ..Default::default() },
        signers: credentials.signers()?,
        node_ranges: arguments.network.node_ranges(&arguments.service_cluster_ip_range)?,
        load_balancer_pool: arguments.load_balancer_range,
        ..Options::default()
    };
    arguments.controllers.flags.apply(&mut options)?;
    Ok(options)
}

/// Every watcher may hold a connection, and shells start programs with room for a thousand. Without the right
/// to more the server accepts as many as it may.
fn allow_connections() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of open files stays");
    }
}

/// The address that others reach this host at: the one to listen on, unless that is for this host alone; then
/// the one it would send from. Nothing is sent to find out.
fn advertised(bind_address: IpAddr) -> Option<IpAddr> {
    let is_own = |address: &IpAddr| address.is_loopback() || address.is_unspecified();
    if !is_own(&bind_address) {
        return Some(bind_address);
    }
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    // An address for documentation, which no host has.
    socket.connect(("192.0.2.1", 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !is_own(address))
}

async fn listen(arguments: &Up) -> anyhow::Result<TcpListener> {
    let address = (arguments.bind_address, arguments.port);
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {}:{}: choose another port with --port", address.0, address.1)
    })
}

fn store(arguments: &Up, runtime: &Runtime) -> anyhow::Result<Arc<dyn Store>> {
    if arguments.in_memory {
        return Ok(Arc::new(MemoryStore::new(runtime.clock.clone())));
    }
    let directory = &arguments.data_dir;
    let opened = DurableStore::open(directory, runtime.clock.clone());
    Ok(Arc::new(opened.with_context(|| format!("cannot open the data directory {}", directory.display()))?))
}

fn credentials(arguments: &Up, clock: &Clock) -> anyhow::Result<Credentials> {
    let directory = (!arguments.in_memory).then(|| arguments.data_dir.join("pki"));
    let signer = arguments.authentication.token_signer()?;
    let front_proxies = arguments.authentication.front_proxy_authorities()?;
    Credentials::prepare(
        directory.as_deref(),
        &[arguments.bind_address],
        clock,
        signer,
        front_proxies.as_deref(),
    )
    .context("cannot prepare the certificates")
}

fn write_kubeconfig(path: &Path, server: &str, credentials: &Credentials) -> anyhow::Result<()> {
    let access = kubeconfig::Access {
        server,
        certificate_authority: credentials.authority_certificate(),
        client_certificate: &credentials.admin.certificate,
        client_key: &credentials.admin.key,
    };
    kubeconfig::write(path, &access)
}

fn announce(arguments: &Up, server: &str, parts: &Parts) {
    let state = match arguments.in_memory {
        true => "in memory".to_owned(),
        false => format!("in {}", arguments.data_dir.display()),
    };
    let scheduler = if parts.scheduler { "a scheduler" } else { "no scheduler" };
    let (controllers, nodes) = (parts.controllers.len(), parts.nodes);
    eprintln!("setpoint is up at {server}: {controllers} controllers, {scheduler}, {nodes} simulated nodes");
    eprintln!("The state is kept {state}. Ctrl-C stops it.");
    eprintln!("Try:  export KUBECONFIG={}", arguments.kubeconfig.display());
    eprintln!("      kubectl get nodes,namespaces");
}

/// Cancelled by SIGTERM or SIGINT; a second signal ends the process at once.
pub(crate) fn stop_signal() -> anyhow::Result<CancellationToken> {
    Ok(setpoint::manager::stop_signal()?)
}
