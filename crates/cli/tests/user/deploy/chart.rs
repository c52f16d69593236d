//! The Helm chart: what it renders, what it rejects, and that a cluster accepts it.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use setpoint_controllers::{FeatureGates, selected, why_absent};

use super::{
    NAMESPACE, RELEASE, arguments, chart, deploy, helm, name, objects, only, render, try_render, values,
};
use crate::binary::{Up, kubectl};

/// The CRDs of the Prometheus operator, reduced to the fields that the chart sets.
const MONITORING: &str = include_str!("../programs/monitoring.yaml");
const MONITORED: &str = "metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true,\
                         metrics.dashboard.enabled=true,metrics.readers[0].name=prometheus,\
                         metrics.readers[0].namespace=monitoring";

fn yaml(path: &str) -> Value {
    let text = fs::read_to_string(chart().join(path)).expect("a file of the chart");
    serde_saphyr::from_str(&text).expect("YAML")
}

/// Returns the controllers that roles are rendered for.
fn with_roles(objects: &[Value]) -> BTreeSet<String> {
    let roles = objects.iter().filter(|object| object["kind"] == "ClusterRole").map(name);
    let own = roles.filter_map(|role| role.strip_prefix(&format!("{RELEASE}:")));
    own.filter(|role| !role.starts_with("account:")).map(str::to_owned).collect()
}

#[test]
fn roles_are_rendered_for_the_controllers_that_the_binary_would_run() {
    let check = |list: &[&str], gates: &str| {
        let gates_on: FeatureGates = gates.parse().expect("gates");
        let runs = |entry: &&setpoint_controllers::Entry| {
            why_absent(entry).is_none() && entry.closed_gate(&gates_on).is_none()
        };
        let chosen = selected(list).expect("names of controllers").into_iter();
        let expected: BTreeSet<_> = chosen.filter(runs).map(|entry| entry.name.to_owned()).collect();
        let controllers = format!("controllers={}", json!(list));
        let mut setting = vec!["--set-json".to_owned(), controllers];
        for gate in gates.split(',').filter(|gate| !gate.is_empty()) {
            setting.extend(["--set".to_owned(), format!("featureGates.{gate}")]);
        }
        let setting: Vec<&str> = setting.iter().map(String::as_str).collect();
        assert_eq!(with_roles(&objects(&render(&setting))), expected, "{list:?} {gates}");
    };
    check(&["*"], "");
    check(&["*"], "DRADeviceTaints=true");
    check(&["*"], "AllAlpha=true,AllBeta=true");
    check(&["*", "-deployment", "bootstrapsigner"], "");
    check(&["job", "-job", "cronjob-controller"], "");
    check(&["-*", "route", "service-lb-controller"], "");
}

