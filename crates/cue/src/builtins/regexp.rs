//! Package `regexp`. Matching takes linear time, and patterns are charged by their size.

use std::sync::Arc;

use regex::Regex;

use super::{Args, Builtin};
use crate::data::Data;
use crate::eval::Res;
use crate::eval::value_of::Val;

pub(super) const TABLE: &[Builtin] = &[
    Builtin::check("Match", 2, |args| {
        let (regex, text) = read(args)?;
        Ok(Val::bool(regex.is_match(&text)))
    }),
    Builtin::check("Valid", 1, |args| {
        let text = args.text(0)?;
        Ok(Val::bool(args.evaluator.pattern(&text, 0)?.is_ok()))
    }),
    Builtin::new("Find", 2, find),
    Builtin::new("FindAll", 3, find_all),
    Builtin::new("FindSubmatch", 2, submatch),
    Builtin::new("FindNamedSubmatch", 2, named),
    Builtin::new("ReplaceAll", 3, |args| replace(args, false)),
    Builtin::new("ReplaceAllLiteral", 3, |args| replace(args, true)),
    Builtin::new("QuoteMeta", 1, |args| {
        let text = args.text(0)?;
        args.created(regex::escape(&text))
    }),
];

/// As in Go, the pattern comes first; as a constraint, the value does.
fn read(args: &mut Args<'_>) -> Res<(Regex, Arc<str>)> {
    let (pattern, text) = (args.text(0)?, args.text(1)?);
    match args.evaluator.pattern(&pattern, text.len())? {
        Ok(regex) => Ok((regex, text)),
        Err(why) => args.fail(why),
    }
}

fn find(args: &mut Args<'_>) -> Res<Val> {
    let (regex, text) = read(args)?;
    match regex.find(&text) {
        Some(found) => args.created(found.as_str().to_owned()),
        None => args.fail("no match"),
    }
}

fn find_all(args: &mut Args<'_>) -> Res<Val> {
    let (regex, text) = read(args)?;
    let limit = usize::try_from(args.int(2)?).unwrap_or(usize::MAX);
    let mut found = regex.find_iter(&text).take(limit).map(|found| found.as_str().to_owned()).peekable();
    if found.peek().is_none() {
        return args.fail("no match");
    }
    args.created_list(found)
}

fn submatch(args: &mut Args<'_>) -> Res<Val> {
    let (regex, text) = read(args)?;
    match regex.captures(&text) {
        Some(found) => {
            let groups = found.iter().map(|group| group.map_or("", |group| group.as_str()).to_owned());
            args.created_list(groups)
        }
        None => args.fail("no match"),
    }
}

fn named(args: &mut Args<'_>) -> Res<Val> {
    let (regex, text) = read(args)?;
    let Some(found) = regex.captures(&text) else { return args.fail("no match") };
    let mut groups = Vec::new();
    for name in regex.capture_names().flatten() {
        let value = found.name(name).map_or("", |group| group.as_str());
        args.evaluator.charge_text(value.len() + super::BYTES_PER_ITEM)?;
        groups.push((Arc::from(name), Arc::new(Data::text(value))));
    }
    Ok(Val::Data(Arc::new(Data::Struct(groups))))
}

fn replace(args: &mut Args<'_>, literal: bool) -> Res<Val> {
    let (regex, text) = read(args)?;
    let new = args.text(2)?;
    let matches = regex.find_iter(&text).count();
    // Matches do not overlap, so a reference to a group adds at most the whole text, over all matches.
    let references = if literal { 0 } else { new.matches('$').count() };
    let size = matches.saturating_mul(new.len()).saturating_add((1 + references).saturating_mul(text.len()));
    args.evaluator.charge_text(size)?;
    let replaced = if literal {
        regex.replace_all(&text, regex::NoExpand(&new))
    } else {
        regex.replace_all(&text, &*new)
    };
    Ok(Val::text(replaced.into_owned()))
}
