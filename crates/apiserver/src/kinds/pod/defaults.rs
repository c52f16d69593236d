//! Defaults of pods and pod specs.

use serde_json::{Value, json};

use super::CONTAINER_LISTS;
use super::image;
use super::totals::{is_pod_level, total};
use crate::json::{Json, JsonMut};
use crate::kinds::resources;

/// Sets the defaults of pods, in addition to those of pod specs.
pub(super) fn default_pod(pod: &mut Value) {
    let spec = pod.object_mut("spec");
    for list in ["containers", "initContainers"] {
        for container in spec.list_mut(list) {
            if let Some(requirements) = container.at_mut("resources") {
                resources::default_requests_to_limits(requirements);
            }
        }
    }
    default_pod_resources(spec);
    spec.or_insert("enableServiceLinks", true);
    if spec.int("terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        spec.set("terminationGracePeriodSeconds", 1);
    }
    if spec.flag("hostNetwork") {
        expose_ports_on_host(spec);
    }
    default_spec(spec);
    if let Some(status) = pod.at_mut("status") {
        default_status(status);
    }
    drop_init_container_annotations(pod);
}

/// Sets the defaults of a pod spec, in pods and templates.
pub(super) fn default_spec(spec: &mut Value) {
    spec.or_text("dnsPolicy", "ClusterFirst");
    spec.or_text("restartPolicy", "Always");
    spec.or_insert("securityContext", json!({}));
    spec.or_insert("terminationGracePeriodSeconds", 30);
    spec.or_text("schedulerName", "default-scheduler");
    default_service_account(spec);
    for volume in spec.list_mut("volumes") {
        default_volume(volume);
    }
    for list in CONTAINER_LISTS {
        for container in spec.list_mut(list) {
            default_container(container);
        }
    }
    if let Some(overhead) = spec.at_mut("overhead") {
        resources::default_list(overhead);
    }
    if let Some(requirements) = spec.at_mut("resources") {
        resources::default_requirements(requirements);
    }
}

/// Keeps `serviceAccount`, the old name, equal to `serviceAccountName`.
fn default_service_account(spec: &mut Value) {
    let (name, alias) = (spec.text("serviceAccountName"), spec.text("serviceAccount"));
    if name.is_empty() && !alias.is_empty() {
        let alias = alias.to_owned();
        spec.set("serviceAccountName", alias);
    } else if name != alias {
        let name = name.to_owned();
        spec.set("serviceAccount", name);
    }
}

/// Sets host ports: in the host's network, a container's ports are host ports.
fn expose_ports_on_host(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        for container in spec.list_mut(list) {
            for port in container.list_mut("ports") {
                let number = port.count("containerPort");
                if number != 0 {
                    port.or_int("hostPort", number);
                }
            }
        }
    }
}

fn default_container(container: &mut Value) {
    if container.text("imagePullPolicy").is_empty() {
        container.set("imagePullPolicy", pull_policy(container.text("image")));
    }
    container.or_text("terminationMessagePath", "/dev/termination-log");
    container.or_text("terminationMessagePolicy", "File");
    container.or_insert("resources", json!({}));
    if let Some(requirements) = container.at_mut("resources") {
        resources::default_requirements(requirements);
    }
    for port in container.list_mut("ports") {
        port.or_text("protocol", "TCP");
    }
    for variable in container.list_mut("env") {
        if let Some(source) = variable.at_mut("valueFrom") {
            default_env_source(source);
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.at_mut(probe) {
            default_probe(probe);
        }
    }
    if let Some(lifecycle) = container.at_mut("lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(get) = lifecycle.at_mut(hook).and_then(|hook| hook.at_mut("httpGet")) {
                default_http_get(get);
            }
        }
    }
}

/// Returns `Always` for images with a mutable tag: an explicit or implied `latest`.
fn pull_policy(reference: &str) -> &'static str {
    if image::is_latest(reference) { "Always" } else { "IfNotPresent" }
}

fn default_env_source(source: &mut Value) {
    if let Some(field) = source.at_mut("fieldRef") {
        field.or_text("apiVersion", "v1");
    }
    if let Some(file) = source.at_mut("fileKeyRef") {
        file.or_insert("optional", false);
    }
}

fn default_probe(probe: &mut Value) {
    probe.or_int("timeoutSeconds", 1);
    probe.or_int("periodSeconds", 10);
    probe.or_int("successThreshold", 1);
    probe.or_int("failureThreshold", 3);
    if let Some(get) = probe.at_mut("httpGet") {
        default_http_get(get);
    }
    if let Some(grpc) = probe.at_mut("grpc") {
        grpc.or_insert("service", "");
    }
}