#[test]
fn invalid_values_are_rejected() {
    let check = |setting: &str, expected: &str| {
        let answer = try_render(&["--set-json", setting]);
        assert!(!answer.ok && answer.err.contains(expected), "{setting}: {}", answer.err);
    };
    check(r#"controllers=["*","nonsense"]"#, "nonsense");
    check("controllers=[]", "controllers");
    check("replicas=\"many\"", "replicas");
    check("nonsense=1", "nonsense");
    check("leaderElection.leaseDuration=\"soon\"", "leaseDuration");
    check("image.digest=\"latest\"", "digest");
    check("serving.port=70000", "port");
    check("network.allocateNodeCIDRs=true", "network.clusterCIDR");
}

/// Returns the names of all values: `image.tag`, …
fn leaves(prefix: &str, value: &Value) -> Vec<String> {
    let free = ["featureGates", "resources", "metrics.dashboard.labels"].contains(&prefix);
    match value.as_object().filter(|object| !object.is_empty() && !free && !prefix.starts_with("probes.")) {
        None => vec![prefix.to_owned()],
        Some(object) => object
            .iter()
            .flat_map(|(key, value)| {
                leaves(&if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") }, value)
            })
            .collect(),
    }
}

#[test]
fn every_value_is_documented_and_checked() {
    let values = leaves("", &yaml("values.yaml"));
    let readme = fs::read_to_string(chart().join("README.md")).expect("a README");
    let schema: Value =
        serde_json::from_str(&fs::read_to_string(chart().join("values.schema.json")).expect("a schema"))
            .expect("JSON");
    for value in &values {
        assert!(readme.contains(&format!("| `{value}` |")), "README.md has no row for {value}");
        let pointer: String = value.split('.').map(|part| format!("/properties/{part}")).collect();
        assert!(schema.pointer(&pointer).is_some(), "values.schema.json does not describe {value}");
    }
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let unknown: Vec<_> = rows.filter(|row| !values.iter().any(|value| value == row)).collect();
    assert!(unknown.is_empty(), "README.md documents values that do not exist: {unknown:?}");
}

#[test]
fn containers_run_without_privileges() {
    let rendered = objects(&render(&[]));
    let pod = &only(&rendered, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsUser"], 65532);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let expected = json!({
        "allowPrivilegeEscalation": false,
        "privileged": false,
        "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
        "capabilities": {"drop": ["ALL"]},
    });
    assert_eq!(pod["containers"][0]["securityContext"], expected);
}

#[test]
fn the_binary_accepts_every_flag_that_the_chart_sets() {
    let everything = "keys.serviceAccount.secretName=a,keys.signing.secretName=b,keys.rootCA.configMapName=c,\
                      serving.tlsSecretName=d,network.allocateNodeCIDRs=true,network.clusterCIDR=10.1.0.0/16,\
                      network.serviceClusterIPRange=10.0.0.0/16,tracing.otlpEndpoint=http://c:4318,\
                      featureGates.DRADeviceTaints=true,serving.bindAddress=::";
    let [alongside, kubeadm, shadow] = ["alongside", "kubeadm", "shadow"].map(values);
    for setting in
        [&["--set", everything], &["--values", &alongside], &["--values", &kubeadm], &["--values", &shadow]]
    {
        let rendered = objects(&render(setting));
        let arguments = arguments(only(&rendered, "Deployment"));
        let output = Command::new(env!("CARGO_BIN_EXE_setpoint")).args(&arguments).arg("--help").output();
        let output = output.expect("the binary starts");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The objects of a release are accepted unchanged by a cluster that admits only restricted pods.
#[test]
fn helm_installs_the_chart_where_only_restricted_pods_are_admitted() {
    let up = Up::start(&[]);
    up.kubectl_with(&["apply", "-f", "-"], MONITORING);
    for definition in ["servicemonitors", "prometheusrules"] {
        let definition = format!("crd/{definition}.monitoring.coreos.com");
        up.kubectl(&["wait", "--for=condition=Established", &definition, "--timeout=30s"]);
    }
    up.kubectl(&["create", "namespace", "setpoint"]);
    up.kubectl(&["label", "namespace", "setpoint", "pod-security.kubernetes.io/enforce=restricted"]);
    let chart = chart().display().to_string();
    let place = ["--namespace", "setpoint", "--wait", "--timeout=90s"];
    let install = ["install", "sp", &chart, "--set", MONITORED, "--set", "leaderElection.leaseName=setpoint"];
    let notes = up.run(helm(), &[&install[..], &place].concat());
    assert!(notes.contains("It has a lease of its own"), "{notes}");
    let fullname = "sp-setpoint-controller-manager";
    let ready = up.kubectl(&[
        "get",
        "deployment",
        fullname,
        "-n",
        "setpoint",
        "-o",
        "jsonpath={.status.readyReplicas}",
    ]);
    assert_eq!(ready, "2");
    let upgrade = ["upgrade", "sp", &chart, "--set", "replicas=3"];
    let notes = up.run(helm(), &[&upgrade[..], &place].concat());
    assert!(notes.contains("competes with kube-controller-manager"), "{notes}");
    up.run(helm(), &["uninstall", "sp", "--namespace", "setpoint", "--wait", "--timeout=90s"]);
    let kinds = "clusterroles,clusterrolebindings,roles,rolebindings,deployments,services,serviceaccounts,\
                 poddisruptionbudgets,networkpolicies,servicemonitors,prometheusrules,configmaps";
    let left = ["get", kinds, "-A", "-l", "app.kubernetes.io/instance=sp", "-o", "name"];
    assert_eq!(up.kubectl(&left), "");
}

#[test]
fn the_kustomize_output_is_accepted_by_a_cluster() {
    let up = Up::start(&["--nodes=0"]);
    up.kubectl_with(&["apply", "-f", "-"], MONITORING);
    for definition in ["servicemonitors", "prometheusrules"] {
        let definition = format!("crd/{definition}.monitoring.coreos.com");
        up.kubectl(&["wait", "--for=condition=Established", &definition, "--timeout=30s"]);
    }
    for directory in ["base", "alongside", "shadow", "overlays/example"] {
        let path = deploy().join("kustomize").join(directory);
        let built = Command::new(kubectl()).arg("kustomize").arg(&path).output().expect("kubectl runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let built = String::from_utf8_lossy(&built.stdout).into_owned();
        up.kubectl_with(
            &["apply", "--validate=strict", "--server-side", "--force-conflicts", "-f", "-"],
            &built,
        );
    }
    let image = "jsonpath={.spec.template.spec.containers[0].image}";
    let image = up.kubectl(&["get", "deployment", RELEASE, "-n", NAMESPACE, "-o", image]);
    assert_eq!(
        image,
        concat!("registry.example.com/setpoint:", env!("CARGO_PKG_VERSION")),
        "the overlay names the image"
    );
}

#[test]
fn in_shadow_mode_roles_allow_reading_and_reviews_only() {
    let rendered = objects(&render(&["--values", &values("shadow")]));
    let roles =
        rendered.iter().filter(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role")));
    let rules: Vec<&Value> = roles.flat_map(|role| role["rules"].as_array().expect("rules")).collect();
    assert!(rules.len() > 50, "{} rules", rules.len());
    let reviews = [json!(["tokenreviews"]), json!(["subjectaccessreviews"])];
    for rule in rules.iter().filter(|rule| !reviews.contains(&rule["resources"])) {
        let reads = |verb: &Value| ["get", "list", "watch"].iter().any(|read| verb == read);
        assert!(rule["verbs"].as_array().expect("verbs").iter().all(reads), "{rule}");
    }
    assert!(
        rendered.iter().all(|object| object["kind"] != "Role"),
        "there is no lease and there are no tokens"
    );
}
