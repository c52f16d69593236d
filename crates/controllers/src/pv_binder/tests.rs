//! Table tests of plans.

use serde_json::{Value, json};
use setpoint::Cached;
use setpoint_volume::{Claim, Class, Volume};

use super::Settings;
use super::claim::{Plan, PlannedEvent, plan};
use super::observe::Observed;
use super::provision::Provision;
use super::reclaim::{Reclaim, kept, reclaim};
use super::volume;
use crate::workload::fixtures::cached;

const BOUND: &str = "pv.kubernetes.io/bind-completed";
const OURS: &str = "pv.kubernetes.io/bound-by-controller";

fn claim(annotations: Value, spec: Value) -> Cached<Claim> {
    let metadata = json!({"name": "c", "namespace": "ns", "uid": "u", "annotations": annotations});
    cached(json!({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}))
}

fn volume(claim_ref: Value) -> Cached<Volume> {
    cached(json!({"metadata": {"name": "v"}, "status": {"phase": "Available"},
        "spec": {"claimRef": claim_ref, "storageClassName": "s", "capacity": {"storage": "1Gi"}}}))
}

fn class(provisioner: &str, mode: &str) -> Cached<Class> {
    cached(json!({"metadata": {"name": "s"}, "provisioner": provisioner, "volumeBindingMode": mode}))
}

fn word(event: &PlannedEvent) -> String {
    format!("{}: {}", event.reason, event.message)
}

fn words(plan: Plan) -> String {
    match plan {
        Plan::Bind(volume) => format!("bind {}", volume.key()),
        Plan::AssignClass(class) => format!("class {class}"),
        Plan::Wait(None) => "wait".into(),
        Plan::Wait(Some(event)) => format!("wait {}", word(&event)),
        Plan::GiveUp(event) => format!("lost {}", word(&event)),
        Plan::Refuse(event) => format!("refuse {}", word(&event)),
        Plan::Provision(Provision::Off) => "off".into(),
        Plan::Provision(Provision::Fails(event)) => word(&event),
        Plan::Provision(Provision::Ask(driver)) => format!("ask {driver}"),
        Plan::Provision(Provision::HostPath(Ok(body))) => format!("make {}", body["metadata"]["name"]),
        Plan::Provision(Provision::HostPath(Err(failure))) => word(&failure.event),
    }
}

#[track_caller]
fn check(claim: &Cached<Claim>, observed: Observed, expected: &str) {
    assert_eq!(words(plan(claim, &observed, Settings::default())), expected);
}

fn named(volume: Cached<Volume>) -> Observed {
    Observed { named: Some(volume), ..Observed::default() }
}

#[test]
fn a_claim_that_was_bound_stays_with_its_volume_or_is_lost() {
    let bound = claim(json!({BOUND: "yes"}), json!({"volumeName": "v"}));
    let mine = json!({"namespace": "ns", "name": "c", "uid": "u"});
    let theirs = json!({"namespace": "ns", "name": "d", "uid": "w"});
    check(&bound, named(volume(mine)), "bind v");
    check(&bound, named(volume(Value::Null)), "bind v");
    let misbound =
        "lost ClaimMisbound: Two claims are bound to the same volume, this one is bound incorrectly";
    check(&bound, named(volume(theirs)), misbound);
    let gone = "lost ClaimLost: Bound claim has lost its PersistentVolume. Data on the volume is lost!";
    check(&bound, Observed::default(), gone);
    let unnamed =
        "lost ClaimLost: Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
    check(&claim(json!({BOUND: "yes"}), json!({})), Observed::default(), unnamed);
}

#[test]
fn a_claim_that_names_a_volume_gets_it_unless_another_claim_has_it() {
    let wants = |annotations: Value| claim(annotations, json!({"volumeName": "v", "storageClassName": "s"}));
    check(&wants(json!({})), Observed::default(), "wait");
    check(&wants(json!({})), named(volume(Value::Null)), "bind v");
    check(&wants(json!({})), named(volume(json!({"namespace": "ns", "name": "c"}))), "bind v");
    let theirs = json!({"namespace": "ns", "name": "d"});
    let taken = "FailedBinding: volume \"v\" already bound to a different claim.";
    check(&wants(json!({})), named(volume(theirs.clone())), &format!("wait {taken}"));
    check(&wants(json!({OURS: "yes"})), named(volume(theirs)), &format!("refuse {taken}"));
    let other_class = claim(json!({}), json!({"volumeName": "v", "storageClassName": "t"}));
    let mismatch =
        "wait VolumeMismatch: Cannot bind to requested volume \"v\": storageClassName does not match";
    check(&other_class, named(volume(Value::Null)), mismatch);
}

