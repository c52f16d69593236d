//! Package `list`. Elements are passed on unchanged, so that types and comments inside them survive.

use std::rc::Rc;
use std::sync::Arc;

use super::{Args, Builtin, int, list_sort};
use crate::data::Data;
use crate::eval::Res;
use crate::eval::node::NodeId;
use crate::eval::operators::arithmetic;
use crate::eval::value_of::Val;
use crate::number::Number;
use crate::value::Atom;

pub(super) const TABLE: &[Builtin] = &[
    Builtin::new("Concat", 1, concat),
    Builtin::new("Repeat", 2, repeat),
    Builtin::new("Drop", 2, |args| {
        let (items, count) = (args.items(0)?, args.size(1)?);
        args.list_of_items(items.into_iter().skip(count).collect())
    }),
    Builtin::new("Take", 2, |args| {
        let (items, count) = (args.items(0)?, args.size(1)?);
        args.list_of_items(items.into_iter().take(count).collect())
    }),
    Builtin::new("Slice", 3, slice),
    Builtin::new("Reverse", 1, |args| {
        let mut items = args.items(0)?;
        items.reverse();
        args.list_of_items(items)
    }),
    Builtin::new("FlattenN", 2, flatten),
    Builtin::new("Range", 3, range),
    Builtin::new("Sum", 1, |args| fold(args, Number::int(0), Number::add)),
    Builtin::new("Product", 1, |args| fold(args, Number::int(1), Number::multiply)),
    Builtin::new("Avg", 1, average),
    Builtin::new("Max", 1, |args| extreme(args, std::cmp::Ordering::is_gt)),
    Builtin::new("Min", 1, |args| extreme(args, std::cmp::Ordering::is_lt)),
    Builtin::check("Contains", 2, contains),
    Builtin::check("MinItems", 2, |args| count(args, |found, wanted| found >= wanted)),
    Builtin::check("MaxItems", 2, |args| count(args, |found, wanted| found <= wanted)),
    Builtin::check("UniqueItems", 1, unique),
    Builtin::check("MatchN", 3, match_n),
    Builtin::check("IsSortedStrings", 1, |args| {
        let texts = args.texts(0)?;
        Ok(Val::bool(texts.is_sorted()))
    }),
    Builtin::new("SortStrings", 1, |args| {
        let mut texts = args.texts(0)?;
        texts.sort();
        args.created_list(texts.iter().map(|text| text.to_string()))
    }),
    Builtin::new("Sort", 2, list_sort::sort),
    Builtin::new("SortStable", 2, list_sort::sort),
    Builtin::check("IsSorted", 2, list_sort::is_sorted),
];

fn concat(args: &mut Args<'_>) -> Res<Val> {
    let mut all = Vec::new();
    for (index, item) in args.items(0)?.into_iter().enumerate() {
        match args.evaluator.list_of(&Val::Node(item), args.at)? {
            Some(items) => {
                args.evaluator.charge(items.len())?;
                all.extend(items);
            }
            None => return args.fail(format!("element {index} is not a list")),
        }
    }
    args.list_of_items(all)
}

fn repeat(args: &mut Args<'_>) -> Res<Val> {
    let (items, times) = (args.items(0)?, args.size(1)?);
    args.evaluator.charge(items.len().saturating_mul(times))?;
    args.list_of_items(items.repeat(times))
}

fn slice(args: &mut Args<'_>) -> Res<Val> {
    let (items, start, end) = (args.items(0)?, args.size(1)?, args.size(2)?);
    match items.get(start..end) {
        Some(slice) => args.list_of_items(slice.to_vec()),
        None => {
            args.fail(format!("slice {start}:{end} is out of range: the list has {} elements", items.len()))
        }
    }
}

