//! `TestCluster`: a whole cluster inside a test, for controller authors.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;
use setpoint::controller::IntoRunnables;
use setpoint::webhook::{Endpoint, Webhooks};
use setpoint::{Context, Key, Kind, Object, View};
use setpoint_cluster::webhooks::{HttpBody, InProcess};
use setpoint_cluster::{Build, Components, Executed};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::extensions::Extensions;
use crate::faults::Fault;
use crate::snapshot::Snapshot;
use crate::world::{World, in_virtual_time};

/// The configuration of a test cluster.
///
/// It has an API server, and the built-in controllers, scheduler and simulated nodes that the test selects, in the
/// test's own process and on a virtual clock. It starts in milliseconds, shares nothing with other tests, and an hour
/// passes as fast as its events can be computed. The author's controllers run next to the built-in ones. They can be
/// crashed, disconnected, and given stale events.
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use setpoint::Key;
/// use setpoint_sim::TestCluster;
/// TestCluster::new().all_controllers().scheduler().nodes(2).run(async |cluster| {
///     cluster.create(serde_json::json!({
///         "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
///         "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": {
///             "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}},
///     })).await;
///     let web = cluster.until(&Key::namespaced("default", "web"), |web: &Deployment| {
///         web.status.as_ref().is_some_and(|status| status.ready_replicas == Some(3))
///     }).await;
///     assert_eq!(web.status.unwrap().replicas, Some(3));
/// });
/// ```
#[derive(Clone, Default)]
pub struct TestCluster {
    parts: Components,
    faults: Vec<Fault>,
    extensions: Extensions,
    /// Created when the cluster starts.
    configurations: Vec<(Kind, Value)>,
    /// `None`: those of a new cluster.
    start: Option<Snapshot>,
    seed: u64,
}

impl TestCluster {
    /// Creates a cluster with just an API server.
    pub fn new() -> Self {
        Self { seed: 1, ..Self::default() }
    }

    /// Adds built-in controllers by name (`deployment`, `garbagecollector`), with the syntax of `--controllers`.
    ///
    /// # Panics
    /// If there is no controller with such a name.
    pub fn controllers(mut self, names: &[&str]) -> Self {
        self.parts.controllers =
            setpoint_controllers::selected(names).unwrap_or_else(|error| panic!("{error}"));
        self
    }

    /// Adds every built-in controller that a cluster runs by default.
    pub fn all_controllers(self) -> Self {
        self.controllers(&["*"])
    }

    /// Sets the options of the built-in controllers. Feature gates that were set stay in effect.
    pub fn options(mut self, options: setpoint_controllers::Options) -> Self {
        let gates = std::mem::take(&mut self.parts.controller_options.gates);
        self.parts.controller_options = setpoint_controllers::Options { gates, ..options };
        self
    }

    /// Enables or disables a feature gate of v1.34, for the controllers and the API server.
    ///
    /// # Panics
    /// If there is no such feature gate, or it is locked.
    pub fn feature(mut self, name: &str, on: bool) -> Self {
        let gates = std::mem::take(&mut self.parts.controller_options.gates);
        self.parts.controller_options.gates = gates.with(name, on).unwrap_or_else(|error| panic!("{error}"));
        self
    }

    /// Adds a scheduler.
    pub fn scheduler(mut self) -> Self {
        self.parts.scheduler = true;
        self
    }

