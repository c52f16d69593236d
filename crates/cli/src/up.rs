//! `setpoint up`: runs a whole control plane in this process.

use std::sync::{Arc, OnceLock};

use anyhow::Context;
use setpoint::leader::ElectionConfig;
use setpoint::{Clock, Rng, Runtime};
use setpoint_apiserver::{Config, Introspect, Metrics, admission};
use setpoint_cluster::webhooks::json_response;
use setpoint_cluster::{Build, Cluster, Components, add_webhooks};
use setpoint_controllers::{Options, VolumeBinderSettings};
use setpoint_encryption::Encryption;
use setpoint_oam::admission::{self as application_checks, Admission};
use tokio_util::sync::CancellationToken;

use crate::api_server::{Prepared, Settings, allow_connections, write_kubeconfig};
use crate::args::{NODE_PORTS, Up};
use crate::controller_manager::controller_flags::selection;
use crate::member_clusters::MemberClusters;
use crate::operator::Operators;
use crate::pki::Credentials;
use crate::requests::Requests;
use crate::reviews::Reviews;
use crate::{kubelet_access, process};

/// The lease of the controllers, and the source of its events, as in v1.34.
const COMPONENT: &str = "kube-controller-manager";

pub(crate) async fn run(arguments: Up) -> anyhow::Result<()> {
    allow_connections();
    let controllers = selection(&arguments.controllers)?;
    arguments.controllers.warn_of_gates();
    let settings = settings(&arguments);
    let checked = settings.check()?;
    let dial = checked.egress.dial.clone();
    let requests = Requests::new(dial.clone()).context("cannot prepare requests of workflow steps")?;
    let runtime = Runtime { clock: Clock::system(), rng: Rng::from_entropy() };
    let members = MemberClusters::new(dial.clone(), &runtime);
    let operators = arguments.operators.as_deref();
    let operators = operators
        .map(|path| Operators::read(path, dial, &runtime.clock))
        .transpose()
        .context("--operators")?;
    let Prepared { config, parts: server } = settings.prepare(checked, &runtime).await?;

    let controller_metrics = ControllerMetrics::default();
    let mut config = Config {
        metrics: Some(metrics_of(&controller_metrics, server.encryption.clone())),
        introspection: Some(introspection_of(&controller_metrics)),
        ..config
    };
    if arguments.nodes > 0 {
        Cluster::serve_metrics(&mut config);
    }
    let webhooks = arguments.applications.then(|| add_webhooks(&mut config, application_checks::HOST));
    let cluster = Cluster::with_pod_backends(config, runtime, arguments.pod_backends()).await?;
    let parts = Components {
        controllers,
        controller_options: options(&arguments, &server.credentials)?,
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
    write_kubeconfig(&settings, &arguments.kubeconfig, &server.url, &server.credentials)?;
    announce(&arguments, &server.url, &parts);

    // Controllers drain while the API server still responds. Watches and connections end after them, and not before
    // load balancers have had time to notice.
    let drained = CancellationToken::new();
    let mut manager = cluster.manager(&parts);
    if server.store.is_shared() {
        // Of several processes on one etcd, one runs the controllers, the scheduler and the nodes.
        let identity = ElectionConfig::own_identity(&cluster.runtime().rng);
        manager.elect(ElectionConfig::new("kube-system", COMPONENT, identity), COMPONENT)?;
    }
    _ = controller_metrics.set(manager.context().metrics.clone());
    if let Some(webhooks) = &webhooks {
        let reviews = Reviews::new(Admission::new(manager.context()));
        webhooks.handle_with(application_checks::HOST, application_checks::PATH, move |review| {
            let reviews = reviews.clone();
            async move { Some(json_response(200, &reviews.review(review).await)) }
        });
    }
    let delaying = server.delay(cluster.api(), &arguments.limits, stop.clone());
    let managing = async {
        // If the manager ends on its own, stop everything else.
        let managed = async {
            let ended = manager.run(stop.clone()).await;
            stop.cancel();
            ended
        };
        let (ended, ()) = tokio::join!(managed, delaying);
        drained.cancel();
        ended
    };
    let reloading = async {
        if let Some(operators) = &operators {
            let following = operators.follow(cluster.client(), cluster.runtime().clock.clone());
            drained.run_until_cancelled(following).await;
        }
    };
    let (ended, ..) = tokio::join!(managing, server.serve(cluster.api(), drained.clone()), reloading);
    crate::manager_flags::ended(ended)
}

/// Returns what the flags say about the API server. NodeRestriction is on unless it is disabled, because simulated nodes
/// use their own identities.
fn settings(arguments: &Up) -> Settings<'_> {
    let mut enable_admission_plugins = arguments.enable_admission_plugins.clone();
    if !arguments.disable_admission_plugins.iter().any(|name| name == admission::NODE_RESTRICTION) {
        enable_admission_plugins.push(admission::NODE_RESTRICTION.to_owned());
    }
    Settings {
        port: arguments.port,
        port_flag: "--port",
        bind_address: arguments.bind_address,
        advertise_address: None,
        data_dir: (!arguments.in_memory).then_some(&*arguments.data_dir),
        service_cluster_ip_range: &arguments.service_cluster_ip_range,
        node_ports: NODE_PORTS,
        is_endpoint: true,
        enable_admission_plugins,
        disable_admission_plugins: &arguments.disable_admission_plugins,
        feature_gates: &arguments.controllers.feature_gates,
        apis: &arguments.apis,
        admission: &arguments.admission,
        authentication: &arguments.authentication,
        authorization: &arguments.authorization,
        audit: &arguments.audit,
        serving: &arguments.serving,
        proxying: &arguments.proxying,
        encryption: &arguments.encryption,
        etcd: &arguments.etcd,
        snapshots: &arguments.snapshots,
        limits: &arguments.limits,
    }
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
