use parking_lot::Mutex;
use serde_json::{Value, json};

use super::lines::QUEUE_CAPACITY;
use super::*;
use crate::client::fake::{self, Log, Received, echo};
use crate::{Clock, Rng};

struct World {
    recorder: Recorder,
    runtime: Runtime,
    metrics: Metrics,
    log: Log,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn world(answer: impl Fn(&Received) -> fake::Answer + Send + Sync + 'static) -> World {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let runtime = Runtime { clock, rng: Rng::seeded(1) };
    let (client, log) = fake::client(answer);
    let metrics = Metrics::new();
    let (events, recording) = channel(client, runtime.clone(), metrics.clone());
    let stop = CancellationToken::new();
    let task = tokio::spawn(recording.run(stop.clone()));
    World { recorder: events.recorder("replicaset-controller"), runtime, metrics, log, stop, task }
}

impl World {
    fn warn(&self, message: impl Into<String>) {
        self.recorder.event(&sets(), &web(), EventType::Warning, "FailedCreate", message);
    }

    async fn finish(self) -> Vec<Received> {
        self.stop.cancel();
        self.task.await.expect("no panic");
        self.log.all()
    }
}

fn sets() -> Kind {
    Kind::new("apps", "v1", "ReplicaSet", "replicasets", true)
}

fn object(metadata: Value) -> Object {
    Object::from_json(json!({"metadata": metadata}).to_string().into()).expect("an object")
}

fn web() -> Object {
    object(json!({"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7"}))
}

#[tokio::test(start_paused = true)]
async fn an_event_is_created_beside_its_object() {
    let world = world(echo);
    world.recorder.event(&sets(), &web(), EventType::Normal, "SuccessfulCreate", "Created pod: web-1");
    let received = &world.finish().await[0];
    assert_eq!(received.target, "/api/v1/namespaces/shop/events");
    assert_eq!(
        received.json(),
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": "web.1816687ec0570000", "namespace": "shop"},
            "involvedObject": {"kind": "ReplicaSet", "namespace": "shop", "name": "web", "uid": "u1",
                "apiVersion": "apps/v1", "resourceVersion": "7"},
            "reason": "SuccessfulCreate", "message": "Created pod: web-1", "type": "Normal",
            "source": {"component": "replicaset-controller"},
            "firstTimestamp": "2025-01-01T00:00:00Z", "lastTimestamp": "2025-01-01T00:00:00Z", "count": 1,
            "reportingComponent": "replicaset-controller", "reportingInstance": "",
        })
    );
}

#[tokio::test(start_paused = true)]
async fn events_of_cluster_scoped_objects_live_in_default_and_odd_names_are_replaced() {
    let world = world(echo);
    let node = object(json!({"name": "system:node", "uid": "u2"}));
    let about = Reference::to(&Kind::new("", "v1", "Node", "nodes", false), &node).field_path("spec.taints");
    let annotations = BTreeMap::from([("why".to_owned(), "because".to_owned())]);
    let recorder = world.recorder.clone().on_host("node-1");
    recorder.event_about(about, EventType::Normal, "Tainted", "m", annotations);
    let event = world.finish().await[0].json();
    assert_eq!(event["metadata"]["namespace"], "default");
    assert_eq!(event["metadata"]["annotations"]["why"], "because");
    assert_eq!(event["metadata"]["name"].as_str().expect("a name").len(), 36);
    assert_eq!(event["involvedObject"]["fieldPath"], "spec.taints");
    assert_eq!((&event["source"]["host"], &event["reportingInstance"]), (&json!("node-1"), &json!("node-1")));
}

