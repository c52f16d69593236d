//! ApplySets (KEP 3659): an instance is the parent of a set, and its objects are the members.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::parse::Graph;

/// The program that manages the sets.
pub(super) const TOOLING: &str = concat!("setpoint/v", env!("CARGO_PKG_VERSION"));

/// Returns the id of an instance's set.
pub(super) fn id(graph: &Graph, instance: &Value) -> String {
    let text = |name: &str| instance["metadata"][name].as_str().unwrap_or_default();
    let name = [text("name"), text("namespace"), &graph.kind, &graph.group].join(".");
    format!("applyset-{}-v1", URL_SAFE_NO_PAD.encode(Sha256::digest(name.as_bytes())))
}

/// Returns the kinds of a set's members in the form of its annotation: `Kind.group`, sorted.
pub(super) fn group_kinds<'a>(kinds: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let named = kinds.map(|(kind, api_version)| match api_version.split_once('/') {
        Some((group, _)) => format!("{kind}.{group}"),
        None => kind.to_owned(),
    });
    let named: std::collections::BTreeSet<String> = named.collect();
    named.into_iter().collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_and_kinds_have_the_form_of_the_specification() {
        let graph =
            json!({"metadata": {"name": "g"}, "spec": {"schema": {"apiVersion": "v1", "kind": "Site"}}});
        let graph = Graph::parse(&graph).unwrap();
        let instance = json!({"metadata": {"name": "a", "namespace": "b"}});
        let expected = URL_SAFE_NO_PAD.encode(Sha256::digest(b"a.b.Site.kro.run"));
        assert_eq!(id(&graph, &instance), format!("applyset-{expected}-v1"));
        let kinds = [("Deployment", "apps/v1"), ("ConfigMap", "v1"), ("Deployment", "apps/v1beta1")];
        assert_eq!(group_kinds(kinds.into_iter()), "ConfigMap,Deployment.apps");
    }
}
