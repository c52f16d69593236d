//! Situations that a simulation cannot produce, from recorded objects.

use serde_json::{Value, json};
use setpoint::Object;
use setpoint_explain::gather::{self, Source};
use setpoint_explain::kinds::GroupKind;
use setpoint_explain::model::{Explanation, ObjectRef};
use setpoint_explain::snapshot::{Answer, Need, Served};

/// A cluster that consists of these objects.
pub(crate) struct Recorded {
    pub(crate) objects: Vec<Value>,
    /// The kinds that may not be read.
    pub(crate) forbidden: Vec<&'static str>,
}

fn kind_of(object: &Value) -> GroupKind {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    GroupKind::of_reference(text("apiVersion"), text("kind"))
}

fn decoded(value: &Value) -> Object {
    Object::from_json(value.to_string().into()).expect("an object")
}

impl Recorded {
    fn matching(&self, matches: impl Fn(&Value) -> bool) -> Vec<Object> {
        self.objects.iter().filter(|object| matches(object)).map(decoded).collect()
    }
}

impl Source for Recorded {
    fn served(&self) -> Vec<Served> {
        let mut served: Vec<Served> = Vec::new();
        for object in &self.objects {
            let kind = kind_of(object);
            if !served.iter().any(|known| known.kind == kind) {
                let plural = format!("{}s", kind.kind.to_lowercase());
                let namespaced = object["metadata"]["namespace"].is_string();
                served.push(Served { kind, plural, namespaced, listable: true });
            }
        }
        served
    }

    async fn fetch(&self, need: &Need) -> Answer {
        let is_in = |object: &Value, namespace: &Option<String>| {
            namespace.is_none() || object["metadata"]["namespace"].as_str() == namespace.as_deref()
        };
        match need {
            Need::Object { kind, .. } | Need::List { kind, .. } if self.forbidden.contains(&&*kind.kind) => {
                Answer::Forbidden(format!("list {kind}: User \"jane\" cannot list resource"))
            }
            Need::Object { kind, namespace, name } => {
                let found = self.matching(|object| {
                    kind_of(object) == *kind
                        && is_in(object, namespace)
                        && object["metadata"]["name"] == **name
                });
                if found.is_empty() { Answer::Missing } else { Answer::Objects(found) }
            }
            Need::List { kind, namespace } => {
                Answer::Objects(self.matching(|object| kind_of(object) == *kind && is_in(object, namespace)))
            }
            Need::Events { kind, name, .. } => Answer::Objects(self.matching(|object| {
                object["kind"] == "Event"
                    && object["involvedObject"]["kind"] == **kind
                    && object["involvedObject"]["name"] == **name
            })),
            Need::Log { .. } => Answer::Text("panic: out of cheese\n".to_owned()),
            Need::Queues { .. } => Answer::NotServed,
        }
    }
}

pub(crate) fn explain(recorded: &Recorded, kind: &GroupKind, name: &str) -> Explanation {
    let namespaced =
        recorded.objects.iter().find(|object| kind_of(object) == *kind && object["metadata"]["name"] == name);
    let namespace = namespaced.and_then(|object| object["metadata"]["namespace"].as_str());
    let target = ObjectRef::new(kind, namespace, name);
    let now = || "2025-06-01T12:00:00Z".parse().expect("a time");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(gather::explain(recorded, &target, now))
}

pub(crate) fn pod(status: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "shop", "uid": "p", "creationTimestamp": "2025-06-01T11:00:00Z"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "registry.example.com/shop:1",
            "resources": {"limits": {"memory": "64Mi"}}}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
        "status": status})
}

pub(crate) fn waiting(reason: &str, message: &str) -> Value {
    pod(json!({"phase": "Pending", "startTime": "2025-06-01T11:00:00Z", "containerStatuses": [
        {"name": "c", "state": {"waiting": {"reason": reason, "message": message}}, "lastState": {}}]}))
}

pub(crate) fn event(reason: &str, message: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "shop"}, "type": "Warning",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "shop", "uid": "p"},
        "reason": reason, "message": message, "count": 7, "lastTimestamp": "2025-06-01T11:59:00Z"})
}

