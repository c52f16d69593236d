//! Unschedulable pods: which filter rejects each node and by how much, the smallest change that would help, and whether
//! preemption would.

use std::collections::BTreeMap;

use serde_json::Value;
use setpoint::Object;
use setpoint_quantity::Quantity;
use setpoint_scheduler::{Assessment, Assessor, Inputs, Preemption, Rejection, Shortage};

use super::priority;
use crate::claims;
use crate::inquiry::Inquiry;
use crate::kinds::*;
use crate::model::{Evidence, Node, Source};
use crate::read::Read;
use crate::snapshot::Item;
use crate::text::{amount, count, names};

/// How many nodes are listed with their reasons.
const SHOWN_NODES: usize = 5;

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, pod: &'a Item, node: Node) -> Node {
    let said = pod.condition("PodScheduled").map(|condition| condition.message.to_owned());
    let said = said
        .filter(|said| !said.is_empty())
        .or_else(|| inquiry.event(pod, &["FailedScheduling"]).map(|event| event.message().to_owned()));
    let said = said.unwrap_or_default();
    if let Some(nominated) = Some(pod.text("/status/nominatedNodeName")).filter(|name| !name.is_empty()) {
        return node
            .progressing(format!("waits for pods on node {nominated} to make room (preemption)"))
            .next("is scheduled once the evicted pods have stopped", None);
    }
    let claims = unbound_claims(inquiry, pod);
    if !claims.is_empty() {
        let text = format!("is unschedulable, because its volumes are not available: {said}");
        return node.blocked(text, "make its claims bind").children(claims);
    }
    let Some(assessment) = assess(inquiry, pod.object.clone()) else { return from_message(&said, node) };
    judged(inquiry, pod, node, &said, &assessment)
}

/// Explains the claims of a pod that are missing or not bound.
fn unbound_claims<'a>(inquiry: &Inquiry<'a>, pod: &'a Item) -> Vec<Node> {
    let claims = claims::of_pod(pod);
    let explained = claims.iter().filter_map(|name| match inquiry.get(&CLAIM, pod.namespace(), name) {
        crate::snapshot::Lookup::Missing => Some(claims::missing(pod, name)),
        found => {
            let claim = found.found().filter(|claim| claim.text("/status/phase") != "Bound")?;
            // The claim waits for this pod to be scheduled: the nodes are the problem, not the claim.
            (!claims::waits_for_pod(inquiry, claim)).then(|| inquiry.explain(claim))
        }
    });
    explained.filter(|node| node.state != crate::model::State::Converged).collect()
}

fn assess(inquiry: &Inquiry<'_>, pod: Object) -> Option<Assessment> {
    let assessor = inquiry.assessor.get_or_init(|| assessor(inquiry));
    assessor.as_ref()?.assess(pod).ok()
}

/// Builds the scheduler's view of the cluster. `None` if nodes or pods cannot be read.
fn assessor(inquiry: &Inquiry<'_>) -> Option<Assessor> {
    let snapshot = inquiry.snapshot;
    let (nodes, pods) = (snapshot.list(&NODE, None), snapshot.list(&POD, None));
    // Requested together, so that they are fetched in one round.
    let all = |kind| snapshot.objects(kind);
    let inputs = Inputs {
        namespaces: all(&NAMESPACE),
        budgets: all(&BUDGET),
        claims: all(&CLAIM),
        volumes: all(&VOLUME),
        classes: all(&STORAGE_CLASS),
        csi_nodes: all(&CSI_NODE),
        csi_drivers: all(&CSI_DRIVER),
        capacities: all(&CAPACITY),
        attachments: all(&ATTACHMENT),
        device_claims: all(&DEVICE_CLAIM),
        device_classes: all(&DEVICE_CLASS),
        device_slices: all(&DEVICE_SLICE),
        nodes: nodes?.into_iter().map(|item| item.object.clone()).collect(),
        pods: pods?.into_iter().map(|item| item.object.clone()).collect(),
    };
    Assessor::new(inputs).ok()
}

/// Without permission to read nodes and pods, only the scheduler's message is available.
fn from_message(said: &str, node: Node) -> Node {
    let reasons = said.split(" preemption:").next().unwrap_or_default();
    node.blocked(
        format!("is unschedulable: {reasons}"),
        "make room on a node, or relax what the pod asks for",
    )
}