    /// Adds simulated nodes, on which pods run.
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.parts.nodes = nodes;
        self
    }

    /// Makes images that match a pattern unpullable. `*` stands for any text.
    pub fn missing_image(mut self, pattern: &str) -> Self {
        self.parts.missing_images.push(pattern.to_owned());
        self
    }

    /// Adds the author's own controllers, as [`Manager::with`](setpoint::Manager::with) does.
    pub fn with<R: IntoRunnables>(mut self, build: impl Fn(&Context) -> R + Send + Sync + 'static) -> Self {
        let build: Build = Arc::new(move |context| build(context).into_runnables());
        self.parts.own.push(build);
        self
    }

    /// Serves webhooks as [`Manager::with_webhooks`](setpoint::Manager::with_webhooks) does, at the endpoint's host, and
    /// creates their webhook configurations. Connections stay in this process, so there is no certificate. CRDs that
    /// convert with them are [installed](Running::install) as
    /// [`Webhooks::converting`](setpoint::webhook::Webhooks::converting) returns them.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use setpoint::webhook::{Denied, Endpoint, Webhooks};
    /// use setpoint_sim::TestCluster;
    /// let webhooks = Webhooks::new("policy").validate(|map: &ConfigMap| match map.data {
    ///     None => Err(Denied::from("an empty ConfigMap is of no use")),
    ///     Some(_) => Ok(()),
    /// });
    /// let cluster = TestCluster::new().webhooks(&Endpoint::service("default", "policy"), &webhooks);
    /// ```
    pub fn webhooks(mut self, endpoint: &Endpoint, webhooks: &Webhooks) -> Self {
        self.extensions.add_webhooks(&endpoint.host(), webhooks);
        self.configurations.extend(webhooks.configurations(endpoint, None));
        self
    }

    /// Registers an admission webhook: a function that handles the reviews posted to a path of a host, as in the
    /// `clientConfig` of a webhook configuration. The host of a Service is `NAME.NAMESPACE.svc`. Connections stay in
    /// this process, so there is no certificate and no CA bundle. [`webhooks`](crate::webhooks) has the usual
    /// responses.
    ///
    /// ```
    /// use setpoint_sim::{TestCluster, webhooks};
    /// let cluster = TestCluster::new()
    ///     .webhook("policy.example", "/validate", |review| webhooks::deny(&review, "not today"));
    /// ```
    pub fn webhook(
        mut self,
        host: &str,
        path: &str,
        answer: impl Fn(Value) -> Value + Send + Sync + 'static,
    ) -> Self {
        self.extensions.add_webhook(host, path, answer);
        self
    }

    /// Registers a conversion webhook: a function that converts an object of any version to another one, as in the
    /// `spec.conversion` of a CRD. It gets the object and the desired API version, which is set on the result. An error
    /// fails the conversion. Connections stay in this process, so there is no certificate and no CA bundle.
    ///
    /// ```
    /// use setpoint_sim::TestCluster;
    /// let cluster = TestCluster::new().converter("widgets.default.svc", "/convert", |mut widget, to| {
    ///     let (old, new) = if to.ends_with("/v2") { ("size", "replicas") } else { ("replicas", "size") };
    ///     let spec = widget["spec"].as_object_mut().ok_or("a widget has a spec")?;
    ///     if let Some(value) = spec.remove(old) {
    ///         spec.insert(new.to_owned(), value);
    ///     }
    ///     Ok(widget)
    /// });
    /// ```
    pub fn converter(
        mut self,
        host: &str,
        path: &str,
        convert: impl Fn(Value, &str) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        self.extensions.add_converter(host, path, convert);
        self
    }

    /// Registers an aggregated API server: a function that handles the requests forwarded to a Service, whose host is
    /// `NAME.NAMESPACE.svc`. The test creates the Service and an APIService that refers to it. Requests carry the user
    /// in `X-Remote-User` and `X-Remote-Group`; connections stay in this process, so there is no certificate and no CA
    /// bundle.
    ///
    /// ```
    /// use setpoint_sim::{TestCluster, webhooks};
    /// let cluster = TestCluster::new().api_server("gizmos.default.svc", async |request| {
    ///     webhooks::json_response(200, &serde_json::json!({"path": request.uri().path()}))
    /// });
    /// ```
    pub fn api_server<F, B>(
        mut self,
        host: &str,
        answer: impl Fn(http::Request<bytes::Bytes>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = http::Response<B>> + Send + 'static,
        B: HttpBody<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.extensions.add_api_server(host, answer);
        self
    }

    /// Forwards requests for a host to a server on this machine, such as `https://127.0.0.1:9443`: a webhook in another
    /// process, in any language. Its certificate is not verified. Virtual time stands still while it responds, for at
    /// most 30 seconds of real time.
    ///
    /// # Panics
    /// If the origin is not a scheme and a host with a port.
    ///
    /// ```
    /// use setpoint_sim::TestCluster;
    /// let cluster = TestCluster::new().local_server("policy.default.svc", "https://127.0.0.1:9443");
    /// ```
    pub fn local_server(mut self, host: &str, origin: &str) -> Self {
        let parsed = origin.parse::<http::Uri>().ok();
        let parsed = parsed.filter(|origin| {
            matches!(origin.scheme_str(), Some("http" | "https")) && origin.port_u16().is_some()
        });
        let parsed = parsed.unwrap_or_else(|| {
            panic!("{origin:?} is not an origin: expected one such as https://127.0.0.1:9443")
        });
        self.extensions.add_local_server(host, parsed);
        self
    }

    /// Adds faults: calls that fail or are lost, crashes around the n-th write, events that are late, duplicated or
    /// missing. They affect the controllers, not the test's own client. [`Fault::Reply`] delays, drops and fails the
    /// calls of the API server to webhooks, converters, extension API servers and kubelets.
    pub fn faults(mut self, faults: impl IntoIterator<Item = Fault>) -> Self {
        self.faults.extend(faults);
        self
    }

    /// Starts with the objects of a snapshot, which was prepared once for many tests.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Namespace;
    /// use setpoint_sim::{Snapshot, TestCluster};
    /// let cluster = TestCluster::new().all_controllers();
    /// let prepared = Snapshot::of(&cluster.parts(), async |world| {
    ///     let shop: Namespace = serde_json::from_value(serde_json::json!({"metadata": {"name": "shop"}})).unwrap();
    ///     setpoint::Api::new(world.client(), "test").create(&shop).await.unwrap();
    /// });
    /// cluster.starting_from(&prepared).run(async |cluster| {
    ///     let namespaces: kube::Api<Namespace> = kube::Api::all(cluster.kube());
    ///     assert!(namespaces.get("shop").await.is_ok());
    /// });
    /// ```
    pub fn starting_from(self, start: &Snapshot) -> Self {
        Self { start: Some(start.clone()), ..self }
    }

    /// Sets the seed for all randomness (default 1).
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Returns the parts, for a [`Scenario`](crate::Scenario) that tries every possible fault.
    pub fn parts(&self) -> Components {
        self.parts.clone()
    }

    /// Runs a test in the cluster, in virtual time on its own runtime.
    pub fn run<T>(self, test: impl AsyncFnOnce(&Running) -> T) -> T {
        in_virtual_time(async {
            let running = self.start().await;
            let result = test(&running).await;
            running.denials().assert_none();
            result
        })
    }

    /// Starts the cluster in the runtime of a `#[tokio::test]`: in virtual time if it is `start_paused`, in real time
    /// otherwise. The cluster ends when it is dropped.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
    /// use k8s_openapi::api::core::v1::Namespace;
    /// let cluster = setpoint_sim::TestCluster::new().start().await;
    /// let namespaces: kube::Api<Namespace> = kube::Api::all(cluster.kube());
    /// assert!(namespaces.get("kube-system").await.is_ok());
    /// # });
    /// ```
    pub async fn start(self) -> Running {
        let network = InProcess::default();
        let start = match self.start {
            Some(start) => start,
            None => Snapshot::of_new(&self.parts).await,
        };
        let world = World::start(&start, self.seed, self.parts, self.faults, network.clone()).await;
        let world = Arc::new(world);
        self.extensions.serve(&network, world.faults());
        for (kind, configuration) in self.configurations {
            world.create(&kind, None, configuration).await;
        }
        let mut managing = JoinSet::new();
        let managed = world.clone();
        managing.spawn(async move { managed.run_manager().await });
        if self.extensions.aggregates {
            let api = world.api().clone();
            managing.spawn(async move { api.aggregate(CancellationToken::new()).await });
        }
        Running { world, _managing: managing }
    }
}

