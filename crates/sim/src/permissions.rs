//! What the author's controllers ask of the API server, as the rules of a role.
//!
//! Reads of caches count as the list and watch that fill them. A write that creates an object needs `create`, even if it
//! is an apply. An owner reference that blocks deletion needs `update` on the owner's `finalizers`, where
//! OwnerReferencesPermissionEnforcement is on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use k8s_openapi::api::rbac::v1::PolicyRule;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint::Kind;

/// The maximum number of names kept for a verb on a resource. With more, all names count as used.
const MOST_NAMES: usize = 64;
/// The order of verbs, as in Kubernetes' own roles.
const ORDER: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// The requests that controllers made: see [`Running::permissions`](crate::Running::permissions).
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use setpoint::prelude::*;
/// use setpoint_sim::TestCluster;
/// async fn print(map: Cached<ConfigMap>, _: Context) -> Result<(), ReconcileError> {
///     println!("{}", map.key());
///     Ok(())
/// }
/// let cluster = TestCluster::new().with(|context: &Context| Controller::for_::<ConfigMap>(context, "printer").run(print));
/// let used = cluster.run(async |cluster| {
///     cluster.settled(std::time::Duration::from_secs(10)).await;
///     cluster.permissions()
/// });
/// assert_eq!(used.rules()[0].verbs, ["get", "list", "watch"]);
/// assert!(used.missing_in(&used.rules()).is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions(BTreeMap<Asked, Names>);

/// A verb on a resource of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Asked {
    group: String,
    /// `pods`, `pods/status`
    resource: String,
    verb: String,
}

/// The objects that a verb was used on.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Names {
    All,
    Some(BTreeSet<String>),
}

impl Permissions {
    /// Returns the rules that permit these requests and no others, one for each resource.
    pub fn rules(&self) -> Vec<PolicyRule> {
        let mut verbs: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
        for asked in self.0.keys() {
            verbs.entry((&asked.group, &asked.resource)).or_default().push(asked.verb.clone());
        }
        let place = |verb: &String| ORDER.iter().position(|known| known == verb).unwrap_or(ORDER.len());
        let rule = |((group, resource), mut verbs): ((&str, &str), Vec<String>)| {
            verbs.sort_by_key(place);
            PolicyRule {
                api_groups: Some(vec![group.to_owned()]),
                resources: Some(vec![resource.to_owned()]),
                verbs,
                ..PolicyRule::default()
            }
        };
        verbs.into_iter().map(rule).collect()
    }

    /// Returns the requests that these rules do not permit.
    pub fn missing_in(&self, rules: &[PolicyRule]) -> Self {
        let is_missing = |(asked, names): &(&Asked, &Names)| match names {
            Names::All => !rules.iter().any(|rule| asked.is_permitted(rule, None)),
            Names::Some(names) => {
                names.iter().any(|name| !rules.iter().any(|rule| asked.is_permitted(rule, Some(name))))
            }
        };
        let missing = self.0.iter().filter(is_missing);
        Self(missing.map(|(asked, names)| (asked.clone(), names.clone())).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds others, for example from another test.
    pub fn extend(&mut self, others: &Self) {
        for (asked, names) in &others.0 {
            match names {
                Names::All => self.add(asked.clone(), None),
                Names::Some(names) => names.iter().for_each(|name| self.add(asked.clone(), Some(name))),
            }
        }
    }

    fn add(&mut self, asked: Asked, name: Option<&str>) {
        let names = self.0.entry(asked).or_insert_with(|| Names::Some(BTreeSet::new()));
        match (&mut *names, name) {
            (Names::Some(known), Some(name)) if known.len() < MOST_NAMES || known.contains(name) => {
                known.insert(name.to_owned());
            }
            _ => *names = Names::All,
        }
    }

    pub(crate) fn add_read(&mut self, kind: &Kind) {
        for verb in ["get", "list", "watch"] {
            self.add(Asked::new(kind.group(), kind.plural(), verb), None);
        }
    }

    pub(crate) fn add_owner(&mut self, kind: &Kind) {
        self.add(Asked::new(kind.group(), &format!("{}/finalizers", kind.plural()), "update"), None);
    }
}

/// One line for each resource.
impl fmt::Display for Permissions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for rule in self.rules() {
            let list = |values: &Option<Vec<String>>| values.iter().flatten().cloned().collect::<String>();
            let (group, resource) = (list(&rule.api_groups), list(&rule.resources));
            let group = if group.is_empty() { "\"\"".to_owned() } else { group };
            writeln!(
                formatter,
                "- {{apiGroups: [{group}], resources: [{resource}], verbs: [{}]}}",
                rule.verbs.join(", ")
            )?;
        }
        Ok(())
    }
}

