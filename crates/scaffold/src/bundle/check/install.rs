//! What OLM installs: Deployments, permissions, and webhooks.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Findings, is_subdomain, list, text};

pub(super) fn check(csv: &Value, findings: &mut Findings<'_>) {
    let install = &csv["spec"]["install"];
    let strategy = text(&install["strategy"]);
    findings.expect(strategy == "deployment", || {
        format!("spec.install.strategy: expected deployment, not {strategy:?}")
    });
    let deployments: Vec<&Value> = list(&install["spec"]["deployments"]).collect();
    findings.expect(!deployments.is_empty(), || {
        "spec.install.spec.deployments: expected the operator's Deployment".into()
    });
    for (nth, deployment) in deployments.iter().enumerate() {
        check_deployment(&format!("spec.install.spec.deployments[{nth}]"), deployment, findings);
    }
    for field in ["clusterPermissions", "permissions"] {
        for (nth, permission) in list(&install["spec"][field]).enumerate() {
            check_permission(&format!("spec.install.spec.{field}[{nth}]"), permission, findings);
        }
    }
    webhooks(csv, &deployments, findings);
}

fn check_deployment(field: &str, deployment: &Value, findings: &mut Findings<'_>) {
    let (name, spec) = (text(&deployment["name"]), &deployment["spec"]);
    findings.expect(is_subdomain(name), || format!("{field}.name: expected a name, not {name:?}"));
    let labels = &spec["template"]["metadata"]["labels"];
    let selector = spec["selector"]["matchLabels"].as_object();
    let selects =
        selector.is_some_and(|selector| selector.iter().all(|(name, value)| labels[name] == *value));
    let has_expressions = list(&spec["selector"]["matchExpressions"]).next().is_some();
    findings.expect(selects || (selector.is_none() && has_expressions), || {
        format!("{field}.spec.selector: expected labels of the template")
    });
    let containers: Vec<&Value> = list(&spec["template"]["spec"]["containers"]).collect();
    findings.expect(!containers.is_empty(), || {
        format!("{field}.spec.template.spec.containers: expected a container")
    });
    for (nth, container) in containers.iter().enumerate() {
        let field = format!("{field}.spec.template.spec.containers[{nth}]");
        findings
            .expect(!text(&container["image"]).is_empty(), || format!("{field}.image: expected an image"));
        if container["resources"]["requests"].as_object().is_none_or(serde_json::Map::is_empty) {
            findings.warning(format!("{field}.resources.requests: expected what the operator usually needs"));
        }
    }
}

fn check_permission(field: &str, permission: &Value, findings: &mut Findings<'_>) {
    let account = text(&permission["serviceAccountName"]);
    findings.expect(is_subdomain(account), || {
        format!("{field}.serviceAccountName: expected a name, not {account:?}")
    });
    for (nth, rule) in list(&permission["rules"]).enumerate() {
        let field = format!("{field}.rules[{nth}]");
        let has = |name: &str| list(&rule[name]).next().is_some();
        findings.expect(has("verbs"), || format!("{field}.verbs: expected verbs"));
        findings.expect((has("apiGroups") && has("resources")) || has("nonResourceURLs"), || {
            format!("{field}: expected apiGroups and resources, or nonResourceURLs")
        });
        let names = |name: &str, wanted: &str| list(&rule[name]).any(|one| one == wanted);
        if names("resources", "*") || names("verbs", "*") || names("apiGroups", "*") {
            findings.warning(format!("{field}: expected resources and verbs by name, not *"));
        }
        if names("resources", "customresourcedefinitions")
            && (names("verbs", "create") || names("verbs", "*"))
        {
            findings.warning(format!(
                "{field}: an operator that may create CRDs can break others. OLM installs those of the bundle"
            ));
        }
    }
}

/// Where OLM allows values in webhook definitions.
const TYPES: &[&str] = &["ValidatingAdmissionWebhook", "MutatingAdmissionWebhook", "ConversionWebhook"];

fn webhooks(csv: &Value, deployments: &[&Value], findings: &mut Findings<'_>) {
    let mut seen = BTreeSet::new();
    for (nth, webhook) in list(&csv["spec"]["webhookdefinitions"]).enumerate() {
        let field = format!("spec.webhookdefinitions[{nth}]");
        let get = |name: &str| text(&webhook[name]);
        let kind = get("type");
        findings.expect(TYPES.contains(&kind), || {
            format!("{field}.type: expected one of {}, not {kind:?}", TYPES.join(", "))
        });
        let name = get("generateName");
        findings
            .expect(is_subdomain(name), || format!("{field}.generateName: expected a name, not {name:?}"));
        findings.expect(seen.insert((kind, name)), || {
            format!("{field}.generateName: there is another {kind} {name}")
        });
        let deployment = get("deploymentName");
        findings.expect(deployments.iter().any(|one| one["name"] == deployment), || {
            format!("{field}.deploymentName: expected a Deployment of the bundle, not {deployment:?}")
        });
        findings.expect(list(&webhook["admissionReviewVersions"]).next().is_some(), || {
            format!("{field}.admissionReviewVersions: expected versions such as v1")
        });
        let effects = get("sideEffects");
        findings.expect(["None", "NoneOnDryRun"].contains(&effects), || {
            format!("{field}.sideEffects: expected None or NoneOnDryRun, not {effects:?}")
        });
        let path = get("webhookPath");
        findings.expect(webhook["webhookPath"].is_null() || path.starts_with('/'), || {
            format!("{field}.webhookPath: expected a path that starts with /, not {path:?}")
        });
        if let Some(port) = webhook["containerPort"].as_u64() {
            findings.expect((1..=65535).contains(&port), || {
                format!("{field}.containerPort: expected a port, not {port}")
            });
        }
        match kind {
            "ConversionWebhook" => conversion(csv, &field, webhook, findings),
            _ => findings.expect(list(&webhook["rules"]).next().is_some(), || {
                format!("{field}.rules: expected rules")
            }),
        }
    }
}

fn conversion(csv: &Value, field: &str, webhook: &Value, findings: &mut Findings<'_>) {
    let owned: Vec<&str> =
        list(&csv["spec"]["customresourcedefinitions"]["owned"]).map(|one| text(&one["name"])).collect();
    let converted: Vec<&str> = list(&webhook["conversionCRDs"]).map(text).collect();
    findings.expect(!converted.is_empty(), || format!("{field}.conversionCRDs: expected the names of CRDs"));
    for name in converted {
        findings.expect(owned.contains(&name), || {
            format!("{field}.conversionCRDs: expected an owned CRD, not {name:?}")
        });
    }
    let other_modes = list(&csv["spec"]["installModes"])
        .any(|mode| mode["supported"] == true && mode["type"] != "AllNamespaces");
    findings.expect(!other_modes, || {
        "spec.installModes: expected only AllNamespaces, because the operator converts CRDs".into()
    });
}
