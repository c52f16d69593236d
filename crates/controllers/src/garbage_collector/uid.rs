//! Compact uids: the graph holds two for every owner reference in the cluster.

use std::fmt;
use std::sync::Arc;

use setpoint::Uid as Uuid;

/// The uid of an object. UUIDs are stored as sixteen bytes; other strings, which references may contain, are stored as
/// is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Uid(Form);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Form {
    Uuid([u8; 16]),
    Other(Arc<str>),
}

impl Uid {
    /// The smallest uid.
    pub(super) const FIRST: Self = Self(Form::Uuid([0; 16]));
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        let uuid = Uuid::parse(text).map(Uuid::to_bytes);
        Self(uuid.map_or_else(|| Form::Other(text.into()), Form::Uuid))
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Other(text) => f.write_str(text),
            Form::Uuid(bytes) => Uuid::from_bytes(*bytes).fmt(f),
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_round_trips() {
        for text in [
            "5c1cc9a6-b8ab-4b1a-9a53-0a3c1f4c8d21",
            "5C1CC9A6-B8AB-4B1A-9A53-0A3C1F4C8D21",
            "5c1cc9a6b8ab-4b1a-9a53-0a3c1f4c8d21-",
            "mirror-pod",
            "",
        ] {
            assert_eq!(Uid::from(text).to_string(), text);
        }
    }

    #[test]
    fn a_uuid_takes_no_memory_of_its_own() {
        assert!(matches!(Uid::from("5c1cc9a6-b8ab-4b1a-9a53-0a3c1f4c8d21").0, Form::Uuid(_)));
        assert!(size_of::<Uid>() <= 24);
    }
}
