//! Rendering of built-in definitions.

use serde_json::{Value, json};

use super::component::{Definitions, Rendered, Renderer};
use super::context::{AppContext, ClusterVersion, Place};
use super::sources::Sources;
use crate::definition::builtin;
use crate::definition::model::Definition;
use crate::model::Component;

fn definitions() -> Definitions {
    let mut all = Definitions::default();
    for object in builtin::objects().unwrap() {
        let definition = std::sync::Arc::new(Definition::of(&object).unwrap());
        let name = definition.metadata.name.clone();
        match object["kind"].as_str().unwrap() {
            "ComponentDefinition" => all.components.insert(name, definition),
            "TraitDefinition" => all.traits.insert(name, definition),
            _ => None,
        };
    }
    all
}

fn rendered(component: Value) -> Result<Rendered, String> {
    rendered_with(&definitions(), component)
}

fn rendered_with(definitions: &Definitions, component: Value) -> Result<Rendered, String> {
    let app = AppContext {
        name: "shop".into(),
        namespace: "default".into(),
        revision: "shop-v1".into(),
        cluster_version: ClusterVersion { minor: 34, ..ClusterVersion::default() },
        ..AppContext::default()
    };
    let sources = Sources::new();
    let renderer = Renderer { sources: &sources, app: &app, definitions };
    let component: Component = serde_json::from_value(component).unwrap();
    let place = Place {
        component: &component.name,
        component_type: &component.kind,
        namespace: "default",
        cluster: "local",
        ..Place::default()
    };
    renderer.render(&component, &place).map_err(|error| error.to_string())
}

#[track_caller]
fn workload(component: Value) -> Value {
    rendered(component).unwrap_or_else(|error| panic!("{error}")).workload.unwrap()
}

fn component(kind: &str, properties: Value, traits: Value) -> Value {
    json!({"name": "front", "type": kind, "properties": properties, "traits": traits})
}

#[test]
fn a_webservice_becomes_a_deployment_and_a_service() {
    let properties = json!({"image": "i", "cpu": "250m", "ports": [{"port": 8081, "expose": true}, {"port": 9191, "protocol": "UDP"}]});
    let traits = json!([{"type": "scaler", "properties": {"replicas": 4}}, {"type": "labels", "properties": {"team": "checkout"}}]);
    let rendered = rendered(component("webservice", properties, traits)).unwrap();
    let deployment = rendered.workload.unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(deployment["spec"]["replicas"], 4);
    assert_eq!(container["resources"], json!({"requests": {"cpu": "250m"}, "limits": {"cpu": "250m"}}));
    assert_eq!(container["ports"][0], json!({"containerPort": 8081, "name": "port-8081", "protocol": "TCP"}));
    assert_eq!(container["ports"][1]["name"], "port-9191-udp");
    assert_eq!(deployment["metadata"]["labels"]["team"], "checkout");
    assert_eq!(deployment["spec"]["template"]["metadata"]["labels"]["team"], "checkout");
    assert_eq!(rendered.others.len(), 1);
    assert_eq!(rendered.others[0].object["spec"]["ports"][0]["port"], 8081);
    assert_eq!(rendered.others[0].object["metadata"]["labels"]["trait.oam.dev/resource"], "webserviceExpose");
}

#[test]
fn patches_of_one_list_follow_each_other() {
    let properties = json!({"image": "i", "env": [{"name": "MODE", "value": "slow"}]});
    let sidecar = json!({"type": "sidecar", "properties": {"name": "tail", "image": "t"}});
    let env = json!({"type": "env", "properties": {"env": {"MODE": "fast", "ZONE": "b"}}});
    let storage =
        json!({"type": "storage", "properties": {"emptyDir": [{"name": "tmp", "mountPath": "/scratch"}]}});
    let one = workload(component("worker", properties.clone(), json!([sidecar, env, storage])));
    let other = workload(component("worker", properties, json!([sidecar, storage, env])));
    assert_eq!(one, other);
    let containers = &one["spec"]["template"]["spec"]["containers"];
    assert_eq!(
        containers[0]["env"],
        json!([{"name": "MODE", "value": "fast"}, {"name": "ZONE", "value": "b"}])
    );
    assert_eq!(containers[0]["volumeMounts"], json!([{"name": "emptydir-tmp", "mountPath": "/scratch"}]));
    assert_eq!(containers[1]["name"], "tail");
    assert!(containers[1].get("env").is_none() && containers[1].get("volumeMounts").is_none());
}

#[test]
fn a_wrong_parameter_is_named_with_its_path() {
    let error = rendered(component("webservice", json!({"image": 5}), json!([]))).unwrap_err();
    assert!(error.starts_with("component front: parameter.image"), "{error}");
    let error = rendered(component("webservice", json!({}), json!([]))).unwrap_err();
    assert!(error.contains("image"), "{error}");
    let traits = json!([{"type": "scaler", "properties": {"replicas": "x"}}]);
    let error = rendered(component("webservice", json!({"image": "i"}), traits)).unwrap_err();
    assert!(error.starts_with("component front, trait scaler: parameter.replicas"), "{error}");
}

