//! Why the API server rejects an object: quota, limit ranges, pod security, policies, webhooks, permissions.
//!
//! Events and conditions only contain the message of a rejection. Its wording is part of Kubernetes' behaviour.

use crate::inquiry::Inquiry;
use crate::kinds::*;
use crate::model::{Node, ObjectRef};
use crate::read::{Read, between, quoted_after};
use crate::snapshot::Item;
use crate::text::clip;

/// What rejected an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    Quota { name: String },
    LimitRange,
    PodSecurity { level: String },
    Policy { name: String },
    Denied { webhook: String },
    WebhookFailed { webhook: String },
    ServiceAccount { name: String },
    PriorityClass { name: String },
    RuntimeClass { name: String },
    Permission,
    Invalid,
    NamespaceTerminating,
    Other,
}

/// Finds out what rejected an object.
pub fn classify(message: &str) -> Rejection {
    let quoted = |word: &str| quoted_after(message, word).unwrap_or_default().to_owned();
    let single = |word: &str| {
        let rest = message.split_once(word).map_or("", |(_, rest)| rest);
        between(rest, "'", "'").unwrap_or_default().to_owned()
    };
    if let Some(name) = quota(message) {
        return Rejection::Quota { name };
    }
    if message.contains("failed calling webhook") {
        return Rejection::WebhookFailed { webhook: quoted("failed calling webhook") };
    }
    if message.contains("admission webhook") && message.contains("denied the request") {
        return Rejection::Denied { webhook: quoted("admission webhook") };
    }
    if message.contains("ValidatingAdmissionPolicy") {
        return Rejection::Policy { name: single("ValidatingAdmissionPolicy") };
    }
    if message.contains("violates PodSecurity") {
        return Rejection::PodSecurity { level: quoted("violates PodSecurity") };
    }
    if message.contains("error looking up service account") || message.contains("serviceaccount \"") {
        return Rejection::ServiceAccount { name: quoted("serviceaccount") };
    }
    if message.contains("no PriorityClass with name") {
        let name = between(message, "no PriorityClass with name ", " ").unwrap_or_default().to_owned();
        return Rejection::PriorityClass { name };
    }
    if message.contains("RuntimeClass") {
        return Rejection::RuntimeClass { name: quoted("RuntimeClass") };
    }
    if message.contains("because it is being terminated") {
        return Rejection::NamespaceTerminating;
    }
    let limits = [" usage per ", "limit to request ratio per"];
    if limits.iter().any(|limit| message.contains(limit)) {
        return Rejection::LimitRange;
    }
    if message.contains("cannot create resource") || message.contains("User \"") {
        return Rejection::Permission;
    }
    if message.contains(" is invalid:")
        || message.contains("Invalid value")
        || message.contains("Required value")
    {
        return Rejection::Invalid;
    }
    Rejection::Other
}

/// Returns the name of the quota that is exceeded, or that requires requests to be set.
fn quota(message: &str) -> Option<String> {
    let rest = message.split_once("exceeded quota: ").or_else(|| message.split_once("failed quota: "))?.1;
    Some(rest.split([',', ':', ' ']).next().unwrap_or_default().to_owned())
}

/// Explains a rejection: the problem, the fix, and the objects behind it.
pub(crate) fn explain<'a>(
    inquiry: &Inquiry<'a>,
    namespace: Option<&str>,
    message: &str,
) -> (String, String, Vec<Node>) {
    let said = clip(message);
    let (what, fix, children) = match classify(message) {
        Rejection::Quota { name } => {
            let fix = match message.contains("must specify") {
                true => {
                    "set these requests and limits in the pod template, or add a LimitRange with defaults"
                        .to_owned()
                }
                false => format!("raise spec.hard of ResourceQuota {name}, or delete what uses it"),
            };
            (format!("ResourceQuota {name} is exceeded"), fix, quota_node(inquiry, namespace, &name, &said))
        }
        Rejection::LimitRange => {
            let fix = "change the requests and limits, or the LimitRange".to_owned();
            ("a LimitRange does not allow it".to_owned(), fix, limit_ranges(inquiry, namespace))
        }
        Rejection::PodSecurity { level } => {
            let fix = format!(
                "change the pod as the message says, or the PodSecurity level of namespace {}",
                namespace.unwrap_or_default()
            );
            (format!("PodSecurity {level} forbids it"), fix, Vec::new())
        }
        Rejection::Policy { name } => {
            let fix = format!("comply with the policy, or change ValidatingAdmissionPolicy {name}");
            (format!("ValidatingAdmissionPolicy {name} denies it"), fix, Vec::new())
        }
        Rejection::Denied { webhook } => {
            let fix = "comply with what the webhook asks for, or change its configuration".to_owned();
            (format!("admission webhook {webhook} denies it"), fix, Vec::new())
        }
        Rejection::WebhookFailed { webhook } => {
            let fix = format!("repair what serves webhook {webhook}, or set its failurePolicy to Ignore");
            let children = webhook_nodes(inquiry, &webhook);
            (format!("admission webhook {webhook} cannot be called"), fix, children)
        }
        Rejection::ServiceAccount { name } => {
            let missing = missing(&SERVICE_ACCOUNT, namespace, &name, "the pods run as it");
            (
                format!("ServiceAccount {name} does not exist"),
                format!("create ServiceAccount {name}"),
                vec![missing],
            )
        }
        Rejection::PriorityClass { name } => {
            let missing = missing(&PRIORITY_CLASS, None, &name, "the pods name it in spec.priorityClassName");
            (
                format!("PriorityClass {name} does not exist"),
                format!("create PriorityClass {name}"),
                vec![missing],
            )
        }
        Rejection::RuntimeClass { name } => {
            let fix = format!("create RuntimeClass {name}, or correct spec.runtimeClassName");
            (format!("RuntimeClass {name} cannot be used"), fix, Vec::new())
        }
        Rejection::Permission => (
            "the controller lacks a permission".to_owned(),
            "grant it with a Role or ClusterRole".to_owned(),
            Vec::new(),
        ),
        Rejection::NamespaceTerminating => {
            let namespace = inquiry.explain_named(&NAMESPACE, None, namespace.unwrap_or_default());
            let fix = "create the object in another namespace".to_owned();
            ("its namespace is being deleted".to_owned(), fix, namespace.into_iter().collect())
        }
        Rejection::Invalid => {
            ("the pod template is not valid".to_owned(), "correct the template".to_owned(), Vec::new())
        }
        Rejection::Other => (String::new(), "correct what the message names".to_owned(), Vec::new()),
    };
    let text = if what.is_empty() { said } else { format!("{what}: {said}") };
    (text, fix, children)
}

