//! Table tests of slices, and a property test of packing.

use proptest::prelude::*;
use serde_json::{Value, json};
use setpoint::Cached;

use super::hints::{NoHints, Shares, assign_hints};
use super::plan::{Plan, SliceTemplate, Zones, plan};
use super::traffic::{Proximity, set_proximity_hints};
use crate::discovery::address::Family;
use crate::discovery::backend::Backend;
use crate::discovery::changes::{Changes, Draft};
use crate::discovery::service::Service;
use crate::discovery::slice::{Endpoint, Slice};
use crate::workload::fixtures::{at, cached};

const MAX_ENDPOINTS: usize = 100;

fn service_json() -> Value {
    json!({
        "metadata": {"name": "s", "namespace": "ns", "uid": "s", "labels": {"team": "a"}},
        "spec": {
            "clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "w"},
            "ports": [{"name": "http", "protocol": "TCP", "targetPort": 80}],
        },
    })
}

fn service() -> Cached<Service> {
    cached(service_json())
}

fn pod_json(n: usize, ready: bool) -> Value {
    let ready = if ready { "True" } else { "False" };
    json!({
        "metadata": {"name": format!("p{n:04}"), "namespace": "ns", "uid": format!("p{n}"), "labels": {"app": "w"}},
        "spec": {"nodeName": format!("n{}", n % 3), "containers": []},
        "status": {
            "phase": "Running", "podIP": "x", "podIPs": [{"ip": format!("10.1.{}.{}", n / 250, n % 250)}],
            "conditions": [{"type": "Ready", "status": ready}],
        },
    })
}

fn pods(numbers: impl IntoIterator<Item = usize>) -> Vec<Cached<Backend>> {
    numbers.into_iter().map(|n| cached(pod_json(n, true))).collect()
}

fn zones() -> Zones {
    (0..3).map(|n| (format!("n{n}").into(), Some(format!("z{n}")))).collect()
}

/// A draft as the API server would store it under the given name.
fn stored(name: &str, draft: &Draft) -> Cached<Slice> {
    let owner = json!({"apiVersion": "v1", "kind": "Service", "name": "s", "uid": "s", "controller": true});
    cached(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": draft.labels, "ownerReferences": [owner]},
        "addressType": draft.family, "ports": draft.ports, "endpoints": draft.endpoints,
    }))
}

/// Returns the slices after applying a plan.
fn apply(changes: &Changes, made: &mut usize) -> Vec<Cached<Slice>> {
    let mut slices = changes.unchanged.clone();
    for draft in &changes.update {
        let name = draft.origin.as_ref().expect("an update has an origin").key().name().to_owned();
        slices.push(stored(&name, draft));
    }
    for draft in &changes.create {
        *made += 1;
        slices.push(stored(&format!("s-{made}"), draft));
    }
    slices
}

fn planned(pods: &[Cached<Backend>], slices: &[Cached<Slice>]) -> Plan {
    plan(&service(), Family::IPv4, pods, &zones(), slices.to_vec(), MAX_ENDPOINTS)
}

/// `created updated deleted unchanged`
fn counts(changes: &Changes) -> [usize; 4] {
    [changes.create.len(), changes.update.len(), changes.delete.len(), changes.unchanged.len()]
}

fn sizes(slices: &[Cached<Slice>]) -> Vec<usize> {
    let mut sizes: Vec<_> = slices.iter().map(|slice| slice.endpoints.len()).collect();
    sizes.sort_unstable();
    sizes
}

#[test]
fn endpoints_are_packed_a_hundred_to_a_slice() {
    let mut made = 0;
    let full = apply(&planned(&pods(0..250), &[]).changes, &mut made);
    assert_eq!(sizes(&full), [50, 100, 100]);
    assert_eq!(counts(&planned(&pods(0..250), &full).changes), [0, 0, 0, 3], "and then they stay");

    let more = planned(&pods(0..260), &full).changes;
    assert_eq!(counts(&more), [0, 1, 0, 2], "the one with room is filled");
    let fewer = planned(&pods(0..205), &full).changes;
    assert_eq!(counts(&fewer), [0, 1, 0, 2], "slices are not merged");
    let much_more = planned(&pods(0..310), &full).changes;
    assert_eq!(counts(&much_more), [1, 0, 0, 3], "what fits nowhere as a whole gets a slice of its own");
    let replaced = planned(&pods((0..240).chain(300..310)), &full).changes;
    assert_eq!(counts(&replaced)[0], 0, "slices that change anyway are filled first");
    assert_eq!(sizes(&apply(&replaced, &mut made)), [50, 100, 100]);
}

