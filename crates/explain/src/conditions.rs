//! Kinds without an explainer, mostly custom resources: explained by their conditions, events and dependents.
//!
//! Follows the conventions of the ecosystem: `Ready`, `Available`, `Synced` and the like are good if true, `Stalled`,
//! `Degraded` and the like are bad if true, `Reconciling` and `Progressing` mean work in progress.

use crate::inquiry::{Inquiry, behind, node_of};
use crate::kinds::*;
use crate::model::{Evidence, Node, State};
use crate::pods;
use crate::read::{Condition, Read};
use crate::snapshot::{Event, Item};
use crate::text::duration;

/// Conditions that are bad if they are true.
const BAD: [&str; 12] = [
    "Stalled",
    "Degraded",
    "Failed",
    "Error",
    "Failure",
    "ReconcileError",
    "Unhealthy",
    "Suspended",
    "Paused",
    "Blocked",
    "Conflict",
    "Invalid",
];
/// Conditions that must be true, regardless of summary conditions: those of CompositeControllers whose hooks fail.
const REQUIRED: [&str; 1] = ["HooksWorking"];
/// Conditions that mean work in progress if they are true.
const GOING_ON: [&str; 6] = ["Reconciling", "Progressing", "Updating", "Issuing", "Upgrading", "Deploying"];
/// Summary conditions, the most informative first.
const SUMMARY: [&str; 8] =
    ["Ready", "Available", "Healthy", "Succeeded", "Synced", "Reconciled", "Established", "Accepted"];

/// Words in a phase that mean failed, done, and in progress.
const FAILED: [&str; 4] = ["fail", "error", "degraded", "unhealthy"];
const DONE: [&str; 14] = [
    "ready",
    "running",
    "active",
    "bound",
    "available",
    "succeeded",
    "complete",
    "completed",
    "healthy",
    "established",
    "deployed",
    "synced",
    "approved",
    "issued",
];

/// How long a controller may take to react.
const MOMENT: i64 = 60;
/// A failing controller retries and reports its error again within this time.
const RECENT: i64 = 1200;
/// A controller whose work takes longer than this is stuck.
const LONG: i64 = 300;

/// Kinds that controllers of custom resources usually create.
const OWNED: [GroupKind; 7] = [DEPLOYMENT, STATEFUL_SET, DAEMON_SET, JOB, REPLICA_SET, CLAIM, SERVICE];

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, item: &'a Item) -> Node {
    let conditions = all(item);
    let node =
        node_of(item).evidence(conditions.iter().filter(|one| !is_good(one)).map(|one| one.evidence()));
    let node = with_events(inquiry, item, node);
    if let Some(field) = suspended(item) {
        let fix = format!("resume it: set {field} to false");
        return node
            .blocked(format!("is suspended ({field} is true)"), fix)
            .root()
            .evidence([Evidence::field(field, true)]);
    }
    if let Some((observed, generation)) = behind(item) {
        let field = Evidence::field(
            "status.observedGeneration",
            format!("{observed}, metadata.generation is {generation}"),
        );
        let text = format!(
            "its controller has not observed the latest change (observedGeneration {observed}, generation {generation})"
        );
        return not_reported(inquiry, item, node.evidence([field]), &text);
    }
    let children = owned(inquiry, item);
    if !conditions.is_empty() {
        return by_conditions(inquiry, item, node.children(children), &conditions);
    }
    if let Some(node) = by_phase(item, node.clone()) {
        return node.children(children);
    }
    without_status(inquiry, item, node.children(children))
}

/// Lists the conditions of an object, including nested ones: routes have them per parent, gateways per listener.
fn all(item: &Item) -> Vec<Condition<'_>> {
    let lists = ["/status/parents", "/status/listeners", "/status/ancestors"];
    let parts = lists.iter().flat_map(|path| item.items(path));
    let of_parts = parts.flat_map(|part| part.items("/conditions")).map(Condition::of);
    item.conditions().into_iter().chain(of_parts.filter(|one| !is_good(one))).collect()
}

