//! Server-side apply and field ownership, as v1.34 keeps them in `metadata.managedFields`.
//!
//! ```text
//!  apply:  live ∪ configuration ─► minus what this manager applied before and no one owns now
//!                                        │
//!  update: the object as written ────────┴─► compare with live ─► new field ownership
//! ```
//!
//! Invariants:
//! - a changed field belongs to the manager that changed it, and to no one who wanted another value;
//! - an apply that would take a field from another manager is rejected as a whole unless it is forced;
//! - a write that changes nothing adds no ownership and leaves no trace.

mod added;
mod compare;
mod configuration;
mod conflict;
mod element;
mod fields;
mod last_applied;
mod managed;
mod managers;
mod merge;
mod remove;
mod schema_node;
mod set;
mod transitions;
mod updater;
mod validate;
mod versions;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::{Kind, Subresource};
use crate::schema::Target;

pub(crate) use configuration::merge_configuration;
pub use conflict::{Conflict, Conflicts};
pub use managed::ManagedFields;
pub use transitions::Transitions;
pub use versions::{OtherVersions, Unconverted};

use compare::Comparison;
use managers::{MAX_UPDATERS, Manager, Managers, Operation, entries_of, take_entries};
use schema_node::SchemaNode;
use set::Set;
use setpoint_store::{InlineBytes, Part};
use transitions::{After, Key, Time};
use updater::{SERVER_FIELDS, Updater};

/// The endpoint of a write: the kind of its objects, and the fields it does not let clients change.
pub struct Endpoint<'a> {
    pub target: &'a Target,
    /// Empty for the main resource.
    pub subresource: &'a str,
    pub resets: &'a Resets,
    pub transitions: &'a Transitions,
    /// The other versions, if a change can look different in them.
    pub versions: Option<&'a dyn OtherVersions>,
}

/// An existing object and its managed fields, which are not in the object itself.
#[derive(Clone, Copy)]
pub struct Live<'a> {
    pub object: &'a Value,
    pub fields: &'a ManagedFields,
}

/// The fields that an endpoint restores after every write, so that no one can own them there.
#[derive(Clone, Debug, Default)]
pub struct Resets(Set);

impl Resets {
    /// Creates a set from field paths: `&[&["status"]]`.
    pub fn new(paths: &[&[&str]]) -> Self {
        Self(Set::of(paths))
    }

    /// Returns the defaults for most kinds: the status on the main endpoint, everything else on the status endpoint.
    pub fn of(kind: &Kind, subresource: Option<Subresource>) -> Self {
        if let Some(paths) = kind.strategy.resets(subresource) {
            return Self::new(paths);
        }
        Self::usual(kind.has(Subresource::Status), subresource)
    }

    fn set(&self) -> &Set {
        &self.0
    }

    /// Returns the defaults of a kind with or without a status endpoint.
    pub(crate) fn usual(has_status: bool, subresource: Option<Subresource>) -> Self {
        match subresource {
            None if has_status => Self::new(&[&["status"]]),
            Some(Subresource::Status) => Self::new(&[&["spec"]]),
            _ => Self::default(),
        }
    }
}

/// Why an apply was rejected, by its response.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ApplyError {
    /// 400, reason BadRequest.
    #[error("{0}")]
    BadRequest(String),
    /// 409, reason Conflict, with a cause for each field.
    #[error("{0}")]
    Conflict(Conflicts),
    /// 500 without a reason.
    #[error("{0}")]
    Internal(String),
}

/// Computes the managed fields of `object`, which is about to replace `live`.
///
/// `live` is `None` for a create. Managed fields in `object` are taken out of it. They are used unless they are absent
/// or invalid; `[]` or `[{}]` resets them.
pub fn update(
    endpoint: &Endpoint<'_>,
    live: Option<Live<'_>>,
    object: &mut Value,
    manager: &str,
    now: Timestamp,
) -> ManagedFields {
    let sent = take_entries(object);
    let who = endpoint.manager(manager, Operation::Update);
    match live {
        None => of_new(endpoint, object, sent, who, now),
        Some(live) => of_changed(endpoint, live, object, sent, who, now),
    }
}

fn of_new(
    endpoint: &Endpoint<'_>,
    object: &Value,
    sent: Option<Vec<Value>>,
    who: Manager,
    now: Timestamp,
) -> ManagedFields {
    let empty = endpoint.target.empty();
    let managers = sent.filter(|sent| !is_reset(sent)).and_then(|sent| Managers::decode(sent).ok());
    let mut updater = endpoint.updater(managers.unwrap_or_default());
    if updater.managers.is_empty() {
        return of_untouched(endpoint, &updater, &empty, object, &who, now);
    }
    match updater.update(&empty, object, who, endpoint.time(now)) {
        Ok(_) => {
            updater.managers.merge_oldest();
            updater.managers.into_fields()
        }
        Err(_) => ManagedFields::default(),
    }
}

