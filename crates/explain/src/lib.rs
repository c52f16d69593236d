//! Explains why a Kubernetes object has not converged.
//!
//! ```text
//!  target ─► gather.rs ─► explain ─► root cause ─► render.rs
//!              ▲   fetches    │  asks the snapshot for more
//!              └──────────────┘  until nothing is missing
//!
//!  snapshot.rs   what is known of the cluster, and what else was asked for
//!  inquiry.rs    an explanation in progress: follows objects, groups equal ones, ends
//!  registry.rs   the explainers by kind: start here to find one
//!  cause.rs      the root cause in a tree
//!  model.rs      states, evidence, next steps
//!  gather.rs     fetches what an explanation asks for: the only part that awaits
//!
//!  pods/             scheduling, images, configuration, mounts, init, crashes, probes
//!  deployments.rs, replicasets.rs, statefulsets.rs, daemonsets.rs, creation.rs, jobs.rs, cronjobs.rs
//!  admission.rs      why the API server rejects an object: quota, limits, pod security, policies, webhooks
//!  quota.rs, disruption.rs, autoscaling.rs, services.rs, ingresses.rs, claims.rs, volumes.rs, devices.rs
//!  nodes.rs, namespaces.rs, leases.rs, certificates.rs, extension.rs
//!  deletion.rs       finalizers and what they wait for
//!  conditions.rs     custom resources, by their conditions and what they own
//!  applications.rs   applications and workflow runs
//!  controllers.rs    what setpoint's controllers say about an object
//! ```
//!
//! Invariants:
//! - Explaining is pure: the snapshot and the current time in, an explanation out.
//! - It is bounded: depth, number of objects, dependents per object and the length of texts.
//! - Objects that cannot be read are unknown, with the missing permission. They do not count as missing.

pub mod admission;
mod applications;
mod autoscaling;
pub mod cause;
mod certificates;
mod claims;
mod conditions;
mod controllers;
mod creation;
mod cronjobs;
mod daemonsets;
mod deletion;
mod deployments;
mod devices;
mod disruption;
mod extension;
pub mod gather;
mod ingresses;
pub mod inquiry;
mod jobs;
pub mod kinds;
mod leases;
pub mod model;
mod namespaces;
mod nodes;
mod pods;
mod quota;
pub mod read;
pub mod registry;
pub mod render;
mod replicasets;
mod services;
pub mod snapshot;
mod statefulsets;
pub mod text;
mod volumes;

use jiff::Timestamp;

use inquiry::Inquiry;
use kinds::GroupKind;
use model::{Explanation, Node, ObjectRef};
use snapshot::{Lookup, Snapshot};

/// Explains an object with the known data. The snapshot records the data that is missing.
pub fn explain(snapshot: &Snapshot, target: &ObjectRef, now: Timestamp) -> Explanation {
    snapshot.begin();
    let inquiry = Inquiry::new(snapshot, now);
    let namespace = target.namespace.as_deref();
    let mut found = true;
    let root = match inquiry.get(&target.kind, namespace, &target.name) {
        Lookup::Found(item) => inquiry.explain(item),
        Lookup::Missing => {
            found = false;
            missing(&inquiry, target)
        }
        Lookup::Unknown => {
            found = false;
            Node::new(target.clone()).unknown("it could not be read")
        }
    };
    explained(root, found, snapshot.denied())
}

fn explained(root: Node, found: bool, unknown: Vec<String>) -> Explanation {
    let cause = cause::find(&root);
    let headline = cause::headline(&root, cause.as_ref());
    Explanation { state: root.state, cause, headline, found, root, unknown }
}

/// Explains an object that does not exist.
fn missing(inquiry: &Inquiry<'_>, target: &ObjectRef) -> Node {
    let node = Node::new(target.clone());
    let missing_namespace = target
        .namespace
        .as_deref()
        .filter(|namespace| inquiry.get(&kinds::NAMESPACE, None, namespace).is_missing());
    match missing_namespace {
        Some(namespace) => node.failed(
            format!("the namespace {namespace} does not exist"),
            "create it, or choose another with -n",
        ),
        None => node.failed("it does not exist", closest(inquiry, target)),
    }
}

/// Suggests objects with a similar name.
fn closest(inquiry: &Inquiry<'_>, target: &ObjectRef) -> String {
    let all = inquiry.list(&target.kind, target.namespace.as_deref());
    let start: String = target.name.chars().take(4).collect();
    let similar: Vec<&str> =
        all.iter().map(|item| item.name()).filter(|name| name.starts_with(&start)).collect();
    match similar.is_empty() {
        true => "create it, or check the name and the namespace".to_owned(),
        false => format!("did you mean {}?", text::names(&similar, 3)),
    }
}

/// Returns the kind that a reference names.
pub fn kind_of(api_version: &str, kind: &str) -> GroupKind {
    GroupKind::of_reference(api_version, kind)
}