#[test]
fn a_claim_without_a_matching_volume_waits_or_is_provisioned() {
    let wants = |class: Value| claim(json!({}), json!({"storageClassName": class}));
    let of = |class: Cached<Class>| Observed { class: Some(class), ..Observed::default() };
    let nothing =
        "wait FailedBinding: no persistent volumes available for this claim and no storage class is set";
    check(&wants(json!("")), Observed::default(), nothing);
    check(&wants(Value::Null), Observed::default(), nothing);
    let default = Observed { default_class: Some("standard".into()), ..Observed::default() };
    check(&wants(Value::Null), default, "class standard");
    let ghost = "ProvisioningFailed: storageclass.storage.k8s.io \"s\" not found";
    check(&wants(json!("s")), Observed::default(), ghost);
    check(&wants(json!("s")), of(class("csi.example.com", "Immediate")), "ask csi.example.com");
    check(&wants(json!("s")), of(class("kubernetes.io/gce-pd", "Immediate")), "ask pd.csi.storage.gke.io");
    let by_hand = "ProvisioningFailed: no volume plugin matched name: kubernetes.io/no-provisioner";
    check(&wants(json!("s")), of(class("kubernetes.io/no-provisioner", "Immediate")), by_hand);
    check(
        &wants(json!("s")),
        Observed { candidates: vec![volume(Value::Null)], ..Observed::default() },
        "bind v",
    );
}

#[test]
fn a_claim_of_a_delayed_class_waits_for_its_pod_and_its_node() {
    let of = |waiting: &[&str]| Observed {
        class: Some(class("csi.example.com", "WaitForFirstConsumer")),
        candidates: vec![volume(Value::Null)],
        waiting: waiting.iter().map(|pod| (*pod).to_owned()).collect(),
        ..Observed::default()
    };
    let wants = |annotations: Value| claim(annotations, json!({"storageClassName": "s"}));
    let first = "wait WaitForFirstConsumer: waiting for first consumer to be created before binding";
    check(&wants(json!({})), of(&[]), first);
    check(&wants(json!({})), of(&["p"]), "wait WaitForPodScheduled: waiting for pod p to be scheduled");
    check(
        &wants(json!({})),
        of(&["p", "q"]),
        "wait WaitForPodScheduled: waiting for pods p,q to be scheduled",
    );
    check(&wants(json!({"volume.kubernetes.io/selected-node": "n"})), of(&[]), "ask csi.example.com");
}

#[test]
fn host_paths_are_provisioned_if_enabled() {
    let check = |spec: Value, annotations: Value, on: bool, expected: &str| {
        let mut spec = spec;
        spec["storageClassName"] = json!("s");
        let observed =
            Observed { class: Some(class("kubernetes.io/host-path", "Immediate")), ..Observed::default() };
        let settings = Settings { host_path_provisioner: on, ..Settings::default() };
        assert_eq!(words(plan(&claim(annotations, spec), &observed, settings)), expected);
    };
    check(json!({}), json!({}), true, "make \"pvc-u\"");
    let off = "ProvisioningFailed: Failed to create provisioner: provisioning in volume plugin \
               \"kubernetes.io/host-path\" is disabled";
    check(json!({}), json!({}), false, off);
    let block = "ProvisioningFailed: Failed to provision volume with StorageClass \"s\": \
                 kubernetes.io/host-path does not support block volume provisioning";
    check(json!({"volumeMode": "Block"}), json!({}), true, block);
    let no_node = "ProvisioningFailed: Failed to get target node: node \"n\" not found";
    check(json!({}), json!({"volume.kubernetes.io/selected-node": "n"}), true, no_node);
    let source = "ProvisioningFailed: plugin \"kubernetes.io/host-path\" is not a CSI plugin. Only CSI plugin can \
                  provision a claim with a datasource";
    check(json!({"dataSource": {"kind": "VolumeSnapshot"}}), json!({}), true, source);
}

#[test]
fn a_volume_follows_its_claim() {
    let check = |claim_ref: Value, annotations: Value, volume_name: Option<&str>, expected: volume::Plan| {
        let volume: Cached<Volume> = cached(json!({"metadata": {"name": "v", "annotations": annotations},
            "spec": {"claimRef": claim_ref, "persistentVolumeReclaimPolicy": "Delete"}}));
        let claim = volume_name.map(|name| claim(json!({}), json!({"volumeName": name})));
        assert_eq!(volume::plan(&volume, claim.as_ref()), expected, "{claim_ref} {volume_name:?}");
    };
    let mine = || json!({"namespace": "ns", "name": "c", "uid": "u"});
    check(Value::Null, json!({}), None, volume::Plan::Be("Available"));
    check(json!({"namespace": "ns", "name": "c"}), json!({}), Some(""), volume::Plan::Be("Available"));
    check(mine(), json!({}), None, volume::Plan::Release);
    check(mine(), json!({}), Some("v"), volume::Plan::Be("Bound"));
    check(mine(), json!({}), Some(""), volume::Plan::WakeClaim);
    check(mine(), json!({}), Some("w"), volume::Plan::Unbind);
    check(mine(), json!({"pv.kubernetes.io/provisioned-by": "d"}), Some("w"), volume::Plan::Release);
}

