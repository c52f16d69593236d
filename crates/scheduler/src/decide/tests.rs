//! Scheduling decisions in small clusters.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use setpoint::Object;

use super::*;
use crate::view::NodeView;

/// An in-memory cluster of nodes and pods.
struct Cluster {
    ledger: Ledger,
    listers: Listers,
    pods: usize,
}

fn object(value: Value) -> Object {
    Object::from_json(value.to_string().into()).expect("an object")
}

fn node(name: &str, zone: &str, spec: Value, cpu: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {
               "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}}, "spec": spec,
           "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}}})
}

impl Cluster {
    fn new(nodes: &[Value]) -> Self {
        let mut ledger = Ledger::default();
        for node in nodes {
            let object = object(node.clone());
            ledger.put_node(&object, object.view::<NodeView>().expect("a node"));
        }
        Self { ledger, listers: Listers::from_objects(vec![], vec![], vec![]), pods: 0 }
    }

    /// Nodes of one cpu each, two in zone a and one in zone b.
    fn of_three() -> Self {
        let plain = |name, zone| node(name, zone, json!({}), "1");
        Self::new(&[plain("n0", "a"), plain("n1", "a"), plain("n2", "b")])
    }

    fn pod(&mut self, labels: Value, spec: Value, status: Value) -> Pod {
        self.pods += 1;
        let id = self.pods;
        Pod::new(object(json!({
            "metadata": {"name": format!("p{id}"), "namespace": "default", "uid": format!("u{id:03}"), "labels": labels},
            "spec": spec, "status": status,
        })))
        .expect("a pod")
    }

    fn decide(&mut self, pod: &Pod) -> Decision {
        decide(pod, &mut self.ledger, &self.listers, |_| 0)
    }

    /// Schedules a new pod and places it on the chosen node.
    fn place(&mut self, labels: Value, spec: Value) -> Result<String, FitError> {
        let pod = self.pod(labels, spec, json!({}));
        match self.decide(&pod) {
            Decision::Bind { node } => {
                self.ledger.assume(&pod, &node);
                Ok(node)
            }
            Decision::FitsNowhere(fit_error) => Err(fit_error),
            Decision::Failed(why) => panic!("{why}"),
        }
    }

    /// Adds a pod that is already bound.
    fn bound_pod(&mut self, on: &str, labels: Value, mut spec: Value) -> Pod {
        spec["nodeName"] = on.into();
        let pod = self.pod(labels, spec, json!({"startTime": format!("2025-01-01T00:00:{:02}Z", self.pods)}));
        self.ledger.put_pod(&pod);
        pod
    }

    fn refused(&mut self, labels: Value, spec: Value) -> String {
        self.place(labels, spec).expect_err("it fits nowhere").message
    }
}

fn wants(cpu: &str) -> Value {
    json!({"containers": [{"resources": {"requests": {"cpu": cpu}}}]})
}

/// Adds fields to a spec.
fn with(mut spec: Value, fields: Value) -> Value {
    for (name, value) in fields.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    spec
}

const NO_VICTIMS: &str = "No preemption victims found for incoming pod";
const NO_HELP: &str = "Preemption is not helpful for scheduling";

#[test]
fn the_reasons_are_counted_with_the_messages_of_v134() {
    assert_eq!(Cluster::new(&[]).refused(json!({}), wants("1")), "no nodes available to schedule pods");
    let taint = json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]});
    let mut three = Cluster::new(&[
        node("a", "z", json!({"unschedulable": true}), "4"),
        node("b", "z", taint, "4"),
        node("c", "z", json!({}), "1"),
    ]);
    let expected = format!(
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {{k: v}}, \
         1 node(s) were unschedulable. no new claims to deallocate, preemption: 0/3 nodes are available: 3 {NO_HELP}."
    );
    assert_eq!(three.refused(json!({}), wants("2")), expected);
}

#[test]
fn an_assumed_pod_uses_resources_at_once() {
    let mut one = Cluster::new(&[node("a", "z", json!({}), "1")]);
    assert_eq!(one.place(json!({}), wants("1")).expect("it fits"), "a");
    let expected = format!(
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: 1 {NO_VICTIMS}."
    );
    assert_eq!(one.refused(json!({}), wants("1")), expected);
    assert!(one.ledger.remove_pod("u001"));
    assert_eq!(one.place(json!({}), wants("1")).expect("it fits"), "a");
}

