//! Field numbers: parses `numbers.txt`, whose header describes its format, on the first protobuf body.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::schema::facts::full_name;

const NUMBERS: &str = include_str!("numbers.txt");

/// A numbered member of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    /// A field, by its JSON name.
    Field(&'static str),
    /// A message whose fields are inlined in JSON.
    Inlined(&'static str),
}

/// The members of a message, sorted by number.
pub(super) struct Message(Vec<(u64, Member)>);

impl Message {
    pub(super) fn member(&self, number: u64) -> Option<Member> {
        let at = self.0.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(self.0[at].1)
    }

    /// Returns all members by number.
    pub(super) fn members(&self) -> impl Iterator<Item = (u64, Member)> {
        self.0.iter().copied()
    }
}

static MESSAGES: LazyLock<BTreeMap<String, Message>> = LazyLock::new(|| {
    let lines = NUMBERS.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(message).collect()
});

/// Returns the message of a type: `io.k8s.api.core.v1.Pod`.
pub(super) fn of(name: &str) -> Option<&'static Message> {
    MESSAGES.get(name)
}

/// Returns the message of an inlined part, by its abbreviated name.
pub(super) fn of_inlined(short: &str) -> Option<&'static Message> {
    MESSAGES.get(&full_name(short))
}

fn message(line: &'static str) -> Option<(String, Message)> {
    let mut words = line.split(' ');
    let name = full_name(words.next()?);
    let mut next = 1;
    let mut members = Vec::new();
    for word in words {
        let (word, number) = match word.split_once('=') {
            Some((word, number)) => (word, number.parse().ok()?),
            None => (word, next),
        };
        let member = word.strip_prefix('>').map_or(Member::Field(word), Member::Inlined);
        members.push((number, member));
        next = number + 1;
    }
    Some((name, Message(members)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Table;

    #[test]
    fn every_line_is_read_and_sorted() {
        let lines = NUMBERS.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(MESSAGES.len(), lines);
        for (name, message) in MESSAGES.iter() {
            assert!(message.0.is_sorted_by(|a, b| a.0 < b.0), "{name}");
        }
    }

    #[test]
    fn every_field_of_every_kind_has_a_number() {
        // A server's version is only sent as JSON.
        let described = |name: &str| !name.ends_with("version.Info");
        for (name, fields) in Table::built_in().structs().filter(|(name, _)| described(name)) {
            let mut numbered = Vec::new();
            collect(of(name).unwrap_or_else(|| panic!("{name} has no message")), &mut numbered);
            let stated = |field: &str| fields.kinds.iter().any(|_| ["apiVersion", "kind"].contains(&field));
            for field in fields.fields.iter().filter(|field| !stated(&field.name)) {
                assert!(numbered.contains(&&*field.name), "{name}.{}", field.name);
            }
        }
    }

    fn collect(message: &Message, names: &mut Vec<&'static str>) {
        for (_, member) in &message.0 {
            match member {
                Member::Field(name) => names.push(name),
                Member::Inlined(part) => collect(of_inlined(part).expect("a part has a message"), names),
            }
        }
    }
}