fn missing(kind: &GroupKind, namespace: Option<&str>, name: &str, why: &str) -> Node {
    let node = Node::new(ObjectRef::new(kind, namespace, name));
    node.blocked(format!("the {} {name} does not exist ({why})", kind.kind), "create it")
}

/// The quota that rejected an object, with the rejection as its problem.
fn quota_node<'a>(inquiry: &Inquiry<'a>, namespace: Option<&str>, name: &str, said: &str) -> Vec<Node> {
    let Some(quota) = inquiry.get(&QUOTA, namespace, name).found() else { return Vec::new() };
    let node = inquiry.explain(quota);
    let node = match said.contains("must specify") {
        true => node.blocked(
            format!("requires requests or limits that the pods do not set: {said}"),
            "set them in the pod template, or add a LimitRange with defaults",
        ),
        false => node.blocked(
            format!("is exceeded: {said}"),
            format!("raise spec.hard of ResourceQuota {name}, or delete what uses it"),
        ),
    };
    vec![node]
}

fn limit_ranges<'a>(inquiry: &Inquiry<'a>, namespace: Option<&str>) -> Vec<Node> {
    let all = inquiry.list(&LIMIT_RANGE, namespace);
    let describe = |range: &&Item| {
        let limits = range.at("/spec/limits").to_string();
        crate::inquiry::node_of(range).converged(format!("limits {limits}"))
    };
    all.iter().take(3).map(describe).collect()
}

/// The configuration of a webhook, and its Service.
fn webhook_nodes<'a>(inquiry: &Inquiry<'a>, webhook: &str) -> Vec<Node> {
    let both = [&VALIDATING_WEBHOOKS, &MUTATING_WEBHOOKS];
    let all: Vec<&'a Item> = both.into_iter().flat_map(|kind| inquiry.list(kind, None)).collect();
    let names = |item: &&&Item| item.items("/webhooks").iter().any(|one| one.text("/name") == webhook);
    all.iter().filter(names).map(|item| inquiry.explain(item)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_are_told_apart() {
        let quota = |name: &str| Rejection::Quota { name: name.into() };
        for (message, expected) in [
            (
                "pods \"a\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2",
                quota("small"),
            ),
            ("pods \"a\" is forbidden: failed quota: cpu: must specify limits.cpu for: c", quota("cpu")),
            (
                "pods \"a\" is forbidden: maximum cpu usage per Container is 1, but limit is 2",
                Rejection::LimitRange,
            ),
            (
                "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true",
                Rejection::PodSecurity { level: "restricted:latest".into() },
            ),
            (
                "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'no-latest' with binding 'b' denied request: no",
                Rejection::Policy { name: "no-latest".into() },
            ),
            (
                "admission webhook \"a.example.com\" denied the request: no",
                Rejection::Denied { webhook: "a.example.com".into() },
            ),
            (
                "Internal error occurred: failed calling webhook \"a.b\": failed to call webhook: Post",
                Rejection::WebhookFailed { webhook: "a.b".into() },
            ),
            (
                "pods \"a-\" is forbidden: error looking up service account default/x: serviceaccount \"x\" not found",
                Rejection::ServiceAccount { name: "x".into() },
            ),
            (
                "pods \"a\" is forbidden: no PriorityClass with name high was found",
                Rejection::PriorityClass { name: "high".into() },
            ),
            ("Pod \"a\" is invalid: spec.containers[0].image: Required value", Rejection::Invalid),
            ("something else", Rejection::Other),
        ] {
            assert_eq!(classify(message), expected, "{message}");
        }
    }
}
