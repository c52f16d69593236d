//! An object of a request in other versions, if a webhook converts between them.
//!
//! As in v1.34, an object is converted once to each version that policies and webhooks ask for, and one that was changed in
//! another version is not converted back to it.

use std::collections::VecDeque;

use serde_json::Value;

use crate::json::Json;

/// Few requests need more than one other version, and the rest convert again. An object takes up to 1.5 MiB as text, and is
/// held twice.
const MOST: usize = 3;

/// Pairs of the same object in two versions, the one that was used last at the end. If several objects look the same in a version, the latest one
/// counts.
#[derive(Default)]
pub(super) struct ConvertedObjects(VecDeque<[Value; 2]>);

impl ConvertedObjects {
    /// Returns an object in another version.
    pub(super) fn find(&mut self, object: &Value, api_version: &str) -> Option<Value> {
        let is_it = |known: &Value, other: &Value| known == object && other.text("apiVersion") == api_version;
        let other_of = |[one, other]: &[Value; 2]| match () {
            () if is_it(one, other) => Some(other.clone()),
            () if is_it(other, one) => Some(one.clone()),
            () => None,
        };
        let (place, found) =
            self.0.iter().enumerate().rev().find_map(|(place, pair)| Some((place, other_of(pair)?)))?;
        // What is used stays.
        let pair = self.0.remove(place);
        self.0.extend(pair);
        Some(found)
    }

    pub(super) fn add(&mut self, object: &Value, converted: &Value) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back([object.clone(), converted.clone()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_is_found_in_both_versions_and_only_the_latest_are_kept() {
        let object = |version: &str, spec: usize| json!({"apiVersion": version, "spec": spec});
        let mut converted = ConvertedObjects::default();
        for spec in 0..10 {
            converted.add(&object("g/v1", spec), &object("g/v2", spec));
        }
        assert_eq!(converted.find(&object("g/v1", 9), "g/v2"), Some(object("g/v2", 9)));
        assert_eq!(converted.find(&object("g/v2", 9), "g/v1"), Some(object("g/v1", 9)));
        assert_eq!(converted.find(&object("g/v1", 9), "g/v3"), None);
        assert_eq!(converted.find(&object("g/v1", 3), "g/v2"), None, "forgotten");
    }

    #[test]
    fn an_object_that_is_used_again_and_again_is_kept() {
        let object = |version: &str, spec: usize| json!({"apiVersion": version, "spec": spec});
        let mut converted = ConvertedObjects::default();
        for spec in 0..10 {
            converted.add(&object("g/v1", spec), &object("g/v2", spec));
            assert_eq!(converted.find(&object("g/v1", 0), "g/v2"), Some(object("g/v2", 0)), "after {spec}");
        }
    }
}
