//! The current roles and bindings, indexed by subject.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;
use setpoint_store::{Record, Resource};

use super::rule::Rule;
use crate::auth::{User, service_account_name, store_view};
use crate::kinds::rbac::GROUP;

/// A reference to a role.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleRef {
    /// `Role` or `ClusterRole`
    pub kind: Box<str>,
    pub name: Box<str>,
}

/// The error for a binding that refers to a role that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}.{GROUP} {name:?} not found")]
pub struct MissingRole {
    kind: String,
    name: Box<str>,
}

impl MissingRole {
    pub fn named(role: &RoleRef) -> Self {
        Self { kind: role.kind.to_lowercase(), name: role.name.clone() }
    }
}

/// A subject of a binding.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Subject {
    kind: Box<str>,
    name: Box<str>,
    #[serde(default)]
    namespace: Box<str>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Binding {
    role_ref: RoleRef,
    #[serde(default)]
    subjects: Option<Vec<Subject>>,
}

#[derive(Deserialize)]
struct Role {
    #[serde(default)]
    rules: Option<Vec<Rule>>,
}

/// A binding that grants a role to a user, and the matching subject.
#[derive(Clone, Copy)]
pub(super) struct Grant<'v> {
    name: &'v str,
    namespace: Option<&'v str>,
    binding: &'v Binding,
    subject: &'v Subject,
}

/// Names of bindings by subject.
type Index = BTreeMap<Box<str>, BTreeSet<Box<str>>>;

/// The bindings of one namespace, or the cluster-wide ones, by name and by subject.
#[derive(Default)]
struct Bindings {
    by_name: BTreeMap<Box<str>, Binding>,
    of_users: Index,
    of_groups: Index,
}

/// All roles and bindings.
#[derive(Default)]
pub(in crate::auth) struct View {
    cluster_roles: BTreeMap<Box<str>, Vec<Rule>>,
    /// By `namespace/name`.
    roles: BTreeMap<Box<str>, Vec<Rule>>,
    cluster_bindings: Bindings,
    bindings: BTreeMap<Box<str>, Bindings>,
}

impl View {
    /// Returns the bindings that apply to a user: cluster-wide first, then those in the namespace.
    pub(super) fn grants<'v>(&'v self, user: &User, namespace: Option<&'v str>) -> Vec<Grant<'v>> {
        let mut grants = self.cluster_bindings.of(user, None);
        if let Some((namespace, bindings)) = namespace.and_then(|name| self.bindings.get_key_value(name)) {
            grants.extend(bindings.of(user, Some(namespace)));
        }
        grants
    }

    /// Returns a role's rules; a `Role` is looked up in the binding's namespace.
    pub(super) fn rules(&self, role: &RoleRef, namespace: Option<&str>) -> Result<&[Rule], MissingRole> {
        let found = match &*role.kind {
            "ClusterRole" => self.cluster_roles.get(&role.name),
            _ => self.roles.get(&*format!("{}/{}", namespace.unwrap_or_default(), role.name)),
        };
        found.map(Vec::as_slice).ok_or_else(|| MissingRole::named(role))
    }

    pub(super) fn rules_of<'v>(&'v self, grant: &Grant<'v>) -> Result<&'v [Rule], MissingRole> {
        self.rules(&grant.binding.role_ref, grant.namespace)
    }

    /// Adds a bootstrap role or binding.
    pub(in crate::auth) fn add(&mut self, plural: &str, path: &str, object: &Value) {
        let source = Source::ALL.into_iter().find(|source| source.plural() == plural);
        let bytes = serde_json::to_vec(object).unwrap_or_default();
        if let Some(source) = source {
            self.set(source, path, Some(&bytes));
        }
    }

    fn set(&mut self, source: Source, path: &str, object: Option<&[u8]>) {
        match source {
            Source::ClusterRoles => set(&mut self.cluster_roles, path, object.and_then(rules)),
            Source::Roles => set(&mut self.roles, path, object.and_then(rules)),
            Source::ClusterBindings => self.cluster_bindings.set(path, object.and_then(binding), ""),
            Source::Bindings => {
                let (namespace, name) = path.split_once('/').unwrap_or(("", path));
                let bindings = self.bindings.entry(namespace.into()).or_default();
                bindings.set(name, object.and_then(binding), namespace);
                if bindings.by_name.is_empty() {
                    self.bindings.remove(namespace);
                }
            }
        }
    }
}

