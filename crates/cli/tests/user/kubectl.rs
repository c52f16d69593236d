//! A real kubectl against the real binary: typical commands, with the output of a real cluster.

use crate::binary::{Up, eventually};

/// A Deployment with this many replicas and this image.
fn deployment(name: &str, replicas: usize, image: &str) -> String {
    format!(
        r#"{{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {{"name": "{name}"}},
            "spec": {{"replicas": {replicas}, "selector": {{"matchLabels": {{"app": "{name}"}}}},
                "template": {{"metadata": {{"labels": {{"app": "{name}"}}}},
                    "spec": {{"containers": [{{"name": "c", "image": "{image}"}}]}}}}}}}}"#
    )
}

fn applied(name: &str, replicas: usize) -> Up {
    let up = Up::start(&[]);
    let out = up.kubectl_with(&["apply", "-f", "-"], &deployment(name, replicas, "nginx:1"));
    assert_eq!(out, format!("deployment.apps/{name} created\n"));
    up.kubectl(&["rollout", "status", &format!("deployment/{name}"), "--timeout=60s"]);
    up
}

/// Returns the values of a JSONPath over a list, split into words.
fn words(up: &Up, resource: &str, path: &str) -> Vec<String> {
    let out =
        up.kubectl(&["get", resource, "-o", &format!("jsonpath={{range .items[*]}}{{{path}}} {{end}}")]);
    out.split_whitespace().map(str::to_owned).collect()
}

fn count(up: &Up, resource: &str) -> usize {
    words(up, resource, ".metadata.name").len()
}

#[track_caller]
fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing from:\n{text}");
    }
}

