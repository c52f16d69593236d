//! Ansible operators with a model of a role: runs, dependents, failures, finalizers, crashes.

use std::sync::Mutex;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use setpoint_hooks::{
    Access, Ansible, AnsibleCall, Helm, HelmCall, PlayResult, WatchOptions, Watches, read_watches,
    watch_runnables,
};
use setpoint_sim::{Fault, OnCall};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// A model of a role: a ConfigMap with a value, unless the state is absent.
#[derive(Clone, Default)]
struct ModelRole(Arc<Mutex<Vec<Value>>>);

impl Ansible for ModelRole {
    fn run(&self, call: AnsibleCall, access: Arc<Access>) -> BoxFuture<'static, Result<PlayResult, String>> {
        let vars = Value::Object(call.vars);
        self.0.lock().expect("no panic").push(vars.clone());
        let client = access.client();
        async move {
            let mut result = PlayResult { ok: 1, ..PlayResult::default() };
            result.again = vars["again_after"].as_u64().map(Duration::from_secs);
            if vars["fail"] == true {
                result.messages.push("create: it is not possible".into());
                return Ok(result);
            }
            if vars["broken"] == true {
                return Err("ERROR! the playbook has a mistake".into());
            }
            let name = vars["ansible_operator_meta"]["name"].as_str().unwrap_or_default();
            let changed = match vars["state"] == "absent" {
                true => absent(&client, name).await,
                false => present(&client, name, &vars["the_value"]).await,
            };
            result.changed = u64::from(changed.map_err(|error| error.to_string())?);
            Ok(result)
        }
        .boxed()
    }
}

/// As kubernetes.core.k8s does it: reads the object, then creates or patches it.
async fn present(
    client: &setpoint::Client,
    name: &str,
    value: &Value,
) -> Result<bool, setpoint::ClientError> {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}});
    match client.get(&config_maps(), &key(name)).await {
        Err(error) if error.is_not_found() => {
            client.create(&config_maps(), Some("default"), &body).await.map(|_| true)
        }
        Err(error) => Err(error),
        Ok(known) if known.decode::<Value>().expect("JSON")["data"]["value"] == *value => Ok(false),
        Ok(_) => {
            let patch = Patch::merge(&json!({"data": {"value": value}}));
            client.patch(&config_maps(), &key(name), Subresource::None, patch).await.map(|_| true)
        }
    }
}

async fn absent(client: &setpoint::Client, name: &str) -> Result<bool, setpoint::ClientError> {
    match client.delete(&config_maps(), &key(name), &DeleteOptions::default()).await {
        Err(error) if error.is_not_found() => Ok(false),
        deleted => deleted.map(|()| true),
    }
}

/// There are no charts in these tests.
struct NoHelm;

impl Helm for NoHelm {
    fn run(&self, _: HelmCall, _: Arc<Access>) -> BoxFuture<'static, Result<(), String>> {
        async { Err("there is no helm".to_owned()) }.boxed()
    }
}

fn caches() -> Kind {
    Kind::new("example.com", "v1", "Cache", "caches", true)
}

fn with_caches(
    more: &str,
    faults: impl IntoIterator<Item = Fault>,
    test: impl AsyncFnOnce(&Running, &ModelRole),
) {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(directory.path().join("cache")).expect("a role");
    let text = format!("- {{group: example.com, version: v1, kind: Cache, role: cache{more}}}");
    let watches = read_watches(&text, directory.path(), &|_| None).expect("it is valid");
    let role = ModelRole::default();
    let options = WatchOptions::new(Watches::new(watches), NoHelm, role.clone());
    let cluster = TestCluster::new()
        .controllers(&["garbagecollector"])
        .faults(faults)
        .with(move |context| watch_runnables(context, &options));
    cluster.run(async |cluster| {
        define(cluster, definition("Cache", "caches", true)).await;
        test(cluster, &role).await;
    });
}

impl ModelRole {
    fn runs(&self) -> Vec<Value> {
        self.0.lock().expect("no panic").clone()
    }

