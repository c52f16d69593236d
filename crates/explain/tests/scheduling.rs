//! Pods that fit on no node.

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use setpoint::Kind;
use setpoint_sim::Running;

use crate::situation::{
    check, cluster, container, deployment, global, merge, object, pass, patch, pod, situation,
};

fn wants(resource: &str, amount: &str) -> Value {
    container(json!({"resources": {"requests": {resource: amount}, "limits": {resource: amount}}}))
}

async fn taint(cluster: &Running, node: &str, key: &str) {
    let taints = json!({"spec": {"taints": [{"key": key, "value": "yes", "effect": "NoSchedule"}]}});
    patch(cluster, &Kind::of::<Node>(), node, taints).await;
}

situation!(
    more_cpu_than_any_node_has,
    cluster(),
    "deployment/web",
    ["Pod default/web-", "Insufficient cpu", "use a larger node"],
    async |c| {
        c.create(deployment("web", 1, pod("p", json!({"containers": [wants("cpu", "64")]})))).await;
    }
);

situation!(
    more_memory_than_any_node_has,
    cluster(),
    "pod/p",
    ["Insufficient memory", "Pod default/p"],
    async |c| {
        c.create(pod("p", json!({"containers": [wants("memory", "900Gi")]}))).await;
    }
);

situation!(
    an_extended_resource_that_no_node_has,
    cluster(),
    "pod/p",
    ["Insufficient example.com/gpu"],
    async |c| {
        c.create(pod("p", json!({"containers": [wants("example.com/gpu", "1")]}))).await;
    }
);

/// Each node has the amounts that are missing, and the smallest change is suggested.
#[test]
fn the_smallest_change_that_would_help_is_named() {
    let explanation =
        check(cluster().nodes(1), "pod/p", &["Insufficient cpu", "lower the request of cpu to"], async |c| {
            let nodes = c.list(&Kind::of::<Node>(), None).await;
            let cpus: i64 =
                nodes[0]["status"]["allocatable"]["cpu"].as_str().expect("cpu").parse().expect("whole cpus");
            let filler = format!("{}m", cpus * 1000 - 700);
            c.create(pod("filler", json!({"containers": [wants("cpu", &filler)]}))).await;
            pass(c, 10).await;
            c.create(pod("p", json!({"containers": [wants("cpu", "1")]}))).await;
        });
    let cause = explanation.cause.expect("a cause");
    assert!(cause.fix.contains("node-0 lacks 300m cpu: lower the request of cpu to 700m"), "{}", cause.fix);
    let evidence: Vec<String> = explanation.root.evidence.iter().map(|one| one.value.clone()).collect();
    assert!(evidence.iter().any(|one| one.contains("requests 1, 700m of")), "{evidence:?}");
    assert!(
        evidence.iter().any(|one| one.starts_with("cannot help: no pods of lower priority")),
        "{evidence:?}"
    );
}

situation!(
    a_node_selector_that_matches_nothing,
    cluster(),
    "pod/p",
    ["Pod default/p", "node affinity/selector", "label a node with disk=ssd"],
    async |c| {
        c.create(pod("p", json!({"nodeSelector": {"disk": "ssd"}}))).await;
    }
);

situation!(a_node_affinity_that_matches_nothing, cluster(), "pod/p", ["node affinity/selector"], async |c| {
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}]);
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    c.create(pod("p", json!({"affinity": affinity}))).await;
});

situation!(
    taints_that_are_not_tolerated,
    cluster(),
    "deployment/web",
    ["Pod default/web-", "untolerated taint", "dedicated"],
    async |c| {
        taint(c, "node-0", "dedicated").await;
        taint(c, "node-1", "dedicated").await;
        c.create(deployment("web", 2, pod("p", json!({})))).await;
    }
);

situation!(nodes_that_are_cordoned, cluster(), "pod/p", ["unschedulable", "kubectl uncordon"], async |c| {
    for node in ["node-0", "node-1"] {
        patch(c, &Kind::of::<Node>(), node, json!({"spec": {"unschedulable": true}})).await;
    }
    c.create(pod("p", json!({}))).await;
});

situation!(
    anti_affinity_with_more_replicas_than_nodes,
    cluster(),
    "deployment/web",
    ["Pod default/web-", "anti-affinity"],
    async |c| {
        let term = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"});
        let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        c.create(deployment("web", 3, pod("p", json!({"affinity": affinity})))).await;
    }
);

situation!(
    affinity_with_pods_that_do_not_exist,
    cluster(),
    "pod/p",
    ["Pod default/p", "affinity"],
    async |c| {
        let term = json!({"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": "kubernetes.io/hostname"});
        let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        c.create(pod("p", json!({"affinity": affinity}))).await;
    }
);