fn judged(inquiry: &Inquiry<'_>, pod: &Item, node: Node, said: &str, found: &Assessment) -> Node {
    if !found.feasible.is_empty() {
        let places = names(&found.feasible, 3);
        return node
            .progressing(format!("fits on {places} by now"))
            .because(
                format!("was unschedulable ({said}), but fits on {places} by now"),
                "wait for the scheduler",
            )
            .next("the scheduler tries again, within five minutes at the latest", None);
    }
    if let Some(refusal) = &found.refusal {
        return refused(inquiry, pod, node, refusal);
    }
    if found.rejections.is_empty() {
        let text = "is unschedulable: the cluster has no nodes";
        return node.blocked(text, "add a node");
    }
    let (text, fix) = cause(inquiry, pod, found);
    let claims = devices_of(inquiry, pod, found);
    node.blocked(format!("is unschedulable: {text}"), fix)
        .evidence(evidence(found))
        .evidence([preemption(inquiry, pod, found)])
        .next("the scheduler tries again when a node or a pod changes in a way that could help", None)
        .children(claims)
}

/// A pod that cannot fit on any node.
fn refused(inquiry: &Inquiry<'_>, pod: &Item, node: Node, refusal: &str) -> Node {
    let claims = device_claims(inquiry, pod);
    let fix = match refusal {
        refusal if refusal.contains("persistentvolumeclaim") => "create the claim or correct its name",
        refusal if refusal.contains("resourceclaim") => "create the ResourceClaim",
        refusal if refusal.contains("affinity terms conflict") => "correct the pod's node affinity",
        _ => "correct what the message names",
    };
    node.blocked(format!("is unschedulable: {refusal}"), fix).children(claims)
}

/// The resource claims of a pod, if devices are why nodes are rejected.
fn devices_of(inquiry: &Inquiry<'_>, pod: &Item, found: &Assessment) -> Vec<Node> {
    match found.rejections.iter().any(|rejection| rejection.filter == "DynamicResources") {
        true => device_claims(inquiry, pod),
        false => Vec::new(),
    }
}

fn device_claims(inquiry: &Inquiry<'_>, pod: &Item) -> Vec<Node> {
    let statuses = pod.items("/status/resourceClaimStatuses");
    let generated = statuses.iter().map(|status| status.text("/resourceClaimName"));
    let named = pod.items("/spec/resourceClaims").iter().map(|claim| claim.text("/resourceClaimName"));
    let all = generated.chain(named).filter(|name| !name.is_empty());
    all.filter_map(|name| inquiry.explain_named(&DEVICE_CLAIM, pod.namespace(), name)).collect()
}

/// Returns why the closest node is rejected, and what would help there.
fn cause(inquiry: &Inquiry<'_>, pod: &Item, found: &Assessment) -> (String, String) {
    let groups = by_filter(found);
    let counts = groups.iter().map(|(what, nodes)| format!("{} {what}", nodes_text(nodes.len())));
    let counts = counts.collect::<Vec<_>>().join(", ");
    let remedy = smallest_change(inquiry, pod, found);
    (counts, remedy)
}

fn nodes_text(number: usize) -> String {
    format!("{}:", count(number, "node"))
}

/// Groups the rejections by message, the most frequent first.
fn by_filter(found: &Assessment) -> Vec<(String, Vec<&Rejection>)> {
    let mut groups: BTreeMap<String, Vec<&Rejection>> = BTreeMap::new();
    for rejection in &found.rejections {
        groups.entry(reason(rejection)).or_default().push(rejection);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.len()));
    groups
}

/// Returns why a node is rejected, in the scheduler's words without `node(s)`.
fn reason(rejection: &Rejection) -> String {
    let all = rejection.reasons.iter().map(|reason| reason.trim_start_matches("node(s) "));
    all.collect::<Vec<_>>().join(", ")
}

