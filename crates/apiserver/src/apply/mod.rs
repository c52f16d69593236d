//! Server-side apply and the ownership of fields, as v1.34 keeps them in `metadata.managedFields`.
//!
//! ```text
//!  apply:  live ∪ configuration ─► minus what this manager applied before and nobody owns now
//!                                        │
//!  update: the object as written ────────┴─► compare with live ─► who owns what from now on
//! ```
//!
//! What always holds:
//! - a field that is changed belongs to who changed it, and to nobody who wanted it otherwise;
//! - an apply that would take a field from another manager is refused as a whole unless it is forced;
//! - who changes nothing owns nothing new and leaves no trace.

mod compare;
mod conflict;
mod element;
mod fields;
mod last_applied;
mod managers;
mod merge;
mod place;
mod remove;
mod set;
mod updater;
mod validate;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::{Kind, Subresource};
use crate::schema::Target;

pub use conflict::{Conflict, Conflicts};

use compare::Comparison;
use managers::{Manager, Managers, Operation, entries_of, metadata_of, put_entries, take_entries};
use place::Place;
use set::Set;
use updater::Updater;

/// Where objects are written: what they are, and what this endpoint does not let clients change.
pub struct Endpoint<'a> {
    pub target: &'a Target,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub resets: &'a Resets,
}

/// The fields that an endpoint restores after every write, so that nobody gets to own them there.
#[derive(Clone, Debug, Default)]
pub struct Resets(Set);

impl Resets {
    /// Fields by their paths: `&[&["status"]]`.
    pub fn new(paths: &[&[&str]]) -> Self {
        Self(Set::of(paths))
    }

    /// What the endpoints of most kinds restore: status outside of its own endpoint, everything else there.
    pub fn of(kind: &Kind, subresource: Option<Subresource>) -> Self {
        if let Some(paths) = kind.strategy.resets(subresource) {
            return Self::new(paths);
        }
        match subresource {
            None if kind.has(Subresource::Status) => Self::new(&[&["status"]]),
            Some(Subresource::Status) => Self::new(&[&["spec"]]),
            _ => Self::default(),
        }
    }
}

/// Why an apply was refused, by the answer it gets.
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

/// Notes in `object`, which is about to take the place of `live`, who owns what from now on.
///
/// `live` is `None` for an object that is created. What `object` says of managed fields counts, unless it
/// says nothing or makes no sense; saying that they are `[{}]` forgets them.
pub fn update(
    endpoint: &Endpoint<'_>,
    live: Option<&Value>,
    object: &mut Value,
    manager: &str,
    now: Timestamp,
) {
    let sent = take_entries(object);
    if live.is_some_and(|live| entries_of(live).is_empty()) && (sent.is_empty() || is_reset(&sent)) {
        // Nobody keeps track of this object.
        return;
    }
    let empty;
    let before = match live {
        Some(live) => live,
        None => {
            empty = endpoint.target.empty();
            &empty
        }
    };
    let mut updater = endpoint.updater(Managers::default());
    let comparison = Comparison::between_ignoring(updater.place, before, object, updater.ignored);
    if comparison.is_same() && sent == entries_of(before) {
        return put_entries(object, sent);
    }
    updater.managers = current_managers(endpoint, before, sent);
    if updater.managers.is_empty() && live.is_some() {
        return;
    }
    updater.record(comparison, endpoint.manager(manager, Operation::Update), endpoint.time(now));
    updater.managers.merge_oldest();
    updater.managers.encode(object);
}

/// What `configuration` makes of `live`, and who owns what from then on.
///
/// The result still has to take the form that objects are stored in, and its defaults.
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
    if updater.managers.is_empty() && live.is_some() {
        let unknown = endpoint.manager("before-first-apply", Operation::Update);
        updater.update(&endpoint.target.empty(), before, unknown, endpoint.time(now));
    }
    let who = endpoint.manager(manager, Operation::Apply);
    let applied = updater.apply_as(before, configuration, &who, manager, force);
    let mut object = match applied.map_err(ApplyError::Conflict)? {
        Some(object) => {
            updater.stamp(&who, endpoint.time(now));
            object
        }
        None => before.clone(),
    };
    last_applied::keep_in_step(&mut object, configuration, manager);
    updater.managers.encode(&mut object);
    Ok(object)
}

/// Takes back new times of managed fields if nothing else of `object` differs from `live`, so that a write
/// that changes nothing is none. To be called last before an object is stored.
pub fn keep_times(live: &Value, object: &mut Value) {
    let (before, after) = (entries_of(live), entries_of(object));
    let same = |(a, b): (&Value, &Value)| a == b || without_time(a) == without_time(b);
    if before == after || before.len() != after.len() || !before.iter().zip(after).all(same) {
        return;
    }
    let kept = Value::Array(before.to_vec());
    let Some(changed) =
        metadata_of(object).and_then(|metadata| metadata.insert("managedFields".into(), kept))
    else {
        return;
    };
    if *object != *live
        && let Some(metadata) = metadata_of(object)
    {
        metadata.insert("managedFields".into(), changed);
    }
}

fn without_time(entry: &Value) -> Value {
    let mut entry = entry.clone();
    if let Some(fields) = entry.as_object_mut() {
        fields.remove("time");
    }
    entry
}

/// Who makes a request: the manager it names, or what its user agent begins with.
pub fn manager_name(field_manager: &str, user_agent: &str) -> String {
    const LONGEST: usize = 128;
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let mut name = String::new();
    for letter in
        user_agent.split('/').next().unwrap_or_default().chars().filter(|letter| !letter.is_control())
    {
        if name.len() + letter.len_utf8() > LONGEST {
            break;
        }
        name.push(letter);
    }
    name
}

/// The managers that a write builds on: those that it sends, or else those that are there.
fn current_managers(endpoint: &Endpoint<'_>, live: &Value, sent: Vec<Value>) -> Managers {
    let of_live = || Managers::decode(entries_of(live).to_vec()).unwrap_or_default();
    if endpoint.subresource.is_empty() && is_reset(&sent) {
        return Managers::default();
    }
    // What is sent to a subresource counts only where it says what is there already.
    if sent.is_empty() || !endpoint.subresource.is_empty() && sent != entries_of(live) {
        return of_live();
    }
    match Managers::decode(sent) {
        Ok(managers) if !managers.is_empty() => managers,
        _ => of_live(),
    }
}

/// One empty entry says that all are to be forgotten.
fn is_reset(sent: &[Value]) -> bool {
    matches!(sent, [Value::Object(only)] if only.is_empty())
}

impl Endpoint<'_> {
    fn updater(&self, managers: Managers) -> Updater<'_> {
        Updater {
            place: Place::root(&self.target.schema),
            ignored: &self.resets.0,
            api_version: self.target.api_version(),
            managers,
        }
    }

    fn manager(&self, name: &str, operation: Operation) -> Manager {
        Manager::new(name, operation, &self.target.api_version(), self.subresource)
    }

    /// Writes of scales are not timed.
    fn time(&self, now: Timestamp) -> Option<String> {
        (self.subresource != "scale").then(|| managers::stored_time(now))
    }
}

/// Whether a configuration is one of the target's objects.
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
    validate::validate(Place::root(&target.schema), configuration).map_err(|why| {
        let metadata = |field: &str| configuration["metadata"][field].as_str().unwrap_or_default();
        ApplyError::Internal(format!(
            "failed to create typed patch object ({}/{}; {}/{}, Kind={}): {why}",
            metadata("namespace"),
            metadata("name"),
            target.group,
            target.version,
            target.kind,
        ))
    })
}