fn default_http_get(get: &mut Value) {
    get.or_text("path", "/");
    get.or_text("scheme", "HTTP");
}

fn default_volume(volume: &mut Value) {
    if volume.as_object().is_some_and(|fields| fields.keys().all(|field| field == "name")) {
        volume.set("emptyDir", json!({}));
    }
    let Some(fields) = volume.as_object_mut() else { return };
    for (source, volume) in fields.iter_mut().filter(|(_, volume)| volume.is_object()) {
        default_volume_source(source, volume);
    }
}

/// Sets the defaults of a volume source, in pods and persistent volumes.
pub(in crate::kinds) fn default_volume_source(source: &str, volume: &mut Value) {
    match source {
        "hostPath" => volume.or_insert("type", ""),
        "secret" | "configMap" => volume.or_insert("defaultMode", 0o644),
        "downwardAPI" => {
            volume.or_insert("defaultMode", 0o644);
            default_downward_items(volume);
        }
        "projected" => {
            volume.or_insert("defaultMode", 0o644);
            for source in volume.list_mut("sources") {
                default_projection(source);
            }
        }
        "iscsi" => volume.or_text("iscsiInterface", "default"),
        "rbd" => {
            volume.or_text("pool", "rbd");
            volume.or_text("user", "admin");
            volume.or_text("keyring", "/etc/ceph/keyring");
        }
        "azureDisk" => {
            volume.or_insert("cachingMode", "ReadWrite");
            volume.or_insert("fsType", "ext4");
            volume.or_insert("readOnly", false);
            volume.or_insert("kind", "Shared");
        }
        "scaleIO" => {
            volume.or_text("storageMode", "ThinProvisioned");
            volume.or_text("fsType", "xfs");
        }
        "ephemeral" => {
            if let Some(spec) =
                volume.at_mut("volumeClaimTemplate").map(|template| template.object_mut("spec"))
            {
                crate::kinds::persistentvolumeclaim::default_spec(spec);
            }
        }
        _ => {}
    }
}

fn default_projection(source: &mut Value) {
    if let Some(downward) = source.at_mut("downwardAPI") {
        default_downward_items(downward);
    }
    if let Some(token) = source.at_mut("serviceAccountToken") {
        token.or_insert("expirationSeconds", 3600);
    }
}

fn default_downward_items(downward: &mut Value) {
    for item in downward.list_mut("items") {
        if let Some(field) = item.at_mut("fieldRef") {
            field.or_text("apiVersion", "v1");
        }
    }
}

/// Derives pod-level requests from the containers' requests and the pod's limits.
fn default_pod_resources(spec: &mut Value) {
    let Some(requirements) = spec.get("resources").filter(|resources| resources.is_object()) else { return };
    let (mut limits, mut requests) = (requirements.at("limits").clone(), requirements.at("requests").clone());
    let filled = |list: &Value| list.as_object().is_some_and(|list| !list.is_empty());
    if !filled(&limits) && !filled(&requests) {
        return;
    }
    for (name, amount) in total(spec, "limits") {
        if name.starts_with("hugepages-") && !requests.has(&name) {
            limits.or_insert(&name, amount.to_string());
        }
    }
    if filled(&limits) {
        for (name, amount) in total(spec, "requests") {
            if matches!(name.as_str(), "cpu" | "memory") {
                requests.or_insert(&name, amount.to_string());
            }
        }
        for (name, amount) in limits.as_object().into_iter().flatten() {
            if is_pod_level(name) {
                requests.or_insert(name, amount.clone());
            }
        }
    }
    let requirements = spec.object_mut("resources");
    for (field, list) in [("limits", limits), ("requests", requests)] {
        if filled(&list) {
            requirements.set(field, list);
        }
    }
}

fn default_status(status: &mut Value) {
    default_pod_ips(status);
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        for container in status.list_mut(list) {
            if let Some(allocated) = container.at_mut("allocatedResources") {
                resources::default_list(allocated);
            }
            if let Some(requirements) = container.at_mut("resources") {
                resources::default_requirements(requirements);
            }
        }
    }
}

/// Synchronizes `podIP`, the first of `podIPs`; if they differ, the former wins, for old kubelets.
fn default_pod_ips(status: &mut Value) {
    let single = status.text("podIP");
    let first = status.list("podIPs").first().map_or("", |ip| ip.text("ip"));
    if single == first {
        return;
    }
    if single.is_empty() {
        let first = first.to_owned();
        status.set("podIP", first);
    } else {
        let ips = json!([{"ip": single}]);
        status.set("podIPs", ips);
    }
}

/// Annotations about init containers for kubelets before v1.8.
const INIT_CONTAINER_ANNOTATIONS: [&str; 4] = [
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
];