#[tokio::test(start_paused = true)]
async fn events_at_the_same_instant_have_names_of_their_own() {
    let world = world(echo);
    ["a", "b", "c"].iter().for_each(|message| world.warn(*message));
    let names: Vec<_> =
        world.finish().await.iter().map(|event| event.json()["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["web.1816687ec0570000", "web.1816687ec0570001", "web.1816687ec0570002"]);
}

#[tokio::test(start_paused = true)]
async fn an_equal_event_raises_the_count_of_the_first() {
    let world = world(echo);
    world.warn("quota");
    world.runtime.clock.sleep(Duration::from_secs(5)).await;
    world.warn("quota");
    let received = world.finish().await;
    assert_eq!(received[1].method, "PATCH");
    assert_eq!(received[1].target, "/api/v1/namespaces/shop/events/web.1816687ec0570000");
    assert_eq!(received[1].header("content-type"), "application/strategic-merge-patch+json");
    assert_eq!(
        received[1].json(),
        json!({"count": 2, "lastTimestamp": "2025-01-01T00:00:05Z", "message": "quota"})
    );
}

#[tokio::test(start_paused = true)]
async fn an_expired_event_is_created_again_with_its_count() {
    let world = world(|received| match received.method.as_str() {
        "PATCH" => Some((404, json!({"kind": "Status", "reason": "NotFound", "code": 404}))),
        _ => echo(received),
    });
    world.warn("quota");
    world.warn("quota");
    let received = world.finish().await;
    assert_eq!(received.iter().map(|one| one.method.as_str()).collect::<Vec<_>>(), ["POST", "PATCH", "POST"]);
    assert_eq!(received[2].json()["count"], 2);
}

#[tokio::test(start_paused = true)]
async fn similar_events_are_combined_from_the_tenth_on() {
    let world = world(echo);
    for number in 0..11 {
        world.warn(format!("pod {number:02}"));
    }
    let received = world.finish().await;
    let summary: Vec<_> =
        received[8..].iter().map(|one| (one.method.clone(), one.json()["message"].clone())).collect();
    let combined = |number: &str| json!(format!("(combined from similar events): pod {number}"));
    assert_eq!(
        summary,
        [
            ("POST".to_owned(), json!("pod 08")),
            ("POST".to_owned(), combined("09")),
            ("PATCH".to_owned(), combined("10")),
        ]
    );
    assert_eq!(received[9].json()["reportingComponent"], "");
}

#[tokio::test(start_paused = true)]
async fn similar_events_with_more_than_ten_minutes_between_them_are_not_combined() {
    let world = world(echo);
    for number in 0..20 {
        world.warn(format!("pod {number}"));
        world.runtime.clock.sleep(Duration::from_secs(601)).await;
    }
    let received = world.finish().await;
    assert!(received.iter().all(|one| one.method == "POST"));
    assert_eq!(received.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn an_event_source_may_burst_25_then_one_event_every_five_minutes() {
    let world = world(echo);
    for _ in 0..40 {
        world.warn("quota");
    }
    world.runtime.clock.sleep(Duration::from_secs(1)).await;
    assert_eq!(world.log.all().len(), 25);
    // Other types and other objects have their own budget.
    world.recorder.event(&sets(), &web(), EventType::Normal, "FailedCreate", "quota");
    let other = object(json!({"name": "other", "namespace": "shop", "uid": "u3"}));
    world.recorder.event(&sets(), &other, EventType::Warning, "FailedCreate", "quota");
    world.runtime.clock.sleep(Duration::from_secs(300)).await;
    world.warn("quota");
    world.warn("quota");
    let received = world.finish().await;
    assert_eq!(received.len(), 28);
    assert_eq!(received[27].json()["count"], 41, "dropped events are still counted");
}

#[tokio::test(start_paused = true)]
async fn an_event_is_tried_again_until_the_api_server_answers() {
    let failures = Mutex::new(3);
    let world = world(move |received| {
        let mut left = failures.lock();
        if *left == 0 {
            return echo(received);
        }
        *left -= 1;
        None
    });
    world.warn("quota");
    world.runtime.clock.sleep(Duration::from_secs(31)).await;
    assert_eq!(world.finish().await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_event_is_given_up_after_twelve_tries_and_when_it_is_rejected() {
    let silent = world(|_| None);
    silent.warn("quota");
    silent.runtime.clock.sleep(Duration::from_secs(3600)).await;
    assert_eq!(silent.finish().await.len(), 12);
    let refusing = world(|_| Some((403, json!({"kind": "Status", "reason": "Forbidden", "code": 403}))));
    refusing.warn("quota");
    assert_eq!(refusing.finish().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn events_beyond_the_capacity_are_dropped_and_counted() {
    let world = world(echo);
    for number in 0..QUEUE_CAPACITY + 5 {
        let object = object(json!({"name": format!("web-{number}"), "namespace": "shop"}));
        world.recorder.event(&sets(), &object, EventType::Normal, "r", "m");
    }
    assert!(world.metrics.encode().contains("setpoint_events_dropped_total 5\n"));
    assert_eq!(world.finish().await.len(), QUEUE_CAPACITY);
}

#[tokio::test(start_paused = true)]
async fn event_spam_of_one_component_does_not_limit_others() {
    // Writes for the chatty component get no response.
    let world = world(|received| {
        received.json()["source"]["component"].ne("replicaset-controller").then(|| echo(received))?
    });
    let chatty = world.recorder.clone();
    let other = chatty.events.recorder("deployment-controller");
    for number in 0..2 * QUEUE_CAPACITY {
        let object = object(json!({"name": format!("web-{number}"), "namespace": "shop"}));
        chatty.event(&sets(), &object, EventType::Normal, "SuccessfulCreate", "m");
    }
    other.event(&sets(), &web(), EventType::Normal, "ScalingReplicaSet", "m");
    world.runtime.clock.sleep(Duration::from_secs(1)).await;
    let reasons: Vec<_> = world.log.all().iter().map(|one| one.json()["reason"].clone()).collect();
    assert!(reasons.contains(&json!("ScalingReplicaSet")), "{reasons:?}");
}
