//! Priority and fairness from a client's perspective.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Response};
use serde_json::{Value, json};
use setpoint_apiserver::{Body, Config, FlowSettings, User, WatchLimits};
use tokio_util::sync::CancellationToken;

use crate::client::Api;

const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// A list that waits for three seconds for a version that is never reached.
const SLOW: &str =
    "/api/v1/namespaces/default/configmaps?resourceVersion=999999&resourceVersionMatch=NotOlderThan";

async fn fair() -> Api {
    with(|config| Config { flow: Some(FlowSettings::default()), ..config.with_roles() }).await
}

/// Starts a server with a user `dev` who may do everything without being in `system:masters`.
async fn with(change: impl FnOnce(Config) -> Config) -> Api {
    let api = Api::start_changed(change).await;
    let binding = json!({
        "metadata": {"name": "dev"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "dev"}],
    });
    create(&api, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    api
}

async fn create(api: &Api, path: &str, object: Value) -> Value {
    let answer = api.post(path, object).await;
    assert_eq!(answer.code, 201, "{}", answer.text);
    answer.body
}

fn dev() -> User {
    User::authenticated("dev", "2", vec![])
}

/// Creates a priority level just for the user `dev`.
async fn level_of_dev(api: &Api, limited: Value) -> (String, String) {
    let level = json!({"metadata": {"name": "own"}, "spec": {"type": "Limited", "limited": limited}});
    let level = create(api, LEVELS, level).await;
    let schema = create(api, SCHEMAS, schema_of("dev", "own")).await;
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
    (uid(&schema), uid(&level))
}