pub(super) fn drop_init_container_annotations(object: &mut Value) {
    let annotations = object.at_mut("metadata").and_then(|metadata| metadata.at_mut("annotations"));
    if let Some(annotations) = annotations {
        for name in INIT_CONTAINER_ANNOTATIONS {
            annotations.unset(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_latest_images_are_always_pulled() {
        for (image, policy) in [
            ("img", "Always"),
            ("img:latest", "Always"),
            ("img:v1", "IfNotPresent"),
            ("host:5000/img", "Always"),
            ("host:5000/img:v1", "IfNotPresent"),
            ("img@sha256:0000000000000000000000000000000000000000000000000000000000000000", "IfNotPresent"),
            ("img:latest@sha256:0000000000000000000000000000000000000000000000000000000000000000", "Always"),
            ("Host/img", "Always"),
            ("Img", "IfNotPresent"),
            ("", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    fn check(mut pod: Value, expected: Value) {
        default_pod(&mut pod);
        let first = pod.clone();
        default_pod(&mut pod);
        assert_eq!(pod, first, "defaulting is idempotent");
        for (pointer, value) in expected.as_object().unwrap() {
            assert_eq!(pod.pointer(pointer).unwrap_or(&Value::Null), value, "{pointer} of {pod}");
        }
    }

    #[test]
    fn a_minimal_pod_is_filled_in() {
        check(
            json!({"spec": {"containers": [{"name": "c", "image": "img:1"}]}}),
            json!({"/spec": {
                "containers": [{"name": "c", "image": "img:1", "imagePullPolicy": "IfNotPresent", "resources": {},
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
                "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "restartPolicy": "Always",
                "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30,
            }}),
        );
    }

    #[test]
    fn probes_hooks_ports_and_variables_are_filled_in() {
        check(
            json!({"spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "img",
                "ports": [{"containerPort": 80}],
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "livenessProbe": {"httpGet": {"port": 80}},
                "readinessProbe": {"grpc": {"port": 80}, "periodSeconds": 5},
                "lifecycle": {"preStop": {"httpGet": {"port": 80}}}}]}}),
            json!({
                "/spec/containers/0/ports/0": {"containerPort": 80, "hostPort": 80, "protocol": "TCP"},
                "/spec/containers/0/env/0/valueFrom/fieldRef/apiVersion": "v1",
                "/spec/containers/0/livenessProbe": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                    "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
                "/spec/containers/0/readinessProbe/grpc/service": "",
                "/spec/containers/0/readinessProbe/periodSeconds": 5,
                "/spec/containers/0/lifecycle/preStop/httpGet/path": "/",
            }),
        );
    }

    #[test]
    fn volumes_are_filled_in() {
        check(
            json!({"spec": {"volumes": [{"name": "a"}, {"name": "b", "hostPath": {"path": "/x"}},
                {"name": "c", "secret": {"secretName": "s"}},
                {"name": "d", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}}),
            json!({
                "/spec/volumes/0/emptyDir": {},
                "/spec/volumes/1/hostPath/type": "",
                "/spec/volumes/2/secret/defaultMode": 420,
                "/spec/volumes/3/projected/sources/0/serviceAccountToken/expirationSeconds": 3600,
            }),
        );
    }

    #[test]
    fn pod_level_requests_follow_from_containers_and_limits() {
        check(
            json!({"spec": {"resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
                "containers": [{"name": "a", "resources": {"requests": {"cpu": "100m"}}},
                               {"name": "b", "resources": {"limits": {"cpu": "200m", "hugepages-2Mi": "4Mi"}}}]}}),
            json!({"/spec/resources": {
                "limits": {"cpu": "2", "memory": "1Gi", "hugepages-2Mi": "4Mi"},
                "requests": {"cpu": "300m", "memory": "1Gi", "hugepages-2Mi": "4Mi"},
            }}),
        );
    }

    #[test]
    fn both_names_of_the_service_account_agree() {
        check(json!({"spec": {"serviceAccount": "a"}}), json!({"/spec/serviceAccountName": "a"}));
        check(
            json!({"spec": {"serviceAccount": "a", "serviceAccountName": "b"}}),
            json!({"/spec/serviceAccount": "b"}),
        );
    }

    #[test]
    fn the_single_address_is_the_first_of_all() {
        check(json!({"status": {"podIP": "1.2.3.4"}}), json!({"/status/podIPs": [{"ip": "1.2.3.4"}]}));
        check(
            json!({"status": {"podIPs": [{"ip": "1.2.3.4"}, {"ip": "::1"}]}}),
            json!({"/status/podIP": "1.2.3.4"}),
        );
    }
}
