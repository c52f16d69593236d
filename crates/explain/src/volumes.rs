//! PersistentVolumes and VolumeAttachments.

use crate::inquiry::{Inquiry, node_of};
use crate::kinds::{CLAIM, CSI_DRIVER, CSI_NODE};
use crate::model::{Evidence, Node};
use crate::read::Read;
use crate::snapshot::Item;

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, volume: &'a Item) -> Node {
    let node = node_of(volume);
    let (namespace, name) = (volume.text("/spec/claimRef/namespace"), volume.text("/spec/claimRef/name"));
    let claim = format!("{namespace}/{name}");
    let policy = volume.text("/spec/persistentVolumeReclaimPolicy");
    let message = volume.text("/status/message");
    match volume.text("/status/phase") {
        "Bound" => node.converged(format!("bound to {claim}")),
        "Available" if name.is_empty() => node.converged("available"),
        "Released" if policy == "Delete" => {
            let event = inquiry.event(volume, &["VolumeFailedDelete"]);
            let said = event.map(|event| format!(": {}", event.message())).unwrap_or_default();
            let text = format!("is released by {claim} and waits to be deleted by its provisioner{said}");
            node.blocked(text, "check that the provisioner runs")
                .evidence(event.map(|event| inquiry.evidence(&event)))
        }
        "Released" => {
            let text = format!(
                "is released: its claim {claim} was deleted, and no other claim gets it (reclaim policy {policy})"
            );
            let fix = "remove spec.claimRef to make it available again, or delete it";
            node.blocked(text, fix).evidence([Evidence::field("spec.claimRef", claim)])
        }
        "Failed" => {
            node.failed(format!("could not be reclaimed: {message}"), "delete it, and the storage behind it")
        }
        _ => {
            let found = inquiry.get(&CLAIM, Some(namespace), name);
            match found.is_missing() && !name.is_empty() {
                true => node.blocked(
                    format!("is reserved for claim {claim}, which does not exist"),
                    "create the claim, or remove spec.claimRef",
                ),
                false => node
                    .progressing(format!("waits to be bound to {claim}"))
                    .children(found.found().map(|claim| inquiry.explain(claim))),
            }
        }
    }
}

pub(crate) fn explain_attachment<'a>(inquiry: &Inquiry<'a>, attachment: &'a Item) -> Node {
    let node = node_of(attachment);
    let (driver, host) = (attachment.text("/spec/attacher"), attachment.text("/spec/nodeName"));
    for (path, what) in [("/status/attachError", "attached to"), ("/status/detachError", "detached from")] {
        if attachment.has(path) {
            let message = attachment.at(path).text("/message");
            let text = format!("its volume cannot be {what} node {host}: {message}");
            let at = attachment.at(path).time("/time");
            let evidence = Evidence::new(crate::model::Source::Field, path, message, at);
            return node
                .blocked(text, format!("fix the problem that the driver {driver} reports"))
                .evidence([evidence]);
        }
    }
    if attachment.flag("/status/attached") {
        return node.converged(format!("attached to node {host}"));
    }
    if inquiry.get(&CSI_DRIVER, None, driver).is_missing() {
        return node.blocked(
            format!("its driver {driver} is not installed"),
            format!("install the CSI driver {driver}"),
        );
    }
    let on_node = inquiry.get(&CSI_NODE, None, host).found();
    let lacks = on_node
        .is_some_and(|node| !node.items("/spec/drivers").iter().any(|one| one.text("/name") == driver));
    match lacks {
        true => node.blocked(
            format!("the driver {driver} is not registered on node {host}"),
            "check the driver's pod on that node",
        ),
        false => node.progressing(format!("is being attached to node {host} by {driver}")),
    }
}
