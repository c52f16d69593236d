//! The state of an object in setpoint's controllers: whether it is queued, its retries, and its last error.

use serde_json::Value;

use crate::inquiry::Inquiry;
use crate::model::{Evidence, Node, Source, State};
use crate::read::Read;
use crate::snapshot::Item;

/// How many controllers are shown for one object.
const SHOWN: usize = 4;

/// Adds the controllers' state for an object that has not converged.
pub(crate) fn add<'a>(inquiry: &Inquiry<'a>, item: &'a Item, node: Node) -> Node {
    if node.state == State::Converged {
        return node;
    }
    let Some(answer) = inquiry.snapshot.queues(item) else { return node };
    let busy = answer.items("/controllers").iter().filter(|state| is_telling(state)).take(SHOWN);
    let busy: Vec<&Value> = busy.collect();
    let node = node.evidence(busy.iter().map(|state| evidence(state)));
    busy.iter().fold(node, |node, state| match state.time("/nextAttempt") {
        Some(at) => node.next(format!("controller {} tries again", state.text("/controller")), Some(at)),
        None => node,
    })
}

/// Whether a controller has more to report than a success.
fn is_telling(state: &Value) -> bool {
    state.flag("/queued") || state.flag("/processing") || state.has("/lastError") || state.has("/nextAttempt")
}

fn evidence(state: &Value) -> Evidence {
    let mut parts = Vec::new();
    if state.flag("/processing") {
        parts.push("is being reconciled".to_owned());
    }
    if state.flag("/queued") {
        let ahead =
            state.number("/position").map(|ahead| format!(", {ahead} ahead of it")).unwrap_or_default();
        parts.push(format!("queued{ahead}"));
    }
    let retries = state.count("/retries");
    if retries > 0 {
        parts.push(format!("retry {retries}"));
    }
    if state.has("/lastError") {
        parts.push(format!("last error: {}", state.text("/lastError")));
    }
    if state.has("/trigger") {
        parts.push(format!("triggered by {}", state.text("/trigger")));
    }
    let name = format!("controller {}", state.text("/controller"));
    Evidence::new(Source::Controller, &name, &parts.join(", "), state.time("/lastAttempt"))
}
