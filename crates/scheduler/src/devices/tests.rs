//! Device allocation on two nodes.

use serde_json::{Value, json};
use setpoint::{Cached, Object};

use super::*;
use crate::ledger::Ledger;
use crate::view::{NodeView, Pod};

fn object(value: Value) -> Object {
    Object::from_json(value.to_string().into()).expect("an object")
}

fn claim(name: &str, devices: Value, status: Value) -> Object {
    let metadata = json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": "5"});
    object(json!({"metadata": metadata, "spec": {"devices": devices}, "status": status}))
}

/// A request for devices of class `gpu`.
fn exactly(name: &str, more: Value) -> Value {
    let mut exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
    for (field, value) in more.as_object().into_iter().flatten() {
        exactly[field] = value.clone();
    }
    json!({"name": name, "exactly": exactly})
}

fn wants(more: Value) -> Object {
    claim("c", json!({"requests": [exactly("r", more)]}), json!({}))
}

fn cel(expression: &str) -> Value {
    json!([{"cel": {"expression": expression}}])
}

fn device(name: &str, model: &str, slot: i64) -> Value {
    json!({"name": name, "attributes": {"model": {"string": model}, "slot": {"int": slot}}})
}

fn slice(pool: &str, at: Value, generation: i64, devices: &[Value]) -> Object {
    let mut spec = json!({"driver": "d.io", "devices": devices,
                          "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1}});
    for (field, value) in at.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    object(json!({"metadata": {"name": format!("{pool}-{generation}")}, "spec": spec}))
}

/// Node m has two devices of model a and one of model b; node n has one of model b.
fn slices() -> Vec<Object> {
    vec![
        slice(
            "m",
            json!({"nodeName": "m"}),
            1,
            &[device("a1", "a", 1), device("a2", "a", 2), device("b1", "b", 1)],
        ),
        slice("n", json!({"nodeName": "n"}), 1, &[device("b1", "b", 3)]),
    ]
}

fn classes() -> Vec<Object> {
    let class = |name: &str, spec: Value| object(json!({"metadata": {"name": name}, "spec": spec}));
    let config = json!([{"opaque": {"driver": "d.io", "parameters": {"fast": true}}}]);
    vec![
        class("gpu", json!({"selectors": cel("device.driver == 'd.io'"), "config": config})),
        class("a", json!({"selectors": cel("device.attributes['d.io'].model == 'a'")})),
        class("broken", json!({"selectors": cel("device.attributes['d.io'].weight > 1")})),
    ]
}

fn pod(claims: &[&str]) -> Pod {
    let claims: Vec<Value> =
        claims.iter().map(|name| json!({"name": name, "resourceClaimName": name})).collect();
    let metadata = json!({"name": "p", "namespace": "ns", "uid": "p"});
    Pod::new(object(json!({"metadata": metadata, "spec": {"resourceClaims": claims}}))).expect("a pod")
}

fn nodes() -> Ledger {
    let mut ledger = Ledger::default();
    for name in ["m", "n"] {
        let node = object(json!({"metadata": {"name": name, "labels": {"name": name}}}));
        ledger.put_node(&node, node.view::<NodeView>().expect("a node"));
    }
    ledger
}

struct World {
    ledger: Ledger,
    caches: DeviceCaches,
}

impl World {
    fn of(claims: Vec<Object>, slices: Vec<Object>) -> Self {
        let mut ledger = nodes();
        for claim in &claims {
            ledger.devices.follow(&Cached::new(claim.clone()).expect("a claim"));
        }
        Self { ledger, caches: DeviceCaches::of_objects(claims, classes(), slices) }
    }

    /// Returns what keeps a pod off each node, or off all of them.
    fn obstacles(&self, pod: &Pod) -> Result<[String; 2], String> {
        let needs = DeviceNeeds::of(pod, &self.ledger.devices, &self.caches)?.expect("it has claims");
        Ok(["m", "n"].map(|node| {
            let obstacle = needs.obstacle(self.ledger.node(node).expect("a node"));
            obstacle.map(|obstacle| obstacle.reasons.join(" and ")).unwrap_or_default()
        }))
    }

    fn reservation(&self, pod: &Pod, node: &str) -> Reservation {
        let needs = DeviceNeeds::of(pod, &self.ledger.devices, &self.caches).expect("it can fit");
        Reservation::of(&needs.expect("it has claims"), pod, self.ledger.node(node).expect("a node"))
    }

    /// Returns the resulting status of the only claim on a node: devices per request, and the full status.
    fn status_on(&self, node: &str) -> (Vec<String>, Value) {
        let pod = pod(&["c"]);
        let reserving = &self.reservation(&pod, node).claims[0];
        let Write::Main(protected) = next_write(&reserving.claim, reserving, &pod) else {
            panic!("held first")
        };
        let protected: Cached<Claim> = Cached::new(protected).expect("a claim");
        assert_eq!(protected.metadata.finalizers, ["resource.kubernetes.io/delete-protection"]);
        let Write::Status(written) = next_write(&protected, reserving, &pod) else {
            panic!("then allocated")
        };
        let status = written.decode::<Value>().expect("JSON")["status"].clone();
        let results = status["allocation"]["devices"]["results"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let shown = |one: &Value| {
            format!("{}={}/{}", text(&one["request"]), text(&one["pool"]), text(&one["device"]))
        };
        (results.iter().map(shown).collect(), status)
    }
}

const NOT_ALL: &str = "cannot allocate all claims";

#[track_caller]
fn check(claims: Vec<Object>, expected: Result<[&str; 2], &str>) {
    let world = World::of(claims, slices());
    let expected = expected.map(|nodes| nodes.map(str::to_owned)).map_err(str::to_owned);
    assert_eq!(world.obstacles(&pod(&["c"])), expected);
}

#[test]
fn a_pod_waits_for_missing_claims_and_classes() {
    check(vec![], Err("resourceclaim.resource.k8s.io \"c\" not found"));
    let ghost = wants(json!({"deviceClassName": "ghost"}));
    check(vec![ghost], Err("request r: device class ghost does not exist"));
    let choice =
        json!({"requests": [{"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "ghost"}]}]});
    check(vec![claim("c", choice, json!({}))], Err("request r/s: device class ghost does not exist"));
    let nothing = claim("c", json!({"requests": [{"name": "r"}]}), json!({}));
    check(vec![nothing], Err("resource claim ns/c, request r: unknown request type"));
}

#[test]
fn a_pod_goes_where_enough_devices_are_free() {
    let free = ["", ""];
    check(vec![wants(json!({}))], Ok(free));
    check(vec![wants(json!({"deviceClassName": "a"}))], Ok(["", NOT_ALL]));
    check(vec![wants(json!({"count": 2}))], Ok(["", NOT_ALL]));
    check(vec![wants(json!({"count": 4}))], Ok([NOT_ALL, NOT_ALL]));
    check(vec![wants(json!({"selectors": cel("device.attributes['d.io'].slot > 2")}))], Ok([NOT_ALL, ""]));
    check(vec![wants(json!({"allocationMode": "All"}))], Ok(free));
    let none = json!({"allocationMode": "All", "selectors": cel("false")});
    check(vec![wants(none)], Ok([NOT_ALL, NOT_ALL]));
}

#[test]
fn devices_of_another_claim_are_only_available_with_admin_access() {
    let has = |device: &str, admin: bool| {
        let mut result = json!({"request": "r", "driver": "d.io", "pool": "n", "device": device});
        if admin {
            result["adminAccess"] = true.into();
        }
        claim("other", json!({}), json!({"allocation": {"devices": {"results": [result]}}}))
    };
    check(vec![wants(json!({})), has("b1", false)], Ok(["", NOT_ALL]));
    check(vec![wants(json!({})), has("b1", true)], Ok(["", ""]));
    check(vec![wants(json!({"adminAccess": true})), has("b1", false)], Ok(["", ""]));
}

#[test]
fn a_pod_goes_where_its_claim_is_allocated() {
    let selector = json!({"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["n"]}]}]});
    let allocated = claim("c", json!({}), json!({"allocation": {"devices": {}, "nodeSelector": selector}}));
    check(vec![allocated.clone()], Ok(["resourceclaim not available on the node", ""]));
    let world = World::of(vec![allocated], slices());
    let pod = pod(&["c"]);
    let needs = DeviceNeeds::of(&pod, &world.ledger.devices, &world.caches).expect("fits").expect("needs");
    let idle = |node| needs.deallocatable(&pod, world.ledger.node(node).into_iter()).len();
    assert_eq!((idle("m"), idle("n")), (1, 0), "deallocated only where it is in the way");
}

#[test]
fn a_failing_expression_ends_the_search() {
    let claims = vec![wants(json!({"deviceClassName": "broken"}))];
    let why = "running \"DynamicResources\" filter plugin: class broken: selector #0: CEL runtime error: no such key: weight";
    check(claims, Ok([why, why]));
}

#[test]
fn devices_of_a_constraint_have_the_same_attribute() {
    let allocated_with = |attribute: &str, requests: Value| {
        let constraint = json!({"matchAttribute": attribute, "requests": requests});
        let devices = json!({"requests": [exactly("x", json!({})), exactly("y", json!({"selectors":
            cel("device.attributes['d.io'].model == 'b'")}))], "constraints": [constraint]});
        World::of(vec![claim("c", devices, json!({}))], slices()).status_on("m").0
    };
    assert_eq!(allocated_with("d.io/slot", json!([])), ["x=m/a1", "y=m/b1"]);
    assert_eq!(allocated_with("d.io/model", json!(["x"])), ["x=m/a1", "y=m/b1"]);
    let devices = json!({"requests": [exactly("x", json!({"count": 2}))],
                         "constraints": [{"matchAttribute": "d.io/slot"}]});
    let world = World::of(vec![claim("c", devices, json!({}))], slices());
    assert_eq!(world.status_on("m").0, ["x=m/a1", "x=m/b1"], "back from a choice that leads nowhere");
}

#[test]
fn the_first_available_alternative_is_taken() {
    let choice = |count: i64| {
        let alternatives = json!([
            {"name": "many", "deviceClassName": "a", "allocationMode": "ExactCount", "count": count},
            {"name": "one", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}]);
        let config = json!([{"requests": ["r/one"], "opaque": {"driver": "d.io"}}]);
        let devices = json!({"requests": [{"name": "r", "firstAvailable": alternatives}], "config": config});
        World::of(vec![claim("c", devices, json!({}))], slices())
    };
    assert_eq!(choice(2).status_on("m").0, ["r/many=m/a1", "r/many=m/a2"]);
    let (results, status) = choice(3).status_on("m");
    assert_eq!(results, ["r/one=m/a1"]);
    let sources: Vec<&Value> = status["allocation"]["devices"]["config"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| &one["source"])
        .collect();
    assert_eq!(sources, ["FromClass", "FromClaim"]);
}

#[test]
fn the_status_has_the_devices_the_node_selector_and_the_consumers() {
    let (_, status) = World::of(vec![wants(json!({"adminAccess": true}))], slices()).status_on("n");
    let result = json!({"request": "r", "driver": "d.io", "pool": "n", "device": "b1", "adminAccess": true});
    let config = json!({"source": "FromClass", "requests": ["r"],
                        "opaque": {"driver": "d.io", "parameters": {"fast": true}}});
    let name = json!({"key": "metadata.name", "operator": "In", "values": ["n"]});
    let expected = json!({
        "allocation": {"devices": {"results": [result], "config": [config]},
                       "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [name]}]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}],
    });
    assert_eq!(status, expected);
}

#[test]
fn pools_are_accessible_by_node_name_node_selector_or_everywhere() {
    let check = |at: Value, expected: [&str; 2]| {
        let world =
            World::of(vec![wants(json!({}))], vec![slice("x", at.clone(), 1, &[device("d", "a", 1)])]);
        assert_eq!(world.obstacles(&pod(&["c"])).expect("it can fit"), expected.map(str::to_owned), "{at}");
    };
    check(json!({"allNodes": true}), ["", ""]);
    let term = json!({"matchExpressions": [{"key": "name", "operator": "In", "values": ["n"]}]});
    check(json!({"nodeSelector": {"nodeSelectorTerms": [term]}}), [NOT_ALL, ""]);
    check(json!({"perDeviceNodeSelection": true}), [NOT_ALL, NOT_ALL]);
    check(json!({}), [NOT_ALL, NOT_ALL]);
}

#[test]
fn only_the_newest_generation_of_a_pool_counts_and_all_of_it_needs_all_slices() {
    let at = || json!({"allNodes": true});
    let generations =
        vec![slice("x", at(), 1, &[device("old", "a", 1)]), slice("x", at(), 2, &[device("new", "a", 1)])];
    assert_eq!(World::of(vec![wants(json!({}))], generations).status_on("m").0, ["r=x/new"]);
    let mut part = slice("x", at(), 1, &[device("d", "a", 1)]).decode::<Value>().expect("JSON");
    part["spec"]["pool"]["resourceSliceCount"] = 2.into();
    let some = World::of(vec![wants(json!({}))], vec![object(part.clone())]);
    assert_eq!(
        some.obstacles(&pod(&["c"])).expect("it can fit"),
        ["", ""],
        "a part is enough for one device"
    );
    let all = World::of(vec![wants(json!({"allocationMode": "All"}))], vec![object(part)]);
    let why = "running \"DynamicResources\" filter plugin: claim ns/c, request r: asks for all devices, \
               but resource pool d.io/x is currently being updated";
    assert_eq!(all.obstacles(&pod(&["c"])).expect("it can fit"), [why, why]);
    let twice = slice("x", at(), 1, &[device("d", "a", 1), device("d", "a", 1)]);
    let why = "running \"DynamicResources\" filter plugin: pool x is invalid: duplicate device name d";
    assert_eq!(
        World::of(vec![wants(json!({}))], vec![twice]).obstacles(&pod(&["c"])).expect("it can fit"),
        [why, why]
    );
}

#[test]
fn a_decided_allocation_is_taken_until_the_cache_shows_it() {
    let other = claim("c2", json!({"requests": [exactly("r", json!({}))]}), json!({}));
    let mut world = World::of(vec![wants(json!({})), other], slices());
    let (first, second) = (pod(&["c"]), pod(&["c2"]));
    let reservation = world.reservation(&first, "n");
    reservation.assume(&mut world.ledger.devices);
    assert_eq!(world.obstacles(&second).expect("it can fit"), ["", NOT_ALL]);
    let pending = "resource claim ns/c is in the process of being allocated";
    assert_eq!(world.obstacles(&first), Err(pending.to_owned()));
    reservation.forget(&mut world.ledger.devices);
    assert_eq!(world.obstacles(&second).expect("it can fit"), ["", ""]);

    reservation.assume(&mut world.ledger.devices);
    let reserving = &reservation.claims[0];
    let Write::Main(protected) = next_write(&reserving.claim, reserving, &first) else {
        panic!("held first")
    };
    let protected = Cached::new(protected).expect("a claim");
    world.ledger.devices.follow(&protected);
    assert_eq!(world.obstacles(&second).expect("it can fit"), ["", NOT_ALL], "only held so far");
    let Write::Status(written) = next_write(&protected, reserving, &first) else { panic!("then allocated") };
    let written = Cached::new(written).expect("a claim");
    assert!(!world.ledger.devices.follow(&written));
    assert_eq!(world.obstacles(&second).expect("it can fit"), ["", NOT_ALL]);
    assert!(matches!(next_write(&written, reserving, &first), Write::Nothing));
    assert!(matches!(next_write(&written, reserving, &pod_named("q")), Write::Lost(_)));
    assert!(world.ledger.devices.follow(&protected), "deallocated again");
    assert_eq!(world.obstacles(&second).expect("it can fit"), ["", ""]);
}

fn pod_named(uid: &str) -> Pod {
    let metadata = json!({"name": uid, "namespace": "ns", "uid": uid});
    Pod::new(object(json!({"metadata": metadata}))).expect("a pod")
}

#[test]
fn a_pod_is_scheduled_only_when_its_generated_claims_are_its_own() {
    let made = |owner: &str| {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true});
        object(
            json!({"metadata": {"name": "made", "namespace": "ns", "uid": "made", "ownerReferences": [owner]}}),
        )
    };
    let requested = |status: Value| {
        let spec = json!({"resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}]});
        let metadata = json!({"name": "p", "namespace": "ns", "uid": "p"});
        let status = json!({"resourceClaimStatuses": status});
        Pod::new(object(json!({"metadata": metadata, "spec": spec, "status": status}))).expect("a pod")
    };
    let check = |pod: &Pod, owner: &str, expected: Result<usize, &str>| {
        let caches = DeviceCaches::of_objects(vec![made(owner)], vec![], vec![]);
        let found = claims_of(pod, &caches.claims).map(|claims| claims.len());
        assert_eq!(found, expected.map_err(str::to_owned));
    };
    check(&requested(json!([])), "p", Err("pod \"ns/p\": ResourceClaim not created yet"));
    let given = json!([{"name": "r", "resourceClaimName": "made"}]);
    check(&requested(given.clone()), "p", Ok(1));
    let message = "ResourceClaim ns/made was not created for pod ns/p (pod is not owner)";
    check(&requested(given), "q", Err(message));
    check(&requested(json!([{"name": "r"}])), "p", Ok(0));
}

#[test]
fn devices_with_untolerated_taints_are_not_available() {
    let rule = |selector: Value, value: &str| {
        let taint = json!({"key": "broken", "value": value, "effect": "NoSchedule"});
        object(json!({"metadata": {"name": "r"}, "spec": {"deviceSelector": selector, "taint": taint}}))
    };
    let on = |rules: Vec<Object>, exact: Value, node: &str| {
        let mut world = World::of(vec![wants(exact)], slices());
        world.caches = world.caches.tainted_by(rules, classes());
        world.status_on(node)
    };
    assert_eq!(on(vec![], json!({}), "m").0, ["r=m/a1"]);
    assert_eq!(on(vec![rule(json!({"device": "a1"}), "")], json!({}), "m").0, ["r=m/a2"]);
    assert_eq!(on(vec![rule(json!({"deviceClassName": "a"}), "")], json!({}), "m").0, ["r=m/b1"]);
    let by_expression = json!({"selectors": cel("device.attributes['d.io'].slot == 1")});
    assert_eq!(on(vec![rule(by_expression, "")], json!({}), "m").0, ["r=m/a2"]);
    let tolerations = json!([{"key": "broken", "operator": "Equal", "value": "a bit"}]);
    let exact = json!({"tolerations": tolerations});
    let (results, status) = on(vec![rule(json!({"device": "a1"}), "a bit")], exact.clone(), "m");
    assert_eq!(results, ["r=m/a1"]);
    assert_eq!(status["allocation"]["devices"]["results"][0]["tolerations"], tolerations);
    assert_eq!(on(vec![rule(json!({"device": "a1"}), "wholly")], exact, "m").0, ["r=m/a2"]);

    let mut all = World::of(vec![wants(json!({"allocationMode": "All"}))], slices());
    all.caches = all.caches.tainted_by(vec![rule(json!({"device": "b1", "pool": "n"}), "")], classes());
    assert_eq!(all.obstacles(&pod(&["c"])).expect("it can fit"), ["", NOT_ALL], "all means all");

    let tainted = json!({"name": "t", "taints": [{"key": "k", "effect": "NoExecute"}]});
    let at = json!({"allNodes": true});
    let mut world = World::of(vec![wants(json!({}))], vec![slice("x", at, 1, &[tainted])]);
    assert_eq!(world.obstacles(&pod(&["c"])).expect("it can fit"), ["", ""], "taints do not count");
    world.caches = world.caches.tainted_by(vec![], vec![]);
    assert_eq!(world.obstacles(&pod(&["c"])).expect("it can fit"), [NOT_ALL, NOT_ALL]);
}

#[test]
fn the_same_devices_are_not_tried_in_every_order() {
    let many: Vec<Value> = (0..12).map(|slot| device(&format!("a{slot}"), "a", slot)).collect();
    let world = World::of(
        vec![wants(json!({"count": 13}))],
        vec![
            slice("m", json!({"nodeName": "m"}), 1, &many),
            slice("n", json!({"nodeName": "n"}), 1, &many[..2]),
        ],
    );
    let found = world.obstacles(&pod(&["c"])).expect("it is asked about nodes");
    assert_eq!(found, ["cannot allocate all claims", "cannot allocate all claims"].map(str::to_owned));
}
