//! The introspection API: what the controllers of this process are doing.
//!
//! ```text
//!  /debug/setpoint                      the controllers: depth, rate, latency, failures
//!  /debug/setpoint/controllers/NAME     one of them, with its recent outcomes and slowest keys
//!  /debug/setpoint/keys?name=NAME       an object in all controllers; also namespace=, kind=, group=, controller=
//! ```
//!
//! Responses are JSON. They name objects and contain error messages, so a server must authorize its callers.
//!
//! Invariants:
//! - The recorded data is bounded, and recorded in one place: the worker loop.
//! - Nothing is computed before a request.

mod journal;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_clock::Instant;

pub(crate) use journal::{Entry, Journal};

use crate::queue::KeyState;
use crate::reconcile::WorkKey;
use crate::{Key, Queue};

/// The path below which the API is served.
pub const PATH: &str = "/debug/setpoint";

/// How many outcomes a response lists.
const SHOWN: usize = 20;
/// How many failing or waiting keys of a controller a response lists.
const SHOWN_KEYS: usize = 50;

/// The controllers of a process that can be inspected. Cheap to clone; clones share the same controllers.
///
/// ```
/// # fn example(manager: setpoint::Manager) {
/// let introspection = manager.context().metrics.introspection();
/// let answer = introspection.handle("/debug/setpoint", &[]).unwrap();
/// assert!(answer["controllers"].is_array());
/// assert!(introspection.handle("/debug/setpoint/nothing", &[]).is_none());
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Introspection {
    controllers: Arc<Mutex<BTreeMap<&'static str, Weak<dyn Inspected>>>>,
}

/// A controller that can be inspected.
trait Inspected: Send + Sync {
    fn summary(&self) -> Value;
    fn details(&self) -> Value;
    /// Returns what is known about a key. `None` if nothing is.
    fn key(&self, asked: &Asked<'_>) -> Option<Value>;
}

/// The requested object.
struct Asked<'a> {
    key: Key,
    group: Option<&'a str>,
    kind: Option<&'a str>,
}

impl Asked<'_> {
    /// Whether a key is written like this object: `NAMESPACE/NAME`, or with its kind before it.
    fn is_written(&self, text: &str) -> bool {
        let own = self.key.to_string();
        text == own
            || self.kind.is_some_and(|kind| text.strip_prefix(kind) == Some(format!(" {own}").as_str()))
    }
}

/// A controller's queue and journal.
pub(crate) struct Inspector<K> {
    pub(crate) name: &'static str,
    pub(crate) queue: Queue<K>,
    pub(crate) journal: Mutex<Journal<K>>,
}

impl Introspection {
    pub(crate) fn add<K: WorkKey>(&self, inspector: &Arc<Inspector<K>>) {
        let inspected: Arc<dyn Inspected> = inspector.clone();
        self.controllers.lock().insert(inspector.name, Arc::downgrade(&inspected));
    }

    /// Returns the response to a GET request, or `None` if the path does not exist.
    pub fn handle(&self, path: &str, query: &[(&str, &str)]) -> Option<Value> {
        let below = path.strip_prefix(PATH)?.trim_matches('/');
        match below.split_once('/') {
            None if below.is_empty() || below == "controllers" => Some(self.summaries()),
            None if below == "keys" => Some(self.keys(query)),
            Some(("controllers", name)) => Some(self.controller(name)?.details()),
            _ => None,
        }
    }

    fn all(&self) -> Vec<(&'static str, Arc<dyn Inspected>)> {
        let controllers = self.controllers.lock();
        controllers.iter().filter_map(|(name, weak)| Some((*name, weak.upgrade()?))).collect()
    }

    fn controller(&self, name: &str) -> Option<Arc<dyn Inspected>> {
        self.controllers.lock().get(name)?.upgrade()
    }

    fn summaries(&self) -> Value {
        let all: Vec<Value> = self.all().iter().map(|(_, controller)| controller.summary()).collect();
        json!({"controllers": all})
    }

    fn keys(&self, query: &[(&str, &str)]) -> Value {
        let any = |name: &str| query.iter().find(|(given, _)| *given == name).map(|(_, value)| *value);
        let field = |name: &str| any(name).filter(|value| !value.is_empty());
        let Some(name) = field("name") else {
            return json!({"error": "name: expected the name of an object"});
        };
        let key = Key::in_namespace(field("namespace"), name);
        // The core group is empty.
        let asked = Asked { key, group: any("group"), kind: field("kind") };
        let all = self.all();
        let chosen = all.iter().filter(|(name, _)| field("controller").is_none_or(|wanted| wanted == *name));
        let found: Vec<Value> = chosen.filter_map(|(_, controller)| controller.key(&asked)).collect();
        json!({"controllers": found})
    }
}

