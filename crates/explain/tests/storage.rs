//! Claims that do not bind, and volumes that are not claimed.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};
use setpoint::Kind;

use crate::situation::{cluster, delete, global, merge, object, pass, pod, situation};

fn claim(name: &str, class: Option<&str>, spec: Value) -> Value {
    let mut whole = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}});
    if let Some(class) = class {
        whole["storageClassName"] = class.into();
    }
    merge(&mut whole, spec);
    object("v1", "PersistentVolumeClaim", name, json!({"spec": whole}))
}

fn volume(name: &str, class: &str, spec: Value) -> Value {
    let mut whole = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}, "storageClassName": class,
        "hostPath": {"path": "/data"}, "persistentVolumeReclaimPolicy": "Retain"});
    merge(&mut whole, spec);
    global("v1", "PersistentVolume", name, json!({"spec": whole}))
}

fn class(name: &str, provisioner: &str, mode: &str) -> Value {
    global(
        "storage.k8s.io/v1",
        "StorageClass",
        name,
        json!({"provisioner": provisioner, "volumeBindingMode": mode}),
    )
}

fn using(claim: &str) -> Value {
    pod("p", json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}))
}

situation!(
    a_class_that_does_not_exist,
    cluster(),
    "pod/p",
    ["PersistentVolumeClaim default/data", "StorageClass fast does not exist"],
    async |c| {
        c.create(claim("data", Some("fast"), json!({}))).await;
        c.create(using("data")).await;
    }
);

situation!(
    a_claim_without_a_class,
    cluster(),
    "pvc/data",
    ["PersistentVolumeClaim default/data", "none is the default"],
    async |c| {
        c.create(claim("data", None, json!({}))).await;
    }
);

situation!(
    a_claim_that_does_not_exist,
    cluster(),
    "pod/p",
    ["PersistentVolumeClaim default/data", "does not exist"],
    async |c| {
        c.create(using("data")).await;
    }
);

situation!(
    a_claim_that_waits_for_its_first_consumer,
    cluster(),
    "pvc/data",
    ["PersistentVolumeClaim default/data", "WaitForFirstConsumer", "no pod uses it"],
    async |c| {
        c.create(class("local", "example.com/disks", "WaitForFirstConsumer")).await;
        c.create(claim("data", Some("local"), json!({}))).await;
    }
);

situation!(
    a_claim_whose_consumer_is_unschedulable,
    cluster(),
    "pvc/data",
    ["Pod default/p", "node affinity/selector"],
    async |c| {
        c.create(class("local", "example.com/disks", "WaitForFirstConsumer")).await;
        c.create(claim("data", Some("local"), json!({}))).await;
        let mut pod = using("data");
        merge(&mut pod, json!({"spec": {"nodeSelector": {"disk": "ssd"}}}));
        c.create(pod).await;
    }
);

situation!(
    a_provisioner_that_does_not_run,
    cluster(),
    "pod/p",
    ["PersistentVolumeClaim default/data", "provisioner example.com/disks"],
    async |c| {
        c.create(class("disks", "example.com/disks", "Immediate")).await;
        c.create(claim("data", Some("disks"), json!({}))).await;
        c.create(using("data")).await;
    }
);

situation!(
    volumes_that_are_too_small,
    cluster(),
    "pvc/data",
    ["PersistentVolumeClaim default/data", "its size is 1Gi, less than 5Gi"],
    async |c| {
        c.create(volume("small", "manual", json!({"capacity": {"storage": "1Gi"}}))).await;
        c.create(class("manual", "kubernetes.io/no-provisioner", "Immediate")).await;
        c.create(claim("data", Some("manual"), json!({}))).await;
    }
);

situation!(
    volumes_without_the_access_mode,
    cluster(),
    "pvc/data",
    ["PersistentVolumeClaim default/data", "access mode ReadWriteMany"],
    async |c| {
        c.create(volume("one", "manual", json!({}))).await;
        c.create(class("manual", "kubernetes.io/no-provisioner", "Immediate")).await;
        c.create(claim("data", Some("manual"), json!({"accessModes": ["ReadWriteMany"]}))).await;
    }
);

situation!(
    volumes_that_the_selector_excludes,
    cluster(),
    "pvc/data",
    ["PersistentVolumeClaim default/data", "selector"],
    async |c| {
        c.create(volume("one", "manual", json!({}))).await;
        c.create(class("manual", "kubernetes.io/no-provisioner", "Immediate")).await;
        c.create(claim("data", Some("manual"), json!({"selector": {"matchLabels": {"tier": "gold"}}}))).await;
    }
);

situation!(
    a_volume_that_does_not_exist,
    cluster(),
    "pvc/data",
    ["PersistentVolumeClaim default/data", "volume pv-1 does not exist"],
    async |c| {
        c.create(claim("data", Some(""), json!({"volumeName": "pv-1"}))).await;
    }
);

situation!(
    a_volume_that_belongs_to_another_claim,
    cluster(),
    "pvc/data",
    ["PersistentVolumeClaim default/data", "belongs to claim default/other"],
    async |c| {
        c.create(volume("one", "", json!({"claimRef": {"namespace": "default", "name": "other"}}))).await;
        c.create(claim("data", Some(""), json!({"volumeName": "one"}))).await;
    }
);

situation!(a_volume_on_another_node, cluster(), "pod/p", ["Pod default/p", "affinity"], async |c| {
    let terms = json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-9"]}]}]);
    let affinity = json!({"required": {"nodeSelectorTerms": terms}});
    c.create(volume("one", "manual", json!({"nodeAffinity": affinity}))).await;
    c.create(claim("data", Some("manual"), json!({}))).await;
    pass(c, 30).await;
    c.create(using("data")).await;
});

situation!(
    a_released_volume,
    cluster(),
    "pv/one",
    ["PersistentVolume one", "released", "claimRef"],
    async |c| {
        c.create(volume("one", "manual", json!({}))).await;
        c.create(claim("data", Some("manual"), json!({}))).await;
        pass(c, 30).await;
        delete(c, &Kind::of::<PersistentVolumeClaim>(), "data", false).await;
    }
);

situation!(
    a_claim_that_is_deleted_while_in_use,
    cluster(),
    "pvc/data",
    ["PersistentVolumeClaim default/data", "still used by pod p", "pvc-protection"],
    async |c| {
        c.create(volume("one", "manual", json!({}))).await;
        c.create(claim("data", Some("manual"), json!({}))).await;
        pass(c, 30).await;
        c.create(using("data")).await;
        pass(c, 30).await;
        delete(c, &Kind::of::<PersistentVolumeClaim>(), "data", false).await;
    }
);

situation!(
    a_stateful_set_whose_claims_do_not_bind,
    cluster(),
    "statefulset/db",
    ["PersistentVolumeClaim default/data-db-0", "StorageClass fast does not exist"],
    async |c| {
        let template = claim("data", Some("fast"), json!({}));
        let spec = json!({"replicas": 2, "serviceName": "db", "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": template["spec"]}]});
        c.create(crate::situation::workload("StatefulSet", "db", spec, pod("p", json!({})))).await;
    }
);
