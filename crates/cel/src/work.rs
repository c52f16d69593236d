//! What calls do that v1.34 does not count.
//!
//! Costs bound how many steps an evaluation takes, not how long one of them is: joining two lists costs 1, whatever
//! their length, and so does comparing two that hold each other's halves. Values share their parts, so thirty steps
//! make a list of a billion items. So an evaluation also has a limit to the items that it makes, and to those that it
//! looks at; an honest one is far below both.

use super::eval::EvalError;
use super::value::Val;

/// Items of lists that one evaluation makes: more than the largest object has. At 24 bytes each, 48 MB.
const MOST_MADE: u64 = 2_000_000;
/// Items of lists and maps that functions look through, at some 10 ns each: 0.2 s.
const MOST_SEEN: u64 = 20_000_000;

/// What an evaluation has done.
#[derive(Default)]
pub(super) struct Work {
    made: u64,
    seen: u64,
}

impl Work {
    /// Notes a call that is about to be made.
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
                | "sets.intersects" | "format",
                args,
            ) => self.see(args),
            ("@in", [_, Val::List(_)]) => self.see(args),
            _ => Ok(()),
        }
    }

    fn make(&mut self, items: u64) -> Result<(), EvalError> {
        self.made = self.made.saturating_add(items);
        if self.made > MOST_MADE { Err(EvalError::TooExpensive) } else { Ok(()) }
    }

    /// Counts values and all that is in them; stops at the limit, so that counting has one, too.
    fn see(&mut self, values: &[Val]) -> Result<(), EvalError> {
        values.iter().try_for_each(|value| self.see_one(value))
    }

    fn see_one(&mut self, value: &Val) -> Result<(), EvalError> {
        self.seen += 1;
        if self.seen > MOST_SEEN {
            return Err(EvalError::TooExpensive);
        }
        match value {
            Val::List(list) => self.see(&list.items),
            Val::Map(entries) | Val::Domains(entries) | Val::Escaped(entries) => {
                entries.values().try_for_each(|value| self.see_one(value))
            }
            Val::Optional(Some(inner)) => self.see_one(inner),
            _ => Ok(()),
        }
    }
}