/// Assigns all fields of a new object to its creator.
fn of_untouched(
    endpoint: &Endpoint<'_>,
    updater: &Updater<'_>,
    empty: &Value,
    object: &Value,
    who: &Manager,
    now: Timestamp,
) -> ManagedFields {
    let left =
        added::ExcludedFields { ignored: Some(updater.ignored.view()), server: Some(SERVER_FIELDS.view()) };
    let own = endpoint.own(now);
    let text = managed::entry(who, &updater.api_version, own.is_some(), |text| {
        added::write(text, updater.place, empty, object, left)
    });
    ManagedFields::sorted(text.map(|text| Part { text, own: own.unwrap_or_default() }).into_iter().collect())
}

fn of_changed(
    endpoint: &Endpoint<'_>,
    live: Live<'_>,
    object: &Value,
    sent: Option<Vec<Value>>,
    who: Manager,
    now: Timestamp,
) -> ManagedFields {
    let before = before(endpoint, live.fields, sent);
    if before.is_empty() {
        // Field ownership is not tracked for this object.
        return before;
    }
    let mut updater = endpoint.updater(Managers::default());
    let comparison = Comparison::between_ignoring(updater.place, live.object, object, updater.ignored);
    if comparison.is_same() {
        return before;
    }
    let own = endpoint.own(now).unwrap_or_default();
    // A change can affect the entries of other versions differently each time.
    let has_others = endpoint.versions.is_some() && before.has_other_versions(&updater.api_version);
    let key = if has_others { None } else { Key::new(&before, &who, comparison.text()) };
    if let Some(known) = key.as_ref().and_then(|key| endpoint.transitions.find(key, &before, own)) {
        return known;
    }
    updater.managers = before.managers().unwrap_or_default();
    if updater.managers.is_empty() {
        return ManagedFields::default();
    }
    let changes = updater.changes(live.object, object, comparison, None);
    // As in v1.34, the write succeeds, and ownership is no longer tracked.
    let Ok(changes) = changes else { return ManagedFields::default() };
    let has_taken = updater.record(changes, who.clone(), endpoint.time(now));
    if updater.managers.updaters() > MAX_UPDATERS {
        updater.managers.merge_oldest();
        return updater.managers.into_fields();
    }
    let after = after(updater.managers, &before, has_taken.then_some(&who));
    let fields = transitions::follow(&after, &before, own);
    if let Some(key) = key {
        endpoint.transitions.remember(key, before, &after);
    }
    fields
}

/// Builds the managers' entries, with the source of their times: all but those of `who` keep theirs.
fn after(managers: Managers, before: &ManagedFields, who: Option<&Manager>) -> Vec<After> {
    let place = |manager: &Manager| {
        let is_same = |part: &Part| managed::manager_of(part) == Some(manager);
        before.inset().parts().iter().position(is_same)
    };
    let after = managers.0.into_iter().filter_map(|(manager, owned)| {
        let time = match place(&manager) {
            Some(at) if who != Some(&manager) => Time::Kept(at),
            _ => Time::Now,
        };
        managed::into_part(manager, owned).map(|part| After { text: part.text, time })
    });
    after.collect()
}

/// Returns the managed fields that a write starts from: those in the request, or else the stored ones.
fn before(endpoint: &Endpoint<'_>, live: &ManagedFields, sent: Option<Vec<Value>>) -> ManagedFields {
    // Managed fields sent to a subresource are ignored.
    let Some(sent) = sent.filter(|_| endpoint.subresource.is_empty()) else { return live.clone() };
    if is_reset(&sent) {
        return ManagedFields::default();
    }
    let sent = ManagedFields::from_entries(sent);
    if sent == *live {
        return sent;
    }
    match sent.managers() {
        Ok(mut managers) if !managers.is_empty() => {
            managers.drop_idle();
            managers.into_fields()
        }
        _ => live.clone(),
    }
}