/// A cluster of three nodes with a ReplicaSet `r` that selects `app: r`.
fn with_replica_set() -> Cluster {
    let mut cluster = Cluster::of_three();
    let set = object(json!({"metadata": {"name": "r", "namespace": "default"},
                            "spec": {"selector": {"matchLabels": {"app": "r"}}}}));
    cluster.listers.replica_sets = setpoint::Lister::from_objects([set]);
    cluster
}

/// Schedules a new pod of the ReplicaSet and places it.
fn place_replica(cluster: &mut Cluster, uid: &str) -> String {
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true});
    let metadata = json!({"name": uid, "namespace": "default", "uid": uid, "labels": {"app": "r"}, "ownerReferences": [owner]});
    let pod = Pod::new(object(json!({"metadata": metadata, "spec": wants("1m")}))).expect("a pod");
    let Decision::Bind { node } = cluster.decide(&pod) else { panic!("it fits") };
    cluster.ledger.assume(&pod, &node);
    node
}

#[test]
fn replicas_of_a_controller_are_spread_over_nodes_and_zones() {
    let mut cluster = with_replica_set();
    let chosen: Vec<String> = ["a", "b", "c"].iter().map(|uid| place_replica(&mut cluster, uid)).collect();
    assert_eq!(chosen.iter().collect::<BTreeSet<_>>().len(), 3, "{chosen:?}");
    assert!(chosen[..2].contains(&"n2".to_owned()), "the second goes to the other zone: {chosen:?}");
}

#[test]
fn replicas_are_spread_with_all_pods_that_their_controller_selects() {
    let mut cluster = with_replica_set();
    for _ in 0..2 {
        cluster.bound_pod("n0", json!({"app": "r"}), wants("1m"));
        cluster.bound_pod("n2", json!({"app": "r"}), wants("1m"));
    }
    assert_eq!(place_replica(&mut cluster, "a"), "n1", "whoever the others belong to");
}

#[test]
fn a_pod_counts_for_spreading_while_it_has_the_labels_and_is_not_terminating() {
    let mut cluster = with_replica_set();
    let put = |cluster: &mut Cluster, uid: &str, on: &str, app: &str, deleted: Value| {
        let metadata = json!({"name": uid, "namespace": "default", "uid": uid, "labels": {"app": app}, "deletionTimestamp": deleted});
        let pod = json!({"metadata": metadata, "spec": {"nodeName": on}});
        cluster.ledger.put_pod(&Pod::new(object(pod)).expect("a pod"));
    };
    put(&mut cluster, "x", "n2", "other", json!(null));
    for _ in 0..3 {
        put(&mut cluster, "x", "n2", "r", json!(null));
    }
    put(&mut cluster, "y", "n0", "r", json!(null));
    put(&mut cluster, "y", "n0", "r", json!("2025-01-01T00:00:00Z"));
    assert_ne!(place_replica(&mut cluster, "a"), "n2", "the only one that counts is there");
    assert!(cluster.ledger.remove_pod("x"));
    assert_eq!(place_replica(&mut cluster, "b"), "n2", "nobody is left there");
}

#[test]
fn pods_of_a_service_are_spread_too() {
    let mut cluster = Cluster::of_three();
    let service = object(
        json!({"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": "w"}}}),
    );
    cluster.listers = Listers::from_objects(vec![], vec![service], vec![]);
    let chosen: BTreeSet<String> =
        (0..3).map(|_| cluster.place(json!({"app": "w"}), wants("1m")).expect("it fits")).collect();
    assert_eq!(chosen.len(), 3);
}

#[test]
fn large_clusters_are_searched_in_part() {
    let check = |nodes, expected| assert_eq!(feasible_nodes_to_find(nodes), expected);
    check(3, 3);
    check(100, 100);
    check(1000, 420);
    check(6000, 300);
}

#[test]
fn a_pod_that_names_its_node_is_checked_against_that_node_only() {
    let mut cluster = Cluster::of_three();
    let named = |names: Value| {
        let fields = json!([{"key": "metadata.name", "operator": "In", "values": names}]);
        let required = json!({"nodeSelectorTerms": [{"matchFields": fields}]});
        with(
            wants("1"),
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}),
        )
    };
    assert_eq!(cluster.place(json!({}), named(json!(["n1"]))).expect("it fits"), "n1");
    let expected = format!(
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. \
         no new claims to deallocate, preemption: 0/3 nodes are available: 1 {NO_VICTIMS}, 2 {NO_HELP}."
    );
    assert_eq!(cluster.refused(json!({}), named(json!(["n1"]))), expected);
    let conflict = cluster.refused(json!({}), named(json!([])));
    assert!(
        conflict.starts_with("0/3 nodes are available: pod affinity terms conflict. not found"),
        "{conflict}"
    );
}

