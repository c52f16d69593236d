//! PersistentVolumeClaims: classes, provisioners, volumes that do not match, delayed binding, resizing.

use serde::Deserialize;
use setpoint::LabelSelector;
use setpoint_quantity::Quantity;

use crate::inquiry::{Inquiry, node_of};
use crate::kinds::{CLAIM, CSI_DRIVER, POD, STORAGE_CLASS, VOLUME};
use crate::model::{Evidence, Node, ObjectRef, State};
use crate::pods;
use crate::read::Read;
use crate::snapshot::{Item, Lookup};
use crate::text::{count, names};

const DEFAULT: [&str; 2] = [
    "/metadata/annotations/storageclass.kubernetes.io~1is-default-class",
    "/metadata/annotations/storageclass.beta.kubernetes.io~1is-default-class",
];
const SELECTED_NODE: &str = "/metadata/annotations/volume.kubernetes.io~1selected-node";
const OLD_CLASS: &str = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Returns the names of the claims that a pod uses. Most pods use none, which a text search of the encoded pod can
/// tell.
pub(crate) fn of_pod(pod: &Item) -> Vec<String> {
    if !pod.object.contains_text("olumeClaim") {
        return Vec::new();
    }
    let name = |volume: &serde_json::Value| match volume.text("/persistentVolumeClaim/claimName") {
        "" if volume.has("/ephemeral") => Some(format!("{}-{}", pod.name(), volume.text("/name"))),
        "" => None,
        name => Some(name.to_owned()),
    };
    pod.items("/spec/volumes").iter().filter_map(name).collect()
}

/// A missing claim of a pod.
pub(crate) fn missing(pod: &Item, name: &str) -> Node {
    let text = format!("the claim {name} does not exist (pod {} uses it)", pod.name());
    let node = Node::new(ObjectRef::new(&CLAIM, pod.namespace(), name));
    node.blocked(text, "create the PersistentVolumeClaim, or correct its name in the pod")
}

/// Whether a claim is unbound only because its pod is not scheduled yet.
pub(crate) fn waits_for_pod(inquiry: &Inquiry<'_>, claim: &Item) -> bool {
    let class = inquiry.get(&STORAGE_CLASS, None, class_of(claim)).found();
    let is_delayed = class.is_some_and(|class| class.text("/volumeBindingMode") == "WaitForFirstConsumer");
    is_delayed && claim.text(SELECTED_NODE).is_empty() && claim.text("/spec/volumeName").is_empty()
}

fn class_of(claim: &Item) -> &str {
    match claim.text("/spec/storageClassName") {
        "" => claim.text(OLD_CLASS),
        class => class,
    }
}

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, claim: &'a Item) -> Node {
    let node = node_of(claim);
    match claim.text("/status/phase") {
        "Bound" => bound(inquiry, claim, node),
        "Lost" => lost(claim, node),
        _ => pending(inquiry, claim, node),
    }
}

fn lost(claim: &Item, node: Node) -> Node {
    let volume = claim.text("/spec/volumeName");
    let text = format!(
        "has lost its volume {volume} (Lost): the PersistentVolume no longer exists or belongs to another claim"
    );
    let node = node.failed(text, "restore the PersistentVolume, or recreate the claim; its data is gone");
    node.evidence([Evidence::field("spec.volumeName", volume)])
}

/// A bound claim: only a resize may be pending.
fn bound<'a>(inquiry: &Inquiry<'a>, claim: &'a Item, node: Node) -> Node {
    let volume = claim.text("/spec/volumeName");
    let size = |path: &str| Quantity::of(claim.at(path)).ok();
    let (wanted, has) = (size("/spec/resources/requests/storage"), size("/status/capacity/storage"));
    let is_smaller = wanted.zip(has).is_some_and(|(wanted, has)| has.value() < wanted.value());
    let bound = format!("bound to {volume}");
    if !is_smaller {
        return node.converged(bound);
    }
    let field = Evidence::field(
        "status.capacity.storage",
        format!(
            "{}, requested {}",
            claim.text("/status/capacity/storage"),
            claim.text("/spec/resources/requests/storage")
        ),
    );
    let event = inquiry.event(claim, &["VolumeResizeFailed", "ExternalExpanding", "FileSystemResizeFailed"]);
    let node = node.evidence([field]).evidence(event.map(|event| inquiry.evidence(&event)));
    if claim.condition("FileSystemResizePending").is_some_and(|pending| pending.is_true()) {
        let text = "waits for its file system to be resized on a node (FileSystemResizePending)";
        return node.blocked(text, "start (or restart) a pod that uses it");
    }
    let failed = ["ControllerResizeError", "NodeResizeError"].iter().find_map(|kind| claim.condition(kind));
    if let Some(failed) = failed.filter(|failed| failed.is_true()) {
        return node.blocked(
            format!("cannot be resized ({}): {}", failed.kind, failed.message),
            "correct what the message names",
        );
    }
    let class = inquiry.get(&STORAGE_CLASS, None, class_of(claim)).found();
    if class.is_some_and(|class| !class.flag("/allowVolumeExpansion")) {
        let text = format!("cannot grow: StorageClass {} does not allow volume expansion", class_of(claim));
        return node.blocked(text, "set allowVolumeExpansion: true in the class");
    }
    let said = event.map(|event| format!(": {}", event.message())).unwrap_or_default();
    node.progressing(format!("is being resized{said}"))
}

