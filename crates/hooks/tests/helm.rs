//! Helm operators with a model of `helm`: releases, drift, failures, removal, and crashes between any two writes.

use std::sync::Mutex;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt;
use futures::future::BoxFuture;
use setpoint::Client;
use setpoint::client::IgnoreErrors;
use setpoint::source::Selection;
use setpoint_hooks::{
    Access, Ansible, AnsibleCall, Helm, HelmCall, HelmVerb, PlayResult, WatchOptions, Watches, read_watches,
    watch_runnables,
};
use setpoint_sim::{Fault, OnCall};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const FINALIZER: &str = "helm.sdk.operatorframework.io/uninstall-release";

/// A model of `helm` with one chart: as many ConfigMaps as `count`, with `value`.
#[derive(Clone, Default)]
struct ModelHelm(Arc<Mutex<Vec<String>>>);

fn secrets() -> Kind {
    Kind::new("", "v1", "Secret", "secrets", true)
}

/// A revision as the model reads it from its Secret.
#[derive(Clone)]
struct Stored {
    version: u64,
    status: String,
    objects: Vec<Value>,
    secret: Value,
}

struct Model {
    client: Client,
    call: HelmCall,
}

impl Helm for ModelHelm {
    fn run(&self, call: HelmCall, access: Arc<Access>) -> BoxFuture<'static, Result<(), String>> {
        self.0.lock().expect("no panic").push(call.verb.text().to_owned());
        let model = Model { client: access.client(), call };
        async move { model.run().await }.boxed()
    }
}

/// What `helm` says when a request fails.
fn said(error: impl std::fmt::Display) -> String {
    format!("Error: {error}")
}

impl Model {
    async fn run(&self) -> Result<(), String> {
        let history = self.history().await?;
        if history.last().is_some_and(|last| last.status.starts_with("pending"))
            && !matches!(self.call.verb, HelmVerb::Uninstall { .. })
        {
            return Err("Error: another operation (install/upgrade/rollback) is in progress".into());
        }
        match &self.call.verb {
            HelmVerb::Install if !history.is_empty() => {
                Err("Error: cannot reuse a name that is still in use".into())
            }
            HelmVerb::Install => self.release("pending-install", &[], self.render()?, true).await,
            HelmVerb::Upgrade { .. } => self.release("pending-upgrade", &history, self.render()?, true).await,
            HelmVerb::Rollback { to, .. } => {
                let target =
                    history.iter().find(|stored| stored.version == *to).ok_or("Error: no such revision")?;
                self.release("pending-rollback", &history, target.objects.clone(), false).await
            }
            HelmVerb::Uninstall { keeps_history } => self.uninstall(history, *keeps_history).await,
        }
    }

    fn render(&self) -> Result<Vec<Value>, String> {
        let values = &self.call.values;
        if values["fail"] == "render" {
            return Err("Error: execution error at (shop/templates/a.yaml:1:2): no".into());
        }
        let object = |nth: u64| {
            let name = format!("{}-{nth}", self.call.release);
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": values["value"]}})
        };
        Ok((0..values["count"].as_u64().unwrap_or(1)).map(object).collect())
    }

    async fn history(&self) -> Result<Vec<Stored>, String> {
        let selection = Selection {
            namespace: Some(self.call.namespace.clone()),
            labels: Some(format!("owner=helm,name={}", self.call.release)),
            ..Selection::default()
        };
        let listed = self.client.list(&secrets(), &selection).await.map_err(said)?;
        let mut history: Vec<Stored> =
            listed.objects.iter().map(|object| stored(object.decode().expect("JSON"))).collect();
        history.sort_by_key(|stored| stored.version);
        Ok(history)
    }