#[test]
fn a_service_without_endpoints_keeps_an_empty_slice() {
    let mut made = 0;
    let empty = planned(&[], &[]).changes;
    assert_eq!(counts(&empty), [1, 0, 0, 0]);
    let place = apply(&empty, &mut made);
    assert_eq!(counts(&planned(&[], &place).changes), [0, 0, 0, 1]);

    let mut first = planned(&pods(0..1), &place).changes;
    assert_eq!(counts(&first), [1, 0, 1, 0]);
    first.recycle(|_, _| true);
    assert_eq!(counts(&first), [0, 1, 0, 0], "the empty one becomes it");
    let one = apply(&first, &mut made);
    let mut last = planned(&[], &one).changes;
    last.recycle(|_, _| true);
    assert_eq!(counts(&last), [0, 1, 0, 0]);
    assert!(last.update[0].endpoints.is_empty() && last.update[0].ports.is_empty());
}

#[test]
fn conditions_follow_the_pod() {
    let check = |pod: Value, service: Value, expected: [bool; 3]| {
        let plan = plan(&cached(service), Family::IPv4, &[cached(pod)], &zones(), Vec::new(), MAX_ENDPOINTS);
        let conditions = plan.changes.create[0].endpoints[0].conditions;
        let all = [conditions.ready, conditions.serving, conditions.terminating];
        assert_eq!(all, expected.map(Some));
    };
    let mut ending = pod_json(1, true);
    ending["metadata"]["deletionTimestamp"] = json!(at(0));
    let mut lenient = service_json();
    lenient["spec"]["publishNotReadyAddresses"] = json!(true);
    check(pod_json(1, true), service_json(), [true, true, false]);
    check(pod_json(1, false), service_json(), [false, false, false]);
    check(ending.clone(), service_json(), [false, true, true]);
    check(pod_json(1, false), lenient.clone(), [true, false, false]);
    check(ending, lenient, [true, true, true]);
}

#[test]
fn a_pod_on_an_unknown_node_is_skipped_and_reported() {
    let mut lost = pod_json(1, true);
    lost["spec"]["nodeName"] = json!("gone");
    let pods = [cached(pod_json(0, true)), cached(lost)];
    let plan = planned(&pods, &[]);
    assert_eq!(plan.changes.create[0].endpoints.len(), 1);
    assert_eq!(plan.skipped[0].node, "gone");
}

#[test]
fn slices_follow_the_labels_of_their_service_and_go_with_another_one() {
    let mut made = 0;
    let slices = apply(&planned(&pods(0..2), &[]).changes, &mut made);
    let mut relabelled = service_json();
    relabelled["metadata"]["labels"] = json!({"team": "b"});
    let changes =
        plan(&cached(relabelled), Family::IPv4, &pods(0..2), &zones(), slices.clone(), MAX_ENDPOINTS).changes;
    assert_eq!(counts(&changes), [0, 1, 0, 0]);
    assert_eq!(changes.update[0].labels["team"], "b");

    let mut namesake = service_json();
    namesake["metadata"]["uid"] = json!("other");
    let changes = plan(&cached(namesake), Family::IPv4, &pods(0..2), &zones(), slices, MAX_ENDPOINTS).changes;
    assert_eq!(counts(&changes), [1, 0, 1, 0]);
}

#[test]
fn each_set_of_ports_has_its_own_slices() {
    let mut spec = service_json();
    spec["spec"]["ports"][0]["targetPort"] = json!("web");
    let named = |n: usize, port: i32| {
        let mut pod = pod_json(n, true);
        pod["spec"]["containers"] = json!([{"ports": [{"name": "web", "containerPort": port}]}]);
        cached(pod)
    };
    let pods = [named(0, 80), named(1, 81), named(2, 80), cached(pod_json(3, true))];
    let changes = plan(&cached(spec), Family::IPv4, &pods, &zones(), Vec::new(), MAX_ENDPOINTS).changes;
    let found: Vec<_> = changes
        .create
        .iter()
        .map(|draft| (draft.ports.first().and_then(|port| port.port), draft.endpoints.len()))
        .collect();
    assert_eq!(found, [(None, 1), (Some(80), 2), (Some(81), 1)]);
}

