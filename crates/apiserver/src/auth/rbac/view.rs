//! The roles and bindings as they are now, arranged by who they are given to.
//!
//! Fed from the store's own history: a request first brings the view up to the newest revision, so what a
//! client was told is written counts for the very next request.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use setpoint_store::{Error, EventKind, ListOptions, Record, Resource, Revision, Store, Watch, WatchError};

use super::rule::Rule;
use crate::auth::{User, service_account_name};
use crate::kinds::rbac::GROUP;

/// A role by its name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleRef {
    /// `Role` or `ClusterRole`
    pub kind: Box<str>,
    pub name: Box<str>,
}

/// A binding names a role that is not there.
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

/// Who is given a role by a binding.
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

/// A binding that gives somebody a role, and the subject of it that they are.
#[derive(Clone, Copy)]
pub(super) struct Grant<'v> {
    name: &'v str,
    namespace: Option<&'v str>,
    binding: &'v Binding,
    subject: &'v Subject,
}

/// The names of bindings, by those they are for.
type Index = BTreeMap<Box<str>, BTreeSet<Box<str>>>;

/// The bindings of one namespace, or of the cluster, by name and by those they are for.
#[derive(Default)]
struct Bindings {
    by_name: BTreeMap<Box<str>, Binding>,
    of_users: Index,
    of_groups: Index,
}

#[derive(Default)]
pub(super) struct View {
    cluster_roles: BTreeMap<Box<str>, Vec<Rule>>,
    /// By `namespace/name`.
    roles: BTreeMap<Box<str>, Vec<Rule>>,
    cluster_bindings: Bindings,
    bindings: BTreeMap<Box<str>, Bindings>,
}

impl View {
    /// What gives rights to a user: in the whole cluster first, then in the namespace.
    pub(super) fn grants<'v>(&'v self, user: &User, namespace: Option<&'v str>) -> Vec<Grant<'v>> {
        let mut grants = self.cluster_bindings.of(user, None);
        if let Some((namespace, bindings)) = namespace.and_then(|name| self.bindings.get_key_value(name)) {
            grants.extend(bindings.of(user, Some(namespace)));
        }
        grants
    }

    /// The rules of a role; one of a namespace is looked up in that of the binding.
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

    fn apply(&mut self, source: Source, record: &Record, is_there: bool) {
        let path: &str = &record.key.path;
        match source {
            Source::ClusterRoles => set(&mut self.cluster_roles, path, rules(record).filter(|_| is_there)),
            Source::Roles => set(&mut self.roles, path, rules(record).filter(|_| is_there)),
            Source::ClusterBindings => {
                self.cluster_bindings.set(path, binding(record).filter(|_| is_there), "")
            }
            Source::Bindings => {
                let (namespace, name) = path.split_once('/').unwrap_or(("", path));
                let bindings = self.bindings.entry(namespace.into()).or_default();
                bindings.set(name, binding(record).filter(|_| is_there), namespace);
                if bindings.by_name.is_empty() {
                    self.bindings.remove(namespace);
                }
            }
        }
    }
}

fn set(roles: &mut BTreeMap<Box<str>, Vec<Rule>>, path: &str, rules: Option<Vec<Rule>>) {
    match rules {
        Some(rules) => _ = roles.insert(path.into(), rules),
        None => _ = roles.remove(path),
    }
}

/// The rules in a record. One that cannot be read, which validation has not let in, allows nothing.
fn rules(record: &Record) -> Option<Vec<Rule>> {
    let role: Role = serde_json::from_slice(&record.value).ok()?;
    Some(role.rules.unwrap_or_default())
}

fn binding(record: &Record) -> Option<Binding> {
    serde_json::from_slice(&record.value).ok()
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

    /// The bindings that are for a user, by name.
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
    /// The user that this is, where it is no group. An account without a namespace is of the binding's.
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

/// What the view is made of.
#[derive(Clone, Copy)]
enum Source {
    ClusterRoles,
    Roles,
    ClusterBindings,
    Bindings,
}

impl Source {
    const ALL: [Self; 4] = [Self::ClusterRoles, Self::Roles, Self::ClusterBindings, Self::Bindings];

    fn resource(self) -> Resource {
        let plural = match self {
            Self::ClusterRoles => "clusterroles",
            Self::Roles => "roles",
            Self::ClusterBindings => "clusterrolebindings",
            Self::Bindings => "rolebindings",
        };
        Resource::new(format!("{GROUP}/{plural}"))
    }
}

/// A view and its place in the store's history.
pub(super) struct Fed {
    pub(super) view: View,
    /// Everything up to here is in the view.
    revision: Revision,
    watches: Vec<(Source, Watch)>,
}

impl Fed {
    /// Reads everything.
    pub(super) async fn load(store: &dyn Store) -> Result<Self, Error> {
        let mut view = View::default();
        let mut watches = Vec::new();
        let mut revision = Revision::MAX;
        for source in Source::ALL {
            let range = source.resource().all();
            let page = store.list(&range, ListOptions::default()).await?;
            for record in &page.records {
                view.apply(source, record, true);
            }
            revision = revision.min(page.revision);
            watches.push((source, store.watch(range, page.revision)?));
        }
        Ok(Self { view, revision, watches })
    }

    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        self.revision < other.revision
    }

    pub(super) fn has_seen(&self, revision: Revision) -> bool {
        self.revision >= revision
    }

    /// Applies what has happened up to `newest`; fails where the history no longer reaches back.
    pub(super) fn catch_up(&mut self, newest: Revision) -> Result<(), WatchError> {
        for (source, watch) in &mut self.watches {
            loop {
                let events = match watch.try_next() {
                    Ok(Some(events)) => events,
                    Ok(None) | Err(WatchError::Closed) => break,
                    Err(behind) => return Err(behind),
                };
                for event in events {
                    self.view.apply(*source, &event.record, event.kind != EventKind::Deleted);
                }
            }
        }
        self.revision = newest;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
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
    fn a_changed_binding_forgets_whom_it_was_for() {
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
    fn a_role_that_is_not_there_is_named() {
        let view = View::default();
        let role = RoleRef { kind: "Role".into(), name: "nope".into() };
        let missing = view.rules(&role, Some("n")).unwrap_err();
        assert_eq!(missing.to_string(), "role.rbac.authorization.k8s.io \"nope\" not found");
    }
}
