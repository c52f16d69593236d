//! Node TTL: sets how long nodes may cache Secrets and ConfigMaps; longer in larger clusters.
//!
//! Owns: the annotation `node.alpha.kubernetes.io/ttl` of Nodes.
//! Watches: Nodes.
//! Writes: Nodes (patch).
//!
//! Invariants: the TTL follows the number of nodes in overlapping steps, so that a cluster at the edge of a step does
//! not flap.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use setpoint::client::{Optional, Patch, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{Client, Context, Event, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Runnable};

use crate::registry::{Access, Entry, Options};
use crate::wiring;
use crate::workload::encoding::Annotated;

pub(crate) const ENTRY: Entry = Entry {
    name: "ttl-controller",
    aliases: &["ttl"],
    on_by_default: true,
    gates: &[],
    summary: "sets how long nodes may cache Secrets and ConfigMaps",
    watches: &[Access::watch("", "nodes")],
    writes: &[Access::to("", "nodes", &["patch"])],
    default_workers: 5,
    build,
};

const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// The minimum and maximum number of nodes of each step, and its TTL in seconds.
const STEPS: [(usize, usize, u32); 5] =
    [(0, 100, 0), (90, 500, 15), (450, 1000, 30), (900, 2000, 60), (1800, usize::MAX, 300)];

#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct Node {
    metadata: Annotated,
}

setpoint::view!(Node of k8s_openapi::api::core::v1::Node);

/// The cluster's current step.
#[derive(Debug, Default)]
struct Step(usize);

impl Step {
    /// Updates the step for a number of nodes. Returns whether it changed.
    fn follow(&mut self, nodes: usize) -> bool {
        let before = self.0;
        while nodes > STEPS[self.0].1 {
            self.0 += 1;
        }
        while nodes < STEPS[self.0].0 {
            self.0 -= 1;
        }
        self.0 != before
    }

    fn seconds(&self) -> u32 {
        STEPS[self.0].2
    }
}

struct TtlAnnotator {
    client: Client,
    nodes: Lister<Node>,
    step: Arc<Mutex<Step>>,
}

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let nodes = context.informers.of::<Node>();
    let queue = wiring::queue(context, "ttlcontroller");
    let step = Arc::new(Mutex::new(Step::default()));
    let (changed, followed, all) = (queue.clone(), step.clone(), nodes.objects().clone());
    nodes.add_handler(move |event: &Event| {
        if followed.lock().follow(all.len()) {
            all.list(None).into_iter().for_each(|node| changed.add(node.key().clone()));
        }
        changed.add(event.object().key().clone());
    });
    let annotator = TtlAnnotator { client: context.client.clone(), nodes: nodes.lister(), step };
    let controller = wiring::controller(&ENTRY, options, queue, annotator, [&nodes]);
    vec![Box::new(controller)]
}

impl Reconciler for TtlAnnotator {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(node) = self.nodes.get(key)? else { return Ok(Outcome::Settled) };
        let wanted = self.step.lock().seconds();
        if annotated(&node.metadata.annotations) == Some(wanted) {
            return Ok(Outcome::Settled);
        }
        let annotations = json!({ANNOTATION: wanted.to_string()});
        let patch = json!({"metadata": {"uid": node.meta().uid, "annotations": annotations}});
        let patched =
            self.client.patch(&Kind::of::<Node>(), key, Subresource::None, Patch::strategic(&patch)).await;
        patched.optional().attempting(format!("annotate node {key}")).map(|_| Outcome::Settled)
    }
}

fn annotated(annotations: &BTreeMap<String, String>) -> Option<u32> {
    annotations.get(ANNOTATION)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_overlap() {
        let mut step = Step::default();
        let mut seconds = |nodes: usize| {
            step.follow(nodes);
            step.seconds()
        };
        let sizes = [1, 100, 101, 90, 89, 101, 500, 501, 450, 449, 5000, 1800, 1799, 0];
        let expected = [0, 0, 15, 15, 0, 15, 15, 30, 30, 15, 300, 300, 60, 0];
        assert_eq!(sizes.map(&mut seconds), expected);
    }
}