fn schema_of(user: &str, level: &str) -> Value {
    json!({"metadata": {"name": format!("{user}-{level}")}, "spec": {
        "matchingPrecedence": 100,
        "priorityLevelConfiguration": {"name": level},
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{
            "subjects": [{"kind": "User", "user": {"name": user}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }],
    }})
}

fn queue(shares: u32, length: u32) -> Value {
    let queuing = json!({"queues": 1, "handSize": 1, "queueLengthLimit": length});
    let response = json!({"type": "Queue", "queuing": queuing});
    json!({"nominalConcurrencyShares": shares, "borrowingLimitPercent": 0, "limitResponse": response})
}

async fn get(api: &Api, user: User, path: &str) -> Response<Body> {
    let request = http::Request::builder().method(Method::GET).uri(path);
    api.server.handle(user, request.body(Default::default()).unwrap()).await
}

fn header<'a>(response: &'a Response<Body>, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

async fn text(response: Response<Body>) -> String {
    String::from_utf8_lossy(&response.into_body().collect().await).into_owned()
}

/// Returns a row of the table of levels: waiting, executing, dispatched, rejected, timed out, cancelled.
async fn counts(api: &Api, level: &str) -> Vec<u64> {
    let table =
        text(get(api, api.user.clone(), "/debug/api_priority_and_fairness/dump_priority_levels").await).await;
    let line = table.lines().find(|line| line.starts_with(&format!("{level},"))).expect("the level exists");
    line.split(',').skip(4).map(|cell| cell.trim().parse().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn responses_name_the_schema_and_level_also_when_forbidden() {
    let api = fair().await;
    let (schema, level) = level_of_dev(&api, queue(30, 5)).await;
    let answer = get(&api, dev(), MAPS).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(header(&answer, "x-kubernetes-pf-flowschema-uid"), schema);
    assert_eq!(header(&answer, "x-kubernetes-pf-prioritylevel-uid"), level);
    let other = get(&api, User::authenticated("x", "", vec![]), MAPS).await;
    assert_eq!(other.status(), 403);
    let default = api.get(&format!("{SCHEMAS}/global-default")).await.body["metadata"]["uid"].clone();
    assert_eq!(header(&other, "x-kubernetes-pf-flowschema-uid"), default.as_str().unwrap());
    let master = get(&api, api.user.clone(), "/version").await;
    let exempt = api.get(&format!("{LEVELS}/exempt")).await.body["metadata"]["uid"].clone();
    assert_eq!(header(&master, "x-kubernetes-pf-prioritylevel-uid"), exempt.as_str().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_quarter_of_its_time() {
    let api = fair().await;
    level_of_dev(&api, queue(0, 5)).await;
    for (path, seconds) in
        [(MAPS.to_owned(), 15), (format!("{MAPS}?timeout=4s"), 1), (format!("{MAPS}?watch=1"), 15)]
    {
        let began = api.clock.instant();
        let answer = get(&api, dev(), &path).await;
        assert_eq!((answer.status().as_u16(), header(&answer, "retry-after")), (429, "1"));
        assert_eq!(header(&answer, "content-type"), "text/plain; charset=utf-8");
        assert_eq!(api.clock.instant() - began, Duration::from_secs(seconds), "{path}");
        assert_eq!(text(answer).await, "Too many requests, please try again later.\n");
    }
    assert_eq!(counts(&api, "own").await, [0, 0, 0, 3, 0, 3]);
    assert_eq!(get(&api, dev(), "/readyz").await.status(), 200, "probes are exempt");
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_turns_requests_away_at_once() {
    let api = Arc::new(fair().await);
    level_of_dev(&api, queue(0, 1)).await;
    let waiting = tokio::spawn({
        let api = api.clone();
        async move { get(&api, dev(), MAPS).await.status().as_u16() }
    });
    tokio::task::yield_now().await;
    let began = api.clock.instant();
    assert_eq!(get(&api, dev(), MAPS).await.status(), 429);
    assert_eq!(api.clock.instant(), began);
    assert_eq!(waiting.await.unwrap(), 429);
}

#[tokio::test(start_paused = true)]
async fn a_freed_seat_goes_to_the_next_in_the_queue() {
    let api = Arc::new(fair().await);
    // 600 seats for 246 shares: one share is three seats.
    level_of_dev(&api, queue(1, 5)).await;
    let began = api.clock.instant();
    let requests: Vec<_> = (0..5)
        .map(|_| {
            let api = api.clone();
            tokio::spawn(async move {
                let answer = get(&api, dev(), SLOW).await;
                (answer.status().as_u16(), api.clock.instant() - began)
            })
        })
        .collect();
    let answers = futures::future::join_all(requests).await;
    let seconds: Vec<u64> = answers.into_iter().map(|answer| answer.unwrap().1.as_secs()).collect();
    assert_eq!(seconds, [3, 3, 3, 6, 6]);
    assert_eq!(counts(&api, "own").await[..3], [0, 0, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_leaves_the_queue_and_returns_its_seat() {
    let api = fair().await;
    level_of_dev(&api, queue(0, 5)).await;
    for method in [Method::GET, Method::POST] {
        let request = http::Request::builder().method(method).uri(MAPS).body("{}".into()).unwrap();
        let answer = api.server.handle(dev(), request);
        assert!(tokio::time::timeout(Duration::from_secs(1), answer).await.is_err());
        tokio::task::yield_now().await;
        assert_eq!(counts(&api, "own").await[..2], [0, 0]);
    }
    let limited = json!({"nominalConcurrencyShares": 0, "limitResponse": {"type": "Reject", "queuing": null}, "borrowingLimitPercent": 0});
    let spec = json!({"spec": {"type": "Limited", "limited": limited}});
    api.merge(&format!("{LEVELS}/own"), spec).await;
    let slow = get(&api, dev(), SLOW);
    assert!(tokio::time::timeout(Duration::from_secs(1), slow).await.is_err());
    assert_eq!(get(&api, dev(), MAPS).await.status(), 200, "the seat is free again");
}

#[tokio::test(start_paused = true)]
async fn without_seats_and_queues_one_request_runs_at_a_time() {
    let api = Arc::new(fair().await);
    let limited = json!({"nominalConcurrencyShares": 0, "limitResponse": {"type": "Reject"}, "borrowingLimitPercent": 0});
    level_of_dev(&api, limited).await;
    let first = tokio::spawn({
        let api = api.clone();
        async move { get(&api, dev(), SLOW).await.status().as_u16() }
    });
    tokio::task::yield_now().await;
    assert_eq!(get(&api, dev(), MAPS).await.status(), 429);
    assert_eq!(get(&api, dev(), "/healthz").await.status(), 200);
    assert_eq!(first.await.unwrap(), 504);
    assert_eq!(get(&api, dev(), MAPS).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn the_schema_of_lowest_precedence_counts_from_the_next_request_on() {
    let api = fair().await;
    level_of_dev(&api, queue(0, 1)).await;
    assert_eq!(get(&api, dev(), &format!("{MAPS}?timeout=1s")).await.status(), 429);
    let mut exempt = schema_of("dev", "exempt");
    exempt["spec"]["matchingPrecedence"] = 99.into();
    create(&api, SCHEMAS, exempt).await;
    assert_eq!(get(&api, dev(), MAPS).await.status(), 200);
    api.ask(Method::DELETE, &format!("{SCHEMAS}/dev-exempt"), &[], "").await;
    assert_eq!(get(&api, dev(), &format!("{MAPS}?timeout=1s")).await.status(), 429);
}

/// Runs the server's background tasks.
fn maintained(api: &Api) -> CancellationToken {
    let (server, stop) = (api.server.clone(), CancellationToken::new());
    let ending = stop.clone();
    tokio::spawn(async move { server.maintain(ending).await });
    stop
}

async fn dangling(api: &Api, name: &str) -> Value {
    api.get(&format!("{SCHEMAS}/{name}")).await.body["status"]["conditions"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_schema_reports_whether_its_level_exists() {
    let api = fair().await;
    let stop = maintained(&api);
    tokio::time::sleep(Duration::from_millis(1)).await;
    create(&api, SCHEMAS, schema_of("dev", "own")).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let conditions = dangling(&api, "dev-own").await;
    assert_eq!(conditions.as_array().unwrap().len(), 1);
    assert_eq!(
        (
            &conditions[0]["type"],
            &conditions[0]["status"],
            &conditions[0]["reason"],
            &conditions[0]["message"]
        ),
        (
            &json!("Dangling"),
            &json!("True"),
            &json!("NotFound"),
            &json!(
                "This FlowSchema references the PriorityLevelConfiguration object named \"own\" but there is no such object"
            )
        )
    );
    let level = json!({"metadata": {"name": "own"}, "spec": {"type": "Limited", "limited": queue(1, 1)}});
    create(&api, LEVELS, level).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(dangling(&api, "dev-own").await[0]["status"], "False");
    let shown = api.get(&format!("{SCHEMAS}/dev-own")).await.ok();
    let owner = &shown["metadata"]["managedFields"][0];
    assert_eq!(owner["manager"], "api-priority-and-fairness-config-consumer-v1");
    assert_eq!((&owner["operation"], &owner["subresource"]), (&json!("Apply"), &json!("status")));
    let table =
        api.get_as("application/json;as=Table;v=v1;g=meta.k8s.io", &format!("{SCHEMAS}/dev-own")).await.ok();
    assert_eq!(table["rows"][0]["cells"][5], "False");
    let revision = api.server.revision();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(api.server.revision(), revision, "a steady state makes no writes");
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn mandatory_and_suggested_objects_are_kept() {
    let api = fair().await;
    let stop = maintained(&api);
    tokio::time::sleep(Duration::from_millis(1)).await;
    for path in
        [format!("{SCHEMAS}/catch-all"), format!("{LEVELS}/catch-all"), format!("{LEVELS}/workload-low")]
    {
        assert_eq!(api.ask(Method::DELETE, &path, &[], "").await.code, 200, "{path}");
    }
    // The mandatory objects are in effect although they were deleted: no others apply to a user without groups.
    let stranger = User { name: "n".into(), ..User::default() };
    assert_eq!(get(&api, stranger, MAPS).await.status(), 403);
    let low = json!({"spec": {"limited": {"nominalConcurrencyShares": 7}}});
    api.merge(&format!("{LEVELS}/system"), low).await;
    let annotated = json!({"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}}, "spec": {"limited": {"nominalConcurrencyShares": 7}}});
    api.merge(&format!("{LEVELS}/node-high"), annotated).await;
    let leftover = json!({
        "metadata": {"name": "old", "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}},
        "spec": {"type": "Limited", "limited": queue(1, 1)},
    });
    create(&api, LEVELS, leftover).await;
    tokio::time::sleep(Duration::from_secs(75)).await;
    for path in
        [format!("{SCHEMAS}/catch-all"), format!("{LEVELS}/catch-all"), format!("{LEVELS}/workload-low")]
    {
        assert_eq!(api.get(&path).await.code, 200, "{path}");
    }
    let shares = |level: Value| level["spec"]["limited"]["nominalConcurrencyShares"].clone();
    assert_eq!(shares(api.get(&format!("{LEVELS}/system")).await.body), 30);
    assert_eq!(shares(api.get(&format!("{LEVELS}/node-high")).await.body), 7);
    assert_eq!(api.get(&format!("{LEVELS}/old")).await.code, 404);
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn idle_levels_lend_their_seats() {
    let api = Arc::new(fair().await);
    let mut lending = queue(1, 50);
    lending.as_object_mut().unwrap().remove("borrowingLimitPercent");
    level_of_dev(&api, lending).await;
    let stop = maintained(&api);
    let clients: Vec<_> = (0..40)
        .map(|_| {
            let api = api.clone();
            tokio::spawn(async move {
                for _ in 0..12 {
                    get(&api, dev(), SLOW).await;
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(25)).await;
    let metrics = text(get(&api, api.user.clone(), "/metrics").await).await;
    let current = |level: &str| -> u64 {
        let start = format!("apiserver_flowcontrol_current_limit_seats{{priority_level=\"{level}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&start)).expect("it is measured");
        line.parse().unwrap()
    };
    assert!(current("own") >= 40, "{}", current("own"));
    assert!(current("workload-low") < 245 && current("workload-low") >= 24);
    clients.into_iter().for_each(|client| client.abort());
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn plain_limits_turn_all_but_masters_away() {
    let settings = FlowSettings { max_requests: 1, max_mutating_requests: 1, is_fair: false };
    let api = with(|config| Config { flow: Some(settings), ..config.with_roles() }).await;
    let api = Arc::new(api);
    let slow = tokio::spawn({
        let api = api.clone();
        async move { get(&api, dev(), SLOW).await.status().as_u16() }
    });
    tokio::task::yield_now().await;
    let refused = get(&api, dev(), MAPS).await;
    assert_eq!((refused.status().as_u16(), header(&refused, "retry-after")), (429, "1"));
    assert_eq!(header(&refused, "x-kubernetes-pf-flowschema-uid"), "");
    assert_eq!(get(&api, api.user.clone(), MAPS).await.status(), 200);
    assert_eq!(get(&api, dev(), &format!("{MAPS}?watch=1")).await.status(), 200, "watches are not limited");
    let map = json!({"metadata": {"name": "m"}});
    let request =
        http::Request::builder().method(Method::POST).uri(MAPS).body(map.to_string().into()).unwrap();
    assert_eq!(api.server.handle(dev(), request).await.status(), 201, "writes have a limit of their own");
    assert_eq!(slow.await.unwrap(), 504);
    assert_eq!(get(&api, dev(), MAPS).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn watches_have_a_limit_per_user_and_in_total() {
    let limits = WatchLimits { total: 3, per_user: 2 };
    let api = with(|config| Config { watch_limits: limits, ..config.with_roles() }).await;
    let watch = format!("{MAPS}?watch=1");
    let first = get(&api, dev(), &watch).await;
    let _second = get(&api, dev(), &watch).await;
    let refused = get(&api, dev(), &watch).await;
    assert_eq!((refused.status().as_u16(), header(&refused, "retry-after")), (429, "1"));
    assert!(text(refused).await.contains("too many watches: \\\"dev\\\" has 2 open watches"));
    let _third = get(&api, api.user.clone(), &watch).await;
    assert_eq!(get(&api, api.user.clone(), &watch).await.status(), 429);
    drop(first);
    assert_eq!(get(&api, api.user.clone(), &watch).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn queued_and_executing_requests_are_dumped() {
    let api = Arc::new(fair().await);
    level_of_dev(&api, queue(0, 5)).await;
    let waiting = tokio::spawn({
        let api = api.clone();
        async move { get(&api, dev(), MAPS).await.status().as_u16() }
    });
    tokio::task::yield_now().await;
    let path = "/debug/api_priority_and_fairness/dump_requests?includeRequestDetails=1";
    let table = text(get(&api, api.user.clone(), path).await).await;
    let cells = |line: &str| line.split(',').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let lines: Vec<_> = table.lines().map(cells).collect();
    assert_eq!(
        lines[0][..5],
        ["PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher"]
    );
    let own = lines.iter().find(|line| line[0] == "own").expect("it waits");
    assert_eq!(own[1..5], ["dev-own", "0", "0", "dev"]);
    assert_eq!(own[6..10], ["1", "0", "0s", "0001-01-01T00:00:00Z"]);
    assert_eq!(own[10..], ["dev", "list", MAPS, "default", "", "v1", "configmaps", ""]);
    let queues =
        text(get(&api, api.user.clone(), "/debug/api_priority_and_fairness/dump_queues").await).await;
    assert!(queues.lines().any(|line| cells(line)[..3] == ["own", "0", "1"]), "{queues}");
    assert_eq!(get(&api, api.user.clone(), "/debug/api_priority_and_fairness/other").await.status(), 404);
    let metrics = text(get(&api, api.user.clone(), "/metrics").await).await;
    for line in [
        "apiserver_flowcontrol_current_inqueue_requests{flow_schema=\"dev-own\",priority_level=\"own\"} 1",
        "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"catch-all\"} 13",
        "apiserver_flowcontrol_dispatched_requests_total{flow_schema=\"exempt\",priority_level=\"exempt\"}",
        "apiserver_flowcontrol_work_estimated_seats_bucket{flow_schema=\"dev-own\",priority_level=\"own\",le=\"1\"} 1",
        "apiserver_current_inqueue_requests{request_kind=\"readOnly\"} 1",
        "apiserver_flowcontrol_read_vs_write_current_requests_bucket{phase=\"waiting\",request_kind=\"readOnly\",le=\"0.001\"}",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    waiting.abort();
}