fn zones_hinted(changes: &Changes) -> Vec<String> {
    let endpoints = changes.create.iter().chain(&changes.update).flat_map(|draft| &draft.endpoints);
    let zone = |endpoint: &Endpoint| {
        let hints = endpoint.hints.clone().unwrap_or_default();
        let names = hints.for_zones.into_iter().chain(hints.for_nodes).map(|named| named.name);
        names.collect::<Vec<_>>().join("+")
    };
    endpoints.map(zone).collect()
}

#[test]
fn traffic_stays_in_the_zone_or_on_the_node() {
    let service = service();
    for (proximity, expected) in [
        (Proximity::named(Some("PreferClose"), true), ["z0", "z1", "z2"]),
        (Proximity::named(Some("PreferSameZone"), true), ["z0", "z1", "z2"]),
        (Proximity::named(Some("PreferSameNode"), true), ["z0+n0", "z1+n1", "z2+n2"]),
    ] {
        let (template, mut made) = (SliceTemplate::new(&service, Family::IPv4, MAX_ENDPOINTS), 0);
        let mut changes = planned(&pods(0..3), &[]).changes;
        set_proximity_hints(&template, proximity.expect("a known name"), &mut changes);
        assert_eq!(zones_hinted(&changes), expected);
        let slices = apply(&changes, &mut made);
        let mut again = planned(&pods(0..3), &slices).changes;
        set_proximity_hints(&template, proximity.expect("a known name"), &mut again);
        assert_eq!(counts(&again), [0, 0, 0, 1], "and then it stays");
    }
    assert_eq!(Proximity::named(Some("Elsewhere"), true), None);
    assert_eq!(Proximity::named(Some("PreferSameNode"), false), None);
}

#[test]
fn each_zone_gets_its_share() {
    let shares = |shares: &[(&str, f64)]| -> Shares {
        shares.iter().map(|(zone, share)| ((*zone).to_owned(), *share)).collect()
    };
    let service = service();
    let shared = |count: usize, shares: Option<&Shares>| {
        let mut changes = planned(&pods(0..count), &[]).changes;
        let counts =
            assign_hints(&SliceTemplate::new(&service, Family::IPv4, MAX_ENDPOINTS), shares, &mut changes);
        counts.map(|counts| {
            counts.into_iter().map(|(zone, count)| format!("{zone}:{count}")).collect::<Vec<_>>()
        })
    };
    let even = shares(&[("z0", 0.34), ("z1", 0.33), ("z2", 0.33)]);
    assert_eq!(shared(9, Some(&even)).unwrap(), ["z0:3", "z1:3", "z2:3"]);
    let uneven = shares(&[("z0", 0.5), ("z1", 0.25), ("z2", 0.25)]);
    assert_eq!(shared(12, Some(&uneven)).unwrap(), ["z0:6", "z1:3", "z2:3"]);
    assert_eq!(shared(2, Some(&even)), Err(NoHints::TooFewEndpoints { endpoints: 2, zones: 3 }));
    assert_eq!(shared(3, Some(&uneven)), Err(NoHints::Overloaded { endpoints: 3, zones: 3 }));
    assert_eq!(shared(9, None), Err(NoHints::UnknownNodes));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// From any previous state, a plan lists every pod exactly once and leaves nothing to do.
    #[test]
    fn a_plan_lists_every_pod_once_and_settles(rounds in prop::collection::vec((0usize..150, 1usize..260), 1..5)) {
        let (mut slices, mut made) = (Vec::new(), 0);
        for (from, count) in rounds {
            let pods = pods(from..from + count);
            slices = apply(&planned(&pods, &slices).changes, &mut made);
            let mut listed: Vec<String> = slices.iter().flat_map(|slice| &slice.endpoints)
                .filter_map(|endpoint| Some(endpoint.target_ref.as_ref()?.name.clone())).collect();
            listed.sort_unstable();
            let mut expected: Vec<String> = pods.iter().map(|pod| pod.meta().name.to_string()).collect();
            expected.sort_unstable();
            prop_assert_eq!(listed, expected);
            prop_assert!(slices.iter().all(|slice| slice.endpoints.len() <= MAX_ENDPOINTS));
            let again = planned(&pods, &slices).changes;
            prop_assert_eq!(counts(&again), [0, 0, 0, slices.len()]);
        }
    }
}
