//! Authorization by webhooks, alone and before RBAC.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use setpoint_apiserver::auth::{AuthorizationConfig, Authorizers};
use setpoint_apiserver::{Config, User};
use setpoint_clock::Clock;
use setpoint_store::MemoryStore;
use tokio_util::sync::CancellationToken;

use crate::client::Api;
use crate::extension::{Extension, Reply, Temporary};

fn reviewed(status: Value) -> Reply {
    Reply::Json(
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": status}),
    )
}

fn config(kubeconfig: &Temporary, policy: &str) -> String {
    let webhook = json!({
        "timeout": "3s",
        "authorizedTTL": "5s",
        "unauthorizedTTL": "5s",
        "subjectAccessReviewVersion": "v1",
        "matchConditionSubjectAccessReviewVersion": "v1",
        "failurePolicy": policy,
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig.path()},
        "matchConditions": [{"expression": "'guarded' in request.groups"}],
    });
    let authorizers = json!([
        {"type": "Webhook", "name": "first", "webhook": webhook},
        {"type": "Node", "name": "node"},
        {"type": "RBAC", "name": "rbac"},
    ]);
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthorizationConfiguration",
        "authorizers": authorizers,
    })
    .to_string()
}

struct World {
    api: Api,
    extension: Extension,
    file: Temporary,
    _kubeconfig: Temporary,
}

impl World {
    async fn new(policy: &str, handler: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        let extension = Extension::new(move |_, body| handler(body));
        let kubeconfig = extension.kubeconfig("/authz");
        let text = config(&kubeconfig, policy);
        let file = Temporary::new(&text);
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let outbound = extension.outbound(&clock);
        let parsed = AuthorizationConfig::parse(&text).unwrap();
        let authorizers = Authorizers::new(store.clone(), &parsed, outbound).unwrap();
        let authorizers = authorizers.following(&file.path(), &text);
        let auth_metrics = authorizers.metrics();
        let change = |config: Config| Config {
            authorizer: Arc::new(authorizers),
            auth_metrics,
            ..config.with_roles()
        };
        let mut api = Api::start_configured(store, clock, change).await;
        api.user = User::authenticated("bob", "7", vec!["guarded".into()]);
        extension.take();
        Self { api, extension, file, _kubeconfig: kubeconfig }
    }
}

/// SHA-256 of the server's name, in hexadecimal.
const SERVER_HASH: &str = "27c55e322ab859e5f3a8b02333b102dfda5e6cd03310fe72e1e692ce9f571bcf";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(start_paused = true)]
async fn an_allow_decision_is_cached() {
    let world = World::new("Deny", |_| reviewed(json!({"allowed": true}))).await;
    assert_eq!(world.api.get(&format!("{MAPS}?labelSelector=a%3Db")).await.code, 200);
    let (path, review) = world.extension.take().remove(0);
    assert_eq!(path, "/authz");
    let expected = json!({
        "user": "bob",
        "uid": "7",
        "groups": ["guarded", "system:authenticated"],
        "resourceAttributes": {
            "namespace": "default", "verb": "list", "version": "v1", "resource": "configmaps",
            "labelSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]},
        },
    });
    assert_eq!(review["spec"], expected);
    assert_eq!(world.api.get(&format!("{MAPS}?labelSelector=a%3Db")).await.code, 200);
    assert!(world.extension.take().is_empty(), "the result is cached");
    world.api.clock.sleep(std::time::Duration::from_secs(5)).await;
    assert_eq!(world.api.get(&format!("{MAPS}?labelSelector=a%3Db")).await.code, 200);
    assert_eq!(world.extension.take().len(), 1, "the cached result expires");
}

