//! Leases: a component that no longer renews its lease is down.

use jiff::{SignedDuration, Timestamp};

use crate::inquiry::{Inquiry, node_of};
use crate::kinds::LEASE;
use crate::model::{Evidence, Node};
use crate::read::Read;
use crate::snapshot::Item;

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, lease: &'a Item) -> Node {
    let holder = lease.text("/spec/holderIdentity");
    let node = node_of(lease).evidence([
        Evidence::field("spec.holderIdentity", holder),
        Evidence::field("spec.renewTime", lease.text("/spec/renewTime")),
    ]);
    match down(inquiry, lease) {
        Some(why) if lease.namespace() == Some("kube-node-lease") => {
            node.blocked(format!("{why}: the kubelet of node {} is down", lease.name()), "start the kubelet")
        }
        Some(why) => {
            let fix = format!("start {}, which takes the lease when it runs", lease.name());
            node.blocked(format!("{why}: the component {} is down", lease.name()), fix)
        }
        None => node.converged(format!("held by {holder}")),
    }
}

/// Returns when a lease was renewed.
pub(crate) fn renewed(lease: &Item) -> Option<Timestamp> {
    lease.time("/spec/renewTime")
}

/// Explains why a lease has no holder. `None` if it has one.
fn down(inquiry: &Inquiry<'_>, lease: &Item) -> Option<String> {
    let holder = lease.text("/spec/holderIdentity");
    if holder.is_empty() {
        return Some(format!("lease {} has no holder", lease.name()));
    }
    let Some(renewed) = renewed(lease) else {
        return Some(format!("lease {} was never renewed", lease.name()));
    };
    let seconds = lease.number("/spec/leaseDurationSeconds").unwrap_or(15).max(1);
    let end = renewed.checked_add(SignedDuration::from_secs(seconds)).ok()?;
    (end < inquiry.now).then(|| {
        format!(
            "lease {} has expired: {holder} last renewed it {} ago",
            lease.name(),
            inquiry.since(Some(renewed))
        )
    })
}

/// Returns why a control plane component is known to be down. `None` if it is up, or if that is unknown.
pub(crate) fn component_down(inquiry: &Inquiry<'_>, component: &str) -> Option<String> {
    let lease = inquiry.get(&LEASE, Some("kube-system"), component).found()?;
    down(inquiry, lease)
}
