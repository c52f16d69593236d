//! Pods on nodes: images, configuration, crashes, probes, init containers, sidecars, lost nodes.

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;
use setpoint::Kind;

use crate::situation::{
    behaving, check, cluster, container, deployment, object, pass, patch, patch_status, pod, situation,
};

situation!(
    an_image_that_does_not_exist,
    cluster().missing_image("shop:*"),
    "deployment/web",
    ["Pod default/web-", "ImagePullBackOff", "shop:1", "image"],
    async |c| {
        c.create(deployment(
            "web",
            2,
            pod("p", json!({"containers": [container(json!({"image": "shop:1"}))]})),
        ))
        .await;
    }
);

situation!(
    a_pull_secret_that_does_not_exist,
    cluster().missing_image("registry.example.com/*"),
    "pod/p",
    ["imagePullSecret regcred does not exist"],
    async |c| {
        let spec = json!({"imagePullSecrets": [{"name": "regcred"}],
        "containers": [container(json!({"image": "registry.example.com/shop:1"}))]});
        c.create(pod("p", spec)).await;
    }
);

situation!(
    an_image_that_may_not_be_pulled,
    cluster().missing_image("local:*"),
    "pod/p",
    ["Pod default/p", "ErrImageNeverPull", "imagePullPolicy"],
    async |c| {
        let spec =
            json!({"containers": [container(json!({"image": "local:1", "imagePullPolicy": "Never"}))]});
        c.create(pod("p", spec)).await;
    }
);

situation!(
    an_image_with_an_invalid_name,
    cluster(),
    "pod/p",
    ["Pod default/p", "InvalidImageName"],
    async |c| {
        c.create(pod("p", json!({"containers": [container(json!({"image": "Shop:::1"}))]}))).await;
    }
);

