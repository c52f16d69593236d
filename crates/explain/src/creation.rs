//! Workloads whose pods cannot be created, and controllers that do not react.

use crate::admission;
use crate::inquiry::{Inquiry, behind};
use crate::kinds::LEASE;
use crate::leases;
use crate::model::{Evidence, Node};
use crate::read::Read;
use crate::snapshot::Item;
use crate::text::duration;

/// How long a controller may take to react.
pub(crate) const MOMENT: i64 = 30;

/// Explains why pods or other dependents of an object cannot be created. `None` if there is no sign of that.
pub(crate) fn failed<'a>(inquiry: &Inquiry<'a>, item: &'a Item, node: &Node) -> Option<Node> {
    let condition = item.condition("ReplicaFailure").filter(|condition| condition.is_true());
    let event = inquiry.event(item, &["FailedCreate", "FailedCreatePod"]);
    let message = match (condition, &event) {
        (Some(condition), _) => condition.message,
        (None, Some(event)) => event.message(),
        (None, None) => return None,
    };
    let (text, fix, children) = admission::explain(inquiry, item.namespace(), message);
    let evidence = event.map(|event| inquiry.evidence(&event));
    Some(
        node.clone()
            .blocked(format!("cannot create its pods (FailedCreate): {text}"), fix)
            .evidence(condition.map(|condition| condition.evidence()))
            .evidence(evidence)
            .next("the controller retries with a backoff of at most 17 minutes", None)
            .children(children),
    )
}

/// Explains an object that its controller has not reconciled. `None` if it has.
pub(crate) fn not_seen<'a>(inquiry: &Inquiry<'a>, item: &'a Item, node: &Node) -> Option<Node> {
    let behind = behind(item);
    let untouched = !item.has("/status/observedGeneration");
    if behind.is_none() && !untouched {
        return None;
    }
    let evidence = behind.map(|(observed, generation)| {
        Evidence::field(
            "status.observedGeneration",
            format!("{observed}, metadata.generation is {generation}"),
        )
    });
    let node = node.clone().evidence(evidence);
    let what = match behind {
        Some(_) => "its controller has not seen the latest change",
        None => "its controller has not reconciled it",
    };
    if let Some(down) = leases::component_down(inquiry, "kube-controller-manager") {
        let lease = inquiry.explain_named(&LEASE, Some("kube-system"), "kube-controller-manager");
        let text = format!("{what}: {down}");
        return Some(node.blocked(text, "start kube-controller-manager").children(lease));
    }
    let age = inquiry.age_of_spec(item);
    Some(match age > MOMENT {
        false => node.progressing(what),
        true => node.blocked(
            format!("{what} for {}", duration(age)),
            "check that kube-controller-manager runs, and that this controller is enabled",
        ),
    })
}
