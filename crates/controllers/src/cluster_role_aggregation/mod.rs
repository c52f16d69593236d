//! ClusterRole aggregation: fills a role with the rules of the roles it selects.
//!
//! Owns: `rules` of ClusterRoles with an aggregation rule.
//! Watches: ClusterRoles.
//! Writes: ClusterRoles (server-side apply).
//!
//! Invariants:
//! - the rules are those of the selected roles, ordered by selector and then by name, without duplicates;
//! - a role does not aggregate its own rules; nothing is written if nothing changes.

use serde::{Deserialize, Serialize};
use serde_json::json;
use setpoint::client::{Patch, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, Context, Event, Key, Kind, LabelSelector, Lister, Outcome, ReconcileError, Reconciler,
    Runnable,
};

use crate::registry::{Access, Entry, Options};
use crate::wiring;
use crate::workload::encoding::null_is_empty;

pub(crate) const ENTRY: Entry = Entry {
    name: "clusterrole-aggregation-controller",
    aliases: &["clusterrole-aggregation"],
    on_by_default: true,
    gates: &[],
    summary: "aggregates the rules of ClusterRoles into others",
    watches: &[Access::watch("rbac.authorization.k8s.io", "clusterroles")],
    writes: &[Access::to("rbac.authorization.k8s.io", "clusterroles", &["escalate", "patch", "update"])],
    default_workers: 5,
    build,
};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClusterRole {
    aggregation_rule: Option<AggregationRule>,
    #[serde(deserialize_with = "null_is_empty")]
    rules: Vec<Rule>,
}

setpoint::view!(ClusterRole of k8s_openapi::api::rbac::v1::ClusterRole);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AggregationRule {
    #[serde(deserialize_with = "null_is_empty")]
    cluster_role_selectors: Vec<LabelSelector>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    #[serde(deserialize_with = "null_is_empty")]
    verbs: Vec<String>,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    api_groups: Vec<String>,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    resources: Vec<String>,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    resource_names: Vec<String>,
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    non_resource_urls: Vec<String>,
}

struct Aggregator {
    client: Client,
    roles: Lister<ClusterRole>,
}

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let roles = context.informers.of::<ClusterRole>();
    let queue = wiring::queue(context, "ClusterRoleAggregator");
    let (changed, lister) = (queue.clone(), roles.lister::<ClusterRole>());
    // Any change to one role may affect every aggregating role.
    roles.add_handler(move |_: &Event| {
        let gathering = lister.list(None).unwrap_or_default();
        let gathering = gathering.iter().filter(|role| role.aggregation_rule.is_some());
        gathering.for_each(|role| changed.add(role.key().clone()));
    });
    let aggregator = Aggregator { client: context.client.clone(), roles: roles.lister() };
    let controller = wiring::controller(&ENTRY, options, queue, aggregator, [&roles]);
    vec![Box::new(controller)]
}

impl Reconciler for Aggregator {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(role) = self.roles.get(key)? else { return Ok(Outcome::Settled) };
        let Some(aggregation) = &role.aggregation_rule else { return Ok(Outcome::Settled) };
        let rules = gather(key, aggregation, &self.roles.list(None)?);
        if rules != role.rules {
            let mut body = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": {"name": key.name()},
            });
            // Absent rules and an empty list are different.
            if !rules.is_empty() {
                body["rules"] = json!(rules);
            }
            let patch =
                Patch::Apply { body: body.to_string().into(), manager: ENTRY.name.to_owned(), force: true };
            let applied = self.client.patch(&Kind::of::<ClusterRole>(), key, Subresource::None, patch).await;
            applied.attempting(format!("update the aggregated rules of {key}"))?;
        }
        Ok(Outcome::Settled)
    }
}

/// Collects the rules of all selected roles except the aggregating one. `roles` is sorted by name.
fn gather(key: &Key, aggregation: &AggregationRule, roles: &[Cached<ClusterRole>]) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for selector in &aggregation.cluster_role_selectors {
        let selected = roles.iter().filter(|role| role.key() != key && selector.matches(&role.meta().labels));
        for rule in selected.flat_map(|role| &role.rules) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::workload::fixtures::cached;

    fn role(name: &str, labels: Value, verbs: &[&str]) -> Cached<ClusterRole> {
        let rules: Vec<_> = verbs.iter().map(|verb| json!({"verbs": [verb]})).collect();
        cached(json!({"metadata": {"name": name, "labels": labels}, "rules": rules}))
    }

    #[test]
    fn rules_are_gathered_by_selector_then_by_name_each_once() {
        let roles = [
            role("all", json!({"to": "all"}), &["own"]),
            role("b", json!({"to": "all"}), &["get", "list"]),
            role("c", json!({"to": "all"}), &["list", "watch"]),
            role("d", json!({"also": "all"}), &["delete"]),
            role("e", json!({}), &["nobody"]),
        ];
        let selector = |label: &str| json!({"matchLabels": {label: "all"}});
        let rule = json!({"clusterRoleSelectors": [selector("also"), selector("to")]});
        let aggregation = serde_json::from_value(rule).expect("a rule");
        let gathered = gather(&Key::cluster("all"), &aggregation, &roles);
        let verbs: Vec<_> = gathered.iter().map(|rule| rule.verbs.join("")).collect();
        assert_eq!(verbs, ["delete", "get", "list", "watch"]);
    }
}