#[test]
fn a_released_volume_is_reclaimed_as_its_policy_says() {
    let check = |policy: &str, source: Value, annotations: Value, expected: Result<Reclaim, &str>| {
        let mut spec = source;
        spec["persistentVolumeReclaimPolicy"] = json!(policy);
        let volume: Cached<Volume> =
            cached(json!({"metadata": {"name": "v", "annotations": annotations}, "spec": spec}));
        match (reclaim(&volume), expected) {
            (Reclaim::Fails(event), Err(message)) => assert_eq!(word(&event), message),
            (is, Ok(expected)) => assert_eq!(is, expected, "{policy} {spec}"),
            (is, Err(message)) => panic!("{is:?} instead of {message}"),
        }
    };
    let path = |path: &str| json!({"hostPath": {"path": path}});
    let by = |plugin: &str| json!({"pv.kubernetes.io/provisioned-by": plugin});
    check("Retain", path("/tmp/x"), json!({}), Ok(Reclaim::Nothing));
    check("Recycle", path("/x"), json!({}), Ok(Reclaim::Recycle));
    check("Recycle", json!({"nfs": {"server": "s", "path": "/"}}), json!({}), Ok(Reclaim::Recycle));
    let no_recycler = "VolumeFailedRecycle: No recycler plugin found for the volume!";
    check("Recycle", json!({"csi": {"driver": "d"}}), json!({}), Err(no_recycler));
    check("Delete", path("/tmp/x"), json!({}), Ok(Reclaim::Delete));
    let elsewhere = "VolumeFailedDelete: host_path deleter only supports /tmp/.+ but received provided /x";
    check("Delete", path("/x"), json!({}), Err(elsewhere));
    check("Delete", json!({"csi": {"driver": "d"}}), json!({}), Ok(Reclaim::Nothing));
    check("Delete", json!({"csi": {"driver": "d"}}), by("d"), Ok(Reclaim::Nothing));
    check("Delete", path("/tmp/x"), by("kubernetes.io/host-path"), Ok(Reclaim::Delete));
    let moved = json!({"pv.kubernetes.io/migrated-to": "ebs.csi.aws.com"});
    check("Delete", json!({}), moved, Ok(Reclaim::Nothing));
    let undeletable = "VolumeFailedDelete: error getting deleter volume plugin for volume \"v\": \
                       no deletable volume plugin matched";
    check(
        "Delete",
        json!({"iscsi": {"targetPortal": "t", "iqn": "i", "lun": 0}}),
        json!({}),
        Err(undeletable),
    );
    let local =
        "VolumeFailedDelete: error getting deleter volume plugin for volume \"v\": no volume plugin matched";
    check("Delete", json!({"local": {"path": "/x"}}), json!({}), Err(local));
    let unknown = "VolumeUnknownReclaimPolicy: Volume has unrecognized PersistentVolumeReclaimPolicy";
    check("Burn", json!({}), json!({}), Err(unknown));
}

#[test]
fn volumes_provisioned_here_have_a_finalizer_until_they_are_deleted() {
    let check = |policy: &str, by: &str, finalizers: Value, expected: Option<Value>| {
        let annotations = json!({"pv.kubernetes.io/provisioned-by": by});
        let volume: Cached<Volume> = cached(json!({
            "metadata": {"name": "v", "annotations": annotations, "finalizers": finalizers},
            "spec": {"persistentVolumeReclaimPolicy": policy},
        }));
        let edited = kept(&volume).map(|edit| serde_json::to_value(edit).expect("JSON"));
        assert_eq!(edited.map(|volume| volume["metadata"]["finalizers"].clone()), expected, "{policy} {by}");
    };
    let (ours, drivers) =
        ("kubernetes.io/pv-controller", "external-provisioner.volume.kubernetes.io/finalizer");
    check("Delete", "kubernetes.io/host-path", json!(["x"]), Some(json!(["x", ours])));
    check("Delete", "kubernetes.io/host-path", json!([ours]), None);
    check("Delete", "kubernetes.io/host-path", json!([ours, drivers]), Some(json!([ours])));
    check("Retain", "kubernetes.io/host-path", json!([ours]), Some(json!([])));
    check("Retain", "kubernetes.io/host-path", json!([]), None);
    check("Delete", "csi.example.com", json!([drivers]), None);
}
