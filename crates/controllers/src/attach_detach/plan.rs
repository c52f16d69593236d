//! Plans where to attach and detach a volume. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use setpoint::Cached;
use setpoint_volume::PodVolumes;

use super::disk::Disk;
use super::observe::{Site, Sites};

/// An unhealthy node gets this long to unmount a volume.
const UNMOUNT_WITHIN: Duration = Duration::from_secs(6 * 60);

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Nodes to attach to.
    pub(super) attach: Vec<Box<str>>,
    /// Nodes to detach from, with the reason if the detach is forced.
    pub(super) detach: Vec<(Box<str>, Option<&'static str>)>,
    /// Nodes that wait for another node to detach.
    pub(super) blocked: BTreeSet<Box<str>>,
    /// Nodes the volume should be detached from.
    pub(super) pending_detach: BTreeSet<Box<str>>,
    /// When to check again if nothing changes.
    pub(super) recheck_after: Option<Duration>,
}

/// Plans attaches and detaches. `since` returns when a detach became pending; `by_force` allows forced detaches after a
/// timeout.
pub(super) fn plan(
    disk: &Disk,
    sites: &Sites,
    mut since: impl FnMut(&str) -> Timestamp,
    by_force: bool,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    let name = disk.csi.unique_name();
    for (node, site) in sites {
        let attached = site.attachment.as_ref().filter(|_| site.pods.is_empty());
        let Some(attachment) = attached else { continue };
        plan.pending_detach.insert(node.clone());
        if attachment.meta().is_being_deleted() {
            continue;
        }
        match may_detach(site, &name, since(node), by_force, now) {
            DetachTime::Now { force } => plan.detach.push((node.clone(), force)),
            DetachTime::After(time) => {
                plan.recheck_after = Some(plan.recheck_after.map_or(time, |least| least.min(time)))
            }
        }
    }
    let mut holders = sites.values().filter(|site| site.attachment.is_some()).count();
    for (node, _) in sites.iter().filter(|(_, site)| site.attachment.is_none()) {
        if holders > 0 && !disk.can_be_shared {
            plan.blocked.insert(node.clone());
        } else {
            plan.attach.push(node.clone());
            holders += 1;
        }
    }
    plan
}

