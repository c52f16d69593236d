//! The CRDs and the other objects of a bundle.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::{Finding, MANIFESTS};
use super::{Api, Findings, is_subdomain, list, text};

/// What OLM installs from a bundle.
const SUPPORTED: &[&str] = &[
    "ClusterRole",
    "ClusterRoleBinding",
    "ClusterServiceVersion",
    "ConfigMap",
    "ConsoleCLIDownload",
    "ConsoleLink",
    "ConsolePlugin",
    "ConsoleQuickStart",
    "ConsoleYAMLSample",
    "CustomResourceDefinition",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "PriorityClass",
    "PrometheusRule",
    "Role",
    "RoleBinding",
    "Secret",
    "Service",
    "ServiceAccount",
    "ServiceMonitor",
    "VerticalPodAutoscaler",
];
/// API versions that Kubernetes serves no longer, by the kinds that a bundle may have.
const REMOVED: &[(&str, &str, &str)] = &[
    ("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition", "1.22"),
    ("rbac.authorization.k8s.io/v1beta1", "ClusterRole", "1.22"),
    ("rbac.authorization.k8s.io/v1beta1", "ClusterRoleBinding", "1.22"),
    ("rbac.authorization.k8s.io/v1beta1", "Role", "1.22"),
    ("rbac.authorization.k8s.io/v1beta1", "RoleBinding", "1.22"),
    ("scheduling.k8s.io/v1beta1", "PriorityClass", "1.22"),
    ("policy/v1beta1", "PodDisruptionBudget", "1.25"),
];

/// Checks the CRDs, and returns what they provide: the name of the CRD, and each version.
pub(super) fn definitions(manifests: &[(&str, Value)], all: &mut Vec<Finding>) -> BTreeSet<(String, Api)> {
    let mut provided = BTreeSet::new();
    for (file, crd) in manifests.iter().filter(|(_, one)| one["kind"] == "CustomResourceDefinition") {
        let mut findings = Findings { file, all };
        let (name, spec) = (text(&crd["metadata"]["name"]), &crd["spec"]);
        let (group, kind) = (text(&spec["group"]), text(&spec["names"]["kind"]));
        let expected = format!("{}.{group}", text(&spec["names"]["plural"]));
        findings.expect(name == expected, || format!("metadata.name: expected {expected}, not {name:?}"));
        let versions: Vec<&Value> = list(&spec["versions"]).collect();
        findings.expect(!versions.is_empty(), || "spec.versions: expected a version".into());
        let stored = versions.iter().filter(|version| version["storage"] == true).count();
        findings
            .expect(stored == 1, || format!("spec.versions: expected one with storage: true, not {stored}"));
        for (nth, version) in versions.iter().enumerate() {
            findings.expect(version["schema"]["openAPIV3Schema"].is_object(), || {
                format!("spec.versions[{nth}].schema: expected a schema")
            });
            let api = Api { group: group.into(), version: text(&version["name"]).into(), kind: kind.into() };
            let is_new = provided.insert((name.to_owned(), api));
            findings.expect(is_new, || {
                format!("spec.versions[{nth}]: {} is there twice", text(&version["name"]))
            });
        }
        let conversion = &spec["conversion"];
        if conversion["strategy"] == "Webhook" {
            findings
                .expect(list(&conversion["webhook"]["conversionReviewVersions"]).next().is_some(), || {
                    "spec.conversion.webhook.conversionReviewVersions: expected versions such as v1".into()
                });
        }
    }
    provided
}

/// Checks that OLM can install the objects.
pub(super) fn check(manifests: &[(&str, Value)], csv: &Value, all: &mut Vec<Finding>) {
    let mut seen = BTreeSet::new();
    let accounts = accounts(csv);
    for (file, object) in manifests {
        let mut findings = Findings { file, all };
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        findings.expect(SUPPORTED.contains(&kind), || {
            format!("kind: expected one that OLM installs from a bundle, not {kind}")
        });
        findings.expect(is_name(kind, name), || format!("metadata.name: expected a name, not {name:?}"));
        findings
            .expect(seen.insert((kind, name)), || format!("there is another {kind} {name} in {MANIFESTS}"));
        let removed = REMOVED.iter().find(|(version, of, _)| object["apiVersion"] == *version && *of == kind);
        if let Some((version, _, since)) = removed {
            findings.error(format!("apiVersion: {version} is gone since Kubernetes {since}"));
        }
        match kind {
            "ServiceAccount" => findings.expect(!accounts.contains(name), || {
                format!("metadata.name: OLM creates the service account {name} of the ClusterServiceVersion")
            }),
            "PodDisruptionBudget" => budget(&object["spec"], &mut findings),
            "PriorityClass" => {
                findings.expect(object["globalDefault"] != true, || "globalDefault: expected false".into())
            }
            _ => {}
        }
    }
}

/// Names of roles may have colons.
fn is_name(kind: &str, name: &str) -> bool {
    match kind {
        "ClusterRole" | "ClusterRoleBinding" | "Role" | "RoleBinding" => {
            is_subdomain(&name.replace(':', "-"))
        }
        _ => is_subdomain(name),
    }
}

fn accounts(csv: &Value) -> BTreeSet<&str> {
    let spec = &csv["spec"]["install"]["spec"];
    let lists = [&spec["permissions"], &spec["clusterPermissions"]];
    lists.into_iter().flat_map(list).map(|one| text(&one["serviceAccountName"])).collect()
}

/// A budget that never allows a disruption blocks upgrades of the cluster.
fn budget(spec: &Value, findings: &mut Findings<'_>) {
    let is = |value: &Value, number: u64, percent: &str| *value == number || *value == percent;
    findings
        .expect(!is(&spec["maxUnavailable"], 0, "0%"), || "spec.maxUnavailable: expected more than 0".into());
    findings.expect(spec["minAvailable"] != "100%", || "spec.minAvailable: expected less than 100%".into());
}