fn claim(status: Value, more: Value) -> Value {
    let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "shop", "uid": "c"},
        "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "volumeName": "pv",
            "resources": {"requests": {"storage": "20Gi"}}}, "status": status});
    crate::situation::merge(&mut claim, more);
    claim
}

fn bound() -> Value {
    claim(json!({"phase": "Bound", "capacity": {"storage": "20Gi"}}), json!({}))
}

pub(crate) fn check(mut objects: Vec<Value>, kind: GroupKind, name: &str, says: &[&str]) {
    if !objects.iter().any(|object| object["kind"] == "Node") {
        objects.push(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    }
    let explanation = explain(&Recorded { objects, forbidden: Vec::new() }, &kind, name);
    let missing: Vec<_> = says.iter().filter(|said| !explanation.headline.contains(**said)).collect();
    assert!(missing.is_empty(), "{missing:?} is missing in {}", explanation.headline);
}

pub(crate) const POD: GroupKind = GroupKind::of("", "Pod");
const CLAIM: GroupKind = GroupKind::of("", "PersistentVolumeClaim");

/// Images: what runtimes say.
#[test]
fn pulls_fail_for_different_reasons() {
    for (message, says) in [
        (
            "rpc error: code = NotFound desc = failed to pull: registry.example.com/shop:1: not found",
            "no such image",
        ),
        ("failed to authorize: failed to fetch anonymous token: 401 Unauthorized", "refuses access"),
        ("pull access denied, repository does not exist or may require authorization", "refuses access"),
        ("dial tcp: lookup registry.example.com on 10.0.0.10:53: no such host", "cannot be reached"),
        ("toomanyrequests: You have reached your pull rate limit", "rate of pulls"),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "not trusted"),
        ("no match for platform in manifest: not found", "registry has no such image"),
    ] {
        let said = format!("Failed to pull image \"registry.example.com/shop:1\": {message}");
        let objects = vec![
            waiting("ImagePullBackOff", "Back-off pulling image \"registry.example.com/shop:1\""),
            event("Failed", &said),
            bound(),
        ];
        check(objects, POD, "p", &["Pod shop/p", "registry.example.com/shop:1", says]);
    }
}

/// Wrong pull secrets.
#[test]
fn a_pull_secret_without_credentials_for_the_registry() {
    let mut pod = waiting("ErrImagePull", "401 Unauthorized");
    pod["spec"]["imagePullSecrets"] = json!([{"name": "regcred"}]);
    // {"auths":{"https://index.docker.io/v1/":{}}}
    let data = "eyJhdXRocyI6eyJodHRwczovL2luZGV4LmRvY2tlci5pby92MS8iOnt9fX0=";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "regcred", "namespace": "shop"},
        "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": data}});
    let says = ["Secret shop/regcred", "no credentials for registry.example.com"];
    check(vec![pod.clone(), secret.clone(), bound()], POD, "p", &says);
    let mut opaque = secret;
    opaque["type"] = "Opaque".into();
    check(vec![pod, opaque, bound()], POD, "p", &["Secret shop/regcred", "has type Opaque"]);
}

#[test]
fn a_container_that_was_oom_killed() {
    let ended =
        json!({"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2025-06-01T11:59:30Z"}});
    let status = json!({"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 4, "lastState": ended,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 1m20s restarting failed container"}}}]});
    let objects = vec![pod(status), bound()];
    check(
        objects,
        POD,
        "p",
        &["Pod shop/p", "OOMKilled", "64Mi", "resources.limits.memory", "out of cheese"],
    );
}

#[test]
fn containers_that_cannot_be_configured_or_created() {
    let root = "container has runAsNonRoot and image will run as root (pod: \"p_shop\", container: c)";
    check(
        vec![waiting("CreateContainerConfigError", root), bound()],
        POD,
        "p",
        &["Pod shop/p", "runAsNonRoot", "runAsUser"],
    );
    let started = "failed to create containerd task: exec: \"serve\": executable file not found in $PATH";
    check(
        vec![waiting("RunContainerError", started), bound()],
        POD,
        "p",
        &["Pod shop/p", "RunContainerError", "not found in $PATH"],
    );
}