impl store_view::View for View {
    type Source = Source;

    fn sources() -> Vec<(Source, Resource)> {
        Source::ALL.map(|source| (source, source.resource())).into()
    }

    fn apply(&mut self, source: Source, record: &Record, is_there: bool) {
        self.set(source, &record.key.path, is_there.then_some(&*record.value));
    }
}

fn set(roles: &mut BTreeMap<Box<str>, Vec<Rule>>, path: &str, rules: Option<Vec<Rule>>) {
    match rules {
        Some(rules) => _ = roles.insert(path.into(), rules),
        None => _ = roles.remove(path),
    }
}

/// Decodes a role's rules. A role that cannot be decoded, which validation prevents, allows nothing.
fn rules(object: &[u8]) -> Option<Vec<Rule>> {
    let role: Role = serde_json::from_slice(object).ok()?;
    Some(role.rules.unwrap_or_default())
}

fn binding(object: &[u8]) -> Option<Binding> {
    serde_json::from_slice(object).ok()
}

impl Bindings {
    fn set(&mut self, name: &str, binding: Option<Binding>, namespace: &str) {
        if let Some(old) = self.by_name.remove(name) {
            for subject in old.subjects() {
                self.forget(name, subject, namespace);
            }
        }
        let Some(binding) = binding else { return };
        for subject in binding.subjects() {
            let (index, whom) = self.index(subject, namespace);
            index.entry(whom).or_default().insert(name.into());
        }
        self.by_name.insert(name.into(), binding);
    }

    fn forget(&mut self, name: &str, subject: &Subject, namespace: &str) {
        let (index, whom) = self.index(subject, namespace);
        if let Some(names) = index.get_mut(&whom) {
            names.remove(name);
            if names.is_empty() {
                index.remove(&whom);
            }
        }
    }

    fn index(&mut self, subject: &Subject, namespace: &str) -> (&mut Index, Box<str>) {
        match &*subject.kind {
            "Group" => (&mut self.of_groups, subject.name.clone()),
            _ => (&mut self.of_users, subject.user_name(namespace)),
        }
    }

    /// Returns the bindings that apply to a user, by name.
    fn of<'v>(&'v self, user: &User, namespace: Option<&'v str>) -> Vec<Grant<'v>> {
        let by_group = user.groups.iter().filter_map(|group| self.of_groups.get(group.as_str()));
        let names: BTreeSet<&str> = self
            .of_users
            .get(user.name.as_str())
            .into_iter()
            .chain(by_group)
            .flatten()
            .map(AsRef::as_ref)
            .collect();
        names.into_iter().filter_map(|name| self.grant(name, user, namespace)).collect()
    }

    fn grant<'v>(&'v self, name: &str, user: &User, namespace: Option<&'v str>) -> Option<Grant<'v>> {
        let (name, binding) = self.by_name.get_key_value(name)?;
        let is_user = |subject: &&Subject| match &*subject.kind {
            "Group" => user.is_in(&subject.name),
            _ => *subject.user_name(namespace.unwrap_or_default()) == *user.name,
        };
        let subject = binding.subjects().iter().find(is_user)?;
        Some(Grant { name, namespace, binding, subject })
    }
}

impl Binding {
    fn subjects(&self) -> &[Subject] {
        self.subjects.as_deref().unwrap_or_default()
    }
}

impl Subject {
    /// Returns the user name of this subject, unless it is a group. A service account without a namespace is in the
    /// binding's namespace.
    fn user_name(&self, namespace: &str) -> Box<str> {
        match &*self.kind {
            "ServiceAccount" => {
                let namespace = if self.namespace.is_empty() { namespace } else { &self.namespace };
                service_account_name(namespace, &self.name).into()
            }
            _ => self.name.clone(),
        }
    }
}

