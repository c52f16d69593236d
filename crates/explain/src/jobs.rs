//! Jobs: suspension, backoff limits, deadlines, failed indexes, pod failure policies.

use jiff::SignedDuration;

use crate::inquiry::{Inquiry, node_of};
use crate::kinds::POD;
use crate::model::{Evidence, Node, State};
use crate::read::Read;
use crate::snapshot::Item;
use crate::{creation, pods};

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, job: &'a Item) -> Node {
    let node = node_of(job);
    let done = ["Complete", "SuccessCriteriaMet"].iter().find_map(|kind| job.condition(kind));
    if let Some(done) = done.filter(|done| done.is_true()) {
        let how = if done.reason.is_empty() {
            "complete".to_owned()
        } else {
            format!("complete ({})", done.reason)
        };
        return node.converged(how);
    }
    let owned = inquiry.owned(job, &POD);
    let ended = ["Failed", "FailureTarget"].iter().find_map(|kind| job.condition(kind));
    if let Some(failed) = ended.filter(|failed| failed.is_true()) {
        return over(inquiry, job, node, failed, &owned);
    }
    if job.flag("/spec/suspend") {
        let fix =
            format!("kubectl patch job/{} --type=merge -p '{{\"spec\":{{\"suspend\":false}}}}'", job.name());
        let evidence = job.condition("Suspended").map(|condition| condition.evidence());
        return node
            .blocked("is suspended", fix)
            .root()
            .evidence([Evidence::field("spec.suspend", true)])
            .evidence(evidence);
    }
    if let Some(other) =
        Some(job.text("/spec/managedBy")).filter(|by| !by.is_empty() && *by != "kubernetes.io/job-controller")
        && !job.has("/status/startTime")
    {
        return node.blocked(
            format!("is managed by {other}, which has not started it"),
            format!("run the controller {other}"),
        );
    }
    if !job.has("/status/startTime") && owned.is_empty() {
        return creation::failed(inquiry, job, &node).unwrap_or_else(|| not_started(inquiry, job, node));
    }
    running(inquiry, job, node, &owned)
}

fn not_started<'a>(inquiry: &Inquiry<'a>, job: &'a Item, node: Node) -> Node {
    creation::not_seen(inquiry, job, &node).unwrap_or_else(|| node.progressing("has not been started yet"))
}

/// A job that has failed.
fn over<'a>(
    inquiry: &Inquiry<'a>,
    job: &'a Item,
    node: Node,
    failed: crate::read::Condition<'_>,
    owned: &[&'a Item],
) -> Node {
    let is_failed = |pod: &&&Item| pod.text("/status/phase") == "Failed";
    let pods: Vec<&'a Item> = owned.iter().filter(is_failed).copied().collect();
    let children = pods::explain_all(inquiry, &pods);
    let why = children.iter().find_map(|child| Some(&child.problem.as_ref()?.text));
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    let indexes = match job.text("/status/failedIndexes") {
        "" => String::new(),
        indexes => format!(", failed indexes {indexes}"),
    };
    let (count, limit) = (job.count("/status/failed"), job.number("/spec/backoffLimit").unwrap_or(6));
    let (text, fix) = match failed.reason {
        "BackoffLimitExceeded" => (
            format!(
                "has failed: {count} pods failed, its backoff limit is {limit} (BackoffLimitExceeded){why}"
            ),
            "fix what makes the pods fail, then create the job again",
        ),
        "DeadlineExceeded" => (
            format!(
                "has failed: it was active longer than its deadline of {}s (DeadlineExceeded){why}",
                job.number("/spec/activeDeadlineSeconds").unwrap_or_default()
            ),
            "raise spec.activeDeadlineSeconds or make it faster, then create it again",
        ),
        "FailedIndexes" | "MaxFailedIndexesExceeded" => (
            format!("has failed ({}){indexes}{why}", failed.reason),
            "fix what makes these indexes fail, or raise spec.maxFailedIndexes, then create it again",
        ),
        "PodFailurePolicy" => (
            format!("has failed by its pod failure policy: {}{why}", failed.message),
            "fix what makes the pods fail, or change spec.podFailurePolicy, then create it again",
        ),
        reason => (format!("has failed ({reason}): {}{why}", failed.message), "create the job again"),
    };
    let ttl = job
        .number("/spec/ttlSecondsAfterFinished")
        .and_then(|ttl| failed.time?.checked_add(SignedDuration::from_secs(ttl)).ok());
    let node = node.failed(text, fix).root().evidence([failed.evidence()]).children(children);
    match ttl {
        Some(ttl) => node.next("the job is deleted (ttlSecondsAfterFinished)", Some(ttl)),
        None => node.next("nothing: a job that has failed is not tried again", None),
    }
}

fn running<'a>(inquiry: &Inquiry<'a>, job: &'a Item, node: Node, owned: &[&'a Item]) -> Node {
    let count = |field: &str| job.count(&format!("/status/{field}"));
    let (succeeded, failed, active) = (count("succeeded"), count("failed"), count("active"));
    let wanted = job.number("/spec/completions").unwrap_or(1).max(0);
    let limit = job.number("/spec/backoffLimit").unwrap_or(6);
    let summary = format!(
        "{succeeded} of {wanted} succeeded, {active} active, {failed} failed (backoff limit {limit})"
    );
    let open: Vec<&'a Item> =
        owned.iter().filter(|pod| pod.text("/status/phase") != "Succeeded").copied().collect();
    let children = pods::explain_all(inquiry, &open);
    if active == 0
        && let Some(node) = creation::failed(inquiry, job, &node)
    {
        return node.children(children);
    }
    let deadline = job.number("/spec/activeDeadlineSeconds").and_then(|seconds| {
        job.time("/status/startTime")?.checked_add(SignedDuration::from_secs(seconds)).ok()
    });
    let indexes = Some(job.text("/status/failedIndexes")).filter(|indexes| !indexes.is_empty());
    let node = node.evidence(indexes.map(|indexes| Evidence::field("status.failedIndexes", indexes)));
    let node = match deadline {
        Some(deadline) => node.next("the job fails at its deadline", Some(deadline)),
        None => node,
    };
    let node = node.children(children);
    match node.worst_child() {
        State::Blocked | State::Failed if failed > 0 && active > 0 => node
            .blocked(summary, "fix what makes its pods fail")
            .next("failed pods are replaced with a backoff of at most 10 minutes", None),
        State::Blocked | State::Failed => node.blocked(summary, "make its pods run"),
        State::Unknown => node.unknown(summary),
        _ => node.progressing(summary),
    }
}