fn evidence(found: &Assessment) -> Vec<Evidence> {
    let line = |rejection: &Rejection| {
        let amounts: Vec<String> = rejection.shortages.iter().map(shortage).collect();
        let value = match amounts.is_empty() {
            true => format!("{}: {}", rejection.filter, reason(rejection)),
            false => format!("{}: {}", rejection.filter, amounts.join("; ")),
        };
        Evidence::new(Source::Field, &format!("node {}", rejection.node), &value, None)
    };
    let mut lines: Vec<Evidence> = found.rejections.iter().take(SHOWN_NODES).map(line).collect();
    if let Some(more) = found.rejections.len().checked_sub(SHOWN_NODES).filter(|more| *more > 0) {
        lines.push(Evidence::new(Source::Field, &format!("{more} more nodes"), &found.message, None));
    }
    lines
}

fn shortage(shortage: &Shortage) -> String {
    let of = |number| amount(&shortage.resource, number);
    let Shortage { resource, requested, free, allocatable } = shortage;
    format!("{resource}: requests {}, {} of {} free", of(*requested), of((*free).max(0)), of(*allocatable))
}

fn preemption(inquiry: &Inquiry<'_>, pod: &Item, found: &Assessment) -> Evidence {
    let value = match &found.preemption {
        Some(Preemption::Possible { node, victims }) => {
            format!("would help: evicting {} from node {node} makes room", names(victims, 3))
        }
        Some(Preemption::Impossible { .. }) if found.rejections.iter().all(|one| !one.preemptible) => {
            "cannot help: no node is short of something that pods of lower priority hold".to_owned()
        }
        Some(Preemption::Impossible { why }) if why.starts_with("not eligible") => {
            format!("does not happen: {why}")
        }
        _ => format!("cannot help: no pods of lower priority hold enough ({})", priority(inquiry, pod)),
    };
    Evidence::new(Source::Field, "preemption", &value, None)
}

/// Suggests the smallest change after which a node could take the pod.
fn smallest_change(inquiry: &Inquiry<'_>, pod: &Item, found: &Assessment) -> String {
    let nearest = found.rejections.iter().filter(|one| !one.shortages.is_empty());
    if let Some(nearest) = nearest.min_by(|one, other| distance(one).total_cmp(&distance(other))) {
        return room(inquiry, pod, nearest);
    }
    let mut by_preference: Vec<&Rejection> = found.rejections.iter().collect();
    by_preference.sort_by_key(|rejection| effort(rejection.filter));
    match by_preference.first() {
        Some(rejection) => remedy(pod, rejection),
        None => "add a node".to_owned(),
    }
}

/// The missing share of the request, for the resource that lacks the most.
fn distance(rejection: &Rejection) -> f64 {
    let missing = |one: &Shortage| (one.requested - one.free) as f64 / (one.requested.max(1)) as f64;
    rejection.shortages.iter().map(missing).fold(0.0, f64::max)
}

/// The effort to pass a filter: the easiest first.
fn effort(filter: &str) -> usize {
    const ORDER: [&str; 9] = [
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "PodTopologySpread",
        "InterPodAffinity",
        "VolumeRestrictions",
        "VolumeBinding",
        "DynamicResources",
    ];
    ORDER.iter().position(|one| *one == filter).unwrap_or(ORDER.len())
}

/// Returns how a node that lacks resources could take the pod.
fn room(inquiry: &Inquiry<'_>, pod: &Item, rejection: &Rejection) -> String {
    let name = &rejection.node;
    let lacks: Vec<String> = rejection
        .shortages
        .iter()
        .map(|one| format!("{} {}", amount(&one.resource, one.requested - one.free), one.resource))
        .collect();
    let lacks = format!("node {name} lacks {}", lacks.join(" and "));
    let lower: Vec<String> = rejection
        .shortages
        .iter()
        .filter(|one| one.resource != "pods" && one.free > 0)
        .map(|one| format!("the request of {} to {}", one.resource, amount(&one.resource, one.free)))
        .collect();
    let all_can_shrink = lower.len() == rejection.shortages.len();
    let too_big = rejection.shortages.iter().any(|one| one.requested > one.allocatable);
    let free = if too_big { "use a larger node" } else { "free as much there" };
    match all_can_shrink && fits_when_smaller(inquiry, pod, rejection) {
        true => format!("{lacks}: lower {} or {free}, or add a node", lower.join(" and ")),
        false if too_big => format!("{lacks} even when it is empty: use a larger node or request less"),
        false => format!("{lacks}: {free}, or add a node"),
    }
}