fn pending<'a>(inquiry: &Inquiry<'a>, claim: &'a Item, node: Node) -> Node {
    let events = inquiry.events(claim);
    let failed = events.iter().find(|event| event.reason() == "ProvisioningFailed" && event.is_warning());
    let node = node.evidence(events.first().map(|event| inquiry.evidence(event)));
    let volume = claim.text("/spec/volumeName");
    if !volume.is_empty() {
        return named_volume(inquiry, claim, node, volume);
    }
    let class = class_of(claim);
    if class.is_empty() {
        return without_class(inquiry, claim, node);
    }
    let class = match inquiry.get(&STORAGE_CLASS, None, class) {
        Lookup::Found(class) => class,
        Lookup::Missing => return missing_class(inquiry, claim, node, class),
        Lookup::Unknown => {
            return node.unknown(format!("waits for a volume of StorageClass {class}, which cannot be read"));
        }
    };
    let is_delayed = class.text("/volumeBindingMode") == "WaitForFirstConsumer";
    if is_delayed && claim.text(SELECTED_NODE).is_empty() {
        return delayed(inquiry, claim, node);
    }
    let provisioner = class.text("/provisioner");
    if provisioner == NO_PROVISIONER {
        return no_volume(
            inquiry,
            claim,
            node,
            &format!("StorageClass {} provisions no volumes", class.name()),
        );
    }
    if let Some(event) = failed {
        let text = format!("its volume cannot be provisioned (ProvisioningFailed): {}", event.message());
        return node.blocked(text, "correct what the message names").next("the provisioner retries", None);
    }
    provisioning(inquiry, claim, node, provisioner)
}

/// Waits for the external provisioner.
fn provisioning<'a>(inquiry: &Inquiry<'a>, claim: &'a Item, node: Node, provisioner: &str) -> Node {
    let lacks_driver = inquiry.get(&CSI_DRIVER, None, provisioner).is_missing();
    let seconds = inquiry.age(claim);
    let text =
        format!("waits for a volume to be created by the provisioner {provisioner} (ExternalProvisioning)");
    if seconds < 60 && !lacks_driver {
        return node.progressing(text);
    }
    let hint = if lacks_driver { ", which has no CSIDriver in this cluster" } else { "" };
    node.blocked(
        format!("{text}{hint}"),
        format!("run the provisioner {provisioner}, or use another StorageClass"),
    )
    .next("the claim is bound as soon as the provisioner creates the volume", None)
}

fn missing_class<'a>(inquiry: &Inquiry<'a>, claim: &'a Item, node: Node, class: &str) -> Node {
    let fitting = matching(inquiry, claim);
    if !fitting.is_empty() {
        return node.progressing(format!("volume {} matches it", fitting[0].name()));
    }
    let all = inquiry.list(&STORAGE_CLASS, None);
    let known: Vec<&str> = all.iter().map(|class| class.name()).collect();
    let shown = if known.is_empty() {
        "there are none".to_owned()
    } else {
        format!("there are {}", names(&known, 5))
    };
    let text = format!("its StorageClass {class} does not exist ({shown})");
    node.blocked(text, format!("create StorageClass {class}, or recreate the claim with another class"))
        .evidence([Evidence::field("spec.storageClassName", class)])
}

fn without_class<'a>(inquiry: &Inquiry<'a>, claim: &'a Item, node: Node) -> Node {
    let classes = inquiry.snapshot.list(&STORAGE_CLASS, None);
    let is_default = |class: &&&Item| DEFAULT.iter().any(|path| class.text(path) == "true");
    let default = classes.iter().flatten().find(is_default);
    let asked_for_none = claim.at("/spec/storageClassName").is_string();
    match default {
        Some(class) if !asked_for_none => {
            node.progressing(format!("gets the default StorageClass {}", class.name()))
        }
        _ if asked_for_none => no_volume(inquiry, claim, node, "it asks for a volume without a class"),
        _ => no_volume(inquiry, claim, node, "it names no StorageClass, and none is the default"),
    }
}