#[tokio::test(start_paused = true)]
async fn masters_and_excluded_requests_skip_the_webhook() {
    let mut world = World::new("Deny", |_| reviewed(json!({"denied": true}))).await;
    world.api.user = User::authenticated("root", "", vec!["system:masters".into(), "guarded".into()]);
    assert_eq!(world.api.get(MAPS).await.code, 200);
    world.api.user = User::authenticated("ann", "", Vec::new());
    assert_eq!(world.api.get(MAPS).await.code, 403);
    assert!(world.extension.take().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_webhook_without_an_opinion_defers_to_roles() {
    let world = World::new("Deny", |_| reviewed(json!({"reason": "unsure", "evaluationError": "x"}))).await;
    let answer = world.api.get(MAPS).await;
    assert_eq!(answer.code, 403);
    assert!(answer.text.contains("in the namespace \\\"default\\\": unsure"), "{}", answer.text);
    assert_eq!(world.api.get("/version").await.code, 200, "roles allow everyone to read the version");
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_denies_is_not_overruled_by_roles() {
    let world = World::new("NoOpinion", |_| reviewed(json!({"denied": true, "reason": "no"}))).await;
    let answer = world.api.get("/version").await;
    assert_eq!(answer.code, 403);
    assert!(answer.text.contains(": no"), "{}", answer.text);
}

#[tokio::test(start_paused = true)]
async fn a_failure_denies_with_an_error_or_is_no_opinion() {
    let lies = |reply: fn() -> Reply| move |_: &Value| reply();
    let replies: [fn() -> Reply; 7] = [
        || Reply::Code(500, Vec::new(), "x".into()),
        || Reply::Hang,
        || reviewed(json!({"allowed": true, "denied": true})),
        || reviewed(json!({"allowed": "yes"})),
        || Reply::Json(json!({"status": {"allowed": true}})),
        || Reply::Code(307, vec![("location", "https://ext.example/allow".into())], "".into()),
        || Reply::Code(200, Vec::new(), vec![b'['; 4 << 20].into()),
    ];
    for (at, reply) in replies.into_iter().enumerate() {
        let world = World::new("Deny", lies(reply)).await;
        let answer = world.api.get("/version").await;
        assert_eq!((answer.code, answer.content_type.as_str()), (500, "text/plain; charset=utf-8"), "{at}");
        assert!(answer.text.starts_with("Internal Server Error: \"/version\": "), "{}", answer.text);
    }
    let world = World::new("NoOpinion", |_| Reply::Code(500, Vec::new(), "x".into())).await;
    assert_eq!(world.api.get("/version").await.code, 200, "roles decide");
    let answer = world.api.get(MAPS).await;
    assert_eq!(answer.code, 500, "no one allows it, and something went wrong: {}", answer.text);
}

#[tokio::test(start_paused = true)]
async fn access_reviews_use_the_same_authorizers() {
    let mut world = World::new("Deny", |body| match body["spec"]["user"].as_str() {
        Some("eve") => reviewed(json!({"denied": true, "reason": "no"})),
        Some("err") => Reply::Code(500, Vec::new(), "x".into()),
        _ => reviewed(json!({"allowed": true})),
    })
    .await;
    world.api.user = User::system("root");
    let ask = |user: &str| json!({"spec": {"user": user, "groups": ["guarded"], "resourceAttributes": {"verb": "get", "resource": "pods", "labelSelector": {"requirements": [{"key": "a", "operator": "Exists"}]}}}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let status = |answer: crate::client::Answer| answer.body["status"].clone();
    assert_eq!(status(world.api.post(path, ask("ann")).await), json!({"allowed": true}));
    let sent = world.extension.take().remove(0).1["spec"]["resourceAttributes"]["labelSelector"].clone();
    assert_eq!(sent, json!({"requirements": [{"key": "a", "operator": "Exists"}]}));
    let denied = json!({"allowed": false, "denied": true, "reason": "no"});
    assert_eq!(status(world.api.post(path, ask("eve")).await), denied);
    let failed = status(world.api.post(path, ask("err")).await);
    assert_eq!((&failed["denied"], failed["evaluationError"].is_string()), (&json!(true), true));
    world.api.user = User::authenticated("bob", "", vec!["guarded".into()]);
    let rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let rules = status(world.api.post(rules, json!({"spec": {"namespace": "default"}})).await);
    assert_eq!(rules["incomplete"], true);
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_is_in_force_and_a_bad_one_is_not() {
    let world = World::new("Deny", |_| reviewed(json!({"denied": true}))).await;
    let stop = CancellationToken::new();
    let server = world.api.server.clone();
    let (maintaining, stopped) = (stop.clone(), stop.clone());
    let maintaining = tokio::spawn(async move { server.maintain(maintaining).await });
    assert_eq!(world.api.get("/version").await.code, 403);
    let roles_only = |types: Value| {
        json!({"apiVersion": "apiserver.config.k8s.io/v1beta1", "kind": "AuthorizationConfiguration", "authorizers": types})
            .to_string()
    };
    world.file.write(&roles_only(json!([{"type": "AlwaysAllow", "name": "alwaysallow"}])));
    world.api.clock.sleep(std::time::Duration::from_secs(61)).await;
    assert_eq!(world.api.get("/version").await.code, 403, "types cannot change");
    world.file.write("apiVersion: [");
    world.api.clock.sleep(std::time::Duration::from_secs(61)).await;
    assert_eq!(world.api.get("/version").await.code, 403);
    world
        .file
        .write(&roles_only(json!([{"type": "Node", "name": "node"}, {"type": "RBAC", "name": "rbac"}])));
    world.api.clock.sleep(std::time::Duration::from_secs(61)).await;
    assert_eq!(world.api.get("/version").await.code, 200, "the webhook is gone");
    let metrics = {
        let admin = Api { user: User::system("root"), ..world.api };
        admin.get("/metrics").await.text
    };
    let config = "apiserver_authorization_config_controller";
    let server = format!("apiserver_id_hash=\"sha256:{SERVER_HASH}\"");
    for line in [
        format!("{config}_automatic_reloads_total{{status=\"failure\",{server}}} 2"),
        format!("{config}_automatic_reloads_total{{status=\"success\",{server}}} 1"),
        // Two minutes, three seconds and the steps of the clock after the start.
        format!("{config}_automatic_reload_last_timestamp_seconds{{status=\"success\",{server}}} 17356897"),
        format!("{config}_last_config_info{{{server},hash=\"sha256:"),
    ] {
        assert!(metrics.contains(&line), "{line} in\n{metrics}");
    }
    let in_force = metrics.lines().filter(|line| line.starts_with(&format!("{config}_last_config_info")));
    assert_eq!(in_force.count(), 1);
    for line in [
        "apiserver_authorization_match_condition_evaluation_seconds_count{type=\"Webhook\",name=\"first\"}",
        "apiserver_authorization_webhook_evaluations_total{name=\"first\",result=\"success\"}",
        "apiserver_authorization_decisions_total{type=\"Webhook\",name=\"first\",decision=\"denied\"}",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    stopped.cancel();
    maintaining.await.unwrap();
}

#[test]
fn a_configuration_is_refused_with_every_error() {
    let parse = |authorizers: Value| {
        let text = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": authorizers});
        AuthorizationConfig::parse(&text.to_string()).unwrap_err().to_string()
    };
    for (authorizers, expected) in [
        (json!([]), "authorizers: Required value: at least one authorization mode must be defined"),
        (json!([{"name": "a"}]), "authorizers[0].type: Required value"),
        (
            json!([{"type": "X", "name": "a"}]),
            "authorizers[0].type: Unsupported value: \"X\": supported values: \"ABAC\", \"AlwaysAllow\", \"AlwaysDeny\", \"Node\", \"RBAC\", \"Webhook\"",
        ),
        (
            json!([{"type": "RBAC", "name": "rbac"}, {"type": "RBAC", "name": "b"}]),
            "authorizers[1].type: Duplicate value: \"RBAC\"",
        ),
        (json!([{"type": "RBAC", "name": "x"}]), "expected name rbac for authorizer RBAC instead of x"),
        (
            json!([{"type": "Webhook", "name": "w"}]),
            "authorizers[0].webhook: Required value: required when type=Webhook",
        ),
        (
            json!([{"type": "ABAC", "name": "abac"}]),
            "authorizer type ABAC is not supported: use RBAC or Webhook",
        ),
    ] {
        assert_eq!(parse(authorizers.clone()), expected, "{authorizers}");
    }
    let webhook = json!({"timeout": "31s", "authorizedTTL": "-1s", "subjectAccessReviewVersion": "v2", "failurePolicy": "Maybe", "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "x"}, "matchConditions": [{"expression": "1"}]});
    let problems = parse(json!([{"type": "Webhook", "name": "w", "webhook": webhook}]));
    for expected in [
        "authorizers[0].timeout: Invalid value: \"31s\": must be > 0s and <= 30s",
        "authorizers[0].authorizedTTL: Invalid value: \"-1s\": must be > 0s",
        "authorizers[0].subjectAccessReviewVersion: Unsupported value: \"v2\"",
        "authorizers[0].matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified",
        "authorizers[0].failurePolicy: Unsupported value: \"Maybe\"",
        "authorizers[0].connectionInfo.kubeConfigFile: Invalid value: \"x\": must be an absolute path",
        "authorizers[0].matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool but got int",
    ] {
        assert!(problems.contains(expected), "{expected} in {problems}");
    }
}

#[tokio::test(start_paused = true)]
async fn modes_are_authorizers_in_order() {
    let modes = |modes: &[&str]| {
        let modes: Vec<String> = modes.iter().map(|mode| (*mode).to_owned()).collect();
        AuthorizationConfig::from_modes(&modes, None)
    };
    assert_eq!(modes(&["Node", "RBAC"]).unwrap().authorizers.len(), 2);
    for bad in [&["Nope"][..], &["ABAC"], &["Webhook"], &["RBAC", "RBAC"], &[]] {
        assert!(modes(bad).is_err(), "{bad:?}");
    }
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let extension = Extension::new(|_, _| Reply::Hang);
    let authorizers =
        Authorizers::new(store.clone(), &modes(&["AlwaysDeny"]).unwrap(), extension.outbound(&clock));
    let change = |config: Config| Config { authorizer: Arc::new(authorizers.unwrap()), ..config };
    let mut api = Api::start_configured(store, clock, change).await;
    api.user = User::authenticated("bob", "", Vec::new());
    let answer = api.ask(Method::GET, "/version", &[], "").await;
    assert!(answer.text.contains("Everything is forbidden."), "{}", answer.text);
}
