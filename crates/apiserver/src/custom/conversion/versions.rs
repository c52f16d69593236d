//! Field ownership across versions: a manager owns fields of the version it wrote, so a change is compared in each of
//! these versions.
//!
//! Ownership is computed without waiting. A missing conversion is recorded and made, then the computation is repeated.

use parking_lot::Mutex;
use serde_json::Value;

use crate::apply::{OtherVersions, Resets, Unconverted};
use crate::custom::Custom;
use crate::kind::Subresource;
use crate::schema::Schema;

/// The conversions made for a request.
#[derive(Default)]
pub(crate) struct VersionMemo(Mutex<Memo>);

#[derive(Default)]
struct Memo {
    /// Two or three for each other version of a manager, of the last [`KEPT`] computations. A definition has few versions,
    /// and entries of unknown ones are not converted.
    known: Vec<Conversion>,
    wanted: Vec<Wanted>,
}

struct Conversion {
    wanted: Wanted,
    result: Result<Value, String>,
    /// How many computations have started since it was last used.
    unused: u8,
}

/// How many computations in a row may leave a conversion unused before it is dropped. A write attempt has up to two,
/// and the next attempt may have the same objects.
const KEPT: u8 = 2;

/// An object, and the version it is to be converted to.
#[derive(Clone, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) object: Value,
    pub(crate) to: String,
}

impl VersionMemo {
    /// Starts a computation: drops conversions that recent ones have not used, so that retries of a write do not
    /// accumulate them.
    pub(crate) fn begin(&self) {
        let mut memo = self.0.lock();
        memo.wanted.clear();
        memo.known.retain_mut(|known| {
            known.unused += 1;
            known.unused <= KEPT
        });
    }

    /// Returns the conversions that were found missing since the last time.
    pub(crate) fn take_wanted(&self) -> Vec<Wanted> {
        std::mem::take(&mut self.0.lock().wanted)
    }

    pub(crate) fn insert(&self, wanted: Wanted, result: Result<Value, String>) {
        self.0.lock().known.push(Conversion { wanted, result, unused: 0 });
    }

    fn find(&self, object: &Value, to: &str) -> Result<Value, Unconverted> {
        let mut memo = self.0.lock();
        let is_it = |known: &&mut Conversion| known.wanted.to == to && known.wanted.object == *object;
        if let Some(known) = memo.known.iter_mut().find(is_it) {
            known.unused = 0;
            return known.result.clone().map_err(Unconverted::Failed);
        }
        let wanted = Wanted { object: object.clone(), to: to.to_owned() };
        if !memo.wanted.contains(&wanted) {
            memo.wanted.push(wanted);
        }
        Err(Unconverted::Wanted)
    }
}

/// The versions of a kind that a webhook converts, for one request.
pub(crate) struct ConvertedVersions<'a> {
    pub(crate) custom: &'a Custom,
    pub(crate) subresource: Option<Subresource>,
    pub(crate) memo: &'a VersionMemo,
}

/// Whether an object has only a type. No webhook is called for it.
fn is_empty(object: &Value) -> bool {
    object.as_object().is_some_and(|fields| fields.keys().all(|name| name == "apiVersion" || name == "kind"))
}

impl OtherVersions for ConvertedVersions<'_> {
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, Unconverted> {
        if object.get("apiVersion").and_then(Value::as_str) == Some(api_version) {
            return Ok(object.clone());
        }
        if is_empty(object) {
            let mut empty = object.clone();
            empty["apiVersion"] = api_version.into();
            return Ok(empty);
        }
        self.memo.find(object, api_version)
    }

    fn version(&self, api_version: &str) -> Option<(&Schema, Resets)> {
        let (types, has_status) = self.custom.version_types(api_version)?;
        Some((types, Resets::usual(has_status, self.subresource)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conversions_of_earlier_attempts_are_forgotten() {
        let memo = VersionMemo::default();
        let same = json!({"spec": "applied"});
        for attempt in 0..100 {
            memo.begin();
            for object in [json!({"metadata": attempt}), same.clone()] {
                if memo.find(&object, "g/v2").is_err() {
                    memo.take_wanted().into_iter().for_each(|wanted| memo.insert(wanted, Ok(object.clone())));
                }
                assert!(memo.find(&object, "g/v2").is_ok());
            }
        }
        assert_eq!(
            memo.0.lock().known.len(),
            1 + usize::from(KEPT) + 1,
            "the same one, and those of the last"
        );
    }
}