/// Returns the field that suspends a custom resource.
fn suspended(item: &Item) -> Option<&'static str> {
    let fields = [
        ("/spec/suspend", "spec.suspend"),
        ("/spec/suspended", "spec.suspended"),
        ("/spec/paused", "spec.paused"),
    ];
    fields.into_iter().find(|(path, _)| item.flag(path)).map(|(_, field)| field)
}

fn is_good(condition: &Condition<'_>) -> bool {
    match condition.kind {
        kind if is_bad(kind) || GOING_ON.contains(&kind) => !condition.is_true(),
        _ => condition.is_true(),
    }
}

fn is_bad(kind: &str) -> bool {
    BAD.contains(&kind) || ["Failed", "Error", "Failure", "Degraded"].iter().any(|end| kind.ends_with(end))
}

fn with_events<'a>(inquiry: &Inquiry<'a>, item: &'a Item, node: Node) -> Node {
    if !may_have_status(item) {
        return node;
    }
    let events = inquiry.events(item);
    let warnings = events.iter().filter(|event| event.is_warning()).take(2);
    node.evidence(warnings.map(|event| inquiry.evidence(event)))
}

/// Whether a controller reconciles the object. ConfigMaps and the like just exist.
fn may_have_status(item: &Item) -> bool {
    item.has("/spec") || item.has("/status")
}

fn by_conditions(inquiry: &Inquiry<'_>, item: &Item, node: Node, conditions: &[Condition<'_>]) -> Node {
    let find = |kind: &str| conditions.iter().find(|one| one.kind == kind);
    let is_wrong = |one: &&Condition<'_>| {
        is_bad(one.kind) && one.is_true() || REQUIRED.contains(&one.kind) && one.is_false()
    };
    let bad = conditions.iter().find(is_wrong);
    let summary = SUMMARY.iter().find_map(|kind| find(kind));
    let open = conditions.iter().find(|one| one.is_false() && !is_good(one));
    let unknown = conditions.iter().find(|one| one.status == "Unknown");
    let going_on = GOING_ON.iter().find_map(|kind| find(kind)).filter(|one| one.is_true());
    let described =
        |one: &Condition<'_>| format!("{}={} ({}): {}", one.kind, one.status, one.reason, one.message);
    if let Some(bad) = bad {
        return node.blocked(described(bad), fix(item, bad));
    }
    match summary {
        Some(summary) if summary.is_true() => {
            return done(node, format!("{} ({})", summary.kind, summary.said()));
        }
        Some(summary) if going_on.is_some() && summary.kind != "Synced" && !is_old(inquiry, summary) => {
            return node
                .progressing(described(summary))
                .because(described(summary), "wait for its controller");
        }
        _ => {}
    }
    // A specific condition is more informative than a summary.
    let specific =
        conditions.iter().find(|one| one.is_false() && !is_good(one) && !SUMMARY.contains(&one.kind));
    match specific.filter(|one| !one.message.is_empty()).or(open).or(unknown) {
        Some(one) if one.is_false() => {
            let text = match summary.filter(|summary| summary.kind != one.kind && !summary.message.is_empty())
            {
                Some(summary) => format!("{}; {}", described(summary), described(one)),
                None => described(one),
            };
            node.blocked(text, fix(item, one))
        }
        Some(one) => node.progressing(described(one)).because(described(one), "wait for its controller"),
        None => match going_on {
            Some(one) => node.progressing(described(one)).because(described(one), "wait for its controller"),
            None => done(node, "all conditions are healthy".to_owned()),
        },
    }
}

fn is_old(inquiry: &Inquiry<'_>, condition: &Condition<'_>) -> bool {
    condition.time.is_some_and(|time| inquiry.now.duration_since(time).as_secs() > LONG)
}

/// Returns the fix, as far as conditions can tell.
fn fix(item: &Item, condition: &Condition<'_>) -> String {
    match condition.kind {
        "Suspended" | "Paused" => "resume it".to_owned(),
        _ => format!("correct what the message says; it comes from the controller of {}", item.kind),
    }
}

