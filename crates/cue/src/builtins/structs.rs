//! Package `struct`.

use super::{Args, Builtin, core};
use crate::eval::Res;
use crate::eval::node::Value;
use crate::eval::value_of::Val;

pub(super) const TABLE: &[Builtin] = &[
    Builtin::check("MinFields", 2, |args| count(args, |found, wanted| found >= wanted)),
    Builtin::check("MaxFields", 2, |args| count(args, |found, wanted| found <= wanted)),
];

fn count(args: &mut Args<'_>, holds: fn(usize, usize) -> bool) -> Res<Val> {
    let wanted = args.size(1)?;
    let id = args.node(0);
    let id = args.evaluator.concrete(id, args.at)?;
    if !matches!(args.evaluator.shape(id).value, Value::Struct) {
        return args.fail(format!("{} is not a struct", args.evaluator.describe(id)));
    }
    Ok(Val::bool(holds(core::fields(args, id).len(), wanted)))
}