/// A running cluster. See [`World`] for further methods.
pub struct Running {
    world: Arc<World>,
    /// Ends when this is dropped.
    _managing: JoinSet<()>,
}

/// Fails the test if a built-in component lacked a permission, as [`TestCluster::run`] does.
impl Drop for Running {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.world.denials().assert_none();
        }
    }
}

impl Deref for Running {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Running {
    /// Returns a `kube::Client` with all permissions, to test code that does not depend on this crate.
    pub fn kube(&self) -> kube::Client {
        self.client().kube().clone()
    }

    /// Creates an object, which must include its kind and namespace.
    ///
    /// # Panics
    /// If the API server rejects it. The message says why.
    pub async fn create(&self, object: impl serde::Serialize) -> Object {
        let body = serde_json::to_value(object).expect("an object encodes");
        let namespace = body["metadata"]["namespace"].as_str().map(str::to_owned);
        let kind = self.kind_of(&body).await;
        self.world.create(&kind, namespace.as_deref(), body).await
    }

    /// Installs a CRD, and waits until its kind is served.
    pub async fn install(&self, definition: &CustomResourceDefinition) {
        let name = definition.metadata.name.clone().unwrap_or_default();
        self.world
            .create(
                &Kind::of::<CustomResourceDefinition>(),
                None,
                serde_json::to_value(definition).expect("a definition encodes"),
            )
            .await;
        let established = |definition: &CustomResourceDefinition| {
            let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|one| one.type_ == "Established" && one.status == "True")
        };
        self.until(&Key::cluster(name), established).await;
    }