#[test]
fn an_applied_deployment_runs_and_is_described() {
    let up = applied("web", 3);
    let wide = up.kubectl(&["get", "deployment", "web", "-o", "wide"]);
    assert_contains(
        &wide,
        &["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "CONTAINERS", "IMAGES", "SELECTOR", "3/3", "app=web"],
    );
    let pods = up.kubectl(&["get", "pods", "-o", "wide"]);
    assert_contains(
        &pods,
        &["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "1/1", "Running", "node-"],
    );
    let described = up.kubectl(&["describe", "deployment", "web"]);
    assert_contains(
        &described,
        &["3 desired | 3 updated | 3 total | 3 available | 0 unavailable", "MinimumReplicasAvailable"],
    );
    eventually("the scaling shows among the events", || {
        up.kubectl(&["describe", "deployment", "web"]).contains("Scaled up replica set web-")
    });
    let unchanged = up.kubectl_with(&["apply", "-f", "-"], &deployment("web", 3, "nginx:1"));
    assert_eq!(unchanged, "deployment.apps/web unchanged\n");
    up.kubectl(&["wait", "--for=condition=Available", "deployment/web", "--timeout=10s"]);
}

#[test]
fn a_rolling_update_is_watched_undone_and_scaled() {
    let up = applied("web", 3);
    assert_eq!(
        up.kubectl(&["set", "image", "deployment/web", "c=nginx:2"]),
        "deployment.apps/web image updated\n"
    );
    let status = up.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    assert_contains(&status, &["deployment \"web\" successfully rolled out"]);
    assert_eq!(words(&up, "pods", ".spec.containers[0].image"), ["nginx:2"; 3]);
    let history = up.kubectl(&["rollout", "history", "deployment/web"]);
    assert_contains(&history, &["REVISION", "CHANGE-CAUSE", "1 ", "2 "]);
    assert_eq!(up.kubectl(&["rollout", "undo", "deployment/web"]), "deployment.apps/web rolled back\n");
    up.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    assert_eq!(words(&up, "pods", ".spec.containers[0].image"), ["nginx:1"; 3]);
    assert_eq!(up.kubectl(&["scale", "deployment/web", "--replicas=5"]), "deployment.apps/web scaled\n");
    up.kubectl(&["wait", "--for=jsonpath={.status.readyReplicas}=5", "deployment/web", "--timeout=60s"]);
    assert_eq!(count(&up, "pods"), 5);
}

#[test]
fn a_separate_controller_manager_replaces_the_built_in_one() {
    let up = Up::start(&["--controllers=-*"]);
    up.kubectl_with(&["apply", "-f", "-"], &deployment("web", 2, "nginx:1"));
    assert_eq!(count(&up, "replicasets"), 0, "no controller creates them");
    let _manager = up.controller_manager();
    up.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    assert_eq!(count(&up, "pods"), 2);
}

/// kubectl sends objects that it builds itself as protobuf.
#[test]
fn created_objects_exist() {
    let up = Up::start(&["--nodes", "0"]);
    for (arguments, answer) in [
        ("namespace team", "namespace/team created\n"),
        ("deployment web --image=nginx --replicas=2 --port=80", "deployment.apps/web created\n"),
        ("configmap settings --from-literal=color=blue", "configmap/settings created\n"),
        ("secret generic login --from-literal=user=me", "secret/login created\n"),
        ("serviceaccount robot", "serviceaccount/robot created\n"),
        ("service clusterip web --tcp=80:8080", "service/web created\n"),
    ] {
        let arguments: Vec<&str> = ["create"].into_iter().chain(arguments.split(' ')).collect();
        assert_eq!(up.kubectl(&arguments), answer);
    }
    let at = |resource: &str, path: &str| up.kubectl(&["get", resource, "-o", &format!("jsonpath={path}")]);
    assert_eq!(at("configmap/settings", "{.data.color}"), "blue");
    assert_eq!(at("secret/login", "{.data.user}"), "bWU=");
    assert_eq!(at("service/web", "{.spec.ports[0].targetPort}"), "8080");
    let container = "{.spec.template.spec.containers[0]";
    assert_eq!(at("deployment/web", &format!("{container}.image}} {{.spec.replicas}}")), "nginx 2");
    assert_eq!(at("deployment/web", &format!("{container}.ports[0].containerPort}}")), "80");
}

#[test]
fn each_propagation_policy_deletes_the_right_objects() {
    for (cascade, left) in [("background", 0), ("foreground", 0), ("orphan", 1)] {
        let up = applied("web", 2);
        up.kubectl(&["delete", "deployment", "web", &format!("--cascade={cascade}"), "--timeout=60s"]);
        eventually(&format!("{cascade} leaves {left} ReplicaSets"), || count(&up, "replicasets") == left);
        eventually(&format!("{cascade} leaves {} pods", left * 2), || count(&up, "pods") == left * 2);
    }
}

#[test]
fn a_deleted_namespace_deletes_its_content() {
    let up = Up::start(&[]);
    up.kubectl_with(
        &["apply", "-f", "-"],
        r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}"#,
    );
    up.kubectl_with(&["apply", "-n", "team", "-f", "-"], &deployment("web", 2, "nginx"));
    up.kubectl(&["rollout", "status", "-n", "team", "deployment/web", "--timeout=60s"]);
    up.kubectl(&["delete", "namespace", "team", "--timeout=60s"]);
    let gone = up.try_kubectl(&["get", "namespace", "team"], "");
    assert_eq!(gone.err, "Error from server (NotFound): namespaces \"team\" not found\n");
    assert_eq!(up.kubectl(&["get", "pods", "-A", "-o", "name"]), "");
}

#[test]
fn events_resources_and_fields_can_be_looked_up() {
    let up = applied("web", 1);
    eventually("the scheduler's event is there", || {
        up.kubectl(&["get", "events"]).contains("Successfully assigned default/web-")
    });
    let resources = up.kubectl(&["api-resources"]);
    assert_contains(&resources, &["deployments", "deploy", "apps/v1", "true", "Deployment", "pods", "po"]);
    let explained = up.kubectl(&["explain", "deployment.spec"]);
    assert_contains(
        &explained,
        &[
            "GROUP:      apps",
            "KIND:       Deployment",
            "VERSION:    v1",
            "FIELD: spec <DeploymentSpec>",
            "replicas",
        ],
    );
}

#[test]
fn bad_input_gets_an_error_that_names_the_field() {
    let up = Up::start(&["--nodes", "0"]);
    let check = |arguments: &[&str], input: &str, expected: &str| {
        let answer = up.try_kubectl(arguments, input);
        assert!(
            !answer.ok && answer.err.contains(expected),
            "{arguments:?} {input}: {}{}",
            answer.out,
            answer.err
        );
    };
    let apply = ["apply", "-f", "-"];
    check(&apply, "{nonsense", "error");
    check(&apply, &deployment("Bad_Name", 1, "i"), "metadata.name: Invalid value: \"Bad_Name\"");
    check(&apply, &deployment("web", 1, ""), "spec.template.spec.containers[0].image: Required value");
    check(
        &apply,
        &deployment("web", 1, "i").replace("\"replicas\"", "\"replicaz\""),
        "unknown field \"spec.replicaz\"",
    );
    let unknown = r#"{"apiVersion": "example.com/v1", "kind": "Gizmo", "metadata": {"name": "g"}}"#;
    check(&apply, unknown, "ensure CRDs are installed first");
    check(&["get", "pods", "-l", "a in"], "", "unable to parse requirement");
    check(&["get", "pods", "--field-selector", "spec.nope=1"], "", "field label not supported: spec.nope");
    check(&["get", "nonsense"], "", "the server doesn't have a resource type \"nonsense\"");
    assert_eq!(count(&up, "deployments"), 0);
}

#[test]
fn top_shows_node_and_pod_usage() {
    let up = applied("web", 2);
    let nodes = up.kubectl(&["top", "nodes"]);
    assert_contains(&nodes, &["NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "node-0", "node-2"]);
    let pod = &words(&up, "pods", ".metadata.name")[0];
    up.kubectl(&["annotate", "pod", pod, "node.setpoint.dev/cpu-usage=250m"]);
    let pods = up.kubectl(&["top", "pods", "--containers"]);
    assert_contains(&pods, &["POD", "NAME", "CPU(cores)", "MEMORY(bytes)", pod, "250m", "1m", "16Mi"]);
    assert_contains(&up.kubectl(&["top", "pod", pod]), &["250m"]);
}

#[test]
fn nodes_fail_and_recover_on_command() {
    let up = Up::start(&["--nodes", "2"]);
    eventually("both nodes are there", || count(&up, "nodes") == 2);
    let kubeconfig = up.kubeconfig().to_str().expect("a path of letters");
    let node = |arguments: &[&str]| {
        let arguments = [&["node"], arguments, &["--kubeconfig", kubeconfig]].concat();
        up.run(env!("CARGO_BIN_EXE_setpoint"), &arguments)
    };
    let failed = |name: &str| {
        let listed = node(&["list"]);
        let line = listed.lines().find(|line| line.starts_with(name)).expect("the node is listed").to_owned();
        line.ends_with("yes")
    };
    assert_eq!(node(&["fail", "node-1"]), "node/node-1 failed\n");
    assert!(failed("node-1") && !failed("node-0"));
    assert_eq!(node(&["recover", "node-1"]), "node/node-1 recovered\n");
    assert!(!failed("node-1"));
}