fn done(node: Node, summary: String) -> Node {
    node.converged(summary)
}

fn by_phase(item: &Item, node: Node) -> Option<Node> {
    if item.at("/status/ready") == &serde_json::Value::Bool(false) {
        let text = "is not ready (status.ready is false)";
        return Some(node.progressing(text).because(text, "wait for its controller"));
    }
    let paths =
        ["/status/phase", "/status/state", "/status/health/status", "/status/status", "/status/sync/status"];
    let (path, phase) =
        paths.iter().map(|path| (*path, item.text(path))).find(|(_, phase)| !phase.is_empty())?;
    let message = ["/status/message", "/status/reason", "/status/error", "/status/health/message"];
    let message = message.iter().map(|path| item.text(path)).find(|message| !message.is_empty());
    let said = message.map(|message| format!(": {message}")).unwrap_or_default();
    let field = Evidence::field(&path[1..].replace('/', "."), phase);
    let node = node.evidence([field]);
    let word = phase.to_lowercase();
    Some(match () {
        () if DONE.contains(&word.as_str()) => node.converged(phase),
        () if FAILED.iter().any(|failed| word.contains(failed)) => node.blocked(
            format!("is {phase}{said}"),
            format!("correct what the controller of {} reports", item.kind),
        ),
        () => node
            .progressing(format!("is {phase}{said}"))
            .because(format!("is {phase}{said}"), "wait for its controller"),
    })
}

/// An object whose status no controller has written.
fn without_status<'a>(inquiry: &Inquiry<'a>, item: &'a Item, node: Node) -> Node {
    let is_custom = item.kind.group.contains('.') && !item.kind.group.ends_with(".k8s.io");
    if node.worst_child().is_stuck() {
        return node.blocked("an object that it owns is stuck", "see below");
    }
    if is_custom && item.has("/spec") && !item.has("/status") {
        return match node.children.is_empty() {
            true => not_reported(inquiry, item, node, "it has no status"),
            false => node.progressing("has no status yet"),
        };
    }
    match node.worst_child() {
        State::Progressing => node.progressing("an object that it owns is in progress"),
        _ => node.converged("exists"),
    }
}

/// An object whose controller has not written its status. An event may say why.
fn not_reported(inquiry: &Inquiry<'_>, item: &Item, node: Node, what: &str) -> Node {
    let age = inquiry.age_of_spec(item);
    let events = inquiry.events(item);
    let is_recent = |event: &&Event<'_>| {
        event.time().is_some_and(|time| inquiry.now.duration_since(time).as_secs() < RECENT)
    };
    if let Some(warning) = events.iter().filter(is_recent).find(|event| event.is_warning()) {
        let text = format!("{} ({what}): {}", warning.reason(), warning.message());
        return node.blocked(text, format!("correct what the controller of {} reports", item.kind));
    }
    match age > MOMENT {
        true => node.blocked(
            format!("no controller has reported on it for {}: {what}", duration(age)),
            format!("check that the controller of {} runs and watches this namespace", item.kind),
        ),
        false => node.progressing(what),
    }
}

/// Explains the unhealthy dependents of an object.
fn owned<'a>(inquiry: &Inquiry<'a>, item: &'a Item) -> Vec<Node> {
    let is_custom = item.kind.group.contains('.') && !item.kind.group.ends_with(".k8s.io");
    if !is_custom || item.namespace().is_none() || !item.has("/spec") {
        return Vec::new();
    }
    let mut found: Vec<Node> = Vec::new();
    for kind in &OWNED {
        found.extend(
            inquiry
                .owned(item, kind)
                .iter()
                .take(crate::inquiry::MAX_GROUPS)
                .map(|owned| inquiry.explain(owned)),
        );
    }
    let pods = inquiry.owned(item, &POD);
    found.extend(pods::explain_all(inquiry, &pods));
    found.truncate(2 * crate::inquiry::MAX_GROUPS);
    found
}