/// Applies `configuration` to `live`, and updates the field ownership.
///
/// The result has yet to be converted to its stored form and defaulted.
pub fn apply(
    endpoint: &Endpoint<'_>,
    live: Option<&Value>,
    configuration: &Value,
    manager: &str,
    force: bool,
    now: Timestamp,
) -> Result<Value, ApplyError> {
    check(endpoint.target, configuration)?;
    let empty;
    let before = match live {
        Some(live) => live,
        None => {
            empty = endpoint.target.empty();
            &empty
        }
    };
    let managers = Managers::decode(entries_of(before).to_vec())
        .map_err(|why| ApplyError::Internal(format!("failed to decode managed fields: {why}")))?;
    let mut updater = endpoint.updater(managers);
    check_live(endpoint.target, before, updater.managers.is_empty())?;
    if updater.managers.is_empty() && live.is_some() {
        let unknown = endpoint.manager("before-first-apply", Operation::Update);
        let noted = updater.update(&endpoint.target.empty(), before, unknown, endpoint.time(now));
        noted.map_err(|why| ApplyError::Internal(why.to_string()))?;
    }
    let who = endpoint.manager(manager, Operation::Apply);
    let applied = updater.apply_as(before, configuration, &who, manager, force);
    let mut object = match applied? {
        Some(object) => {
            updater.stamp(&who, endpoint.time(now));
            object
        }
        None => before.clone(),
    };
    last_applied::update_annotation(&mut object, configuration, manager);
    updater.managers.encode(&mut object);
    Ok(object)
}

/// Returns the field manager of a request: the one it names, or the prefix of its user agent.
pub fn manager_name(field_manager: &str, user_agent: &str) -> String {
    const MAX_LENGTH: usize = 128;
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let mut name = String::new();
    for letter in
        user_agent.split('/').next().unwrap_or_default().chars().filter(|letter| !letter.is_control())
    {
        if name.len() + letter.len_utf8() > MAX_LENGTH {
            break;
        }
        name.push(letter);
    }
    name
}

/// Whether the entries reset the managed fields: there are none, or only an empty one.
fn is_reset(sent: &[Value]) -> bool {
    sent.is_empty() || matches!(sent, [Value::Object(only)] if only.is_empty())
}

impl Endpoint<'_> {
    fn updater(&self, managers: Managers) -> Updater<'_> {
        Updater {
            place: SchemaNode::root(&self.target.schema),
            ignored: &self.resets.0,
            api_version: self.target.api_version(),
            managers,
            versions: self.versions,
        }
    }

    fn manager(&self, name: &str, operation: Operation) -> Manager {
        Manager::new(name, operation, &self.target.api_version(), self.subresource)
    }

    /// Returns the time of a write, as in its entry.
    fn own(&self, now: Timestamp) -> Option<InlineBytes> {
        self.time(now).and_then(|time| InlineBytes::new(&time))
    }

    /// Returns the time of a write; writes to scales have none.
    fn time(&self, now: Timestamp) -> Option<String> {
        (self.subresource != "scale").then(|| managers::stored_time(now))
    }
}

/// Checks that a configuration is an object of the target's kind.
pub fn check(target: &Target, configuration: &Value) -> Result<(), ApplyError> {
    let text = |field: &str| configuration.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version != target.api_version() || kind != target.kind {
        let group_version =
            if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") };
        return Err(ApplyError::BadRequest(format!("invalid object type: {group_version}, Kind={kind}")));
    }
    if configuration.pointer("/metadata/managedFields").is_some_and(Value::is_array) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    validate::validate(SchemaNode::root(&target.schema), configuration).map_err(|why| {
        let named = named(target, configuration);
        ApplyError::Internal(format!("failed to create typed patch object ({named}): {why}"))
    })
}

/// Checks that a live object matches its schema. A custom resource may not, after its schema changed or if a webhook
/// converted it. The fields to merge cannot be told apart then.
fn check_live(target: &Target, live: &Value, is_unmanaged: bool) -> Result<(), ApplyError> {
    if target.custom.is_none() {
        return Ok(());
    }
    validate::validate_live(SchemaNode::root(&target.schema), live).map_err(|why| {
        let named = named(target, live);
        ApplyError::Internal(match is_unmanaged {
            true => format!(
                "failed to create manager for existing fields: failed to convert new object ({named}) to smd typed: {why}"
            ),
            false => format!("failed to create typed live object ({named}): {why}"),
        })
    })
}

/// The error of an applied object that is not of its kind after all.
pub fn unconvertible(target: &Target, object: &Value, why: &str) -> String {
    let (named, Target { group, version, kind, .. }) = (named(target, object), target);
    let of_kind = format!("{group}/{version}, Kind={kind}");
    format!(
        "failed to convert new object ({named}) to proper version: unable to convert unstructured object to {of_kind}: {why}"
    )
}

/// Names an object as v1.34's messages do.
fn named(target: &Target, object: &Value) -> String {
    let metadata = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let Target { group, version, kind, .. } = target;
    format!("{}/{}; {group}/{version}, Kind={kind}", metadata("namespace"), metadata("name"))
}