#[test]
fn host_ports_clash_on_one_node_by_port_protocol_and_address() {
    let port = |port: u16, protocol: &str, ip: &str| json!({"containers": [{"ports": [{"hostPort": port, "protocol": protocol, "hostIP": ip}]}]});
    let mut one = Cluster::new(&[node("a", "z", json!({}), "1")]);
    assert!(one.place(json!({}), port(80, "TCP", "")).is_ok());
    assert!(one.place(json!({}), port(80, "UDP", "10.0.0.1")).is_ok());
    assert!(one.place(json!({}), port(80, "UDP", "10.0.0.2")).is_ok());
    let reason = "1 node(s) didn't have free ports for the requested pod ports";
    for taken in [port(80, "TCP", "10.0.0.1"), port(80, "UDP", "0.0.0.0"), port(80, "", "")] {
        let expected = format!(
            "0/1 nodes are available: {reason}. no new claims to deallocate, preemption: 0/1 nodes are available: 1 {NO_VICTIMS}."
        );
        assert_eq!(one.refused(json!({}), taken), expected);
    }
}

fn important(priority: i32, cpu: &str) -> Value {
    with(wants(cpu), json!({"priority": priority}))
}

fn preemption(result: Result<String, FitError>) -> (String, Vec<String>) {
    match result.expect_err("there is no room").preemption_outcome {
        PreemptionOutcome::Preempt(preemption) => {
            let victims = preemption.victims.iter().map(|pod| pod.meta().name.to_string());
            (preemption.node, victims.collect())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn preemption_chooses_the_node_with_the_lowest_cost() {
    let mut cluster = Cluster::of_three();
    cluster.bound_pod("n0", json!({}), important(5, "1"));
    cluster.bound_pod("n1", json!({}), important(3, "500m"));
    cluster.bound_pod("n1", json!({}), important(3, "500m"));
    cluster.bound_pod("n2", json!({}), important(3, "600m"));
    cluster.bound_pod("n2", json!({}), important(2, "300m"));
    // n2 has the lower-priority victims, and the most important of them is reprieved because evicting the others is
    // enough.
    assert_eq!(preemption(cluster.place(json!({}), important(10, "400m"))), ("n2".into(), vec!["p5".into()]));
    assert_eq!(
        preemption(cluster.place(json!({}), important(10, "1"))),
        ("n2".into(), vec!["p4".into(), "p5".into()])
    );
    assert_eq!(preemption(cluster.place(json!({}), important(3, "400m"))), ("n2".into(), vec!["p5".into()]));
    let never = with(important(10, "1"), json!({"preemptionPolicy": "Never"}));
    let expected = "0/3 nodes are available: 3 Insufficient cpu. \
                    no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never.";
    assert_eq!(cluster.refused(json!({}), never), expected);
}

#[test]
fn preemption_avoids_violating_disruption_budgets() {
    let mut cluster = Cluster::of_three();
    let budget = json!({"metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "kept"}}}, "status": {"disruptionsAllowed": 0}});
    cluster.listers = Listers::from_objects(vec![], vec![], vec![object(budget)]);
    cluster.bound_pod("n0", json!({"app": "kept"}), important(1, "1"));
    cluster.bound_pod("n1", json!({"app": "kept"}), important(1, "500m"));
    cluster.bound_pod("n1", json!({"app": "free"}), important(1, "500m"));
    cluster.bound_pod("n2", json!({"app": "free"}), important(4, "1"));
    assert_eq!(preemption(cluster.place(json!({}), important(5, "500m"))), ("n1".into(), vec!["p3".into()]));
    assert_eq!(preemption(cluster.place(json!({}), important(5, "1"))), ("n2".into(), vec!["p4".into()]));
    assert_eq!(preemption(cluster.place(json!({}), important(4, "1"))), ("n0".into(), vec!["p1".into()]));
}

#[test]
fn resources_of_a_nominated_node_are_kept_for_the_nominee() {
    let mut one = Cluster::new(&[node("a", "z", json!({}), "1")]);
    let victim = one.bound_pod("a", json!({}), important(0, "1"));
    let preemptor = one.pod(json!({}), important(5, "1"), json!({"nominatedNodeName": "a"}));
    one.ledger.put_pod(&preemptor);
    one.ledger.remove_pod(&victim.meta().uid);
    assert!(one.place(json!({}), important(4, "1")).is_err(), "room was made for another");
    let Decision::Bind { node } = one.decide(&preemptor) else { panic!("its node is free") };
    assert_eq!(node, "a");
    assert!(one.place(json!({}), important(6, "1")).is_ok(), "a more important one need not wait");
}

#[test]
fn no_further_victims_are_evicted_while_some_are_terminating() {
    let mut one = Cluster::new(&[node("a", "z", json!({}), "1")]);
    let mut going = json!({"metadata": {"name": "v", "namespace": "default", "uid": "v",
        "deletionTimestamp": "2025-01-01T00:00:00Z"}, "spec": important(0, "1"),
        "status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]}});
    going["spec"]["nodeName"] = "a".into();
    one.ledger.put_pod(&Pod::new(object(going)).expect("a pod"));
    let preemptor = one.pod(json!({}), important(5, "1"), json!({"nominatedNodeName": "a"}));
    let Decision::FitsNowhere(fit_error) = one.decide(&preemptor) else { panic!("there is no room yet") };
    assert!(matches!(fit_error.preemption_outcome, PreemptionOutcome::Wait));
    assert!(fit_error.message.ends_with("not eligible due to a terminating pod on the nominated node."));
}

/// Builds a required affinity or anti-affinity term for pods with the label `app`, over a topology key.
fn rule(kind: &str, app: &str, key: &str) -> Value {
    let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key});
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

#[test]
fn pods_with_affinity_share_a_domain() {
    let mut cluster = Cluster::of_three();
    let affinity = with(wants("1m"), rule("podAffinity", "db", ZONE));
    let refused = cluster.refused(json!({"app": "web"}), affinity.clone());
    assert!(
        refused.starts_with("0/3 nodes are available: 3 node(s) didn't match pod affinity rules. "),
        "{refused}"
    );
    cluster.bound_pod("n2", json!({"app": "db"}), wants("1m"));
    assert_eq!(cluster.place(json!({"app": "web"}), affinity).expect("it fits"), "n2");
    let itself = with(wants("1m"), rule("podAffinity", "ring", ZONE));
    let first = cluster.place(json!({"app": "ring"}), itself.clone()).expect("the first may go anywhere");
    let second = cluster.place(json!({"app": "ring"}), itself).expect("it fits");
    assert_eq!(first == "n2", second == "n2", "the second follows the first");
}

#[test]
fn anti_affinity_keeps_pods_apart_in_both_directions() {
    let mut cluster = Cluster::of_three();
    let anti_affinity = with(wants("1m"), rule("podAntiAffinity", "web", HOST));
    let chosen: BTreeSet<String> = (0..3)
        .map(|_| cluster.place(json!({"app": "web"}), anti_affinity.clone()).expect("it fits"))
        .collect();
    assert_eq!(chosen.len(), 3);
    let fourth = cluster.refused(json!({"app": "web"}), anti_affinity);
    assert!(
        fourth.starts_with("0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules. "),
        "{fourth}"
    );
    let plain = cluster.refused(json!({"app": "web"}), wants("1m"));
    let expected = "0/3 nodes are available: 3 node(s) didn't satisfy existing pods anti-affinity rules. ";
    assert!(plain.starts_with(expected), "{plain}");
    assert!(cluster.place(json!({"app": "other"}), wants("1m")).is_ok());
}

#[test]
fn affinity_terms_apply_to_the_namespaces_that_they_name() {
    let mut cluster = Cluster::new(&[node("a", "z", json!({}), "1")]);
    let namespace =
        |name: &str, team: &str| object(json!({"metadata": {"name": name, "labels": {"team": team}}}));
    cluster.listers =
        Listers::from_objects(vec![namespace("default", "x"), namespace("far", "y")], vec![], vec![]);
    cluster.bound_pod("a", json!({"app": "web"}), wants("1m"));
    let mut check = |field: &str, value: Value, expected: bool| {
        let mut spec = with(wants("1m"), rule("podAntiAffinity", "web", HOST));
        spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0][field] =
            value;
        let pod = cluster.pod(json!({}), spec, json!({}));
        assert_eq!(matches!(cluster.decide(&pod), Decision::Bind { .. }), expected, "{field}");
    };
    check("namespaces", json!(["far"]), true);
    check("namespaces", json!(["default"]), false);
    check("namespaceSelector", json!({"matchLabels": {"team": "y"}}), true);
    check("namespaceSelector", json!({"matchLabels": {"team": "x"}}), false);
    check("namespaceSelector", json!({}), false);
    check("labelSelector", json!(null), true);
}

#[test]
fn preferences_for_other_pods_decide_between_nodes_that_fit() {
    let mut cluster = Cluster::of_three();
    cluster.bound_pod("n2", json!({"app": "db"}), wants("500m"));
    let term = json!({"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": HOST});
    let preferred = |kind: &str| {
        let terms = json!([{"weight": 100, "podAffinityTerm": term.clone()}]);
        with(
            wants("1m"),
            json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}),
        )
    };
    assert_eq!(cluster.place(json!({}), preferred("podAffinity")).expect("it fits"), "n2");
    assert_ne!(cluster.place(json!({}), preferred("podAntiAffinity")).expect("it fits"), "n2");
}

fn spread(fields: Value) -> Value {
    let constraint = with(
        json!({"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
               "labelSelector": {"matchLabels": {"app": "web"}}}),
        fields,
    );
    with(wants("1m"), json!({"topologySpreadConstraints": [constraint]}))
}

#[test]
fn a_spread_constraint_bounds_the_skew_between_domains() {
    let mut cluster = Cluster::of_three();
    let mut zones = Vec::new();
    for _ in 0..4 {
        let node = cluster.place(json!({"app": "web"}), spread(json!({}))).expect("it fits");
        zones.push(if node == "n2" { 'b' } else { 'a' });
    }
    assert_eq!(zones.iter().filter(|zone| **zone == 'b').count(), 2, "{zones:?}");
}

#[test]
fn a_node_without_the_topology_key_is_reported() {
    let mut cluster = Cluster::of_three();
    cluster.bound_pod("n0", json!({"app": "web"}), wants("1m"));
    let selected = |zone: &str| json!({"nodeSelector": {ZONE: zone}});
    let check = |cluster: &mut Cluster, spec: Value, expected: &str| {
        let result = cluster.place(json!({"app": "web"}), spec);
        let message = result.err().map_or("fits".into(), |fit_error| fit_error.message);
        assert!(message.contains(expected), "{message}");
    };
    // Nodes that the pod cannot run on are not counted unless the policy is `Ignore`.
    let ignoring = with(spread(json!({"nodeAffinityPolicy": "Ignore"})), selected("a"));
    check(&mut cluster, ignoring, "2 node(s) didn't match pod topology spread constraints");
    check(
        &mut cluster,
        spread(json!({"topologyKey": "rack"})),
        "3 node(s) didn't match pod topology spread constraints (missing required label)",
    );
    check(
        &mut cluster,
        with(spread(json!({"minDomains": 3})), selected("a")),
        "node(s) didn't match pod topology spread constraints",
    );
    check(&mut cluster, with(spread(json!({})), selected("a")), "fits");
}

#[test]
fn match_label_keys_narrow_the_pods_to_spread_with() {
    let mut cluster = Cluster::of_three();
    cluster.bound_pod("n0", json!({"app": "web", "version": "1"}), wants("1m"));
    let narrowed = with(
        spread(json!({"matchLabelKeys": ["version"], "nodeAffinityPolicy": "Ignore"})),
        json!({"nodeSelector": {ZONE: "a"}}),
    );
    assert!(cluster.place(json!({"app": "web", "version": "1"}), narrowed.clone()).is_err());
    assert!(cluster.place(json!({"app": "web", "version": "2"}), narrowed).is_ok());
}

#[test]
fn a_soft_constraint_never_rejects_a_node() {
    let mut cluster = Cluster::of_three();
    cluster.bound_pod("n2", json!({"app": "web"}), wants("1m"));
    let soft = spread(json!({"whenUnsatisfiable": "ScheduleAnyway"}));
    assert_ne!(cluster.place(json!({"app": "web"}), soft.clone()).expect("it fits"), "n2");
    let only = with(soft, json!({"nodeSelector": {HOST: "n2"}}));
    assert_eq!(cluster.place(json!({"app": "web"}), only).expect("it fits"), "n2");
}

#[test]
fn a_node_with_the_image_is_preferred() {
    let with_image = |name: &str, images: Value| {
        let mut node = node(name, "z", json!({}), "4");
        node["status"]["images"] = images;
        node
    };
    let image = json!([{"names": ["big:1"], "sizeBytes": 900 * 1024 * 1024}]);
    let mut cluster = Cluster::new(&[with_image("a", json!([])), with_image("b", image)]);
    let spec = json!({"containers": [{"image": "big:1"}]});
    assert_eq!(cluster.place(json!({}), spec).expect("it fits"), "b");
}