#[test]
fn volumes_that_cannot_be_attached_or_mounted() {
    let creating = || waiting("ContainerCreating", "");
    for (reason, message, says) in [
        (
            "FailedAttachVolume",
            "Multi-Attach error for volume \"pv\" Volume is already used by pod(s) other",
            "Multi-Attach",
        ),
        (
            "FailedMount",
            "MountVolume.MountDevice failed for volume \"pv\": driver name csi.example.com not found",
            "csi.example.com",
        ),
        (
            "FailedCreatePodSandBox",
            "plugin type=\"calico\" failed (add): error getting ClusterInformation: cni",
            "CNI",
        ),
    ] {
        check(vec![creating(), event(reason, message), bound()], POD, "p", &["Pod shop/p", reason, says]);
    }
}

#[test]
fn claims_that_are_being_resized() {
    let small = json!({"phase": "Bound", "capacity": {"storage": "10Gi"}});
    let class = |expands: bool| {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
        "provisioner": "csi.example.com", "allowVolumeExpansion": expands})
    };
    let mut pending = small.clone();
    pending["conditions"] = json!([{"type": "FileSystemResizePending", "status": "True"}]);
    check(
        vec![claim(pending, json!({})), class(true)],
        CLAIM,
        "data",
        &["PersistentVolumeClaim shop/data", "FileSystemResizePending"],
    );
    check(
        vec![claim(small, json!({})), class(false)],
        CLAIM,
        "data",
        &["does not allow volume expansion", "fast"],
    );
}

#[test]
fn provisioning_that_fails() {
    let mut event = event("ProvisioningFailed", "rpc error: quota exceeded in zone a");
    event["involvedObject"] =
        json!({"kind": "PersistentVolumeClaim", "name": "data", "namespace": "shop", "uid": "c"});
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "csi.example.com"});
    let mut claim = claim(json!({"phase": "Pending"}), json!({}));
    claim["spec"]["volumeName"] = "".into();
    check(
        vec![claim, event, class],
        CLAIM,
        "data",
        &["PersistentVolumeClaim shop/data", "ProvisioningFailed", "quota exceeded in zone a"],
    );
}

#[test]
fn nodes_that_wait_for_a_cloud_and_without_network() {
    let node = |taints: Value, conditions: Value| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "spec": {"taints": taints}, "status": {"conditions": conditions}})
    };
    let kind = GroupKind::of("", "Node");
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let taint = json!([{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}]);
    check(vec![node(taint, ready)], kind.clone(), "n", &["Node n", "cloud controller manager"]);
    let unready = json!([{"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "cni plugin not initialized"}]);
    check(vec![node(json!([]), unready)], kind, "n", &["Node n", "NotReady", "cni plugin not initialized"]);
}

#[test]
fn autoscalers_that_lack_metrics() {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}});
    let scaler = |reason: &str, message: &str| {
        json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 5},
        "status": {"conditions": [{"type": "AbleToScale", "status": "True"},
            {"type": "ScalingActive", "status": "False", "reason": reason, "message": message}]}})
    };
    let kind = GroupKind::of("autoscaling", "HorizontalPodAutoscaler");
    let missing = "the server could not find the requested resource (get pods.metrics.k8s.io)";
    let says = ["FailedGetResourceMetric", "no APIService v1beta1.metrics.k8s.io", "metrics-server"];
    check(vec![target.clone(), scaler("FailedGetResourceMetric", missing)], kind.clone(), "web", &says);
    let external = "unable to get external metric shop/queue: no external metrics API";
    check(
        vec![target, scaler("FailedGetExternalMetric", external)],
        kind,
        "web",
        &["v1beta1.external.metrics.k8s.io"],
    );
}

