//! Requests of steps: a slow server holds up the step that asks it, and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::{Clock, Context};
use setpoint_oam::{Egress, Options, Request, Response};
use setpoint_sim::{Running, TestCluster};

use super::*;

/// A server that takes its time, and how often it was asked what.
#[derive(Clone, Default)]
struct Server {
    /// None: it never answers.
    takes: Option<Duration>,
    asked: Arc<Mutex<Vec<String>>>,
}

struct Connected(Server, Clock);

impl Egress for Connected {
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Response, String>> {
        self.0.asked.lock().push(request.url);
        let (takes, clock) = (self.0.takes, self.1.clone());
        Box::pin(async move {
            match takes {
                Some(takes) => clock.sleep(takes).await,
                None => std::future::pending().await,
            }
            Ok(Response { status: 200, headers: BTreeMap::new(), body: "{\"is\": \"fine\"}".into() })
        })
    }
}

fn with_server(server: Server, test: impl AsyncFnOnce(&Running)) {
    let build = move |context: &Context| {
        let connected = Connected(server.clone(), context.runtime.clock.clone());
        let mut options = Options::default();
        options.egress = Some(Arc::new(connected));
        setpoint_oam::runnables_with(context, &options)
    };
    TestCluster::new().controllers(&["garbagecollector"]).with(build).run(async |cluster| {
        install(cluster).await;
        test(cluster).await;
    });
}

fn asks(more: Value) -> Value {
    let mut step =
        json!({"name": "ask", "type": "request", "properties": {"url": "https://slow.example/secret"}});
    if let (Some(step), Some(more)) = (step.as_object_mut(), more.as_object()) {
        step.extend(more.clone());
    }
    json!({"components": [], "workflow": {"steps": [step]}})
}

#[test]
fn servers_that_never_answer_hold_up_no_other_application() {
    with_server(Server::default(), async |cluster| {
        // Far more than there are workers, or places for requests.
        for number in 0..100 {
            create_app(cluster, &format!("slow-{number}"), asks(json!({}))).await;
        }
        for number in 0..100 {
            let step = "/status/workflow/steps/0/phase";
            until_value(cluster, &applications(), &format!("slow-{number}"), step, json!("running")).await;
        }
        create_app(cluster, "quick", json!({"components": [config("a", "1")]})).await;
        until_phase(cluster, "quick", "running").await;
        let slow = cluster.get(&applications(), &key("slow-0")).await.unwrap();
        let message = slow["status"]["workflow"]["steps"][0]["message"].as_str().unwrap();
        assert_eq!(message, "waits for the response to GET https://slow.example");
    });
}

#[test]
fn every_request_is_sent_once_although_there_are_more_than_places() {
    let server = Server { takes: Some(Duration::from_secs(10)), ..Server::default() };
    let asked = server.asked.clone();
    with_server(server, async |cluster| {
        for number in 0..100 {
            create_app(cluster, &format!("slow-{number}"), asks(json!({}))).await;
        }
        for number in 0..100 {
            until_phase(cluster, &format!("slow-{number}"), "running").await;
        }
        assert_eq!(asked.lock().len(), 100);
    });
}

#[test]
fn a_step_that_waits_for_a_response_can_time_out() {
    with_server(Server::default(), async |cluster| {
        create_app(cluster, "slow", asks(json!({"timeout": "1m"}))).await;
        let app = until_phase(cluster, "slow", "workflowFailed").await;
        assert_eq!(app["status"]["workflow"]["steps"][0]["reason"], "Timeout");
    });
}

#[test]
fn a_step_with_several_requests_sends_each_once() {
    let server = Server { takes: Some(Duration::from_secs(3)), ..Server::default() };
    let asked = server.asked.clone();
    with_server(server, async |cluster| {
        let template = r#"
import ("vela/http")
one: http.#HTTPDo & {$params: {method: "GET", url: "https://slow.example/one"}}
two: http.#HTTPDo & {$params: {method: "GET", url: "https://slow.example/two?\(one.$returns.statusCode)"}}
parameter: {}
"#;
        let definition = json!({"apiVersion": "core.oam.dev/v1beta1", "kind": "WorkflowStepDefinition",
            "metadata": {"name": "ask-twice", "namespace": "default"},
            "spec": {"schematic": {"cue": {"template": template}}}});
        cluster.create(definition).await;
        create_app(cluster, "twice", asks(json!({"type": "ask-twice", "properties": {}}))).await;
        until_phase(cluster, "twice", "running").await;
        let expected = ["https://slow.example/one", "https://slow.example/two?200"];
        assert_eq!(*asked.lock(), expected);
    });
}

#[test]
fn an_application_that_is_deleted_does_not_wait_for_its_requests() {
    with_server(Server::default(), async |cluster| {
        create_app(cluster, "slow", asks(json!({}))).await;
        until_value(cluster, &applications(), "slow", "/status/workflow/steps/0/phase", json!("running"))
            .await;
        let options = setpoint::client::DeleteOptions::default();
        cluster.client().delete(&applications(), &key("slow"), &options).await.expect("a delete");
        gone(cluster, &applications(), "slow").await;
    });
}
