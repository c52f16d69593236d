//! Authorization checks in policies: what they ask, how many there are, and how long they may take.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_apiserver::auth::rbac::{RoleRef, Rule};
use setpoint_apiserver::auth::{Attributes, Authorizer, Decision, UserRules};
use setpoint_apiserver::{Config, User};
use setpoint_clock::Clock;

use crate::client::Api;
use crate::policies::{GROUP, MAPS, bind_policy, map, with_policy};

/// What a check with the verb `use` asked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    groups: Vec<String>,
    namespace: Option<String>,
    name: Option<String>,
}

/// Allows everything, and records checks with the verb `use`.
#[derive(Clone)]
struct Recorder {
    clock: Clock,
    /// The time to answer.
    takes: Duration,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// Held by checks in progress.
    pending: Arc<()>,
}

impl Authorizer for Recorder {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        if attributes.verb != "use" {
            return std::future::ready(Decision::allow("")).boxed();
        }
        let target = attributes.resource;
        self.asked.lock().unwrap().push(Asked {
            groups: attributes.user.groups.clone(),
            namespace: target.and_then(|target| target.namespace.clone()),
            name: target.and_then(|target| target.name.clone()),
        });
        let pending = self.pending.clone();
        async move {
            if !self.takes.is_zero() {
                self.clock.sleep(self.takes).await;
            }
            drop(pending);
            Decision::allow("")
        }
        .boxed()
    }

    fn rules<'a>(&'a self, _: &'a User, _: Option<&'a str>) -> BoxFuture<'a, UserRules> {
        std::future::ready(UserRules::default()).boxed()
    }

    fn role<'a>(&'a self, _: &'a RoleRef, _: Option<&'a str>) -> BoxFuture<'a, Result<Vec<Rule>, String>> {
        std::future::ready(Err("no roles".into())).boxed()
    }
}

/// A server with a policy and an authorizer that takes this long for the policy's checks.
async fn start(takes: Duration, policy: Value) -> (Api, Recorder) {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
    let recorder = Recorder { clock, takes, asked: Arc::default(), pending: Arc::default() };
    let authorizer = recorder.clone();
    let recorded = |config: Config| {
        let authorizer = Recorder { clock: config.clock.clone(), ..authorizer };
        Config { authorizer: Arc::new(authorizer), request_timeout: Duration::from_secs(10), ..config }
    };
    let api = bind_policy(Api::start_changed(recorded).await, policy, json!({})).await;
    (api, recorder)
}

fn validations(expressions: &[&str]) -> Value {
    let validations: Vec<Value> = expressions.iter().map(|text| json!({"expression": text})).collect();
    json!({"validations": validations})
}

#[tokio::test(start_paused = true)]
async fn a_pending_check_costs_as_much_as_an_answered_one() {
    let each = "object.data.all(k, authorizer.group('x').resource('y').name(k).check('use').allowed())";
    for takes in [Duration::ZERO, Duration::from_secs(1)] {
        let (api, recorder) = start(takes, validations(&[each])).await;
        let data: serde_json::Map<String, Value> =
            (0..100).map(|at| (format!("k-{at:02}"), "v".into())).collect();
        let refused = api.post(MAPS, json!({"metadata": {"name": "a"}, "data": data})).await;
        assert_eq!(refused.code, 422, "{}", refused.text);
        // An expression may cost 1,000,000, and a check costs 350,000.
        assert_eq!(recorder.asked.lock().unwrap().len(), 2, "{takes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_checks_of_a_policy_are_answered_at_once() {
    let [a, b, c] = ["a", "b", "c"].map(|path| format!("authorizer.path('/{path}').check('use').allowed()"));
    let (api, recorder) = start(Duration::from_secs(1), validations(&[&a, &b, &c])).await;
    let began = api.clock.instant();
    api.post(MAPS, map("a")).await.created();
    assert_eq!(api.clock.instant() - began, Duration::from_secs(1));
    assert_eq!(recorder.asked.lock().unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_check_ends_at_the_requests_deadline() {
    let never = Duration::from_secs(1_000_000);
    let (api, recorder) = start(never, validations(&["authorizer.path('/a').check('use').allowed()"])).await;
    let refused = api.post(MAPS, map("a")).await;
    assert_eq!(refused.code, 504, "{}", refused.text);
    tokio::time::sleep(Duration::from_secs(5)).await;
    // The server's and the test's.
    assert_eq!(Arc::strong_count(&recorder.pending), 2);
}

#[tokio::test(start_paused = true)]
async fn the_resource_of_a_request_for_a_namespace_is_in_the_namespace() {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["namespaces"]});
    let mut policy = validations(&["authorizer.requestResource.check('use').allowed()"]);
    policy["matchConstraints"] = json!({"resourceRules": [rule]});
    let (api, recorder) = start(Duration::ZERO, policy).await;
    api.merge("/api/v1/namespaces/default", json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    let asked = recorder.asked.lock().unwrap().remove(0);
    assert_eq!((asked.namespace.as_deref(), asked.name.as_deref()), (Some("default"), Some("default")));
}

#[tokio::test(start_paused = true)]
async fn a_service_account_is_in_the_groups_of_service_accounts_only() {
    let check = "authorizer.serviceAccount('n', 'robot').path('/a').check('use').allowed()";
    let (api, recorder) = start(Duration::ZERO, validations(&[check])).await;
    api.post(MAPS, map("a")).await.created();
    let asked = recorder.asked.lock().unwrap().remove(0);
    assert_eq!(asked.groups, ["system:serviceaccounts", "system:serviceaccounts:n"]);
}

#[tokio::test(start_paused = true)]
async fn a_check_of_something_that_cannot_exist_is_an_error() {
    let api = with_policy(validations(&["true"]), json!({})).await;
    for (target, why) in [
        ("serviceAccount('n', '').path('/a')", "Invalid service account name"),
        ("serviceAccount('n', 'a:b').path('/a')", "Invalid service account name"),
        ("serviceAccount('', 'a').path('/a')", "Invalid service account namespace"),
        ("serviceAccount('a.b', 'a').path('/a')", "Invalid service account namespace"),
        ("path(' ')", "path must not be empty"),
        ("group('').resource('')", "resource must not be empty"),
    ] {
        let expression = format!("authorizer.{target}.check('get').allowed()");
        let path = format!("{GROUP}/validatingadmissionpolicies/p");
        api.merge(&path, json!({"spec": validations(&[&expression])})).await.ok();
        let refused = api.post(MAPS, map("a")).await;
        let expected = format!("denied request: expression '{expression}' resulted in error: {why}");
        assert!(refused.code == 422 && refused.refusal().2.ends_with(&expected), "{}", refused.text);
    }
}
