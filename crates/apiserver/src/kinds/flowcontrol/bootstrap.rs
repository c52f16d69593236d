//! The bootstrap priority levels and flow schemas: two of each are mandatory, the others are suggestions that
//! administrators may change.

use serde_json::{Value, json};

/// Marks objects whose spec follows the server's version.
pub(crate) const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

const EVERYONE: [&str; 2] = ["system:unauthenticated", "system:authenticated"];
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
const SCHEDULER: &str = "system:kube-scheduler";
const NODES: &str = "system:nodes";

/// Limited levels: name, shares, lendable percentage, queues, hand size.
const LIMITED: [(&str, i64, i64, i64, i64); 6] = [
    ("system", 30, 33, 64, 6),
    ("node-high", 40, 25, 64, 6),
    ("leader-election", 10, 0, 16, 4),
    ("workload-high", 40, 50, 128, 6),
    ("workload-low", 100, 90, 128, 6),
    ("global-default", 20, 50, 128, 6),
];

fn object(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name, "annotations": {AUTO_UPDATE: "true"}}, "spec": spec})
}

/// Returns the levels, mandatory ones first.
pub fn priority_levels() -> Vec<Value> {
    let catch_all = json!({
        "type": "Limited",
        "limited": {"nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"}},
    });
    let exempt = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    let limited = LIMITED.iter().map(|(name, shares, lendable, queues, hand)| {
        let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": 50});
        let limited = json!({
            "nominalConcurrencyShares": shares,
            "lendablePercent": lendable,
            "limitResponse": {"type": "Queue", "queuing": queuing},
        });
        object(name, json!({"type": "Limited", "limited": limited}))
    });
    [object("catch-all", catch_all), object("exempt", exempt)].into_iter().chain(limited).collect()
}

/// Returns the schemas, mandatory ones first.
pub fn flow_schemas() -> Vec<Value> {
    let probes = json!([{
        "subjects": groups(&EVERYONE),
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}],
    }]);
    let leases = resource_rule(&["get", "create", "update"], "coordination.k8s.io", &["leases"], false);
    let mut electors = users(&[CONTROLLER_MANAGER, SCHEDULER]);
    electors.push(system_accounts());
    let node_rules = json!([{"subjects": groups(&[NODES]), "resourceRules": [
        resource_rule(&["*"], "", &["nodes", "nodes/status"], true),
        resource_rule(&["*"], "coordination.k8s.io", &["leases"], false),
    ]}]);
    let elections = json!([{"subjects": electors, "resourceRules": [leases]}]);
    vec![
        schema("exempt", "exempt", 1, "", all_of(groups(&["system:masters"]))),
        schema("catch-all", "catch-all", 10000, "ByUser", all_of(groups(&EVERYONE))),
        schema("system-nodes", "system", 500, "ByUser", all_of(groups(&[NODES]))),
        schema("system-node-high", "node-high", 400, "ByUser", node_rules),
        schema("probes", "exempt", 2, "", probes),
        schema("system-leader-election", "leader-election", 100, "ByUser", elections),
        schema(
            "kube-controller-manager",
            "workload-high",
            800,
            "ByNamespace",
            all_of(users(&[CONTROLLER_MANAGER])),
        ),
        schema("kube-scheduler", "workload-high", 800, "ByNamespace", all_of(users(&[SCHEDULER]))),
        schema(
            "kube-system-service-accounts",
            "workload-high",
            900,
            "ByNamespace",
            all_of(vec![system_accounts()]),
        ),
        schema(
            "service-accounts",
            "workload-low",
            9000,
            "ByUser",
            all_of(groups(&["system:serviceaccounts"])),
        ),
        schema("global-default", "global-default", 9900, "ByUser", all_of(groups(&EVERYONE))),
    ]
}

fn schema(name: &str, level: &str, precedence: i64, distinguisher: &str, rules: Value) -> Value {
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        "rules": rules,
    });
    if !distinguisher.is_empty() {
        spec["distinguisherMethod"] = json!({"type": distinguisher});
    }
    object(name, spec)
}

fn groups(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect()
}

fn users(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({"kind": "User", "user": {"name": name}})).collect()
}

fn system_accounts() -> Value {
    json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}})
}

fn resource_rule(verbs: &[&str], group: &str, resources: &[&str], of_cluster: bool) -> Value {
    let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"]});
    if of_cluster {
        rule["clusterScope"] = json!(true);
    }
    rule
}

/// Builds a rule for all requests of these subjects.
fn all_of(subjects: Vec<Value>) -> Value {
    json!([{
        "subjects": subjects,
        "resourceRules": [resource_rule(&["*"], "*", &["*"], true)],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }])
}

/// Whether an object is mandatory.
pub(crate) fn is_mandatory(object: &Value) -> bool {
    let name = &object["metadata"]["name"];
    name == "exempt" || name == "catch-all"
}

/// Returns the mandatory object with this name.
pub(crate) fn mandatory(objects: Vec<Value>, name: &str) -> Option<Value> {
    objects.into_iter().find(|object| is_mandatory(object) && object["metadata"]["name"] == name)
}

/// Returns the spec of a mandatory object, which must not change.
pub(super) fn fixed(objects: Vec<Value>, name: &str) -> Option<Value> {
    Some(mandatory(objects, name)?["spec"].clone())
}