#[test]
fn outputs_of_a_parameter_that_is_not_set_are_none() {
    let template = "output: {apiVersion: \"v1\", kind: \"ConfigMap\"}
outputs: {
	for one in parameter.first {\"first-\\(one)\": {apiVersion: \"v1\", kind: \"Secret\"}}
	for one in parameter.second {\"second-\\(one)\": {apiVersion: \"v1\", kind: \"Secret\"}}
}
parameter: {
	first?: [...string]
	second?: [...string]
}";
    let object =
        json!({"metadata": {"name": "looping"}, "spec": {"schematic": {"cue": {"template": template}}}});
    let mut all = definitions();
    all.components.insert("looping".into(), Definition::of(&object).unwrap().into());
    let component = component("looping", json!({"second": ["a"]}), json!([]));
    let rendered = rendered_with(&all, component).unwrap();
    let keys: Vec<&str> = rendered.others.iter().map(|other| other.key.as_str()).collect();
    assert_eq!(keys, ["second-a"]);
}

/// A trait on a webservice with a sidecar.
#[track_caller]
fn with_trait(kind: &str, properties: Value) -> Rendered {
    let sidecar = json!({"type": "sidecar", "properties": {"name": "tail", "image": "t", "args": ["-a"]}});
    let traits = json!([sidecar, {"type": kind, "properties": properties}]);
    let base = json!({"image": "i", "cmd": ["run"], "ports": [{"port": 80}]});
    rendered(component("webservice", base, traits)).unwrap_or_else(|error| panic!("{kind}: {error}"))
}

#[track_caller]
fn check(kind: &str, properties: Value, path: &str, expected: Value) {
    let rendered = with_trait(kind, properties);
    let mut all = vec![rendered.workload.unwrap()];
    all.extend(rendered.others.into_iter().map(|other| other.object));
    let found: Vec<&Value> = all.iter().filter_map(|object| object.pointer(path)).collect();
    assert!(found.contains(&&expected), "{kind}: {path} is {found:?}, expected {expected}");
}

const POD: &str = "/spec/template/spec";

#[test]
fn every_trait_has_its_effect() {
    let pod = |path: &str| format!("{POD}{path}");
    check("scaler", json!({}), "/spec/replicas", json!(1));
    check("cpuscaler", json!({"cpuUtil": 60}), "/spec/targetCPUUtilizationPercentage", json!(60));
    check(
        "hpa",
        json!({"mem": {"type": "AverageValue", "value": 90}}),
        "/spec/metrics/1/resource/target",
        json!({"type": "AverageValue", "averageValue": 90}),
    );
    check("expose", json!({"port": [8000]}), "/spec/ports/0/name", json!("port-8000"));
    check(
        "expose",
        json!({"ports": [{"port": 53, "protocol": "UDP"}]}),
        "/spec/ports/0/name",
        json!("port-53-udp"),
    );
    check(
        "gateway",
        json!({"domain": "d", "http": {"/": 80}}),
        "/spec/rules/0/http/paths/0/backend/service/port/number",
        json!(80),
    );
    check("ingress-1-20", json!({"domain": "d", "http": {"/": 80}}), "/spec/rules/0/host", json!("d"));
    check("annotations", json!({"a": "b"}), "/spec/template/metadata/annotations/a", json!("b"));
    check(
        "command",
        json!({"addArgs": ["-b"], "containerName": "tail"}),
        &pod("/containers/1/args"),
        json!(["-a", "-b"]),
    );
    check("command", json!({"command": ["x"]}), &pod("/containers/0/command"), json!(["x"]));
    check("container-image", json!({"image": "j"}), &pod("/containers/0/image"), json!("j"));
    check(
        "container-ports",
        json!({"ports": [{"containerPort": 80, "hostPort": 8080}]}),
        &pod("/containers/0/ports/0/hostPort"),
        json!(8080),
    );
    check(
        "securitycontext",
        json!({"runAsUser": 5}),
        &pod("/containers/0/securityContext/runAsUser"),
        json!(5),
    );
    check(
        "podsecuritycontext",
        json!({"runAsUser": 5}),
        &pod("/securityContext"),
        json!({"runAsNonRoot": true, "runAsUser": 5}),
    );
    check(
        "startup-probe",
        json!({"httpGet": {"port": 80}}),
        &pod("/containers/0/startupProbe/failureThreshold"),
        json!(3),
    );
    check(
        "init-container",
        json!({"name": "n", "image": "m", "appMountPath": "/a", "initMountPath": "/b"}),
        &pod("/initContainers/0/volumeMounts/0/mountPath"),
        json!("/b"),
    );
    check(
        "storage",
        json!({"pvc": [{"name": "p", "mountPath": "/p"}]}),
        "/spec/resources/requests/storage",
        json!("8Gi"),
    );
    check(
        "storage",
        json!({"configMap": [{"name": "c", "mountPath": "/c", "data": {"a": "b"}}]}),
        "/data/a",
        json!("b"),
    );
    check(
        "resource",
        json!({"requests": {"cpu": 2}}),
        &pod("/containers/0/resources/requests"),
        json!({"cpu": 2, "memory": "2048Mi"}),
    );
    check(
        "service-account",
        json!({"name": "sa", "create": true, "privileges": [{"verbs": ["get"], "resources": ["pods"]}]}),
        "/rules/0/resources",
        json!(["pods"]),
    );
    check(
        "affinity",
        json!({"tolerations": [{"key": "k"}]}),
        &pod("/tolerations/0/operator"),
        json!("Equal"),
    );
    check(
        "affinity",
        json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "values": ["v"]}]}]}}}),
        &pod(
            "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/0/operator",
        ),
        json!("In"),
    );
    check(
        "topologyspreadconstraints",
        json!({"constraints": [{"maxSkew": 1, "topologyKey": "z", "labelSelector": {"matchLabels": {"a": "b"}}}]}),
        &pod("/topologySpreadConstraints/0/whenUnsatisfiable"),
        json!("DoNotSchedule"),
    );
    check(
        "hostalias",
        json!({"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["h"]}]}),
        &pod("/hostAliases/0/ip"),
        json!("1.2.3.4"),
    );
    check(
        "lifecycle",
        json!({"preStop": {"exec": {"command": ["x"]}}}),
        &pod("/containers/1/lifecycle/preStop/exec/command"),
        json!(["x"]),
    );
    check(
        "k8s-update-strategy",
        json!({"strategy": {"type": "Recreate"}}),
        "/spec/strategy",
        json!({"type": "Recreate"}),
    );
    check(
        "json-patch",
        json!({"operations": [{"op": "add", "path": "/spec/replicas", "value": 3}]}),
        "/spec/replicas",
        json!(3),
    );
    check("json-merge-patch", json!({"spec": {"replicas": 3}}), "/spec/replicas", json!(3));
    check(
        "service-binding",
        json!({"envMappings": {"A": {"secret": "s"}}}),
        &pod("/containers/0/env/0/valueFrom/secretKeyRef"),
        json!({"name": "s", "key": "A"}),
    );
    check(
        "nocalhost",
        json!({"port": 80, "image": "dev"}),
        "/metadata/annotations/dev.nocalhost~1application-name",
        json!("shop"),
    );
}

#[test]
fn every_deprecated_trait_has_its_effect() {
    let pod = |path: &str| format!("{POD}{path}");
    let volumes = json!({"volumes": [{"name": "v", "type": "configMap", "cmName": "c"}]});
    check("volumes", volumes, &pod("/volumes/0/configMap"), json!({"name": "c", "defaultMode": 420}));
    let claim = json!({"claimName": "c", "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "2Gi"}}, "volumesToMount": [{"name": "v", "mountPath": "/v"}]});
    check("pvc", claim.clone(), "/spec/resources/requests/storage", json!("2Gi"));
    check("pvc", claim, &pod("/containers/0/volumeMounts/0/mountPath"), json!("/v"));
    let maps = json!({"volumes": [{"name": "m", "mountPath": "/m", "data": {"a": "b"}}]});
    check("configmap", maps.clone(), "/data/a", json!("b"));
    check("configmap", maps, &pod("/containers/0/volumeMounts/0/name"), json!("volume-m"));
    for kind in ["ingress", "pure-ingress"] {
        let backend = "/spec/rules/0/http/paths/0/backend/service/name";
        check(kind, json!({"domain": "d", "http": {"/": 80}}), backend, json!("front"));
    }
    let nodes = json!({"affinity": {"disk": ["ssd"]}, "tolerations": {"gpu": "yes"}});
    check("node-affinity", nodes.clone(), &pod("/tolerations/0/effect"), json!("NoSchedule"));
    let term = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0";
    let expected = json!({"key": "disk", "operator": "In", "values": ["ssd"]});
    check("node-affinity", nodes, &pod(&format!("{term}/matchExpressions/0")), expected);
}

#[test]
fn every_component_renders_its_workload() {
    for (kind, properties, expected) in [
        ("webservice", json!({"image": "i"}), "Deployment"),
        (
            "worker",
            json!({"image": "i", "volumeMounts": {"pvc": [{"name": "v", "mountPath": "/v", "claimName": "c"}]}}),
            "Deployment",
        ),
        ("statefulset", json!({"image": "i"}), "StatefulSet"),
        ("daemon", json!({"image": "i", "ports": [{"port": 1, "expose": true}]}), "DaemonSet"),
        ("task", json!({"image": "i", "count": 2, "volumes": [{"name": "v", "mountPath": "/v"}]}), "Job"),
        ("cron-task", json!({"image": "i", "schedule": "* * * * *"}), "CronJob"),
        (
            "k8s-objects",
            json!({"objects": [{"apiVersion": "v1", "kind": "ConfigMap"}, {"apiVersion": "v1", "kind": "Secret"}]}),
            "ConfigMap",
        ),
        ("raw", json!({"apiVersion": "v1", "kind": "ConfigMap"}), "ConfigMap"),
    ] {
        assert_eq!(workload(component(kind, properties, json!([])))["kind"], expected, "{kind}");
    }
}
