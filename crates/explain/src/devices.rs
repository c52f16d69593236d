//! ResourceClaims: missing device classes, claims without an allocation.

use crate::inquiry::{Inquiry, node_of};
use crate::kinds::{DEVICE_CLASS, DEVICE_SLICE, POD};
use crate::model::Node;
use crate::pods;
use crate::read::Read;
use crate::snapshot::Item;
use crate::text::count;

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, claim: &'a Item) -> Node {
    let node = node_of(claim);
    if claim.has("/status/allocation") {
        let users = claim.items("/status/reservedFor").len();
        return node.converged(format!("allocated, reserved for {}", count(users, "pod")));
    }
    for request in claim.items("/spec/devices/requests") {
        let exact = [request.text("/exactly/deviceClassName"), request.text("/deviceClassName")];
        let alternatives = request.items("/firstAvailable").iter().map(|one| one.text("/deviceClassName"));
        let classes: Vec<&str> =
            exact.into_iter().chain(alternatives).filter(|name| !name.is_empty()).collect();
        let missing = classes.iter().find(|class| inquiry.get(&DEVICE_CLASS, None, class).is_missing());
        if let Some(class) = missing {
            let text = format!("its DeviceClass {class} does not exist (request {})", request.text("/name"));
            return node.blocked(
                text,
                format!("create DeviceClass {class}, or install the driver that provides it"),
            );
        }
    }
    let slices = inquiry.snapshot.list(&DEVICE_SLICE, None);
    if slices.as_ref().is_some_and(Vec::is_empty) {
        let text = "is not allocated: no driver publishes devices (there are no ResourceSlices)";
        return node.blocked(text, "install a DRA driver on the nodes");
    }
    let pods = inquiry.list(&POD, claim.namespace());
    let uses = |pod: &&&Item| {
        if !pod.object.contains_text("esourceClaim") {
            return false;
        }
        let named = pod.items("/spec/resourceClaims").iter().map(|one| one.text("/resourceClaimName"));
        let made =
            pod.items("/status/resourceClaimStatuses").iter().map(|one| one.text("/resourceClaimName"));
        named.chain(made).any(|name| name == claim.name())
    };
    let users: Vec<&'a Item> = pods.iter().filter(uses).copied().collect();
    match users.is_empty() {
        true => node.progressing("is not allocated: no pod uses it yet"),
        false => {
            let text = "is not allocated: no node has enough free devices that match it";
            node.blocked(text, "add devices, free some, or change the selectors of the claim")
                .children(pods::explain_all(inquiry, &users))
        }
    }
}