impl Asked {
    fn new(group: &str, resource: &str, verb: &str) -> Self {
        Self { group: group.to_owned(), resource: resource.to_owned(), verb: verb.to_owned() }
    }

    fn is_permitted(&self, rule: &PolicyRule, name: Option<&str>) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|one| one == "*" || one == wanted);
        let of = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
        let any_parent = self.resource.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
        let resources = of(&rule.resources);
        let names = of(&rule.resource_names);
        has(&rule.verbs, &self.verb)
            && has(&of(&rule.api_groups), &self.group)
            && (has(&resources, &self.resource) || any_parent.is_some_and(|any| resources.contains(&any)))
            && (names.is_empty() || name.is_some_and(|name| names.iter().any(|one| one == name)))
    }
}

/// The requests of the author's controllers so far. Cheap to clone; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Requests(Arc<Mutex<Recorded>>);

#[derive(Default)]
struct Recorded {
    permissions: Permissions,
    /// API version and kind of the owners in owner references that block deletion.
    owners: BTreeSet<(String, String)>,
}

/// A request whose response is awaited.
pub(crate) struct Pending {
    requests: Requests,
    asked: Asked,
}

impl Requests {
    /// Records a request. The result records what its response says.
    pub(crate) fn record(&self, request: &Request<Bytes>) -> Option<Pending> {
        let (asked, name) = parsed(request)?;
        let mut recorded = self.0.lock();
        // The name of a new object is not part of its path.
        let name = if asked.verb == "create" { None } else { name };
        recorded.permissions.add(asked.clone(), name.as_deref());
        recorded.owners.extend(blocked_owners(request.body()));
        Some(Pending { requests: self.clone(), asked })
    }

    /// Returns the requests, and the owners of what they wrote.
    pub(crate) fn all(&self) -> (Permissions, BTreeSet<(String, String)>) {
        let recorded = self.0.lock();
        (recorded.permissions.clone(), recorded.owners.clone())
    }
}

impl Pending {
    /// An update or a patch that creates an object needs the permission for that too.
    pub(crate) fn answered(self, status: StatusCode) {
        if status == StatusCode::CREATED && self.asked.verb != "create" {
            let asked = Asked { verb: "create".to_owned(), ..self.asked };
            self.requests.0.lock().permissions.add(asked, None);
        }
    }
}

/// Returns the verb and resource of a request, and the name of the object.
fn parsed(request: &Request<Bytes>) -> Option<(Asked, Option<String>)> {
    let mut segments = request.uri().path().trim_start_matches('/').split('/');
    let group = match segments.next()? {
        "api" => "",
        "apis" => segments.next()?,
        _ => return None,
    };
    segments.next()?;
    let rest: Vec<&str> = segments.collect();
    let parts = match rest[..] {
        ["namespaces", _, "status" | "finalize"] | ["namespaces"] | ["namespaces", _] => &rest[..],
        ["namespaces", _, ..] => &rest[2..],
        _ => &rest[..],
    };
    let (resource, name) = (*parts.first()?, parts.get(1));
    let resource = match parts.get(2) {
        Some(subresource) => format!("{resource}/{subresource}"),
        None => resource.to_owned(),
    };
    let watches = request.uri().query().is_some_and(|query| {
        query.split('&').any(|part| part == "watch=true" || part == "watch=1" || part == "watch")
    });
    let verb = match (request.method(), name.is_some()) {
        (&Method::GET, _) if watches => "watch",
        (&Method::GET, true) => "get",
        (&Method::GET, false) => "list",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, true) => "delete",
        (&Method::DELETE, false) => "deletecollection",
        _ => return None,
    };
    Some((Asked::new(group, &resource, verb), name.map(|name| (*name).to_owned())))
}

