//! Limits work that v1.34's cost model does not cover.
//!
//! Costs bound the number of steps of an evaluation, but not the length of a step: concatenating two lists costs 1
//! regardless of their length, and so does comparing two lists that contain each other's halves. Values share their
//! parts, so thirty steps can build a list of a billion items. Therefore an evaluation also has a limit on the items it
//! creates, and on those it visits. Reasonable expressions stay far below both.

use super::declarations::GRAPH_FORMAT;
use super::eval::EvalError;
use super::value::Val;

/// The limit on list items created by one evaluation: more than the largest object has. At 24 bytes each, 48 MB.
const MAX_MADE: u64 = 2_000_000;
/// The limit on list and map items visited by functions, at some 10 ns each: 0.2 s.
const MAX_SEEN: u64 = 20_000_000;

/// The work done by an evaluation.
#[derive(Default)]
pub(super) struct Work {
    made: u64,
    seen: u64,
}

impl Work {
    /// Charges for a call that is about to be made.
    pub(super) fn note(&mut self, function: &str, args: &[Val]) -> Result<(), EvalError> {
        match (function, args) {
            ("lists.range", [Val::Int(count)]) => self.make(u64::try_from(*count).unwrap_or(0)),
            ("_+_", [Val::List(a), Val::List(b)]) => self.make(a.items.len() as u64 + b.items.len() as u64),
            ("reverse" | "slice", [Val::List(list), ..]) => self.make(list.items.len() as u64),
            ("flatten" | "distinct" | "sort" | "@sortByAssociatedKeys", args) => {
                let before = self.seen;
                self.see(args)?;
                self.make(self.seen - before)
            }
            (
                "_==_" | "_!=_" | "indexOf" | "lastIndexOf" | "sets.contains" | "sets.equivalent"
                | "sets.intersects" | "format" | GRAPH_FORMAT,
                args,
            ) => self.see(args),
            ("@in", [_, Val::List(_)]) => self.see(args),
            // Their cost is the size of the whole value, which takes as long to add up.
            ("isSorted" | "sum" | "max" | "min", args) => self.see(args),
            _ => self.note_graphs(function, args),
        }
    }

    /// Charges for functions of resource graphs. A call that fails has no cost, and `||` goes on after it, so they are
    /// charged before they run.
    fn note_graphs(&mut self, function: &str, args: &[Val]) -> Result<(), EvalError> {
        match (function, args) {
            ("lists.setAtIndex" | "lists.insertAtIndex" | "lists.removeAtIndex", [Val::List(list), ..]) => {
                self.see(args)?;
                self.make(list.items.len() as u64 + 1)
            }
            ("merge", [Val::Map(base), Val::Map(other)]) => {
                self.see(args)?;
                self.make(base.len() as u64 + other.len() as u64)
            }
            ("json.marshal", args) => {
                self.see(args)?;
                self.read(args.iter().map(text_bytes).sum())
            }
            ("json.unmarshal", [Val::String(text)]) => {
                self.read(text.len() as u64)?;
                // The shortest item is a digit and a comma.
                self.make(text.len() as u64 / 2)
            }
            ("base64.decode" | "random.seededString" | "random.seededInt", args) => {
                self.read(args.iter().map(text_bytes).sum())
            }
            _ => Ok(()),
        }
    }

    /// Charges for reading text: eight bytes take as long as an item.
    fn read(&mut self, bytes: u64) -> Result<(), EvalError> {
        self.seen = self.seen.saturating_add(bytes / 8);
        if self.seen > MAX_SEEN { Err(EvalError::TooExpensive) } else { Ok(()) }
    }

    fn make(&mut self, items: u64) -> Result<(), EvalError> {
        self.made = self.made.saturating_add(items);
        if self.made > MAX_MADE { Err(EvalError::TooExpensive) } else { Ok(()) }
    }

    /// Counts values and everything inside them. Stops at the limit, so that counting is bounded too.
    fn see(&mut self, values: &[Val]) -> Result<(), EvalError> {
        values.iter().try_for_each(|value| self.see_one(value))
    }

    fn see_one(&mut self, value: &Val) -> Result<(), EvalError> {
        self.seen += 1;
        if self.seen > MAX_SEEN {
            return Err(EvalError::TooExpensive);
        }
        match value {
            Val::List(list) => self.see(&list.items),
            Val::Map(entries) | Val::Domains(entries) | Val::Escaped(entries) => {
                entries.values().try_for_each(|value| self.see_one(value))
            }
            Val::Message(message) => message.fields.values().try_for_each(|value| self.see_one(value)),
            Val::Optional(Some(inner)) => self.see_one(inner),
            _ => Ok(()),
        }
    }
}

/// Returns the length of all text in a value whose items have been counted.
fn text_bytes(value: &Val) -> u64 {
    match value {
        Val::String(text) => text.len() as u64,
        Val::Bytes(bytes) => bytes.len() as u64,
        Val::List(list) => list.items.iter().map(text_bytes).sum(),
        Val::Map(entries) | Val::Domains(entries) | Val::Escaped(entries) => {
            entries.values().map(text_bytes).sum()
        }
        Val::Message(message) => message.fields.values().map(text_bytes).sum(),
        Val::Optional(Some(inner)) => text_bytes(inner),
        _ => 0,
    }
}