    /// Makes a revision as Helm does: the record first, then the objects, then the record again.
    async fn release(
        &self,
        status: &str,
        history: &[Stored],
        objects: Vec<Value>,
        may_fail: bool,
    ) -> Result<(), String> {
        let version = history.last().map_or(1, |last| last.version + 1);
        let created = self
            .client
            .create(&secrets(), Some(&self.call.namespace), &self.record(version, status, &objects))
            .await;
        created.map_err(said)?;
        let done = self.apply(history, &objects, may_fail).await;
        if done.is_ok() {
            for deployed in history.iter().filter(|stored| stored.status == "deployed") {
                self.put(self.record(deployed.version, "superseded", &deployed.objects)).await?;
            }
        }
        let status = if done.is_ok() { "deployed" } else { "failed" };
        self.put(self.record(version, status, &objects)).await?;
        done
    }

    async fn apply(&self, history: &[Stored], objects: &[Value], may_fail: bool) -> Result<(), String> {
        for (nth, object) in objects.iter().enumerate() {
            if nth == 1 && may_fail && self.call.values["fail"] == "apply" {
                return Err("Error: UPGRADE FAILED: it is not possible".into());
            }
            let mut object = object.clone();
            object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "Helm".into();
            object["metadata"]["annotations"] = json!({
                "meta.helm.sh/release-name": self.call.release, "meta.helm.sh/release-namespace": self.call.namespace,
            });
            let key = Key::namespaced(&self.call.namespace, name_of(&object));
            self.client.apply(&config_maps(), &key, Subresource::None, "helm", object).await.map_err(said)?;
        }
        for old in history.iter().flat_map(|stored| &stored.objects) {
            if !objects.iter().any(|new| name_of(new) == name_of(old)) {
                self.delete(&config_maps(), name_of(old)).await?;
            }
        }
        Ok(())
    }

    async fn uninstall(&self, history: Vec<Stored>, keeps_history: bool) -> Result<(), String> {
        let Some(last) = history.last() else { return Ok(()) };
        if last.status != "uninstalled" {
            self.put(self.record(last.version, "uninstalling", &last.objects)).await?;
            for object in &last.objects {
                self.delete(&config_maps(), name_of(object)).await?;
            }
        }
        if keeps_history {
            return self.put(self.record(last.version, "uninstalled", &last.objects)).await;
        }
        for stored in &history {
            self.delete(&secrets(), name_of(&stored.secret)).await?;
        }
        Ok(())
    }

    async fn delete(&self, kind: &Kind, name: &str) -> Result<(), String> {
        let deleted = self
            .client
            .delete(kind, &Key::namespaced(&self.call.namespace, name), &DeleteOptions::default())
            .await;
        deleted.ignore_not_found().map_err(said)
    }

    /// Replaces a record without any precondition, like Helm.
    async fn put(&self, record: Value) -> Result<(), String> {
        let key = Key::namespaced(&self.call.namespace, name_of(&record));
        self.client.update(&secrets(), &key, Subresource::None, &record).await.map(drop).map_err(said)
    }

    fn record(&self, version: u64, status: &str, objects: &[Value]) -> Value {
        let chart = self.call.chart.file_name().expect("a directory").to_string_lossy();
        record(&self.call.release, &chart, version, status, objects)
    }
}

fn record(release: &str, chart: &str, version: u64, status: &str, objects: &[Value]) -> Value {
    let manifest: String = objects.iter().map(|object| format!("---\n# Source: x\n{object}\n")).collect();
    let body = json!({
        "name": release, "version": version, "info": {"status": status, "notes": "hello"},
        "chart": {"metadata": {"name": chart}}, "manifest": manifest,
    });
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
        "metadata": {"name": format!("sh.helm.release.v1.{release}.v{version}"), "namespace": "default", "labels": {
            "owner": "helm", "name": release, "status": status, "version": version.to_string(),
        }},
        "data": {"release": STANDARD.encode(STANDARD.encode(body.to_string()))},
    })
}

fn stored(secret: Value) -> Stored {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let outer = STANDARD.decode(text(&secret["data"]["release"])).expect("base64");
    let inner = STANDARD.decode(outer).expect("base64");
    // A record that was marked as failed is compressed.
    let body: Value = match serde_json::from_slice(&inner) {
        Ok(body) => body,
        Err(_) => {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(inner.as_slice()), &mut text)
                .expect("gzip");
            serde_json::from_str(&text).expect("JSON")
        }
    };
    let objects = text(&body["manifest"]);
    let objects = objects
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let labels = &secret["metadata"]["labels"];
    Stored {
        version: text(&labels["version"]).parse().expect("a number"),
        status: text(&labels["status"]),
        objects: objects.collect(),
        secret,
    }
}

