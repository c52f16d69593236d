//! Remembers what was applied to which version of a child, so that unchanged server-side applies are not sent again.
//!
//! An entry is valid while the hook returns the same child, and the live child is the same object at the same
//! generation (or resource version, if its kind has no generation). Entries are in memory: after a restart, each child
//! is applied once.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use parking_lot::Mutex;
use serde_json::Value;
use setpoint::{Key, Kind};

/// One entry takes about 200 bytes, so all of them take at most 20 MB. Evicted children are applied again.
const MAX_ENTRIES: usize = 100_000;

#[derive(Default)]
pub(crate) struct Ledger(Mutex<BTreeMap<(Kind, Key), Applied>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Applied {
    wanted: u64,
    uid: String,
    version: String,
}

impl Ledger {
    /// Whether this was applied to the current version of the child.
    pub(crate) fn shows(&self, kind: &Kind, key: &Key, wanted: u64, observed: &Value) -> bool {
        let entries = self.0.lock();
        entries.get(&(kind.clone(), key.clone())).is_some_and(|known| *known == Applied::to(observed, wanted))
    }

    pub(crate) fn note(&self, kind: &Kind, key: &Key, wanted: u64, result: &Value) {
        let mut entries = self.0.lock();
        if entries.len() >= MAX_ENTRIES {
            entries.clear();
        }
        entries.insert((kind.clone(), key.clone()), Applied::to(result, wanted));
    }

    pub(crate) fn forget(&self, kind: &Kind, key: &Key) {
        self.0.lock().remove(&(kind.clone(), key.clone()));
    }
}

impl Applied {
    fn to(object: &Value, wanted: u64) -> Self {
        let metadata = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = match metadata["generation"].as_i64() {
            Some(generation) if generation > 0 => format!("generation {generation}"),
            _ => text(&metadata["resourceVersion"]),
        };
        Self { wanted, uid: text(&metadata["uid"]), version }
    }
}

/// Returns a number that differs for different values, and is the same in each process.
pub(crate) fn fingerprint(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_is_valid_for_one_version_of_one_object() {
        let (kind, key) = (Kind::new("", "v1", "Pod", "pods", true), Key::namespaced("a", "b"));
        let object = |uid: &str, generation: i64, version: &str| json!({"metadata": {"uid": uid, "generation": generation, "resourceVersion": version}});
        let ledger = Ledger::default();
        let check = |wanted: u64, observed: Value, expected: bool| {
            assert_eq!(ledger.shows(&kind, &key, wanted, &observed), expected, "{wanted} {observed}");
        };
        ledger.note(&kind, &key, 1, &object("u", 3, "9"));
        check(1, object("u", 3, "9"), true);
        check(1, object("u", 3, "10"), true);
        check(1, object("u", 4, "10"), false);
        check(2, object("u", 3, "9"), false);
        check(1, object("v", 3, "9"), false);
        ledger.note(&kind, &key, 1, &object("u", 0, "9"));
        check(1, object("u", 0, "10"), false);
        ledger.forget(&kind, &key);
        check(1, object("u", 0, "9"), false);
    }
}