/// Returns the owners whose deletion an object in a body blocks.
fn blocked_owners(body: &Bytes) -> Vec<(String, String)> {
    if !contains(body, b"blockOwnerDeletion") {
        return Vec::new();
    }
    let object: Value = serde_json::from_slice(body).unwrap_or_default();
    let references = object["metadata"]["ownerReferences"].as_array();
    let blocked = references.into_iter().flatten().filter(|one| one["blockOwnerDeletion"] == true);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    blocked.map(|one| (text(&one["apiVersion"]), text(&one["kind"]))).collect()
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    text.windows(wanted.len()).any(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_verbs_on_resources() {
        let check = |method: Method, uri: &str, expected: &str| {
            let request = Request::builder().method(method).uri(uri).body(Bytes::new()).expect("a request");
            let found = parsed(&request).map_or(String::new(), |(asked, name)| {
                format!("{} {}.{} {}", asked.verb, asked.resource, asked.group, name.unwrap_or_default())
            });
            assert_eq!(found, expected, "{uri}");
        };
        check(Method::GET, "/api/v1/namespaces/a/pods/b", "get pods. b");
        check(Method::GET, "/api/v1/pods?watch=true&x=1", "watch pods. ");
        check(Method::GET, "/apis/apps/v1/namespaces/a/deployments", "list deployments.apps ");
        check(
            Method::PATCH,
            "/apis/apps/v1/namespaces/a/deployments/b/status",
            "patch deployments/status.apps b",
        );
        check(Method::PUT, "/api/v1/namespaces/a/finalize", "update namespaces/finalize. a");
        check(Method::DELETE, "/api/v1/namespaces/a", "delete namespaces. a");
        check(Method::DELETE, "/api/v1/namespaces/a/pods", "deletecollection pods. ");
        check(Method::POST, "/api/v1/nodes", "create nodes. ");
        check(Method::GET, "/version", "");
        check(Method::GET, "/apis/apps/v1", "");
        check(Method::GET, "/apis", "");
    }

    #[test]
    fn rules_permit_what_they_name() {
        let mut used = Permissions::default();
        used.add(Asked::new("", "secrets", "get"), Some("one"));
        used.add(Asked::new("apps", "deployments/scale", "update"), Some("web"));
        let rule = |text: &str| -> PolicyRule {
            serde_json::from_value(serde_saphyr::from_str(text).expect("YAML")).expect("a rule")
        };
        let missing = |rules: &[&str]| {
            let rules: Vec<PolicyRule> = rules.iter().map(|text| rule(text)).collect();
            used.missing_in(&rules).rules().len()
        };
        let secrets = "{apiGroups: [''], resources: [secrets], verbs: [get], resourceNames: [one]}";
        assert_eq!(missing(&[]), 2);
        assert_eq!(missing(&["{apiGroups: ['*'], resources: ['*'], verbs: ['*']}"]), 0);
        assert_eq!(missing(&[secrets]), 1);
        assert_eq!(missing(&[secrets, "{apiGroups: [apps], resources: ['*/scale'], verbs: [update]}"]), 0);
        assert_eq!(missing(&[secrets, "{apiGroups: [apps], resources: [deployments], verbs: [update]}"]), 1);
        assert_eq!(
            missing(&["{apiGroups: [''], resources: [secrets], verbs: [get], resourceNames: [two]}"]),
            2
        );
        used.add(Asked::new("", "secrets", "get"), Some("two"));
        let text = used.to_string();
        assert!(text.starts_with("- {apiGroups: [\"\"], resources: [secrets], verbs: [get]}\n"), "{text}");
        let mut more = Permissions::default();
        more.extend(&used);
        assert_eq!(more, used);
    }
}