/// Whether the node takes the pod if its requests are lowered to the free capacity.
fn fits_when_smaller(inquiry: &Inquiry<'_>, pod: &Item, rejection: &Rejection) -> bool {
    let Some(smaller) = smaller(pod.value(), &rejection.shortages) else { return false };
    let Ok(object) = Object::from_json(smaller.to_string().into()) else { return false };
    assess(inquiry, object).is_some_and(|found| found.feasible.contains(&rejection.node))
}

/// Lowers the requests of a pod: the excess is taken from its largest container.
fn smaller(pod: &Value, shortages: &[Shortage]) -> Option<Value> {
    let mut pod = pod.clone();
    for shortage in shortages {
        let unit = |value: &Value| {
            let quantity = Quantity::of(value).ok()?;
            Some(if shortage.resource == "cpu" { quantity.milli_value() } else { quantity.value() })
        };
        let containers = pod.pointer_mut("/spec/containers")?.as_array_mut()?;
        let requests = containers.iter_mut().filter_map(|container| {
            let found = container.get_mut("resources")?.get_mut("requests")?.get_mut(&shortage.resource)?;
            Some((unit(found)?, found))
        });
        let (number, largest) = requests.max_by_key(|(number, _)| *number)?;
        let left = number - (shortage.requested - shortage.free);
        if left < 0 {
            return None;
        }
        *largest =
            if shortage.resource == "cpu" { format!("{left}m").into() } else { left.to_string().into() };
    }
    Some(pod)
}

/// Returns how the pod could pass a filter other than resources.
fn remedy(pod: &Item, rejection: &Rejection) -> String {
    let node = &rejection.node;
    match rejection.filter {
        "NodeUnschedulable" => format!("kubectl uncordon {node}, or add a node"),
        "TaintToleration" => {
            let taint = rejection.reasons.first().and_then(|reason| crate::read::between(reason, "{", "}"));
            let taint = taint.unwrap_or("its taint");
            format!("tolerate {taint} in the pod, or remove the taint from node {node}")
        }
        "NodeAffinity" => format!("{}, or change the pod", wanted_labels(pod)),
        "NodePorts" => format!("choose another hostPort ({}), or add a node", host_ports(pod)),
        "PodTopologySpread" => {
            "let the pods spread (more nodes or domains), raise maxSkew, or use whenUnsatisfiable: ScheduleAnyway".to_owned()
        }
        "InterPodAffinity" => "relax the pod's (anti-)affinity, or add nodes where it holds".to_owned(),
        "VolumeRestrictions" => "its volume is used elsewhere or the node has too many volumes: stop the other pod".to_owned(),
        "VolumeBinding" => "make its volume available where the pod may run: check the node affinity of the volume, the \
             allowed topologies of the class and its capacity"
            .to_owned(),
        "DynamicResources" => "add a node with such a device, or free one".to_owned(),
        _ => "add a node that can take the pod".to_owned(),
    }
}

fn wanted_labels(pod: &Item) -> String {
    let labels = pod.pairs("/spec/nodeSelector");
    if labels.is_empty() {
        return "label a node as the pod's node affinity asks".to_owned();
    }
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("label a node with {}", labels.join(","))
}

fn host_ports(pod: &Item) -> String {
    let containers = pod.items("/spec/containers").iter();
    let ports = containers.flat_map(|container| container.items("/ports"));
    let ports = ports.filter_map(|port| port.number("/hostPort")).filter(|port| *port != 0);
    ports.map(|port| port.to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_largest_container_gets_smaller() {
        let pod = json!({"spec": {"containers": [
            {"resources": {"requests": {"cpu": "200m"}}}, {"resources": {"requests": {"cpu": "1"}}}]}});
        let lacks =
            |requested, free| [Shortage { resource: "cpu".into(), requested, free, allocatable: 4000 }];
        let found = smaller(&pod, &lacks(1200, 900)).expect("it can shrink");
        assert_eq!(found.text("/spec/containers/1/resources/requests/cpu"), "700m");
        assert!(smaller(&pod, &lacks(1200, 100)).is_none());
    }
}
