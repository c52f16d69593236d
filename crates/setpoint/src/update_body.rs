//! Changes a few fields of an encoded object and leaves the rest as it is.
//!
//! A controller updates an object that it has cached as bytes and decoded only partly. The bytes are split only as deep
//! as the replaced fields and then joined again, so fields unknown to this program survive.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::Object;

/// An encoded object with some fields replaced. Serializes to the body of an update.
///
/// ```
/// use setpoint::{UpdateBody, Object};
/// let object = Object::from_json(r#"{"metadata":{"name":"a"},"spec":{"size":1,"colour":"red"}}"#.into())?;
/// let edit = UpdateBody::of(&object).set(&["spec", "size"], &2).remove(&["metadata", "managedFields"]);
/// assert_eq!(serde_json::to_string(&edit)?, r#"{"metadata":{"name":"a"},"spec":{"colour":"red","size":2}}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct UpdateBody<'a> {
    root: Node<'a>,
    /// The first error. It is reported when the edit is serialized, so that edits can be chained.
    error: Option<serde_json::Error>,
}

enum Node<'a> {
    /// Unchanged.
    Kept(&'a RawValue),
    /// Replaced.
    New(Box<RawValue>),
    /// Parsed, because a field inside is replaced.
    Object(BTreeMap<String, Node<'a>>),
}

impl<'a> UpdateBody<'a> {
    /// Starts an edit that changes nothing yet.
    pub fn of(object: &'a Object) -> Self {
        match serde_json::from_slice(object.raw()) {
            Ok(raw) => Self { root: Node::Kept(raw), error: None },
            Err(error) => Self { root: Node::Object(BTreeMap::new()), error: Some(error) },
        }
    }

    /// Sets the field at `path`, creating missing parent objects.
    pub fn set(mut self, path: &[&str], value: &impl Serialize) -> Self {
        let new = serde_json::value::to_raw_value(value).map(Node::New);
        self.attempt(|root| root.replace(path, new?));
        self
    }

    /// Removes the field at `path`, if present.
    pub fn remove(mut self, path: &[&str]) -> Self {
        self.attempt(|root| root.remove(path));
        self
    }

    fn attempt(&mut self, change: impl FnOnce(&mut Node<'a>) -> Result<(), serde_json::Error>) {
        if self.error.is_none() {
            self.error = change(&mut self.root).err();
        }
    }
}

impl<'a> Node<'a> {
    fn replace(&mut self, path: &[&str], new: Node<'a>) -> Result<(), serde_json::Error> {
        let Some((first, rest)) = path.split_first() else {
            *self = new;
            return Ok(());
        };
        let missing = || Node::Object(BTreeMap::new());
        self.open()?.entry((*first).to_owned()).or_insert_with(missing).replace(rest, new)
    }

    fn remove(&mut self, path: &[&str]) -> Result<(), serde_json::Error> {
        match path {
            [] => Ok(()),
            [last] => self.open().map(|fields| drop(fields.remove(*last))),
            [first, rest @ ..] => match self.open()?.get_mut(*first) {
                Some(inner) => inner.remove(rest),
                None => Ok(()),
            },
        }
    }

    /// Returns the fields of this object. `null` has none.
    fn open(&mut self) -> Result<&mut BTreeMap<String, Node<'a>>, serde_json::Error> {
        let fields = match self {
            Self::Kept(raw) => serde_json::from_str::<Option<BTreeMap<String, &'a RawValue>>>(raw.get())?
                .unwrap_or_default()
                .into_iter()
                .map(|(name, raw)| (name, Node::Kept(raw)))
                .collect(),
            Self::New(raw) => serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(raw.get())?
                .into_iter()
                .map(|(name, raw)| (name, Node::New(raw)))
                .collect(),
            Self::Object(fields) => return Ok(fields),
        };
        *self = Self::Object(fields);
        self.open()
    }
}

impl Serialize for UpdateBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.error {
            Some(error) => Err(serde::ser::Error::custom(format_args!("cannot edit the object: {error}"))),
            None => self.root.serialize(serializer),
        }
    }
}

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Kept(raw) => raw.serialize(serializer),
            Self::New(raw) => raw.serialize(serializer),
            Self::Object(fields) => fields.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(value: Value) -> Object {
        Object::from_json(value.to_string().into()).unwrap()
    }

    #[track_caller]
    fn check(before: Value, edit: impl FnOnce(UpdateBody<'_>) -> UpdateBody<'_>, after: Value) {
        let object = object(before);
        assert_eq!(serde_json::to_value(edit(UpdateBody::of(&object))).unwrap(), after);
    }

    #[test]
    fn only_the_named_fields_change() {
        let before =
            || json!({"metadata": {"name": "a", "labels": {"x": "1"}}, "spec": {"n": 1.50, "s": ["é"]}});
        check(before(), |edit| edit, before());
        check(before(), |edit| edit.set(&["status"], &json!({"n": 1})), {
            json!({"metadata": {"name": "a", "labels": {"x": "1"}}, "spec": {"n": 1.50, "s": ["é"]}, "status": {"n": 1}})
        });
        check(before(), |edit| edit.set(&["metadata", "annotations", "k"], &"v").remove(&["spec"]), {
            json!({"metadata": {"name": "a", "labels": {"x": "1"}, "annotations": {"k": "v"}}})
        });
        check(before(), |edit| edit.remove(&["metadata", "labels", "y"]).remove(&["status", "n"]), {
            json!({"metadata": {"name": "a", "labels": {"x": "1"}}, "spec": {"n": 1.50, "s": ["é"]}})
        });
    }

    #[test]
    fn a_replaced_field_can_be_edited_further() {
        check(
            json!({"metadata": {"name": "a"}}),
            |edit| edit.set(&["spec"], &json!({"a": 1, "b": 2})).set(&["spec", "a"], &3),
            json!({"metadata": {"name": "a"}, "spec": {"a": 3, "b": 2}}),
        );
    }

    #[test]
    fn null_counts_as_an_empty_object() {
        check(
            json!({"metadata": {"name": "a", "annotations": null}}),
            |edit| edit.set(&["metadata", "annotations", "k"], &"v"),
            json!({"metadata": {"name": "a", "annotations": {"k": "v"}}}),
        );
    }

    #[test]
    fn editing_inside_a_scalar_is_an_error_when_encoded() {
        let object = object(json!({"metadata": {"name": "a"}, "spec": 3}));
        let error = serde_json::to_string(&UpdateBody::of(&object).set(&["spec", "n"], &1)).unwrap_err();
        assert!(error.to_string().starts_with("cannot edit the object: invalid type"), "{error}");
    }
}