/// A claim that only an existing volume can satisfy.
fn no_volume<'a>(inquiry: &Inquiry<'a>, claim: &'a Item, node: Node, why: &str) -> Node {
    let fitting = matching(inquiry, claim);
    if let Some(volume) = fitting.first() {
        return node.progressing(format!("volume {} matches it and will be bound", volume.name()));
    }
    let all = inquiry.list(&VOLUME, None);
    let closest =
        all.iter().map(|volume| (mismatches(claim, volume), *volume)).min_by_key(|(why, _)| why.len());
    let closest = match &closest {
        Some((why, volume)) => format!(
            "; the closest of {}, {}, does not match: {}",
            count(all.len(), "volume"),
            volume.name(),
            why.join(", ")
        ),
        None => "; there are no PersistentVolumes".to_owned(),
    };
    let fix = "create a PersistentVolume that matches, or use a StorageClass with a provisioner";
    node.blocked(format!("no volume matches it, and {why}{closest}"), fix)
}

fn matching<'a>(inquiry: &Inquiry<'a>, claim: &Item) -> Vec<&'a Item> {
    let all = inquiry.list(&VOLUME, None);
    all.into_iter().filter(|volume| mismatches(claim, volume).is_empty()).collect()
}

/// Returns why a volume cannot be bound to a claim.
fn mismatches(claim: &Item, volume: &Item) -> Vec<String> {
    let mut why = Vec::new();
    let (class, other) = (class_of(claim), volume.text("/spec/storageClassName"));
    if class != other {
        why.push(format!("its class is {other:?}, not {class:?}"));
    }
    let size =
        |item: &Item, path: &str| Quantity::of(item.at(path)).map(|size| size.value()).unwrap_or_default();
    if size(volume, "/spec/capacity/storage") < size(claim, "/spec/resources/requests/storage") {
        let (has, wanted) =
            (volume.text("/spec/capacity/storage"), claim.text("/spec/resources/requests/storage"));
        why.push(format!("its size is {has}, less than {wanted}"));
    }
    let modes = volume.items("/spec/accessModes");
    let lacking: Vec<&str> = claim
        .items("/spec/accessModes")
        .iter()
        .filter(|mode| !modes.contains(mode))
        .filter_map(|mode| mode.as_str())
        .collect();
    if !lacking.is_empty() {
        why.push(format!("it does not have access mode {}", lacking.join(", ")));
    }
    let mode = |item: &Item| {
        Some(item.text("/spec/volumeMode")).filter(|mode| !mode.is_empty()).unwrap_or("Filesystem").to_owned()
    };
    if mode(claim) != mode(volume) {
        why.push(format!("its volume mode is {}", mode(volume)));
    }
    if let Ok(selector) = LabelSelector::deserialize(claim.at("/spec/selector"))
        && claim.has("/spec/selector")
        && !selector.matches(&volume.object.meta().labels)
    {
        why.push("its labels do not match the claim's selector".to_owned());
    }
    let owner = (volume.text("/spec/claimRef/namespace"), volume.text("/spec/claimRef/name"));
    let is_own = owner == (claim.namespace().unwrap_or_default(), claim.name());
    if !owner.1.is_empty() && !is_own {
        why.push(format!("it belongs to claim {}/{}", owner.0, owner.1));
    }
    let phase = volume.text("/status/phase");
    if matches!(phase, "Released" | "Failed") {
        why.push(format!("it is {phase}"));
    }
    why
}

/// A claim that refers to a volume which is not bound to it.
fn named_volume<'a>(inquiry: &Inquiry<'a>, claim: &'a Item, node: Node, name: &str) -> Node {
    let volume = match inquiry.get(&VOLUME, None, name) {
        Lookup::Found(volume) => volume,
        Lookup::Missing => {
            let text = format!("its volume {name} does not exist");
            return node.blocked(
                text,
                format!("create PersistentVolume {name}, or recreate the claim without spec.volumeName"),
            );
        }
        Lookup::Unknown => return node.unknown(format!("waits for volume {name}, which cannot be read")),
    };
    let why = mismatches(claim, volume);
    match why.is_empty() {
        true => node.progressing(format!("is being bound to volume {name}")),
        false => node.blocked(
            format!("cannot be bound to its volume {name}: {}", why.join(", ")),
            "recreate the claim so that it matches, or name another volume",
        ),
    }
}

/// A claim that is bound when its first pod is scheduled.
fn delayed<'a>(inquiry: &Inquiry<'a>, claim: &'a Item, node: Node) -> Node {
    let pods = inquiry.list(&POD, claim.namespace());
    let uses = |pod: &&&'a Item| !pods::has_ended(pod) && of_pod(pod).iter().any(|name| name == claim.name());
    let users: Vec<&'a Item> = pods.iter().filter(uses).copied().collect();
    let binding = "its StorageClass binds it when a pod that uses it is scheduled (WaitForFirstConsumer)";
    if users.is_empty() {
        return node.blocked(format!("no pod uses it, and {binding}"), "create a pod that uses the claim");
    }
    let children = pods::explain_all(inquiry, &users);
    let node = node.children(children);
    match node.worst_child() {
        State::Blocked | State::Failed => {
            node.blocked(format!("{binding}, and its pod is not scheduled"), "make its pod schedulable")
        }
        _ => node.progressing(format!("waits for its pod: {binding}")),
    }
}