impl<K: WorkKey> Inspector<K> {
    /// Whether the keys of this controller are known to name objects of another kind.
    fn is_about_others(&self, asked: &Asked<'_>) -> bool {
        let journal = self.journal.lock();
        journal.subject().is_some_and(|subject| {
            asked.kind.is_some_and(|kind| kind != subject.kind())
                || asked.group.is_some_and(|group| group != subject.group())
        })
    }

    /// Returns the key in this queue's own type. Keys of other types are found by their text.
    fn own_key(&self, asked: &Asked<'_>) -> Option<K> {
        if let Some(key) = (&asked.key as &dyn Any).downcast_ref::<K>() {
            return Some(key.clone());
        }
        let in_queue = self.queue.states().into_keys().find(|key| asked.is_written(&key.to_string()));
        in_queue.or_else(|| {
            let journal = self.journal.lock();
            journal
                .recent()
                .find(|entry| asked.is_written(&entry.key.to_string()))
                .map(|entry| entry.key.clone())
        })
    }

    /// Returns the wall time of an instant.
    fn time(&self, at: Instant) -> Timestamp {
        let clock = self.queue.clock();
        let (now, instant) = (clock.now(), clock.instant());
        let away = |duration: Duration| SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
        let time = match at > instant {
            true => now.saturating_add(away(at.saturating_duration_since(instant))),
            false => now.saturating_sub(away(instant.saturating_duration_since(at))),
        };
        time.unwrap_or(now)
    }

    fn entry(&self, entry: &Entry<K>) -> Value {
        json!({
            "key": entry.key.to_string(), "at": self.time(entry.started), "seconds": entry.took.as_secs_f64(),
            "outcome": entry.outcome, "trigger": entry.trigger.to_string(), "error": entry.error.as_deref(),
        })
    }

    fn state(&self, key: &K, state: &KeyState) -> Value {
        json!({
            "key": key.to_string(), "queued": state.queued, "position": state.position,
            "processing": state.processing, "retries": state.retries, "lastError": state.last_error.as_deref(),
            "nextAttempt": state.delayed_until.map(|at| self.time(at)),
        })
    }
}

impl<K: WorkKey> Inspected for Inspector<K> {
    fn summary(&self) -> Value {
        let now = self.queue.clock().instant();
        let journal = self.journal.lock();
        json!({
            "controller": self.name, "depth": self.queue.len(), "processing": self.queue.processing(),
            "delayed": self.queue.delayed(), "reconciles": journal.total, "failed": journal.failed,
            "perSecond": journal.rate(now), "p50Seconds": journal.quantile(0.5).as_secs_f64(),
            "p99Seconds": journal.quantile(0.99).as_secs_f64(),
            "kind": journal.subject().map(|kind| kind.kind()),
        })
    }

    fn details(&self) -> Value {
        let mut details = self.summary();
        let (recent, slowest): (Vec<Entry<K>>, Vec<_>) = {
            let journal = self.journal.lock();
            (journal.recent().take(SHOWN_KEYS).cloned().collect(), journal.slowest().to_vec())
        };
        details["recent"] = recent.iter().map(|entry| self.entry(entry)).collect();
        details["slowest"] = slowest
            .iter()
            .map(|slow| json!({"key": slow.key.to_string(), "seconds": slow.took.as_secs_f64(), "at": self.time(slow.at)}))
            .collect();
        let states = self.queue.states();
        details["keys"] = states.iter().take(SHOWN_KEYS).map(|(key, state)| self.state(key, state)).collect();
        details
    }

    fn key(&self, asked: &Asked<'_>) -> Option<Value> {
        if self.is_about_others(asked) {
            return None;
        }
        let key = self.own_key(asked)?;
        let state = self.queue.state(&key);
        let recent: Vec<Entry<K>> = {
            let journal = self.journal.lock();
            journal.recent().filter(|entry| entry.key == key).take(SHOWN).cloned().collect()
        };
        if recent.is_empty() && state == KeyState::default() {
            return None;
        }
        let mut answer = self.state(&key, &state);
        answer["controller"] = self.name.into();
        answer["kind"] = self.journal.lock().subject().map(|kind| kind.kind()).into();
        if let Some(latest) = recent.first() {
            answer["lastAttempt"] = json!(self.time(latest.started));
            answer["outcome"] = latest.outcome.into();
        }
        // Retries have no trigger of their own: the original one is more informative.
        let trigger = recent.iter().map(|entry| &entry.trigger).find(|trigger| trigger.kind.is_some());
        let trigger = trigger.or_else(|| recent.first().map(|entry| &entry.trigger));
        answer["trigger"] = trigger.map(ToString::to_string).into();
        answer["recent"] = recent.iter().map(|entry| self.entry(entry)).collect();
        Some(answer)
    }
}