    fn count(&self) -> usize {
        self.runs().len()
    }
}

async fn create_cache(world: &World, name: &str, spec: Value) {
    let cache = json!({"apiVersion": "example.com/v1", "kind": "Cache", "metadata": {"name": name, "namespace": "default"}, "spec": spec});
    world.create(&caches(), Some("default"), cache).await;
}

async fn change(world: &World, name: &str, spec: Value) {
    patch(world, &caches(), &key(name), json!({"spec": spec})).await;
}

async fn until_status(world: &World, name: &str, condition: &str, status: &str) -> Value {
    let is_it = |one: &&Value| one["type"] == condition && one["status"] == status;
    let found = |object: Option<&Value>| -> Option<Value> {
        object?["status"]["conditions"].as_array()?.iter().find(is_it).cloned()
    };
    world.until(&caches(), &key(name), |object| found(object).is_some()).await;
    found(world.get(&caches(), &key(name)).await.as_ref()).expect("it was there")
}

async fn until_mention(world: &World, name: &str, words: &str) {
    let mentions = |object: Option<&Value>| object.is_some_and(|object| object.to_string().contains(words));
    world.until(&caches(), &key(name), mentions).await;
}

async fn until_map(world: &World, name: &str, value: &str) {
    until_value(world, &config_maps(), name, "/data/value", json!(value)).await;
}

#[test]
fn a_role_runs_for_each_change_of_its_object() {
    with_caches("", [], async |cluster, role| {
        create_cache(cluster, "a", json!({"theValue": "1"})).await;
        until_status(cluster, "a", "Successful", "True").await;
        let running = until_status(cluster, "a", "Running", "True").await;
        assert_eq!(
            (&running["reason"], &running["ansibleResult"]["changed"]),
            (&json!("Successful"), &json!(1))
        );
        let map = cluster.get(&config_maps(), &key("a")).await.expect("it was created");
        let owner = &map["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["kind"], &owner["name"], owner.get("controller")),
            (&json!("Cache"), &json!("a"), None)
        );
        assert_eq!(role.runs()[0]["_example_com_cache_spec"]["theValue"], "1");
        change(cluster, "a", json!({"theValue": "2"})).await;
        until_map(cluster, "a", "2").await;
        delete(cluster, &caches(), &key("a")).await;
        gone(cluster, &config_maps(), "a").await;
    });
}

#[test]
fn without_a_change_nothing_runs_and_nothing_is_written() {
    with_caches("", [], async |cluster, role| {
        create_cache(cluster, "a", json!({"theValue": "1"})).await;
        until_status(cluster, "a", "Successful", "True").await;
        cluster.pass(Duration::from_secs(60)).await;
        let (revision, runs) = (cluster.revision(), role.count());
        patch(cluster, &caches(), &key("a"), json!({"metadata": {"annotations": {"a": "b"}}})).await;
        cluster.pass(HOUR).await;
        assert_eq!((cluster.revision(), role.count()), (revision + 1, runs));
    });
}

#[test]
fn what_a_run_created_is_watched_also_after_a_restart() {
    with_caches("", [], async |cluster, _| {
        create_cache(cluster, "a", json!({"theValue": "1"})).await;
        until_map(cluster, "a", "1").await;
        cluster.pass(Duration::from_secs(10)).await;
        for _ in 0..2 {
            patch(cluster, &config_maps(), &key("a"), json!({"data": {"value": "9"}})).await;
            until_map(cluster, "a", "1").await;
            delete(cluster, &config_maps(), &key("a")).await;
            until_map(cluster, "a", "1").await;
            cluster.restart().await;
            cluster.pass(Duration::from_secs(30)).await;
        }
    });
    with_caches(", blacklist: [{version: v1, kind: ConfigMap}]", [], async |cluster, _| {
        create_cache(cluster, "a", json!({"theValue": "1"})).await;
        until_map(cluster, "a", "1").await;
        cluster.pass(Duration::from_secs(10)).await;
        delete(cluster, &config_maps(), &key("a")).await;
        cluster.pass(HOUR).await;
        assert!(cluster.get(&config_maps(), &key("a")).await.is_none(), "the kind is not watched");
    });
}