fn flatten(args: &mut Args<'_>) -> Res<Val> {
    let (items, depth) = (args.items(0)?, args.int(1)?);
    // The elements still to visit, the next one last, with the remaining depth.
    let mut pending: Vec<(NodeId, i128)> = items.into_iter().rev().map(|item| (item, depth)).collect();
    let mut flat = Vec::new();
    while let Some((item, depth)) = pending.pop() {
        args.evaluator.charge(1)?;
        match args.evaluator.list_of(&Val::Node(item), args.at)? {
            Some(inner) if depth != 0 => {
                args.evaluator.charge(inner.len())?;
                pending.extend(inner.into_iter().rev().map(|item| (item, depth.saturating_sub(1).max(-1))));
            }
            _ => flat.push(item),
        }
    }
    args.list_of_items(flat)
}

fn range(args: &mut Args<'_>) -> Res<Val> {
    let (start, limit, step) = (args.number(0)?, args.number(1)?, args.number(2)?);
    if step.is_zero() {
        return args.fail("step must be non zero");
    }
    let inside = |at: &Number| {
        if step.is_negative() { at.compare(&limit).is_gt() } else { at.compare(&limit).is_lt() }
    };
    let mut numbers = Vec::new();
    let mut at = start;
    while inside(&at) {
        args.evaluator.charge(1)?;
        numbers.push(Arc::new(Data::Atom(Atom::Number(at))));
        at = arithmetic(at.add(step), args.at)?;
    }
    Ok(Val::Data(Arc::new(Data::List(numbers))))
}

fn fold(
    args: &mut Args<'_>,
    start: Number,
    operation: fn(Number, Number) -> crate::number::Result,
) -> Res<Val> {
    let mut total = start;
    for number in args.numbers(0)? {
        total = arithmetic(operation(total, number), args.at)?;
    }
    Ok(Val::Atom(Atom::Number(total)))
}

fn average(args: &mut Args<'_>) -> Res<Val> {
    let numbers = args.numbers(0)?;
    if numbers.is_empty() {
        return args.fail("empty list");
    }
    let mut total = Number::int(0);
    for number in &numbers {
        total = arithmetic(total.add(*number), args.at)?;
    }
    let average = arithmetic(total.divide(Number::int(numbers.len() as i128)), args.at)?;
    let whole = average.as_i128().filter(|_| total.is_int()).map(Number::int);
    Ok(Val::Atom(Atom::Number(whole.unwrap_or(average))))
}

fn extreme(args: &mut Args<'_>, wins: fn(std::cmp::Ordering) -> bool) -> Res<Val> {
    let numbers = args.numbers(0)?;
    let best =
        numbers.into_iter().reduce(|best, number| if wins(number.compare(&best)) { number } else { best });
    match best {
        Some(best) => Ok(Val::Atom(Atom::Number(best))),
        None => args.fail("empty list"),
    }
}

fn contains(args: &mut Args<'_>) -> Res<Val> {
    let wanted = args.data(1)?;
    for item in args.items(0)? {
        if args.evaluator.node_data(item, args.at)? == wanted {
            return Ok(Val::bool(true));
        }
    }
    Ok(Val::bool(false))
}

fn count(args: &mut Args<'_>, holds: fn(usize, usize) -> bool) -> Res<Val> {
    let wanted = args.size(1)?;
    let found = args.items(0)?.len();
    Ok(Val::bool(holds(found, wanted)))
}

fn unique(args: &mut Args<'_>) -> Res<Val> {
    let mut seen: Vec<Arc<Data>> = Vec::new();
    for item in args.items(0)? {
        let data = args.evaluator.node_data(item, args.at)?;
        args.evaluator.charge(1 + seen.len() / 8)?;
        if seen.contains(&data) {
            return Ok(Val::bool(false));
        }
        seen.push(data);
    }
    Ok(Val::bool(true))
}

/// Checks how many elements of a list unify with a value.
fn match_n(args: &mut Args<'_>) -> Res<Val> {
    let constraint = args.node(2);
    let mut matching = 0;
    for item in args.items(0)? {
        let both = args.evaluator.materialize(Val::All(Rc::new(vec![item, constraint])));
        matching += usize::from(args.evaluator.deep_error(both).is_none());
    }
    let (count, wanted) = (args.evaluator.materialize(int(matching)), args.node(1));
    let both = args.evaluator.materialize(Val::All(Rc::new(vec![count, wanted])));
    Ok(Val::bool(args.evaluator.deep_error(both).is_none()))
}