    /// Returns the current object.
    pub async fn find<V: View>(&self, key: &Key) -> Option<V> {
        let value = self.world.get(&Kind::of::<V>(), key).await?;
        Some(
            serde_json::from_value(value)
                .unwrap_or_else(|error| panic!("{} {key}: {error}", Kind::of::<V>())),
        )
    }

    /// Waits, in the cluster's time, until the object exists and `settled` holds for it.
    ///
    /// # Panics
    /// If that does not happen. The message contains the object and the trace.
    pub async fn until<V: View>(&self, key: &Key, settled: impl Fn(&V) -> bool) -> V {
        let holds = |value: Option<&Value>| {
            let object = value.and_then(|value| V::deserialize(value).ok());
            object.is_some_and(|object| settled(&object))
        };
        self.world.until(&Kind::of::<V>(), key, holds).await;
        self.find(key).await.expect("it was there a moment ago")
    }

    /// Waits until the object no longer exists.
    pub async fn gone<V: View>(&self, key: &Key) {
        self.world.until(&Kind::of::<V>(), key, |object| object.is_none()).await;
    }

    /// Returns the output of a container's current run, or of its last one. The pod is `NAMESPACE/NAME`.
    ///
    /// # Panics
    /// If the container has not run on a simulated node. The message says why.
    pub async fn logs(&self, pod: &str, container: &str) -> String {
        self.log_of(pod, container, false).await
    }

    /// Returns the output of a container before its last restart.
    ///
    /// # Panics
    /// If there was none.
    pub async fn previous_logs(&self, pod: &str, container: &str) -> String {
        self.log_of(pod, container, true).await
    }

    async fn log_of(&self, pod: &str, container: &str, is_previous: bool) -> String {
        let log = self.world.kubelets().log(&pod_key(pod), container, is_previous).await;
        log.unwrap_or_else(|error| panic!("no log of container {container} of pod {pod}: {error}"))
    }

    /// Runs a command in a running container of a simulated node, and waits in the cluster's time until it ends. The
    /// pod is `NAMESPACE/NAME`. The documentation of simulated nodes lists the known commands.
    ///
    /// # Panics
    /// If the container does not run. The message says why.
    pub async fn exec(&self, pod: &str, container: &str, command: &[&str]) -> Executed {
        self.exec_with_input(pod, container, command, "").await
    }

    /// Like [`exec`](Self::exec), with text on standard input.
    pub async fn exec_with_input(
        &self,
        pod: &str,
        container: &str,
        command: &[&str],
        stdin: &str,
    ) -> Executed {
        let executed = self.world.kubelets().exec(&pod_key(pod), container, command, stdin).await;
        executed.unwrap_or_else(|error| {
            panic!("cannot run {command:?} in container {container} of pod {pod}: {error}")
        })
    }

    /// Waits until nothing has been written for this long, except for heartbeats.
    pub async fn settled(&self, quiet: Duration) {
        let mut seen = self.world.changes_but_heartbeats();
        loop {
            self.pass(quiet).await;
            let now = self.world.changes_but_heartbeats();
            if now == seen {
                return;
            }
            seen = now;
        }
    }

    /// Returns the served kind of an object.
    async fn kind_of(&self, object: &Value) -> Kind {
        let (api_version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
        let (Some(api_version), Some(kind)) = (api_version, kind) else {
            panic!("apiVersion and kind are missing in {object}")
        };
        self.world.served(api_version, kind).unwrap_or_else(|| panic!("{api_version} {kind} is not served"))
    }
}

fn pod_key(pod: &str) -> Key {
    let (namespace, name) = pod.split_once('/').unwrap_or(("default", pod));
    Key::namespaced(namespace, name)
}
