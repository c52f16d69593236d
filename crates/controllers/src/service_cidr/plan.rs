//! Plans what to do about a ServiceCIDR. Pure.

use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use setpoint::{Cached, Key, Metadata, Object};

use super::{Condition, Ranges, ServiceCidr};

pub(super) const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";

const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const ALLOCATOR: &str = "ipallocator.k8s.io";

/// Time for API servers to notice that a ServiceCIDR is being deleted.
const GRACE: SignedDuration = SignedDuration::from_secs(10);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Protect it.
    AddFinalizer,
    /// Set the Ready condition.
    SetCondition(Condition),
    /// Release it.
    RemoveFinalizer,
    /// Release it after this time.
    Wait(std::time::Duration),
}

/// Returns the address of an IPAddress, if it belongs to a Service.
pub(super) fn address_of(address: &Object) -> Option<IpAddr> {
    is_allocated(address.meta()).then(|| address.meta().name.parse().ok()).flatten()
}

fn is_allocated(meta: &Metadata) -> bool {
    meta.label(MANAGED_BY) == Some(ALLOCATOR)
}

pub(super) fn plan(
    range: &Cached<ServiceCidr>,
    ranges: &Ranges,
    allocated: &[IpAddr],
    now: Timestamp,
) -> Vec<Action> {
    let Some(deleted) = range.meta().deletion_timestamp else {
        let hold = (!range.meta().has_finalizer(FINALIZER)).then_some(Action::AddFinalizer);
        let condition = ready(range, "True", "", "Kubernetes Service CIDR is ready");
        return hold.into_iter().chain(condition).collect();
    };
    if !can_be_deleted(range, ranges, allocated) {
        let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
        return ready(range, "False", "Terminating", message).into_iter().collect();
    }
    match std::time::Duration::try_from(GRACE - now.duration_since(deleted)) {
        Ok(left) if !left.is_zero() => vec![Action::Wait(left)],
        _ if range.meta().has_finalizer(FINALIZER) => vec![Action::RemoveFinalizer],
        _ => Vec::new(),
    }
}

/// Whether every address in use is covered by another ServiceCIDR.
fn can_be_deleted(range: &Cached<ServiceCidr>, ranges: &Ranges, allocated: &[IpAddr]) -> bool {
    let others = || ranges.iter().filter(|(key, _): &(&Key, _)| *key != range.key()).flat_map(|(_, all)| all);
    let covered = |prefix: super::Prefix| others().any(|other| other.covers(&prefix));
    if range.prefixes().all(covered) {
        return true;
    }
    let needs = |address: &IpAddr| {
        let own =
            range.prefixes().any(|prefix| prefix.is_v4() == address.is_ipv4() && prefix.can_give(*address));
        own && !others().any(|other| other.can_give(*address))
    };
    !allocated.iter().any(needs)
}

/// Returns the Ready condition, if it is not set yet.
fn ready(range: &ServiceCidr, status: &str, reason: &str, message: &str) -> Option<Action> {
    let wanted = Condition {
        r#type: "Ready".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    (!range.status.conditions.contains(&wanted)).then_some(Action::SetCondition(wanted))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workload::fixtures::{at, cached};

    fn range(name: &str, cidrs: &[&str], deleted: Option<i64>, conditions: Value) -> Cached<ServiceCidr> {
        let finalizers = if deleted.is_some() { json!([FINALIZER]) } else { json!([]) };
        let metadata = json!({"name": name, "deletionTimestamp": deleted.map(at), "finalizers": finalizers});
        cached(json!({"metadata": metadata, "spec": {"cidrs": cidrs}, "status": {"conditions": conditions}}))
    }

    #[track_caller]
    fn check(
        range: &Cached<ServiceCidr>,
        others: &[Cached<ServiceCidr>],
        allocated: &[&str],
        expected: &[&str],
    ) {
        let all: Vec<_> = others.iter().cloned().chain([range.clone()]).collect();
        let allocated: Vec<IpAddr> = allocated.iter().map(|text| text.parse().expect("an address")).collect();
        let words =
            plan(range, &super::super::ranges(&all), &allocated, at(15)).into_iter().map(
                |action| match action {
                    Action::SetCondition(condition) => {
                        format!("set {} {}", condition.status, condition.reason).trim().to_owned()
                    }
                    Action::Wait(time) => format!("wait {}", time.as_secs()),
                    other => format!("{other:?}"),
                },
            );
        assert_eq!(words.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_range_gets_a_finalizer_and_becomes_ready() {
        check(&range("a", &["10.0.0.0/24"], None, json!([])), &[], &[], &["AddFinalizer", "set True"]);
        let ready =
            json!([{"type": "Ready", "status": "True", "message": "Kubernetes Service CIDR is ready"}]);
        check(&range("a", &["10.0.0.0/24"], None, ready), &[], &[], &["AddFinalizer"]);
    }

    #[test]
    fn a_range_is_deleted_when_no_address_needs_it() {
        let going = range("a", &["10.0.0.0/24", "fd00::/64"], Some(0), json!([]));
        let just_now = range("a", &["10.0.0.0/24"], Some(10), json!([]));
        check(&going, &[], &[], &["RemoveFinalizer"]);
        check(&just_now, &[], &[], &["wait 5"]);
        check(&going, &[], &["10.0.0.7"], &["set False Terminating"]);
        check(&going, &[], &["fd00::7"], &["set False Terminating"]);
        check(&going, &[], &["10.0.1.7"], &["RemoveFinalizer"]);
        let other = range("b", &["10.0.0.0/16"], None, json!([]));
        check(&going, std::slice::from_ref(&other), &["10.0.0.7"], &["RemoveFinalizer"]);
        check(&going, &[other], &["fd00::7"], &["set False Terminating"]);
    }
}
