//! Missing ConfigMaps, Secrets and keys that a pod refers to.

use serde_json::Value;

use crate::inquiry::Inquiry;
use crate::kinds::{CONFIG_MAP, GroupKind, SECRET};
use crate::model::{Evidence, Node, ObjectRef};
use crate::read::Read;
use crate::snapshot::Item;
use crate::text::clip;

/// A reference of a pod to a ConfigMap or Secret.
struct Reference<'a> {
    kind: GroupKind,
    name: &'a str,
    /// The key that must exist, if a specific one is used.
    key: Option<&'a str>,
    field: String,
}

/// Explains a container waiting with CreateContainerConfigError.
pub(super) fn explain<'a>(
    inquiry: &Inquiry<'a>,
    pod: &'a Item,
    node: Node,
    title: &str,
    message: &str,
) -> Node {
    // At this point, volumes are mounted.
    let missing = missing_in(inquiry, pod, &of_variables(pod));
    let field = Evidence::field("status", format!("CreateContainerConfigError: {}", clip(message)));
    let fix = match message {
        said if said.contains("runAsNonRoot") => {
            "set securityContext.runAsUser to a user other than 0, or use an image that does not run as root"
        }
        _ => "create what is missing, or correct the reference",
    };
    node.blocked(format!("{title} cannot be configured (CreateContainerConfigError): {message}"), fix)
        .evidence([field])
        .next("the kubelet retries until it exists", None)
        .children(missing)
}

/// Explains every missing ConfigMap, Secret and key that a pod needs.
pub(super) fn missing<'a>(inquiry: &Inquiry<'a>, pod: &'a Item) -> Vec<Node> {
    let mut references = of_volumes(pod);
    // The user's own references come before the ServiceAccount token, which every pod has.
    references.sort_by_key(|reference| reference.field.starts_with("volume kube-api-access-"));
    references.extend(of_variables(pod));
    missing_in(inquiry, pod, &references)
}

fn missing_in(inquiry: &Inquiry<'_>, pod: &Item, references: &[Reference<'_>]) -> Vec<Node> {
    let mut found: Vec<Node> = Vec::new();
    for node in references.iter().filter_map(|reference| reference.missing(inquiry, pod)) {
        if !found.iter().any(|known| known.object == node.object) {
            found.push(node);
        }
    }
    found
}

impl Reference<'_> {
    fn missing(&self, inquiry: &Inquiry<'_>, pod: &Item) -> Option<Node> {
        let node = Node::new(ObjectRef::new(&self.kind, pod.namespace(), self.name));
        let found = inquiry.get(&self.kind, pod.namespace(), self.name);
        let (kind, name, field) = (&self.kind.kind, self.name, &self.field);
        if found.is_missing() {
            let text =
                format!("the {kind} {name} does not exist ({field} of pod {} refers to it)", pod.name());
            return Some(node.blocked(text, format!("create the {kind}, or set optional: true")));
        }
        let (object, key) = (found.found()?, self.key?);
        let has =
            ["/data", "/binaryData", "/stringData"].iter().any(|data| object.at(data).get(key).is_some());
        (!has).then(|| {
            let text =
                format!("the {kind} {name} has no key {key} ({field} of pod {} refers to it)", pod.name());
            node.blocked(text, "add the key, or correct the reference")
        })
    }
}

/// Lists the references of a pod's volumes that are not optional.
fn of_volumes(pod: &Item) -> Vec<Reference<'_>> {
    let mut found = Vec::new();
    pod.items("/spec/volumes").iter().for_each(|volume| of_volume(volume, &mut found));
    found
}

/// Lists the references in the environment of its containers.
fn of_variables(pod: &Item) -> Vec<Reference<'_>> {
    let mut found = Vec::new();
    for containers in ["/spec/initContainers", "/spec/containers"] {
        pod.items(containers).iter().for_each(|container| of_container(container, &mut found));
    }
    found
}

fn of_volume<'a>(volume: &'a Value, found: &mut Vec<Reference<'a>>) {
    let field = format!("volume {}", volume.text("/name"));
    let mut add = |source: &'a Value, kind: &GroupKind, name: &'a str| {
        if source.is_null() || source.flag("/optional") {
            return;
        }
        let reference = |key| Reference { kind: kind.clone(), name, key, field: field.clone() };
        found.push(reference(None));
        found.extend(source.items("/items").iter().map(|item| reference(Some(item.text("/key")))));
    };
    add(volume.at("/configMap"), &CONFIG_MAP, volume.text("/configMap/name"));
    add(volume.at("/secret"), &SECRET, volume.text("/secret/secretName"));
    for source in volume.items("/projected/sources") {
        add(source.at("/configMap"), &CONFIG_MAP, source.text("/configMap/name"));
        add(source.at("/secret"), &SECRET, source.text("/secret/name"));
    }
}

fn of_container<'a>(container: &'a Value, found: &mut Vec<Reference<'a>>) {
    let kinds = [("/configMapKeyRef", &CONFIG_MAP), ("/secretKeyRef", &SECRET)];
    for variable in container.items("/env") {
        for (path, kind) in kinds {
            let source = variable.at("/valueFrom").at(path);
            if !source.is_null() && !source.flag("/optional") {
                let field = format!("variable {}", variable.text("/name"));
                let (name, key) = (source.text("/name"), Some(source.text("/key")));
                found.push(Reference { kind: kind.clone(), name, key, field });
            }
        }
    }
    let kinds = [("/configMapRef", &CONFIG_MAP), ("/secretRef", &SECRET)];
    for variables in container.items("/envFrom") {
        for (path, kind) in kinds {
            let source = variables.at(path);
            if !source.is_null() && !source.flag("/optional") {
                let field = format!("envFrom of container {}", container.text("/name"));
                found.push(Reference { kind: kind.clone(), name: source.text("/name"), key: None, field });
            }
        }
    }
}
