//! The bootstrap RBAC policy: roles and bindings created when the server first starts and completed at every later
//! start. Additions are kept, and an annotation can exclude an object from updates.

mod table;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use futures::StreamExt;
use http::Method;
use serde_json::{Value, json};
use setpoint_store::ListOptions;

use super::rbac::{Rule, View, missing};
use crate::features::Features;
use crate::json::{Json, JsonMut};
use crate::kinds::rbac::GROUP;
use crate::metadata;
use crate::registry::Gvr;
use crate::server::ApiServer;
use crate::status::Status;
use table::BootstrapObject;

/// Set to `false` on a role or binding that must not be updated.
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// Maximum concurrent writes: enough to share the store's commits, few enough to need little memory.
const CONCURRENCY: usize = 16;

/// The action for an object in the table.
#[derive(Debug, PartialEq)]
enum Step {
    Create(Value),
    Update(Value),
    /// The role reference of a binding is immutable, so a binding to another role is recreated.
    Replace(Value),
}

/// Returns the rules that apply to every node.
pub(crate) fn node_rules() -> Vec<Rule> {
    rules_of_nodes(&table::objects(&Features::default()))
}

fn rules_of_nodes(table: &[BootstrapObject]) -> Vec<Rule> {
    let node = table.iter().find(|own| own.plural == "clusterroles" && own.name == "system:node");
    node.map(|own| rules(&own.object)).unwrap_or_default()
}

/// Returns the bootstrap roles and bindings for these features, and the node rules.
pub(super) fn built_in(features: &Features) -> (Arc<View>, Vec<Rule>) {
    /// The policy for the default features, parsed once per process.
    static DEFAULT: LazyLock<(Arc<View>, Vec<Rule>)> = LazyLock::new(|| read_built_in(&Features::default()));
    match *features == Features::default() {
        true => DEFAULT.clone(),
        false => read_built_in(features),
    }
}

fn read_built_in(features: &Features) -> (Arc<View>, Vec<Rule>) {
    let table = table::objects(features);
    let mut view = View::default();
    for own in &table {
        let path = own.namespace.map_or(own.name.into(), |namespace| format!("{namespace}/{}", own.name));
        view.add(own.plural, &path, &own.object);
    }
    (Arc::new(view), rules_of_nodes(&table))
}

/// Creates the bootstrap roles and bindings, or adds what they lack.
pub(crate) async fn ensure(server: &ApiServer, features: &Features) -> Result<(), Status> {
    let there = stored(server).await?;
    let steps = table::objects(features).into_iter().filter_map(|own| {
        let step = plan(&own.object, there.get(&place(own.plural, own.namespace, own.name)))?;
        Some((own, step))
    });
    let writes = futures::stream::iter(steps.map(|(own, step)| execute(server, own, step)));
    let mut outcomes = writes.buffered(CONCURRENCY);
    while let Some(outcome) = outcomes.next().await {
        outcome?;
    }
    Ok(())
}

fn place(plural: &str, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{plural}/{namespace}/{name}"),
        None => format!("{plural}/{name}"),
    }
}

/// Reads the existing roles and bindings.
async fn stored(server: &ApiServer) -> Result<BTreeMap<String, Value>, Status> {
    let mut all = BTreeMap::new();
    for plural in ["clusterroles", "clusterrolebindings", "roles", "rolebindings"] {
        let served = server.0.served(&Gvr::new(GROUP, "v1", plural))?;
        let page = server.0.store.list(&served.resource.all(), ListOptions::default()).await;
        for record in page.map_err(|why| server.0.refusal(why))?.records {
            all.insert(format!("{plural}/{}", record.key.path), served.decode_bare(&record)?);
        }
    }
    Ok(all)
}

fn plan(wanted: &Value, found: Option<&Value>) -> Option<Step> {
    let Some(found) = found else { return Some(Step::Create(wanted.clone())) };
    if metadata::of(found).at("annotations").text(AUTOUPDATE) == "false" {
        return None;
    }
    if found.at("roleRef") != wanted.at("roleRef") {
        return Some(Step::Replace(wanted.clone()));
    }
    let mut new = found.clone();
    for field in ["labels", "annotations"] {
        for (key, value) in metadata::of(wanted).map(field).into_iter().flatten() {
            new.object_mut("metadata").object_mut(field).or_insert(key, value.clone());
        }
    }
    add_rules(&mut new, wanted);
    add_selectors(&mut new, wanted);
    add_subjects(&mut new, wanted);
    (new != *found).then_some(Step::Update(new))
}