situation!(
    a_topology_spread_that_cannot_hold,
    cluster(),
    "deployment/web",
    ["Pod default/web-", "topology spread"],
    async |c| {
        patch(c, &Kind::of::<Node>(), "node-1", json!({"spec": {"unschedulable": true}})).await;
        let constraint = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}, "nodeTaintsPolicy": "Ignore"}]);
        c.create(deployment("web", 4, pod("p", json!({"topologySpreadConstraints": constraint})))).await;
    }
);

situation!(
    host_ports_that_are_taken,
    cluster(),
    "deployment/web",
    ["Pod default/web-", "free ports", "8080"],
    async |c| {
        let ports = container(json!({"ports": [{"containerPort": 80, "hostPort": 8080}]}));
        c.create(deployment("web", 3, pod("p", json!({"containers": [ports]})))).await;
    }
);

situation!(
    a_gated_pod,
    cluster(),
    "pod/p",
    ["Pod default/p", "scheduling gates", "example.com/approval"],
    async |c| {
        c.create(pod("p", json!({"schedulingGates": [{"name": "example.com/approval"}]}))).await;
    }
);

situation!(
    a_scheduler_that_does_not_exist,
    cluster(),
    "pod/p",
    ["Pod default/p", "no scheduler named batch"],
    async |c| {
        c.create(pod("p", json!({"schedulerName": "batch"}))).await;
    }
);

situation!(
    a_cluster_without_nodes,
    cluster().nodes(0),
    "deployment/web",
    ["Pod default/web-", "no nodes"],
    async |c| {
        c.create(deployment("web", 1, pod("p", json!({})))).await;
    }
);

situation!(
    a_cluster_without_a_scheduler,
    cluster_without_scheduler(),
    "pod/p",
    ["no scheduler has looked at it"],
    async |c| {
        c.create(pod("p", json!({}))).await;
    }
);

fn cluster_without_scheduler() -> setpoint_sim::TestCluster {
    setpoint_sim::TestCluster::new().all_controllers().nodes(1)
}

situation!(
    overhead_that_does_not_fit,
    cluster(),
    "pod/p",
    ["Pod default/p", "Insufficient cpu"],
    async |c| {
        let class = global(
            "node.k8s.io/v1",
            "RuntimeClass",
            "sandboxed",
            json!({"handler": "h", "overhead": {"podFixed": {"cpu": "64"}}}),
        );
        c.create(class).await;
        c.create(pod("p", json!({"runtimeClassName": "sandboxed", "containers": [wants("cpu", "100m")]})))
            .await;
    }
);

/// Pods that may not preempt are reported as such.
#[test]
fn a_pod_that_may_not_preempt_says_why() {
    let explanation = check(cluster().nodes(1), "pod/p", &["Insufficient cpu"], async |c| {
        let class = global(
            "scheduling.k8s.io/v1",
            "PriorityClass",
            "polite",
            json!({"value": 1000, "preemptionPolicy": "Never"}),
        );
        c.create(class).await;
        let nodes = c.list(&Kind::of::<Node>(), None).await;
        let cpus = nodes[0]["status"]["allocatable"]["cpu"].as_str().expect("cpu").to_owned();
        c.create(pod("filler", json!({"containers": [wants("cpu", &cpus)]}))).await;
        pass(c, 10).await;
        c.create(pod("p", json!({"priorityClassName": "polite", "containers": [wants("cpu", "1")]}))).await;
    });
    let evidence: Vec<&str> = explanation.root.evidence.iter().map(|one| one.value.as_str()).collect();
    assert!(evidence.iter().any(|one| one.contains("preemptionPolicy=Never")), "{evidence:?}");
}

situation!(
    a_node_that_has_too_many_pods,
    cluster().nodes(1),
    "pod/p",
    ["Pod default/p", "Too many pods"],
    async |c| {
        let nodes = c.list(&Kind::of::<Node>(), None).await;
        let most: usize =
            nodes[0]["status"]["allocatable"]["pods"].as_str().expect("pods").parse().expect("a number");
        c.create(deployment("filler", most, pod("p", json!({})))).await;
        pass(c, 120).await;
        c.create(pod("p", json!({}))).await;
    }
);

situation!(
    a_device_class_that_does_not_exist,
    cluster(),
    "pod/p",
    ["DeviceClass gpu", "does not exist"],
    async |c| {
        let requests = json!([{"name": "r", "exactly": {"deviceClassName": "gpu"}}]);
        c.create(object(
            "resource.k8s.io/v1",
            "ResourceClaim",
            "claim",
            json!({"spec": {"devices": {"requests": requests}}}),
        ))
        .await;
        let mut spec = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "claim"}]});
        merge(
            &mut spec,
            json!({"containers": [container(json!({"resources": {"claims": [{"name": "gpu"}]}}))]}),
        );
        c.create(pod("p", spec)).await;
    }
);
