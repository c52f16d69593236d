//! API extensions: CustomResourceDefinitions, APIServices, admission webhooks.

use crate::inquiry::{Inquiry, node_of};
use crate::kinds::{SERVICE, STATEFUL_SET};
use crate::model::{Evidence, Node, ObjectRef};
use crate::read::Read;
use crate::snapshot::{Item, Lookup};

pub(crate) fn explain_definition<'a>(_: &Inquiry<'a>, definition: &'a Item) -> Node {
    let conditions = definition.conditions();
    let node = node_of(definition).evidence(conditions.iter().map(|condition| condition.evidence()));
    let find = |kind: &str| conditions.iter().find(|condition| condition.kind == kind);
    if let Some(names) = find("NamesAccepted").filter(|names| names.is_false()) {
        let text = format!("its names are not accepted ({}): {}", names.reason, names.message);
        return node.blocked(text, "choose other names, or delete the definition that has them");
    }
    if let Some(schema) = find("NonStructuralSchema").filter(|schema| schema.is_true()) {
        return node
            .blocked(format!("its schema is not structural: {}", schema.message), "correct the schema");
    }
    if let Some(policy) = find("KubernetesAPIApprovalPolicyConformant").filter(|policy| policy.is_false()) {
        return node.blocked(
            format!("its group needs an approval: {}", policy.message),
            "use another group, or add the annotation",
        );
    }
    match find("Established") {
        Some(established) if established.is_true() => node.converged("established"),
        Some(established) => node.blocked(
            format!("is not established ({}): {}", established.reason, established.message),
            "correct the definition",
        ),
        None => node.progressing("has not been looked at yet"),
    }
}

pub(crate) fn explain_api_service<'a>(inquiry: &Inquiry<'a>, api: &'a Item) -> Node {
    let available = api.condition("Available");
    let node = node_of(api).evidence(available.map(|available| available.evidence()));
    let (namespace, name) = (api.text("/spec/service/namespace"), api.text("/spec/service/name"));
    match available {
        Some(available) if available.is_true() => return node.converged("available"),
        None if name.is_empty() => return node.converged("served by the API server itself"),
        _ => {}
    }
    let said = available
        .map(|available| format!(" ({}): {}", available.reason, available.message))
        .unwrap_or_default();
    let service = backing_service(inquiry, namespace, name, &format!("APIService {}", api.name()));
    let fix = format!("repair the server behind Service {namespace}/{name}, or delete the APIService");
    node.blocked(format!("is not available{said}"), fix)
        .children(service.filter(|service| service.state.is_stuck()))
}

/// Explains the Service of a webhook or an API server.
fn backing_service<'a>(inquiry: &Inquiry<'a>, namespace: &str, name: &str, user: &str) -> Option<Node> {
    match inquiry.get(&SERVICE, Some(namespace), name) {
        Lookup::Found(service) => Some(inquiry.explain(service)),
        Lookup::Missing => {
            let node = Node::new(ObjectRef::new(&SERVICE, Some(namespace), name));
            let text = format!("the Service {namespace}/{name} does not exist ({user} names it)");
            Some(node.blocked(text, format!("install it again, or delete the {user}")))
        }
        Lookup::Unknown => None,
    }
}

pub(crate) fn explain_webhooks<'a>(inquiry: &Inquiry<'a>, configuration: &'a Item) -> Node {
    let mut node = node_of(configuration);
    for webhook in configuration.items("/webhooks") {
        let (namespace, name) =
            (webhook.text("/clientConfig/service/namespace"), webhook.text("/clientConfig/service/name"));
        if name.is_empty() {
            continue;
        }
        let user = format!("webhook {}", webhook.text("/name"));
        let policy = webhook.text("/failurePolicy");
        let service = backing_service(inquiry, namespace, name, &user);
        if let Some(service) = service.filter(|service| service.state.is_stuck()) {
            let seconds = webhook.number("/timeoutSeconds").unwrap_or(10);
            let text = format!("{user} cannot be called: its Service {namespace}/{name} has no endpoints");
            let fix = format!("repair what serves Service {namespace}/{name}, or delete the configuration");
            let effect = match policy {
                "Ignore" => format!("requests go on after at most {seconds}s (failurePolicy Ignore)"),
                _ => "every request that it matches is rejected (failurePolicy Fail)".to_owned(),
            };
            node = node
                .blocked(text, fix)
                .evidence([Evidence::field("failurePolicy", effect)])
                .children([service]);
        }
    }
    match node.problem.is_some() {
        true => node,
        false => node.converged("its webhooks have endpoints"),
    }
}

/// Lists the workloads that may run a controller, to search by name.
pub(crate) const CONTROLLER_KINDS: [crate::kinds::GroupKind; 2] = [crate::kinds::DEPLOYMENT, STATEFUL_SET];