fn rules(role: &Value) -> Vec<Rule> {
    let rules = role.list("rules").iter();
    rules.filter_map(|rule| serde_json::from_value(rule.clone()).ok()).collect()
}

fn add_rules(role: &mut Value, wanted: &Value) {
    // A role with more rules than can be compared is left as it is.
    let missing = missing(&rules(role), &rules(wanted)).unwrap_or_default();
    append(role, "rules", missing.rules.into_iter().map(|rule| json!(rule)).collect());
}

fn add_selectors(role: &mut Value, wanted: &Value) {
    const FIELD: &str = "clusterRoleSelectors";
    if !wanted.has("aggregationRule") {
        role.unset("aggregationRule");
        return;
    }
    let there = role.at("aggregationRule").list(FIELD);
    let missing = wanted.at("aggregationRule").list(FIELD).iter().filter(|one| !there.contains(one));
    let missing = missing.cloned().collect();
    append(role.object_mut("aggregationRule"), FIELD, missing);
}

fn add_subjects(binding: &mut Value, wanted: &Value) {
    let there = binding.list("subjects");
    let missing = wanted.list("subjects").iter().filter(|one| !there.contains(one)).cloned().collect();
    append(binding, "subjects", missing);
}

fn append(object: &mut Value, field: &str, mut more: Vec<Value>) {
    if more.is_empty() {
        return;
    }
    match object.at_mut(field) {
        Some(Value::Array(list)) => list.append(&mut more),
        _ => object.set(field, more),
    }
}

async fn execute(server: &ApiServer, own: BootstrapObject, step: Step) -> Result<(), Status> {
    let collection = match own.namespace {
        Some(namespace) => format!("/apis/{GROUP}/v1/namespaces/{namespace}/{}", own.plural),
        None => format!("/apis/{GROUP}/v1/{}", own.plural),
    };
    let object = format!("{collection}/{}", own.name);
    let server = &server.0;
    match step {
        Step::Create(new) => server.loopback_request(Method::POST, &collection, &new, &[]).await?,
        Step::Update(new) => server.loopback_request(Method::PUT, &object, &new, &[]).await?,
        Step::Replace(new) => {
            server.loopback_request(Method::DELETE, &object, &Value::Null, &[]).await?;
            server.loopback_request(Method::POST, &collection, &new, &[]).await?
        }
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(rules: Value, annotation: &str) -> Value {
        json!({"metadata": {"annotations": {AUTOUPDATE: annotation}}, "rules": rules})
    }

    fn get(resource: &str) -> Value {
        json!({"apiGroups": [""], "resources": [resource], "verbs": ["get"]})
    }

    #[test]
    fn missing_rules_are_added_and_custom_ones_stay() {
        let wanted = role(json!([get("pods"), get("nodes")]), "true");
        assert_eq!(plan(&wanted, None), Some(Step::Create(wanted.clone())));
        assert_eq!(plan(&wanted, Some(&wanted)), None);
        let more = role(json!([get("pods"), get("nodes"), get("secrets")]), "true");
        assert_eq!(plan(&wanted, Some(&more)), None);
        let less = role(json!([get("secrets"), get("pods")]), "true");
        let completed = role(json!([get("secrets"), get("pods"), get("nodes")]), "true");
        assert_eq!(plan(&wanted, Some(&less)), Some(Step::Update(completed)));
        assert_eq!(plan(&wanted, Some(&role(json!([]), "false"))), None);
    }

    #[test]
    fn a_binding_of_another_role_is_replaced() {
        let binding = |role: &str, user: &str| {
            json!({
                "metadata": {"annotations": {AUTOUPDATE: "true"}},
                "roleRef": {"name": role},
                "subjects": [{"kind": "User", "name": user}],
            })
        };
        let wanted = binding("a", "u");
        assert_eq!(plan(&wanted, Some(&binding("b", "u"))), Some(Step::Replace(wanted.clone())));
        let both = json!([{"kind": "User", "name": "v"}, {"kind": "User", "name": "u"}]);
        let Some(Step::Update(new)) = plan(&wanted, Some(&binding("a", "v"))) else { panic!() };
        assert_eq!(new["subjects"], both);
    }
}
