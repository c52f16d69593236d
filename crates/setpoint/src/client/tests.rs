use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::source::Selection;
use fake::{Answer, Received, client};

fn pods() -> Kind {
    Kind::new("", "v1", "Pod", "pods", true)
}

fn web() -> Key {
    Key::namespaced("shop", "web")
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop", "uid": "u1", "resourceVersion": "7"}})
}

fn found(_: &Received) -> Answer {
    Some((200, pod("web")))
}

#[tokio::test]
async fn each_verb_uses_the_right_method_and_path() {
    let (client, log) = client(found);
    let (pods, web) = (pods(), web());
    client.get(&pods, &web).await.expect("found");
    client.create(&pods, Some("shop"), &pod("web")).await.expect("created");
    client.update(&pods, &web, Subresource::Status, &pod("web")).await.expect("updated");
    client.post(&pods, &web, Subresource::Binding, &json!({"target": {"name": "n1"}})).await.expect("bound");
    client.delete(&pods, &web, &DeleteOptions::default()).await.expect("deleted");
    assert_eq!(
        log.lines(),
        [
            "GET /api/v1/namespaces/shop/pods/web",
            "POST /api/v1/namespaces/shop/pods",
            "PUT /api/v1/namespaces/shop/pods/web/status",
            "POST /api/v1/namespaces/shop/pods/web/binding",
            "DELETE /api/v1/namespaces/shop/pods/web",
        ]
    );
    let [get, create, ..] = &log.all()[..] else { panic!("two requests") };
    assert_eq!((get.header("content-type"), get.header("accept")), ("", "application/json"));
    assert_eq!((create.header("content-type"), create.json()), ("application/json", pod("web")));
}

#[tokio::test]
async fn a_reply_stays_encoded_with_its_metadata_read() {
    let (client, _) = client(found);
    let object = client.get(&pods(), &web()).await.expect("found");
    assert_eq!((object.key(), &*object.meta().uid, object.meta().revision()), (&web(), "u1", 7));
    assert_eq!(object.raw(), &pod("web").to_string());
}

#[tokio::test]
async fn a_preview_is_a_dry_run() {
    let (client, log) = client(found);
    client.preview_apply(&pods(), &web(), "me", json!({"spec": {}})).await.expect("previewed");
    let target = "/api/v1/namespaces/shop/pods/web?fieldManager=me&force=true&dryRun=All";
    assert_eq!(log.lines(), [format!("PATCH {target}")]);
}

#[tokio::test]
async fn a_patch_has_the_content_type_of_its_kind() {
    let apply = |force| Patch::Apply { body: "{}".into(), manager: "my operator".into(), force };
    let target = "/api/v1/namespaces/shop/pods/web/status";
    let cases = [
        (Patch::json(&json!([])), "application/json-patch+json", target.to_owned()),
        (Patch::merge(&json!({})), "application/merge-patch+json", target.to_owned()),
        (Patch::strategic(&json!({})), "application/strategic-merge-patch+json", target.to_owned()),
        (apply(false), "application/apply-patch+yaml", format!("{target}?fieldManager=my+operator")),
        (
            apply(true),
            "application/apply-patch+yaml",
            format!("{target}?fieldManager=my+operator&force=true"),
        ),
    ];
    for (patch, content_type, target) in cases {
        let (client, log) = client(found);
        client.patch(&pods(), &web(), Subresource::Status, patch).await.expect("patched");
        let received = &log.all()[0];
        assert_eq!((received.header("content-type"), &received.target), (content_type, &target));
    }
}

#[tokio::test]
async fn a_delete_carries_its_preconditions() {
    let check = async |delete: DeleteOptions, expected: Value| {
        let (client, log) = client(found);
        client.delete(&pods(), &web(), &delete).await.expect("deleted");
        assert_eq!(log.all()[0].json(), expected);
    };
    let base = |more: Value| {
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        options.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        options
    };
    check(DeleteOptions::default(), base(json!({}))).await;
    check(DeleteOptions::of_uid("u1"), base(json!({"preconditions": {"uid": "u1"}}))).await;
    let all = DeleteOptions {
        uid: Some("u1".into()),
        resource_version: Some("7".into()),
        grace_period_seconds: Some(0),
        propagation: Some(PropagationPolicy::Foreground),
    };
    check(
        all,
        base(json!({
            "preconditions": {"uid": "u1", "resourceVersion": "7"},
            "gracePeriodSeconds": 0,
            "propagationPolicy": "Foreground",
        })),
    )
    .await;
}

#[tokio::test]
async fn an_error_has_its_reason_and_class() {
    let status =
        |code: u16, reason: &str| json!({"kind": "Status", "reason": reason, "message": "no", "code": code});
    let check = async |code: u16, reason: &'static str, class: &str| {
        let (client, _) = client(move |_| Some((code, status(code, reason))));
        let error = client.get(&pods(), &web()).await.expect_err("refused");
        assert_eq!((error.code(), error.reason()), (Some(code), reason));
        assert_eq!(error.into_reconcile_error("get".into()).class(), class);
    };
    check(404, "NotFound", "terminal").await;
    check(409, "Conflict", "conflict").await;
    check(409, "AlreadyExists", "retry").await;
    check(410, "Expired", "retry").await;
    check(422, "Invalid", "terminal").await;
    check(429, "TooManyRequests", "retry").await;
    check(500, "InternalError", "retry").await;
}