/// When a volume may be detached from a node.
pub(super) enum DetachTime {
    Now { force: Option<&'static str> },
    After(Duration),
}

pub(super) fn may_detach(
    site: &Site,
    volume: &str,
    since: Timestamp,
    by_force: bool,
    now: Timestamp,
) -> DetachTime {
    // Assume that a missing node still uses the volume.
    let (uses, healthy, out_of_service) = match &site.node {
        Some(node) => (node.uses(volume), node.is_healthy(), node.is_out_of_service()),
        None => (true, false, false),
    };
    let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let too_long = by_force && waited > UNMOUNT_WITHIN;
    if uses && !out_of_service && (healthy || !too_long) {
        // A healthy node reports when it has unmounted the volume.
        let left = UNMOUNT_WITHIN.saturating_sub(waited) + Duration::from_secs(1);
        return DetachTime::After(left);
    }
    let force = match (too_long, out_of_service) {
        (true, _) => Some("timeout"),
        (false, true) => Some("out-of-service"),
        (false, false) => None,
    };
    DetachTime::Now { force }
}

/// Builds the Multi-Attach message for a pod whose node waits for another node to detach.
pub(super) fn blocked_message(volume: &str, pod: &Cached<PodVolumes>, node: &str, sites: &Sites) -> String {
    let others = sites.iter().filter(|(other, site)| &***other != node && site.attachment.is_some());
    let users: Vec<&Cached<PodVolumes>> = others.flat_map(|(_, site)| &site.pods).collect();
    let near = users.iter().filter(|user| user.key().namespace() == pod.key().namespace());
    let near: Vec<&str> = near.map(|user| user.key().name()).collect();
    let far = users.len() - near.len();
    let why = match (near.is_empty(), far) {
        (true, 0) => {
            "Volume is already exclusively attached to one node and can't be attached to another".into()
        }
        (true, far) => format!("Volume is already used by {far} pod(s) in different namespaces"),
        (false, 0) => format!("Volume is already used by pod(s) {}", near.join(", ")),
        (false, far) => {
            format!(
                "Volume is already used by pod(s) {} and {far} pod(s) in different namespaces",
                near.join(", ")
            )
        }
    };
    format!("Multi-Attach error for volume {volume:?} {why}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workload::fixtures::{at, cached};

    const NAME: &str = "kubernetes.io/csi/d^h";

    fn disk(modes: &[&str]) -> Disk {
        let csi = json!({"driver": "d", "volumeHandle": "h"});
        let spec = json!({"csi": csi, "accessModes": modes});
        Disk::of_volume(&cached(json!({"metadata": {"name": "v"}, "spec": spec}))).expect("of a driver")
    }

    fn site(wanted: bool, attached: Option<Value>, node: Option<(bool, bool, bool)>) -> Site {
        let pod = || cached(json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": {"nodeName": "n"}}));
        Site {
            pods: wanted.then(pod).into_iter().collect(),
            attachment: attached
                .map(|metadata| cached(json!({"metadata": metadata, "spec": {"nodeName": "n"}}))),
            node: node.map(|(in_use, ready, out)| {
                let taints =
                    if out { json!([{"key": "node.kubernetes.io/out-of-service"}]) } else { json!([]) };
                let used = if in_use { json!([NAME]) } else { json!([]) };
                let conditions = json!([{"type": "Ready", "status": if ready { "True" } else { "Unknown" }}]);
                cached(json!({"metadata": {"name": "n"}, "spec": {"taints": taints},
                    "status": {"volumesInUse": used, "conditions": conditions}}))
            }),
        }
    }

    fn there() -> Option<Value> {
        Some(json!({"name": "va"}))
    }

    #[track_caller]
    fn check(modes: &[&str], sites: &[Site], waited: i64, attach: &[&str], detach: &[(&str, bool)]) -> Plan {
        let names = ["a", "b", "c"];
        let sites: Sites =
            names.iter().zip(sites).map(|(name, site)| ((*name).into(), site.clone())).collect();
        let plan = plan(&disk(modes), &sites, |_| at(0), true, at(waited));
        assert_eq!(plan.attach, attach.iter().map(|node| Box::from(*node)).collect::<Vec<_>>());
        let asked = plan.detach.iter().map(|(node, force)| (&**node, force.is_none())).collect::<Vec<_>>();
        assert_eq!(asked, detach);
        plan
    }

    #[test]
    fn a_volume_is_attached_where_it_is_wanted() {
        let fine = Some((false, true, false));
        check(&["ReadWriteOnce"], &[site(true, None, fine)], 0, &["a"], &[]);
        check(&["ReadWriteOnce"], &[site(true, there(), fine)], 0, &[], &[]);
        check(&["ReadWriteOnce"], &[site(true, None, fine), site(true, None, fine)], 0, &["a"], &[]);
        check(&["ReadWriteMany"], &[site(true, None, fine), site(true, None, fine)], 0, &["a", "b"], &[]);
        let plan =
            check(&["ReadWriteOnce"], &[site(true, there(), fine), site(true, None, fine)], 0, &[], &[]);
        assert_eq!(plan.blocked, [Box::from("b")].into());
    }

    #[test]
    fn a_volume_is_detached_once_the_node_has_unmounted_it() {
        let once = &["ReadWriteOnce"][..];
        check(once, &[site(false, there(), Some((false, true, false)))], 0, &[], &[("a", true)]);
        let waits = check(once, &[site(false, there(), Some((true, true, false)))], 0, &[], &[]);
        assert_eq!(waits.recheck_after, Some(Duration::from_secs(361)));
        check(once, &[site(false, there(), Some((true, true, false)))], 1000, &[], &[]);
        check(once, &[site(false, there(), Some((true, false, false)))], 300, &[], &[]);
        check(once, &[site(false, there(), Some((true, false, false)))], 361, &[], &[("a", false)]);
        check(once, &[site(false, there(), Some((true, false, true)))], 0, &[], &[("a", false)]);
        check(once, &[site(false, there(), None)], 300, &[], &[]);
        check(once, &[site(false, there(), None)], 361, &[], &[("a", false)]);
        let going = Some(json!({"name": "va", "deletionTimestamp": "2025-01-01T00:00:00Z"}));
        check(once, &[site(false, going, Some((false, true, false)))], 0, &[], &[]);
    }

    #[test]
    fn a_second_node_waits_for_the_first_to_release_the_volume() {
        let fine = Some((false, true, false));
        let unwanted = site(false, there(), fine);
        check(&["ReadWriteOnce"], &[unwanted.clone(), site(true, None, fine)], 0, &[], &[("a", true)]);
        check(&["ReadOnlyMany"], &[unwanted, site(true, None, fine)], 0, &["b"], &[("a", true)]);
    }

    #[test]
    fn multi_attach_errors_name_the_users_of_the_volume() {
        let fine = Some((false, true, false));
        let pod = &site(true, None, fine).pods[0];
        let check = |other: Site, expected: &str| {
            let sites: Sites = [("a".into(), other), ("b".into(), site(true, None, fine))].into();
            let message = blocked_message("v", pod, "b", &sites);
            assert_eq!(message, format!("Multi-Attach error for volume \"v\" {expected}"));
        };
        check(site(true, there(), fine), "Volume is already used by pod(s) p");
        let alone = "Volume is already exclusively attached to one node and can't be attached to another";
        check(site(false, there(), fine), alone);
        let mut far = site(true, there(), fine);
        far.pods = vec![cached(json!({"metadata": {"name": "q", "namespace": "other"}}))];
        check(far, "Volume is already used by 1 pod(s) in different namespaces");
    }
}