/// There are no playbooks in these tests.
struct NoAnsible;

impl Ansible for NoAnsible {
    fn run(&self, _: AnsibleCall, _: Arc<Access>) -> BoxFuture<'static, Result<PlayResult, String>> {
        async { Err("there is no Ansible".to_owned()) }.boxed()
    }
}

fn shops() -> Kind {
    Kind::new("example.com", "v1", "Shop", "shops", true)
}

/// A second entry, for another kind with another chart.
const AND_DEPOTS: &str = "}\n- {group: example.com, version: v1, kind: Depot, chart: depot";

/// Returns the options for an operator of shops, and what `helm` was asked to do.
fn options(more: &str) -> (WatchOptions, ModelHelm) {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["shop", "depot"] {
        let chart = directory.path().join(name);
        std::fs::create_dir(&chart).expect("a directory");
        std::fs::write(chart.join("Chart.yaml"), format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n"))
            .expect("a chart");
    }
    let text = format!("- {{group: example.com, version: v1, kind: Shop, chart: shop{more}}}");
    let watches = read_watches(&text, directory.path(), &|_| None).expect("it is valid");
    let helm = ModelHelm::default();
    (WatchOptions::new(Watches::new(watches), helm.clone(), NoAnsible), helm)
}

fn with_shops(
    more: &str,
    faults: impl IntoIterator<Item = Fault>,
    test: impl AsyncFnOnce(&Running, &ModelHelm),
) {
    let (options, helm) = options(more);
    with_options_of(options, faults, true, async |cluster| test(cluster, &helm).await);
}

fn with_options_of(
    options: WatchOptions,
    faults: impl IntoIterator<Item = Fault>,
    with_status: bool,
    test: impl AsyncFnOnce(&Running),
) {
    let cluster = TestCluster::new()
        .controllers(&["garbagecollector"])
        .faults(faults)
        .with(move |context| watch_runnables(context, &options));
    cluster.run(async |cluster| {
        define(cluster, definition("Shop", "shops", with_status)).await;
        test(cluster).await;
    });
}

impl ModelHelm {
    fn runs(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }
}

async fn create_shop(world: &World, name: &str, spec: Value) {
    let shop = json!({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": name, "namespace": "default"}, "spec": spec});
    world.create(&shops(), Some("default"), shop).await;
}

async fn change(world: &World, name: &str, spec: Value) {
    patch(world, &shops(), &key(name), json!({"spec": spec})).await;
}

fn condition_of(object: Option<&Value>, kind: &str) -> Option<Value> {
    object?["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == kind).cloned()
}

async fn until_reason(world: &World, name: &str, kind: &str, reason: &str) {
    let has = |object: Option<&Value>| condition_of(object, kind).is_some_and(|one| one["reason"] == reason);
    world.until(&shops(), &key(name), has).await;
}

/// Waits until the current spec is deployed, by an installation or by an upgrade.
async fn until_deployed(world: &World, name: &str) {
    let is_deployed = |object: Option<&Value>| {
        let generation = object.map(|object| &object["metadata"]["generation"]);
        let is_current =
            |one: Value| one["status"] == "True" && Some(&one["observedGeneration"]) == generation;
        condition_of(object, "Deployed").is_some_and(is_current)
            && condition_of(object, "ReleaseFailed").is_none()
    };
    world.until(&shops(), &key(name), is_deployed).await;
}

async fn until_no_condition(world: &World, name: &str, kind: &str) {
    let lacks = |object: Option<&Value>| object.is_some() && condition_of(object, kind).is_none();
    world.until(&shops(), &key(name), lacks).await;
}

async fn until_condition_of(world: &World, kind: &Kind, name: &str, condition: &str) {
    world.until(kind, &key(name), |object| condition_of(object, condition).is_some()).await;
}

async fn until_map(world: &World, name: &str, value: &str) {
    until_value(world, &config_maps(), name, "/data/value", json!(value)).await;
}

/// Returns the revisions of a release as `version status`.
async fn history(world: &World, release: &str) -> Vec<String> {
    let mut revisions: Vec<Stored> = Vec::new();
    for secret in world.list(&secrets(), Some("default")).await {
        if secret["metadata"]["labels"]["name"] == release {
            revisions.push(stored(secret));
        }
    }
    revisions.sort_by_key(|stored| stored.version);
    revisions.iter().map(|stored| format!("{} {}", stored.version, stored.status)).collect()
}

#[test]
fn an_object_is_a_release_whose_values_are_its_spec() {
    with_shops(", overrideValues: {value: fixed}", [], async |cluster, helm| {
        create_shop(cluster, "a", json!({"count": 2, "value": "1"})).await;
        until_reason(cluster, "a", "Deployed", "InstallSuccessful").await;
        until_map(cluster, "a-1", "fixed").await;
        let map = cluster.get(&config_maps(), &key("a-0")).await.expect("it was created");
        assert_eq!(map["metadata"]["labels"]["helm.sdk.operatorframework.io/chart"], "shop");
        let owner = &map["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["controller"]), (&json!("Shop"), &json!(true)));
        let shop = cluster.get(&shops(), &key("a")).await.expect("it exists");
        assert_eq!(shop["metadata"]["finalizers"], json!([FINALIZER]));
        assert_eq!(shop["status"]["deployedRelease"]["name"], "a");
        assert_eq!(condition_of(Some(&shop), "Deployed").expect("a condition")["message"], "hello");
        assert!(
            messages(cluster, "a", "OverrideValuesInUse").await[0]
                .contains("\"value\" overridden to \"fixed\"")
        );

        change(cluster, "a", json!({"count": 1})).await;
        until_reason(cluster, "a", "Deployed", "UpgradeSuccessful").await;
        gone(cluster, &config_maps(), "a-1").await;
        assert_eq!(
            (history(cluster, "a").await, helm.runs()),
            (vec!["1 superseded".into(), "2 deployed".into()], vec!["install".into(), "upgrade".into()])
        );
    });
}

#[test]
fn a_steady_state_runs_nothing_and_writes_nothing() {
    for more in ["", ", watchDependentResources: false"] {
        with_shops(more, [], async |cluster, helm| {
            create_shop(cluster, "a", json!({"count": 3, "value": "1"})).await;
            until_reason(cluster, "a", "Deployed", "InstallSuccessful").await;
            cluster.pass(Duration::from_secs(60)).await;
            let revision = cluster.revision();
            cluster.pass(HOUR).await;
            cluster.restart().await;
            cluster.pass(HOUR).await;
            assert_eq!((cluster.revision(), helm.runs().len()), (revision, 1));
            patch(cluster, &shops(), &key("a"), json!({"metadata": {"labels": {"seen": "yes"}}})).await;
            cluster.pass(HOUR).await;
            assert_eq!((cluster.revision(), helm.runs().len()), (revision + 1, 1));
        });
    }
}

#[test]
fn what_others_change_is_corrected_without_helm() {
    for more in ["", ", watchDependentResources: false"] {
        with_shops(more, [], async |cluster, helm| {
            create_shop(cluster, "a", json!({"count": 2, "value": "1"})).await;
            until_reason(cluster, "a", "Deployed", "InstallSuccessful").await;
            patch(cluster, &config_maps(), &key("a-0"), json!({"data": {"value": "2", "more": "kept"}}))
                .await;
            until_map(cluster, "a-0", "1").await;
            until_value(cluster, &config_maps(), "a-0", "/data/more", json!("kept")).await;
            let label = json!({"metadata": {"labels": {"helm.sdk.operatorframework.io/chart": null}}});
            patch(cluster, &config_maps(), &key("a-0"), label).await;
            let pointer = "/metadata/labels/helm.sdk.operatorframework.io~1chart";
            until_value(cluster, &config_maps(), "a-0", pointer, json!("shop")).await;
            delete(cluster, &config_maps(), &key("a-1")).await;
            until_map(cluster, "a-1", "1").await;
            cluster.pass(Duration::from_secs(300)).await;
            assert_eq!(
                (helm.runs(), history(cluster, "a").await),
                (vec!["install".to_owned()], vec!["1 deployed".to_owned()])
            );
            assert!(messages(cluster, "a", "DriftCorrected").await.len() >= 2);
        });
    }
}

#[test]
fn an_upgrade_that_fails_is_rolled_back_and_tried_again_later() {
    with_shops("", [], async |cluster, helm| {
        create_shop(cluster, "a", json!({"count": 2, "value": "1"})).await;
        until_reason(cluster, "a", "Deployed", "InstallSuccessful").await;
        change(cluster, "a", json!({"value": "2", "fail": "apply"})).await;
        until_reason(cluster, "a", "ReleaseFailed", "UpgradeError").await;
        until_map(cluster, "a-0", "1").await;
        cluster.pass(Duration::from_secs(1)).await;
        assert_eq!(history(cluster, "a").await, ["1 superseded", "2 failed", "3 deployed"]);
        assert_eq!(helm.runs(), ["install", "upgrade", "rollback"]);
        cluster.pass(HOUR).await;
        let tries = helm.runs().iter().filter(|verb| *verb == "upgrade").count();
        assert!((6..=12).contains(&tries), "less and less often: {tries}");
        let shop = cluster.get(&shops(), &key("a")).await;
        assert_eq!(condition_of(shop.as_ref(), "ReleaseFailed").expect("a condition")["status"], "True");
        assert!(messages(cluster, "a", "ReleaseFailed").await[0].contains("it is not possible"));

        change(cluster, "a", json!({"value": "3", "fail": null})).await;
        until_map(cluster, "a-1", "3").await;
        until_no_condition(cluster, "a", "ReleaseFailed").await;
    });
}

#[test]
fn a_chart_that_cannot_be_rendered_changes_nothing() {
    with_shops("", [], async |cluster, _| {
        create_shop(cluster, "a", json!({"value": "1"})).await;
        until_reason(cluster, "a", "Deployed", "InstallSuccessful").await;
        change(cluster, "a", json!({"fail": "render"})).await;
        until_reason(cluster, "a", "Irreconcilable", "ReconcileError").await;
        until_map(cluster, "a-0", "1").await;
        assert_eq!(history(cluster, "a").await, ["1 deployed"]);
        change(cluster, "a", json!({"fail": null})).await;
        until_no_condition(cluster, "a", "Irreconcilable").await;
    });
}

#[test]
fn an_installation_that_fails_is_cleaned_up_and_tried_again() {
    with_shops("", [], async |cluster, helm| {
        create_shop(cluster, "a", json!({"count": 2, "value": "1", "fail": "apply"})).await;
        until_reason(cluster, "a", "ReleaseFailed", "InstallError").await;
        assert_eq!(history(cluster, "a").await, ["1 failed"]);
        change(cluster, "a", json!({"fail": null})).await;
        until_reason(cluster, "a", "Deployed", "InstallSuccessful").await;
        until_no_condition(cluster, "a", "ReleaseFailed").await;
        assert_eq!(
            (history(cluster, "a").await, helm.runs()),
            (vec!["1 deployed".into()], ["install", "uninstall", "install"].map(str::to_owned).to_vec())
        );
    });
}

#[test]
fn a_deleted_object_goes_when_its_release_has_gone() {
    for wait in ["false", "true"] {
        with_shops("", [], async |cluster, _| {
            create_shop(cluster, "a", json!({"count": 2, "value": "1"})).await;
            until_reason(cluster, "a", "Deployed", "InstallSuccessful").await;
            let annotation = json!({"helm.sdk.operatorframework.io/uninstall-wait": wait});
            patch(cluster, &shops(), &key("a"), json!({"metadata": {"annotations": annotation}})).await;
            patch(
                cluster,
                &config_maps(),
                &key("a-1"),
                json!({"metadata": {"finalizers": ["example.com/hold"]}}),
            )
            .await;
            delete(cluster, &shops(), &key("a")).await;
            gone(cluster, &config_maps(), "a-0").await;
            cluster.pass(Duration::from_secs(60)).await;
            let shop = cluster.get(&shops(), &key("a")).await;
            assert_eq!(shop.is_some(), wait == "true", "it waits for a-1 only if it should");
            if shop.is_some() {
                let deployed = condition_of(shop.as_ref(), "Deployed").expect("a condition");
                assert_eq!(deployed["message"], "Waiting until all resources are deleted.");
            }
            patch(cluster, &config_maps(), &key("a-1"), json!({"metadata": {"finalizers": null}})).await;
            gone(cluster, &shops(), "a").await;
            gone(cluster, &config_maps(), "a-1").await;
            assert_eq!(history(cluster, "a").await, Vec::<String>::new());
        });
    }
}

#[test]
fn what_others_do_to_a_release_is_undone() {
    with_shops("", [], async |cluster, helm| {
        create_shop(cluster, "a", json!({"value": "1"})).await;
        until_reason(cluster, "a", "Deployed", "InstallSuccessful").await;
        let objects = [config_map("a-0", &json!("2"))];
        make(cluster, &secrets(), record("a", "shop", 2, "deployed", &objects)).await;
        let superseded = json!({"metadata": {"labels": {"status": "superseded"}}});
        patch(cluster, &secrets(), &key("sh.helm.release.v1.a.v1"), superseded).await;
        until_reason(cluster, "a", "Deployed", "UpgradeSuccessful").await;
        until_map(cluster, "a-0", "1").await;
        assert_eq!(history(cluster, "a").await.last().expect("a revision"), "3 deployed");
        assert_eq!(helm.runs(), ["install", "upgrade"]);
    });
}

#[test]
fn an_operation_of_someone_else_is_waited_for() {
    with_shops("", [], async |cluster, helm| {
        make(cluster, &secrets(), record("a", "shop", 1, "pending-install", &[])).await;
        create_shop(cluster, "a", json!({"value": "1"})).await;
        until_reason(cluster, "a", "Irreconcilable", "ReconcileError").await;
        cluster.pass(Duration::from_secs(60)).await;
        assert_eq!(helm.runs(), Vec::<String>::new());
        // It never ends, so it was interrupted.
        until_map(cluster, "a-0", "1").await;
        until_no_condition(cluster, "a", "Irreconcilable").await;
        assert_eq!(messages(cluster, "a", "ReleaseInterrupted").await.len(), 1);
    });
}

#[test]
fn the_release_of_another_chart_is_left_alone() {
    with_shops("", [], async |cluster, helm| {
        make(cluster, &secrets(), record("a", "database", 1, "deployed", &[])).await;
        create_shop(cluster, "a", json!({"value": "1"})).await;
        until_reason(cluster, "a", "Irreconcilable", "ReconcileError").await;
        let shop = cluster.get(&shops(), &key("a")).await;
        let message = condition_of(shop.as_ref(), "Irreconcilable").expect("a condition")["message"].clone();
        assert_eq!(
            message,
            "duplicate release name: found existing release with name \"a\" for chart \"database\""
        );
        delete(cluster, &shops(), &key("a")).await;
        gone(cluster, &shops(), "a").await;
        assert_eq!((history(cluster, "a").await, helm.runs().len()), (vec!["1 deployed".to_owned()], 0));
    });
}

/// Returns the message of a condition.
async fn message(world: &World, kind: &Kind, name: &str, condition: &str) -> String {
    let object = world.get(kind, &key(name)).await;
    let found = condition_of(object.as_ref(), condition).expect("a condition");
    found["message"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn objects_of_two_kinds_do_not_share_a_release() {
    with_shops(AND_DEPOTS, [], async |cluster, helm| {
        define(cluster, definition("Depot", "depots", true)).await;
        let depots = Kind::new("example.com", "v1", "Depot", "depots", true);
        create_shop(cluster, "a", json!({"value": "1"})).await;
        until_reason(cluster, "a", "Deployed", "InstallSuccessful").await;
        let depot =
            json!({"apiVersion": "example.com/v1", "kind": "Depot", "metadata": {"name": "a"}, "spec": {}});
        make(cluster, &depots, depot).await;
        until_condition_of(cluster, &depots, "a", "Irreconcilable").await;
        assert!(message(cluster, &depots, "a", "Irreconcilable").await.contains("for chart \"shop\""));
        cluster.pass(HOUR).await;
        assert_eq!(helm.runs(), ["install"], "they do not upgrade it in turns");
        delete(cluster, &depots, &key("a")).await;
        gone(cluster, &depots, "a").await;
        until_map(cluster, "a-0", "1").await;
        assert_eq!((history(cluster, "a").await, helm.runs().len()), (vec!["1 deployed".to_owned()], 1));
    });
}

#[test]
fn an_interrupted_release_of_another_chart_is_left_alone() {
    with_shops("", [], async |cluster, helm| {
        make(cluster, &secrets(), record("a", "database", 1, "pending-install", &[])).await;
        create_shop(cluster, "a", json!({"value": "1"})).await;
        cluster.pass(HOUR).await;
        assert!(message(cluster, &shops(), "a", "Irreconcilable").await.contains("duplicate release name"));
        assert_eq!(
            (history(cluster, "a").await, helm.runs().len()),
            (vec!["1 pending-install".to_owned()], 0)
        );
    });
}

#[test]
fn a_record_that_cannot_be_read_is_shown() {
    with_shops("", [], async |cluster, _| {
        create_shop(cluster, "a", json!({"value": "1"})).await;
        until_reason(cluster, "a", "Deployed", "InstallSuccessful").await;
        let broken = json!({"data": {"release": STANDARD.encode("nonsense")}});
        patch(cluster, &secrets(), &key("sh.helm.release.v1.a.v1"), broken).await;
        until_reason(cluster, "a", "Irreconcilable", "ReconcileError").await;
        assert!(message(cluster, &shops(), "a", "Irreconcilable").await.contains("data.release"));
    });
}

#[test]
fn a_name_that_no_release_can_have_is_refused_and_its_object_can_be_deleted() {
    with_shops("", [], async |cluster, helm| {
        for length in [54, 64, 200] {
            let name = "a".repeat(length);
            create_shop(cluster, &name, json!({"value": "1"})).await;
            until_reason(cluster, &name, "Irreconcilable", "ReconcileError").await;
            assert!(message(cluster, &shops(), &name, "Irreconcilable").await.contains("at most 53"));
            let held = json!({"metadata": {"finalizers": [FINALIZER]}});
            patch(cluster, &shops(), &key(&name), held).await;
            delete(cluster, &shops(), &key(&name)).await;
            gone(cluster, &shops(), &name).await;
        }
        assert_eq!(helm.runs(), Vec::<String>::new());
    });
}

#[test]
fn someone_who_never_stops_is_not_corrected_all_the_time() {
    with_shops("", [], async |cluster, _| {
        create_shop(cluster, "a", json!({"value": "1"})).await;
        until_reason(cluster, "a", "Deployed", "InstallSuccessful").await;
        let mut corrected = 0;
        for nth in 0..60 {
            patch(cluster, &config_maps(), &key("a-0"), json!({"data": {"value": format!("{nth}!")}})).await;
            cluster.pass(Duration::from_secs(1)).await;
            let map = cluster.get(&config_maps(), &key("a-0")).await.expect("it exists");
            corrected += usize::from(map["data"]["value"] == "1");
        }
        assert!((3..12).contains(&corrected), "less and less often: {corrected}");
        assert_eq!(messages(cluster, "a", "DriftPersists").await.len(), 1);
        until_map(cluster, "a-0", "1").await;
    });
}

#[test]
fn a_kind_without_a_status_has_releases_too() {
    let (options, _) = options("");
    with_options_of(options, [], false, async |cluster| {
        create_shop(cluster, "a", json!({"value": "1"})).await;
        until_map(cluster, "a-0", "1").await;
        patch(cluster, &config_maps(), &key("a-0"), json!({"data": {"value": "2"}})).await;
        until_map(cluster, "a-0", "1").await;
        delete(cluster, &shops(), &key("a")).await;
        gone(cluster, &shops(), "a").await;
        gone(cluster, &config_maps(), "a-0").await;
    });
}

#[test]
fn overridden_values_can_be_kept_out_of_events() {
    let (mut options, _) = options(", overrideValues: {value: hunter2}");
    options.shows_overrides = false;
    with_options_of(options, [], true, async |cluster| {
        create_shop(cluster, "a", json!({})).await;
        until_map(cluster, "a-0", "hunter2").await;
        cluster.pass(Duration::from_secs(1)).await;
        let told = messages(cluster, "a", "OverrideValuesInUse").await;
        assert_eq!(told, ["Chart value \"value\" overridden to \"****\" by operator's watches.yaml"]);
    });
}

#[test]
fn only_selected_objects_have_releases() {
    with_shops(", selector: {matchLabels: {shop: open}}", [], async |cluster, helm| {
        create_shop(cluster, "a", json!({"value": "1"})).await;
        cluster.pass(HOUR).await;
        assert_eq!(helm.runs().len(), 0);
        patch(cluster, &shops(), &key("a"), json!({"metadata": {"labels": {"shop": "open"}}})).await;
        until_map(cluster, "a-0", "1").await;
    });
}

/// The life of a release: install, upgrade, a failed upgrade, drift, removal.
async fn life(cluster: &Running) {
    create_shop(cluster, "a", json!({"count": 2, "value": "1"})).await;
    until_map(cluster, "a-1", "1").await;
    until_deployed(cluster, "a").await;
    change(cluster, "a", json!({"count": 3, "value": "2"})).await;
    until_map(cluster, "a-2", "2").await;
    until_deployed(cluster, "a").await;
    change(cluster, "a", json!({"value": "3", "fail": "apply"})).await;
    until_reason(cluster, "a", "ReleaseFailed", "UpgradeError").await;
    until_map(cluster, "a-0", "2").await;
    delete(cluster, &config_maps(), &key("a-1")).await;
    until_map(cluster, "a-1", "2").await;
    change(cluster, "a", json!({"count": 1, "fail": null})).await;
    until_map(cluster, "a-0", "3").await;
    gone(cluster, &config_maps(), "a-2").await;
    until_no_condition(cluster, "a", "ReleaseFailed").await;
    let last = history(cluster, "a").await.last().cloned().expect("a revision");
    assert!(last.ends_with("deployed"), "{last}");
    delete(cluster, &shops(), &key("a")).await;
    gone(cluster, &shops(), "a").await;
    gone(cluster, &config_maps(), "a-0").await;
    assert_eq!(history(cluster, "a").await, Vec::<String>::new());
}

#[test]
fn a_crash_between_any_two_writes_changes_nothing_about_the_end() {
    let writes = Mutex::new(0);
    with_shops(AND_DEPOTS, [], async |cluster, _| {
        life(cluster).await;
        *writes.lock().expect("no panic") = cluster.faults().seen().0;
    });
    let writes = *writes.lock().expect("no panic");
    assert!(writes > 20, "{writes}");
    for nth in 0..writes {
        for what in
            if nth == 0 { &[OnCall::CrashBefore, OnCall::CrashAfter][..] } else { &[OnCall::CrashAfter][..] }
        {
            with_shops(AND_DEPOTS, [Fault::Call { nth, what: *what }], async |cluster, _| {
                life(cluster).await
            });
        }
    }
}

#[test]
fn lost_answers_change_nothing_about_the_end() {
    for nth in (0..30).step_by(3) {
        with_shops("", [Fault::Call { nth, what: OnCall::DropAfter }], async |cluster, _| {
            life(cluster).await
        });
    }
}
