//! Services and Ingresses that lead nowhere, nodes, and disruption budgets.

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use setpoint::Kind;

use crate::situation::{
    cluster, container, deployment, global, merge, object, pass, patch, pod, situation, workload,
};

fn service(name: &str, spec: Value) -> Value {
    let mut whole = json!({"selector": {"app": name}, "ports": [{"port": 80}]});
    merge(&mut whole, spec);
    object("v1", "Service", name, json!({"spec": whole}))
}

situation!(
    a_selector_that_matches_nothing,
    cluster(),
    "service/web",
    ["Service default/web", "selects no pods", "app=web", "app=wbe"],
    async |c| {
        c.create(deployment("wbe", 1, pod("p", json!({})))).await;
        c.create(deployment("database", 1, pod("p", json!({})))).await;
        c.create(service("web", json!({}))).await;
    }
);

situation!(
    a_service_whose_pods_are_not_ready,
    cluster().missing_image("shop:*"),
    "service/web",
    ["Pod default/web-", "shop:1"],
    async |c| {
        c.create(deployment(
            "web",
            2,
            pod("p", json!({"containers": [container(json!({"image": "shop:1"}))]})),
        ))
        .await;
        c.create(service("web", json!({}))).await;
    }
);

situation!(
    a_target_port_that_does_not_exist,
    cluster(),
    "service/web",
    ["Service default/web", "target port http", "web-port"],
    async |c| {
        let ports = container(json!({"ports": [{"name": "web-port", "containerPort": 80}]}));
        c.create(deployment("web", 1, pod("p", json!({"containers": [ports]})))).await;
        c.create(service("web", json!({"ports": [{"port": 80, "targetPort": "http"}]}))).await;
    }
);

situation!(
    a_service_without_selector_and_endpoints,
    cluster(),
    "service/web",
    ["Service default/web", "no selector"],
    async |c| {
        c.create(object("v1", "Service", "web", json!({"spec": {"ports": [{"port": 80}]}}))).await;
    }
);

situation!(
    a_load_balancer_that_nobody_makes,
    cluster(),
    "service/web",
    ["Service default/web", "no external address"],
    async |c| {
        c.create(deployment("web", 1, pod("p", json!({})))).await;
        c.create(service("web", json!({"type": "LoadBalancer"}))).await;
    }
);

fn ingress(class: Option<&str>, spec: Value) -> Value {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let mut whole = json!({"defaultBackend": backend});
    if let Some(class) = class {
        whole["ingressClassName"] = class.into();
    }
    merge(&mut whole, spec);
    object("networking.k8s.io/v1", "Ingress", "web", json!({"spec": whole}))
}

fn ingress_class() -> Value {
    global(
        "networking.k8s.io/v1",
        "IngressClass",
        "nginx",
        json!({"spec": {"controller": "example.com/nginx"}}),
    )
}

situation!(
    an_ingress_without_a_class,
    cluster(),
    "ingress/web",
    ["Ingress default/web", "no IngressClass"],
    async |c| {
        c.create(ingress(None, json!({}))).await;
    }
);

situation!(
    an_ingress_of_a_class_that_does_not_exist,
    cluster(),
    "ingress/web",
    ["Ingress default/web", "IngressClass ngnix does not exist", "nginx"],
    async |c| {
        c.create(ingress_class()).await;
        c.create(ingress(Some("ngnix"), json!({}))).await;
    }
);

situation!(
    an_ingress_to_a_service_that_does_not_exist,
    cluster(),
    "ing/web",
    ["Service default/web", "does not exist"],
    async |c| {
        c.create(ingress_class()).await;
        c.create(ingress(Some("nginx"), json!({}))).await;
    }
);

situation!(
    an_ingress_to_a_port_that_does_not_exist,
    cluster(),
    "ingress/web",
    ["Service default/web", "no port 80"],
    async |c| {
        c.create(ingress_class()).await;
        c.create(service("web", json!({"ports": [{"port": 8080}]}))).await;
        c.create(ingress(Some("nginx"), json!({}))).await;
    }
);

situation!(
    an_ingress_without_its_secret,
    cluster(),
    "ingress/web",
    ["Secret default/cert", "does not exist"],
    async |c| {
        c.create(ingress_class()).await;
        c.create(deployment("web", 1, pod("p", json!({})))).await;
        c.create(service("web", json!({}))).await;
        c.create(ingress(Some("nginx"), json!({"tls": [{"hosts": ["a.example"], "secretName": "cert"}]})))
            .await;
    }
);

situation!(
    an_ingress_to_a_service_without_pods,
    cluster(),
    "ingress/web",
    ["Service default/web", "selects no pods"],
    async |c| {
        c.create(ingress_class()).await;
        c.create(service("web", json!({}))).await;
        c.create(ingress(Some("nginx"), json!({}))).await;
    }
);

situation!(
    a_lost_node,
    cluster(),
    "node/node-0",
    ["Node node-0", "has not reported", "NotReady"],
    async |c| {
        patch(
            c,
            &Kind::of::<Node>(),
            "node-0",
            json!({"metadata": {"annotations": {"node.setpoint.dev/failed": "true"}}}),
        )
        .await;
    }
);

situation!(a_node_under_pressure, cluster(), "node/node-0", ["Node node-0", "MemoryPressure"], async |c| {
    patch(
        c,
        &Kind::of::<Node>(),
        "node-0",
        json!({"metadata": {"annotations": {"node.setpoint.dev/pressure": "memory"}}}),
    )
    .await;
});

situation!(
    a_cordoned_node,
    cluster(),
    "node/node-0",
    ["Node node-0", "cordoned", "kubectl uncordon node-0"],
    async |c| {
        patch(c, &Kind::of::<Node>(), "node-0", json!({"spec": {"unschedulable": true}})).await;
    }
);

fn budget(spec: Value) -> Value {
    let mut whole = json!({"selector": {"matchLabels": {"app": "db"}}});
    merge(&mut whole, spec);
    object("policy/v1", "PodDisruptionBudget", "db", json!({"spec": whole}))
}

situation!(
    a_drain_that_a_budget_blocks,
    cluster().nodes(1),
    "node/node-0",
    ["PodDisruptionBudget default/db", "no disruption", "minAvailable: 2"],
    async |c| {
        c.create(workload(
            "StatefulSet",
            "db",
            json!({"replicas": 2, "serviceName": "db"}),
            pod("p", json!({})),
        ))
        .await;
        c.create(budget(json!({"minAvailable": 2}))).await;
        pass(c, 60).await;
        patch(c, &Kind::of::<Node>(), "node-0", json!({"spec": {"unschedulable": true}})).await;
    }
);

situation!(
    a_budget_whose_pods_are_not_ready,
    cluster().missing_image("db:*"),
    "pdb/db",
    ["Pod default/db-0", "db:1"],
    async |c| {
        let pod = pod("p", json!({"containers": [container(json!({"image": "db:1"}))]}));
        c.create(workload("StatefulSet", "db", json!({"replicas": 2, "serviceName": "db"}), pod)).await;
        c.create(budget(json!({"maxUnavailable": 1}))).await;
    }
);