situation!(
    a_missing_config_map_in_a_variable,
    cluster(),
    "deployment/web",
    ["ConfigMap default/settings", "does not exist"],
    async |c| {
        let env = json!([{"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "color"}}}]);
        c.create(deployment("web", 1, pod("p", json!({"containers": [container(json!({"env": env}))]}))))
            .await;
    }
);

situation!(
    a_missing_key_in_a_secret,
    cluster(),
    "pod/p",
    ["Secret default/login", "has no key password"],
    async |c| {
        c.create(object("v1", "Secret", "login", json!({"data": {"user": "YQ=="}}))).await;
        let env = json!([{"name": "P", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}}]);
        c.create(pod("p", json!({"containers": [container(json!({"env": env}))]}))).await;
    }
);

situation!(
    a_missing_secret_in_env_from,
    cluster(),
    "pod/p",
    ["Secret default/login", "does not exist"],
    async |c| {
        let from = json!([{"secretRef": {"name": "login"}}]);
        c.create(pod("p", json!({"containers": [container(json!({"envFrom": from}))]}))).await;
    }
);

situation!(
    a_missing_config_map_in_a_volume,
    cluster(),
    "pod/p",
    ["ConfigMap default/settings", "does not exist"],
    async |c| {
        c.create(pod("p", json!({"volumes": [{"name": "v", "configMap": {"name": "settings"}}]}))).await;
    }
);

situation!(
    a_missing_secret_in_a_projected_volume,
    cluster(),
    "pod/p",
    ["Secret default/login", "does not exist"],
    async |c| {
        let sources = json!([{"secret": {"name": "login"}}]);
        c.create(pod("p", json!({"volumes": [{"name": "v", "projected": {"sources": sources}}]}))).await;
    }
);

situation!(
    a_container_that_crashes,
    cluster(),
    "deployment/web",
    ["Pod default/web-", "CrashLoopBackOff", "exits with code 3"],
    async |c| {
        let pod = behaving("p", json!({"node.setpoint.dev/exit-code": "3"}), json!({}));
        c.create(deployment("web", 1, pod)).await;
    }
);

situation!(
    a_container_whose_log_says_why,
    cluster(),
    "pod/p",
    ["CrashLoopBackOff", "exits with code 1", "no such table: users"],
    async |c| {
        let command = json!(["sh", "-c", "echo starting; echo 'no such table: users'; exit 1"]);
        c.create(pod(
            "p",
            json!({"containers": [container(json!({"image": "busybox", "command": command}))]}),
        ))
        .await;
    }
);

situation!(
    a_container_that_ends_although_it_should_run,
    cluster(),
    "pod/p",
    ["CrashLoopBackOff", "code 0"],
    async |c| {
        c.create(behaving(
            "p",
            json!({"node.setpoint.dev/run-for": "1s", "node.setpoint.dev/exit-code": "0"}),
            json!({}),
        ))
        .await;
    }
);

situation!(
    a_readiness_probe_that_fails,
    cluster(),
    "deployment/web",
    ["Pod default/web-", "readiness probe", "GET :80/ready"],
    async |c| {
        let probe = json!({"readinessProbe": {"httpGet": {"port": 80, "path": "/ready"}}});
        let pod = behaving(
            "p",
            json!({"node.setpoint.dev/failing-probes": "readiness"}),
            json!({"containers": [container(probe)]}),
        );
        c.create(deployment("web", 2, pod)).await;
    }
);

situation!(a_liveness_probe_that_fails, cluster(), "pod/p", ["Pod default/p", "liveness probe"], async |c| {
    let probe =
        json!({"livenessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 5, "failureThreshold": 1}});
    c.create(behaving(
        "p",
        json!({"node.setpoint.dev/failing-probes": "liveness"}),
        json!({"containers": [container(probe)]}),
    ))
    .await;
});

situation!(a_startup_probe_that_fails, cluster(), "pod/p", ["Pod default/p", "startup probe"], async |c| {
    let probe = json!({"startupProbe": {"exec": {"command": ["true"]}, "periodSeconds": 10, "failureThreshold": 100}});
    c.create(behaving(
        "p",
        json!({"node.setpoint.dev/failing-probes": "startup"}),
        json!({"containers": [container(probe)]}),
    ))
    .await;
});

situation!(
    an_init_container_that_crashes,
    cluster(),
    "deployment/web",
    ["Pod default/web-", "init container migrate", "exits with code 2"],
    async |c| {
        let init = json!([{"name": "migrate", "image": "migrate"}]);
        let pod = behaving(
            "p",
            json!({"node.setpoint.dev/exit-code.migrate": "2"}),
            json!({"initContainers": init}),
        );
        c.create(deployment("web", 1, pod)).await;
    }
);

situation!(
    an_init_container_that_does_not_end,
    cluster(),
    "pod/p",
    ["init container wait", "has been running for"],
    async |c| {
        let command = json!(["sh", "-c", "while true; do echo waiting for db; sleep 5; done"]);
        let init = json!([{"name": "wait", "image": "busybox", "command": command}]);
        c.create(pod("p", json!({"initContainers": init}))).await;
    }
);

situation!(
    an_image_of_an_init_container,
    cluster().missing_image("tools:*"),
    "pod/p",
    ["init container setup", "tools:1", "ImagePullBackOff"],
    async |c| {
        c.create(pod("p", json!({"initContainers": [{"name": "setup", "image": "tools:1"}]}))).await;
    }
);

situation!(
    a_sidecar_that_does_not_start,
    cluster(),
    "pod/p",
    ["sidecar proxy", "startup probe"],
    async |c| {
        let probe = json!({"exec": {"command": ["true"]}, "failureThreshold": 100});
        let sidecar =
            json!([{"name": "proxy", "image": "proxy", "restartPolicy": "Always", "startupProbe": probe}]);
        c.create(behaving(
            "p",
            json!({"node.setpoint.dev/failing-probes.proxy": "startup"}),
            json!({"initContainers": sidecar}),
        ))
        .await;
    }
);

situation!(
    a_closed_readiness_gate,
    cluster(),
    "pod/p",
    ["Pod default/p", "readiness gates", "example.com/balanced"],
    async |c| {
        c.create(pod("p", json!({"readinessGates": [{"conditionType": "example.com/balanced"}]}))).await;
    }
);

situation!(a_pod_on_a_lost_node, cluster(), "pod/p", ["Node node-0", "NotReady"], async |c| {
    c.create(pod("p", json!({"nodeName": "node-0"}))).await;
    pass(c, 20).await;
    patch(
        c,
        &Kind::of::<Node>(),
        "node-0",
        json!({"metadata": {"annotations": {"node.setpoint.dev/failed": "true"}}}),
    )
    .await;
});

situation!(a_pod_that_was_evicted, cluster(), "pod/p", ["Pod default/p", "Evicted"], async |c| {
    c.create(pod("p", json!({}))).await;
    pass(c, 20).await;
    let status = json!({"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}});
    patch_status(c, &Kind::of::<Pod>(), "p", status).await;
});

situation!(
    a_pod_that_the_node_has_no_room_for,
    cluster(),
    "pod/p",
    ["Pod default/p", "OutOfcpu"],
    async |c| {
        let resources = json!({"resources": {"requests": {"cpu": "100"}}});
        c.create(pod("p", json!({"nodeName": "node-0", "containers": [container(resources)]}))).await;
    }
);

situation!(a_pod_past_its_deadline, cluster(), "pod/p", ["Pod default/p", "DeadlineExceeded"], async |c| {
    let long = json!({"node.setpoint.dev/run-for": "forever"});
    c.create(behaving("p", long, json!({"activeDeadlineSeconds": 20, "restartPolicy": "Never"}))).await;
});

/// The tree names the state of a group once.
#[test]
fn equal_pods_are_counted() {
    let explanation =
        check(cluster().missing_image("shop:*"), "deployment/web", &["(and 4 more)"], async |c| {
            c.create(deployment(
                "web",
                5,
                pod("p", json!({"containers": [container(json!({"image": "shop:1"}))]})),
            ))
            .await;
        });
    let pods = &explanation.root.children[0].children;
    assert_eq!((pods.len(), pods[0].more), (1, 4), "{pods:?}");
}