#[test]
fn applications_with_unhealthy_components_and_failed_steps() {
    let app = |status: Value| {
        json!({"apiVersion": "core.oam.dev/v1beta1", "kind": "Application",
        "metadata": {"name": "shop", "namespace": "shop", "generation": 1}, "status": status})
    };
    let kind = GroupKind::of("core.oam.dev", "Application");
    let unhealthy = json!({"status": "runningWorkflow", "services": [{"name": "front", "healthy": false, "message": "Ready:0/1"}]});
    check(
        vec![app(unhealthy)],
        kind.clone(),
        "shop",
        &["Application shop/shop", "component front", "Ready:0/1"],
    );
    let step = json!({"name": "notify", "type": "notification", "phase": "failed", "reason": "Execute", "message": "no webhook"});
    let failed = json!({"status": "workflowFailed", "workflow": {"steps": [step]}});
    check(vec![app(failed)], kind.clone(), "shop", &["Application shop/shop", "step notify", "no webhook"]);
    let step = json!({"name": "wait", "type": "suspend", "phase": "suspending"});
    let suspended = json!({"status": "workflowSuspending", "workflow": {"steps": [step]}});
    check(
        vec![app(suspended)],
        kind,
        "shop",
        &["Application shop/shop", "suspended at step wait", "setpoint app resume"],
    );
}

#[test]
fn resizes_that_are_infeasible_and_cron_jobs_with_bad_zones() {
    let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"},
        {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "Node didn't have enough capacity: cpu"}],
        "containerStatuses": [{"name": "c", "ready": true, "started": true, "state": {"running": {}}}]});
    check(vec![pod(status), bound()], POD, "p", &["Pod shop/p", "resize is infeasible"]);
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c", "namespace": "shop"},
        "spec": {"schedule": "* * * * *", "timeZone": "Europe/Atlantis"}});
    check(vec![cron], GroupKind::of("batch", "CronJob"), "c", &["CronJob shop/c", "Europe/Atlantis"]);
}

#[test]
fn devices_and_attachments() {
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "gpu", "namespace": "shop"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}});
    let class =
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}});
    let kind = GroupKind::of("resource.k8s.io", "ResourceClaim");
    check(vec![claim, class], kind, "gpu", &["ResourceClaim shop/gpu", "no driver publishes devices"]);
    let attachment = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "a"},
        "spec": {"attacher": "csi.example.com", "nodeName": "n", "source": {"persistentVolumeName": "pv"}},
        "status": {"attached": false, "attachError": {"message": "disk is in use", "time": "2025-06-01T11:00:00Z"}}});
    let kind = GroupKind::of("storage.k8s.io", "VolumeAttachment");
    check(vec![attachment], kind, "a", &["VolumeAttachment a", "disk is in use"]);
}

#[test]
fn a_claim_that_has_lost_its_volume() {
    check(
        vec![claim(json!({"phase": "Lost"}), json!({}))],
        CLAIM,
        "data",
        &["PersistentVolumeClaim shop/data", "Lost"],
    );
}

#[test]
fn a_namespace_with_an_api_that_is_down() {
    let condition = |kind: &str, status: &str, message: &str| json!([{"type": kind, "status": status, "message": message}]);
    let failed =
        condition("NamespaceDeletionDiscoveryFailure", "True", "Discovery failed: metrics.example.com/v1");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "doomed",
        "deletionTimestamp": "2025-06-01T11:00:00Z"}, "status": {"phase": "Terminating", "conditions": failed}});
    let api = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.metrics.example.com"}, "spec": {"service": {"namespace": "shop", "name": "metrics"}},
        "status": {"conditions": condition("Available", "False", "no response")}});
    let says = ["Service shop/metrics", "does not exist", "APIService v1.metrics.example.com"];
    check(vec![namespace, api], GroupKind::of("", "Namespace"), "doomed", &says);
}

#[test]
fn a_container_whose_command_does_not_exist() {
    let ended =
        json!({"terminated": {"exitCode": 127, "reason": "Error", "finishedAt": "2025-06-01T11:59:30Z"}});
    let status = json!({"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 2, "lastState": ended,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]});
    check(vec![pod(status), bound()], POD, "p", &["Pod shop/p", "exits with code 127", "command"]);
}