#[tokio::test]
async fn no_response_and_an_invalid_response_are_distinguished() {
    let (silent, _) = client(|_| None);
    let error = silent.get(&pods(), &web()).await.expect_err("no answer");
    assert!(matches!(error, ClientError::Transport(_)), "{error:?}");
    let (babbling, _) = client(|_| Some((200, json!("hello"))));
    let error = babbling.get(&pods(), &web()).await.expect_err("nonsense");
    assert!(matches!(error, ClientError::InvalidResponse(_)), "{error:?}");
}

#[tokio::test]
async fn a_body_that_cannot_be_encoded_is_not_sent() {
    let (client, log) = client(found);
    let unencodable = std::collections::BTreeMap::from([(vec![1], 1)]);
    let error = client.create(&pods(), Some("shop"), &unencodable).await.expect_err("not encodable");
    assert_eq!((error.code(), log.all().len()), (Some(400), 0));
}

#[tokio::test]
async fn a_list_is_read_page_by_page() {
    let (client, log) = client(|received| {
        let page = match received.target.contains("continue=more") {
            false => {
                json!({"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [pod("a"), pod("b")]})
            }
            true => json!({"metadata": {"resourceVersion": "9"}, "items": [pod("c"), {"metadata": 5}]}),
        };
        Some((200, page))
    });
    let selection =
        Selection { namespace: Some("shop".into()), labels: Some("app=web".into()), ..Selection::default() };
    let listed = client.list(&pods(), &selection).await.expect("listed");
    let names: Vec<_> = listed.objects.iter().map(|object| object.key().name()).collect();
    assert_eq!((names, listed.resource_version.as_str(), listed.undecodable), (vec!["a", "b", "c"], "9", 1));
    assert_eq!(
        log.lines(),
        [
            "GET /api/v1/namespaces/shop/pods?labelSelector=app%3Dweb&limit=500",
            "GET /api/v1/namespaces/shop/pods?labelSelector=app%3Dweb&limit=500&continue=more",
        ]
    );
}

#[tokio::test]
async fn an_empty_list_may_have_null_items() {
    let (client, _) = client(|_| Some((200, json!({"metadata": {"resourceVersion": "1"}, "items": null}))));
    assert!(client.list(&pods(), &Selection::default()).await.expect("listed").objects.is_empty());
}

#[tokio::test]
async fn it_has_a_name() {
    let (client, log) = client(found);
    client.get(&pods(), &web()).await.expect("found");
    let client = client.with_user_agent("kube-controller-manager/v1.34.0").with_user_agent("not\nallowed");
    client.get(&pods(), &web()).await.expect("found");
    let names: Vec<_> = log.all().iter().map(|received| received.header("user-agent").to_owned()).collect();
    assert_eq!(names, [concat!("setpoint/", env!("CARGO_PKG_VERSION")), "kube-controller-manager/v1.34.0"]);
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_burst_wait_their_turn() {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let metrics = Metrics::new();
    let (client, log) = client(found);
    let client = client.with_rate_limit(&clock, 10.0, 2).with_metrics(&clock, &metrics, "api:6443");
    let start = clock.instant();
    for _ in 0..5 {
        client.clone().get(&pods(), &web()).await.expect("found");
    }
    assert_eq!((clock.instant() - start, log.all().len()), (Duration::from_millis(300), 5));
    let text = metrics.encode();
    let expect = |line: &str| assert!(text.contains(line), "{line} in {text}");
    expect(r#"rest_client_requests_total{code="200",host="api:6443",method="GET"} 5"#);
    expect(r#"rest_client_rate_limiter_duration_seconds_count{host="api:6443",verb="GET"} 5"#);
    expect(r#"rest_client_request_duration_seconds_bucket{host="api:6443",verb="GET",le="0.005"} 5"#);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_too_long_has_no_response() {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
    });
    let client = Client::new(kube::Client::new(service, "default")).with_timeout(Duration::from_secs(30));
    let error = client.get(&pods(), &web()).await.expect_err("no answer");
    assert!(matches!(error, ClientError::Transport(_)), "{error:?}");
}

#[tokio::test]
async fn an_apply_identifies_its_object_and_forces_ownership() {
    let (client, log) = client(fake::echo);
    let kind = Kind::new("apps", "v1", "Deployment", "deployments", true);
    let (key, fields) = (Key::namespaced("shop", "web"), json!({"spec": {"replicas": 3}}));
    client.apply(&kind, &key, Subresource::None, "shop-operator", fields).await.expect("applied");
    let received = &log.all()[0];
    let path = "/apis/apps/v1/namespaces/shop/deployments/web?fieldManager=shop-operator&force=true";
    assert_eq!((received.method.as_str(), received.target.as_str()), ("PATCH", path));
    assert_eq!(received.header("content-type"), "application/apply-patch+yaml");
    assert_eq!(
        received.json(),
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 3}})
    );
}

#[tokio::test]
async fn a_client_acts_as_another_user_or_not_at_all() {
    let (client, log) = client(found);
    let account = client.clone().impersonating("system:serviceaccount:shop:deployer");
    account.get(&pods(), &web()).await.expect("found");
    client.get(&pods(), &web()).await.expect("found");
    let users: Vec<String> =
        log.all().iter().map(|received| received.header("impersonate-user").to_owned()).collect();
    assert_eq!(users, ["system:serviceaccount:shop:deployer", ""]);
    client.impersonating("a\nb").get(&pods(), &web()).await.expect_err("no such name");
    assert_eq!(log.all().len(), 2);
}