/// `RoleBinding "b/n" of Role "r" to User "u"`
impl std::fmt::Display for Grant<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace {
            Some(namespace) => write!(f, "RoleBinding \"{}/{namespace}\"", self.name)?,
            None => write!(f, "ClusterRoleBinding {:?}", self.name)?,
        }
        let (role, subject) = (&self.binding.role_ref, self.subject);
        write!(f, " of {} {:?} to {} ", role.kind, role.name, subject.kind)?;
        match (&*subject.kind, &*subject.namespace) {
            ("ServiceAccount", "") => {
                write!(f, "\"{}/{}\"", subject.name, self.namespace.unwrap_or_default())
            }
            ("ServiceAccount", namespace) => write!(f, "\"{}/{namespace}\"", subject.name),
            _ => write!(f, "{:?}", subject.name),
        }
    }
}

/// The resources that the view is built from.
#[derive(Clone, Copy)]
pub(in crate::auth) enum Source {
    ClusterRoles,
    Roles,
    ClusterBindings,
    Bindings,
}

impl Source {
    const ALL: [Self; 4] = [Self::ClusterRoles, Self::Roles, Self::ClusterBindings, Self::Bindings];

    fn plural(self) -> &'static str {
        match self {
            Self::ClusterRoles => "clusterroles",
            Self::Roles => "roles",
            Self::ClusterBindings => "clusterrolebindings",
            Self::Bindings => "rolebindings",
        }
    }

    fn resource(self) -> Resource {
        Resource::new(format!("{GROUP}/{}", self.plural()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::store_view::View as _;
    use serde_json::json;
    use setpoint_store::Payload;

    fn record(path: &str, object: &Value) -> Record {
        let key = Resource::new("x").key(path);
        Record::new(key, Payload::plain(object.to_string()), 1, 1, None)
    }

    fn binding_to(kind: &str, role: &str, subject: Value) -> Value {
        json!({"roleRef": {"apiGroup": GROUP, "kind": kind, "name": role}, "subjects": [subject]})
    }

    fn shown(view: &View, user: &User, namespace: Option<&str>) -> Vec<String> {
        view.grants(user, namespace).iter().map(Grant::to_string).collect()
    }

    #[test]
    fn a_user_has_the_roles_of_their_name_groups_and_namespace() {
        let mut view = View::default();
        let group = json!({"kind": "Group", "name": "dev"});
        let account = json!({"kind": "ServiceAccount", "name": "robot"});
        view.apply(Source::ClusterBindings, &record("c", &binding_to("ClusterRole", "view", group)), true);
        view.apply(Source::Bindings, &record("n/b", &binding_to("Role", "r", account)), true);
        let robot = User::authenticated("system:serviceaccount:n:robot", "", vec!["dev".into()]);
        let of_cluster = "ClusterRoleBinding \"c\" of ClusterRole \"view\" to Group \"dev\"";
        let of_namespace = "RoleBinding \"b/n\" of Role \"r\" to ServiceAccount \"robot/n\"";
        assert_eq!(shown(&view, &robot, None), [of_cluster]);
        assert_eq!(shown(&view, &robot, Some("other")), [of_cluster]);
        assert_eq!(shown(&view, &robot, Some("n")), [of_cluster, of_namespace]);
        assert!(shown(&view, &User::anonymous(), Some("n")).is_empty());
    }

    #[test]
    fn changing_a_binding_removes_its_old_subjects() {
        let mut view = View::default();
        let user = |name: &str| json!({"kind": "User", "name": name});
        for subject in [user("a"), user("b")] {
            view.apply(Source::Bindings, &record("n/b", &binding_to("Role", "r", subject)), true);
        }
        let (a, b) = (User::authenticated("a", "", vec![]), User::authenticated("b", "", vec![]));
        assert_eq!((shown(&view, &a, Some("n")).len(), shown(&view, &b, Some("n")).len()), (0, 1));
        view.apply(
            Source::Bindings,
            &record("n/b", &json!({"roleRef": {"kind": "Role", "name": "r"}})),
            false,
        );
        assert!(view.bindings.is_empty());
    }

    #[test]
    fn a_missing_role_is_named_in_the_error() {
        let view = View::default();
        let role = RoleRef { kind: "Role".into(), name: "nope".into() };
        let missing = view.rules(&role, Some("n")).unwrap_err();
        assert_eq!(missing.to_string(), "role.rbac.authorization.k8s.io \"nope\" not found");
    }
}