#[test]
fn a_run_that_fails_is_shown_and_repeated() {
    with_caches("", [], async |cluster, role| {
        create_cache(cluster, "a", json!({"theValue": "1", "fail": true})).await;
        let failure = until_status(cluster, "a", "Failure", "True").await;
        assert_eq!(failure["message"], "create: it is not possible");
        until_status(cluster, "a", "Running", "False").await;
        cluster.pass(HOUR).await;
        assert!((4..60).contains(&role.count()), "{}", role.count());
        change(cluster, "a", json!({"fail": false, "broken": true})).await;
        until_mention(cluster, "a", "has a mistake").await;
        change(cluster, "a", json!({"broken": false})).await;
        until_status(cluster, "a", "Successful", "True").await;
        until_status(cluster, "a", "Failure", "False").await;
        assert!(!messages(cluster, "a", "ReconcileFailed").await.is_empty());
    });
}

#[test]
fn a_finalizer_runs_before_its_object_goes() {
    let more = ", finalizer: {name: example.com/cache, vars: {state: absent}}";
    with_caches(more, [], async |cluster, role| {
        create_cache(cluster, "a", json!({"theValue": "1"})).await;
        until_map(cluster, "a", "1").await;
        until_value(cluster, &caches(), "a", "/metadata/finalizers", json!(["example.com/cache"])).await;
        delete(cluster, &caches(), &key("a")).await;
        gone(cluster, &caches(), "a").await;
        assert!(cluster.get(&config_maps(), &key("a")).await.is_none(), "the play has removed it");
        assert_eq!(role.runs().last().expect("a run")["state"], "absent");
    });
}

#[test]
fn plays_run_again_after_a_period() {
    for (more, spec) in [
        (", reconcilePeriod: 10m", json!({"theValue": "1"})),
        ("", json!({"theValue": "1", "againAfter": 600})),
    ] {
        with_caches(more, [], async |cluster, role| {
            create_cache(cluster, "a", spec.clone()).await;
            until_status(cluster, "a", "Successful", "True").await;
            let before = role.count();
            cluster.pass(HOUR).await;
            assert!((5..=7).contains(&(role.count() - before)), "{}", role.count());
        });
    }
}

#[test]
fn a_status_that_is_not_managed_is_not_written() {
    with_caches(", manageStatus: false", [], async |cluster, _| {
        create_cache(cluster, "a", json!({"theValue": "1"})).await;
        until_map(cluster, "a", "1").await;
        cluster.pass(Duration::from_secs(60)).await;
        let cache = cluster.get(&caches(), &key("a")).await.expect("it exists");
        assert_eq!(cache.get("status"), None);
    });
}

async fn life(cluster: &Running) {
    create_cache(cluster, "a", json!({"theValue": "1"})).await;
    until_map(cluster, "a", "1").await;
    change(cluster, "a", json!({"theValue": "2"})).await;
    until_map(cluster, "a", "2").await;
    until_status(cluster, "a", "Successful", "True").await;
    delete(cluster, &config_maps(), &key("a")).await;
    until_map(cluster, "a", "2").await;
    delete(cluster, &caches(), &key("a")).await;
    gone(cluster, &caches(), "a").await;
    gone(cluster, &config_maps(), "a").await;
}

#[test]
fn a_crash_between_any_two_writes_changes_nothing_about_the_end() {
    let more = ", finalizer: {name: example.com/cache, vars: {state: absent}}";
    let writes = Mutex::new(0);
    with_caches(more, [], async |cluster, _| {
        life(cluster).await;
        *writes.lock().expect("no panic") = cluster.faults().seen().0;
    });
    let writes = *writes.lock().expect("no panic");
    assert!(writes > 10, "{writes}");
    for nth in 0..writes {
        with_caches(more, [Fault::Call { nth, what: OnCall::CrashAfter }], async |cluster, _| {
            life(cluster).await
        });
    }
}
