//! Package `strings`.

use std::sync::Arc;

use super::{Args, Builtin, int};
use crate::eval::Res;
use crate::eval::value_of::Val;
use crate::value::Atom;

pub(super) const TABLE: &[Builtin] = &[
    Builtin::new("Contains", 2, |args| test(args, |text, other| text.contains(other))),
    Builtin::new("ContainsAny", 2, |args| test(args, |text, set| text.contains(|c| set.contains(c)))),
    Builtin::new("HasPrefix", 2, |args| test(args, |text, other| text.starts_with(other))),
    Builtin::new("HasSuffix", 2, |args| test(args, |text, other| text.ends_with(other))),
    Builtin::new("Count", 2, count),
    Builtin::new("Fields", 1, |args| {
        let text = args.text(0)?;
        args.created_list(text.split_whitespace().map(String::from))
    }),
    Builtin::new("Index", 2, |args| find(args, |text, other| text.find(other))),
    Builtin::new("LastIndex", 2, |args| find(args, |text, other| text.rfind(other))),
    Builtin::new("IndexAny", 2, |args| find(args, |text, set| text.find(|c| set.contains(c)))),
    Builtin::new("Join", 2, join),
    Builtin::new("Repeat", 2, repeat),
    Builtin::new("Replace", 4, replace),
    Builtin::new("Split", 2, |args| split(args, -1)),
    Builtin::new("SplitN", 3, |args| {
        let limit = args.int(2)?;
        split(args, limit)
    }),
    Builtin::new("SplitAfter", 2, split_after),
    Builtin::new("ToLower", 1, |args| map(args, |text| text.to_lowercase())),
    Builtin::new("ToUpper", 1, |args| map(args, |text| text.to_uppercase())),
    Builtin::new("ToTitle", 1, |args| map(args, |text| each_word(text, char::is_uppercase, true))),
    Builtin::new("ToCamel", 1, |args| map(args, |text| each_word(text, char::is_lowercase, false))),
    Builtin::new("Trim", 2, |args| trim(args, |text, set| text.trim_matches(|c| set.contains(c)))),
    Builtin::new("TrimLeft", 2, |args| trim(args, |text, set| text.trim_start_matches(|c| set.contains(c)))),
    Builtin::new("TrimRight", 2, |args| trim(args, |text, set| text.trim_end_matches(|c| set.contains(c)))),
    Builtin::new("TrimPrefix", 2, |args| trim(args, |text, other| text.strip_prefix(other).unwrap_or(text))),
    Builtin::new("TrimSuffix", 2, |args| trim(args, |text, other| text.strip_suffix(other).unwrap_or(text))),
    Builtin::new("TrimSpace", 1, |args| map(args, |text| text.trim().to_owned())),
    Builtin::new("Runes", 1, runes),
    Builtin::new("ByteAt", 2, byte_at),
    Builtin::new("ByteSlice", 3, byte_slice),
    Builtin::new("SliceRunes", 3, slice_runes),
    Builtin::new("Compare", 2, |args| {
        let (a, b) = (args.text(0)?, args.text(1)?);
        Ok(Val::Atom(Atom::int(a.cmp(&b) as i128)))
    }),
    Builtin::new("EqualFold", 2, |args| test(args, |a, b| a.to_lowercase() == b.to_lowercase())),
    Builtin::check("MinRunes", 2, |args| {
        let least = args.size(1)?;
        Ok(Val::bool(args.text(0)?.chars().count() >= least))
    }),
    Builtin::check("MaxRunes", 2, |args| {
        let most = args.size(1)?;
        Ok(Val::bool(args.text(0)?.chars().count() <= most))
    }),
];

fn test(args: &mut Args<'_>, holds: fn(&str, &str) -> bool) -> Res<Val> {
    let (text, other) = (args.text(0)?, args.text(1)?);
    Ok(Val::bool(holds(&text, &other)))
}

fn find(args: &mut Args<'_>, search: fn(&str, &str) -> Option<usize>) -> Res<Val> {
    let (text, other) = (args.text(0)?, args.text(1)?);
    let found = search(&text, &other).map_or(-1, |at| at as i128);
    Ok(Val::Atom(Atom::int(found)))
}

fn map(args: &mut Args<'_>, change: fn(&str) -> String) -> Res<Val> {
    let text = args.text(0)?;
    args.created(change(&text))
}

fn trim(args: &mut Args<'_>, cut: for<'a> fn(&'a str, &str) -> &'a str) -> Res<Val> {
    let (text, set) = (args.text(0)?, args.text(1)?);
    args.created(cut(&text, &set).to_owned())
}

fn count(args: &mut Args<'_>) -> Res<Val> {
    let (text, part) = (args.text(0)?, args.text(1)?);
    // As in Go: the empty string is found between all characters.
    Ok(int(if part.is_empty() { text.chars().count() + 1 } else { text.matches(&*part).count() }))
}

fn join(args: &mut Args<'_>) -> Res<Val> {
    let (texts, separator) = (args.texts(0)?, args.text(1)?);
    let size = texts.iter().map(|text| text.len() + separator.len()).sum();
    args.evaluator.charge_text(size)?;
    Ok(Val::text(texts.join(&*separator)))
}

fn repeat(args: &mut Args<'_>) -> Res<Val> {
    let (text, times) = (args.text(0)?, args.size(1)?);
    args.evaluator.charge_text(text.len().saturating_mul(times))?;
    Ok(Val::text(text.repeat(times)))
}

fn replace(args: &mut Args<'_>) -> Res<Val> {
    let (text, old, new, limit) = (args.text(0)?, args.text(1)?, args.text(2)?, args.int(3)?);
    let most = text.len() + (text.len() + 1).saturating_mul(new.len());
    args.evaluator.charge_text(most.min(text.len() + text.matches(&*old).count() * new.len()))?;
    let replaced = match usize::try_from(limit) {
        Ok(limit) => text.replacen(&*old, &new, limit),
        Err(_) => text.replace(&*old, &new),
    };
    Ok(Val::text(replaced))
}

fn split(args: &mut Args<'_>, limit: i128) -> Res<Val> {
    let (text, separator) = (args.text(0)?, args.text(1)?);
    if limit == 0 {
        return args.created_list([]);
    }
    if separator.is_empty() {
        let single = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(1);
        let head = text.chars().take(single).map(String::from);
        let tail = text.char_indices().nth(single).map(|(at, _)| text[at..].to_owned());
        return args.created_list(head.chain(tail));
    }
    match usize::try_from(limit) {
        Ok(limit) => args.created_list(text.splitn(limit, &*separator).map(String::from)),
        Err(_) => args.created_list(text.split(&*separator).map(String::from)),
    }
}

fn split_after(args: &mut Args<'_>) -> Res<Val> {
    let (text, separator) = (args.text(0)?, args.text(1)?);
    let parts = text.split_inclusive(&*separator).map(String::from);
    let last = text.ends_with(&*separator).then(String::new);
    args.created_list(parts.chain(last))
}

/// Changes the first letter of each word, unless it has the given property already.
fn each_word(text: &str, has: fn(char) -> bool, upper: bool) -> String {
    let mut starts = true;
    let mut changed = String::with_capacity(text.len());
    for letter in text.chars() {
        if starts && !has(letter) {
            if upper { changed.extend(letter.to_uppercase()) } else { changed.extend(letter.to_lowercase()) }
        } else {
            changed.push(letter);
        }
        starts = letter.is_whitespace();
    }
    changed
}

fn runes(args: &mut Args<'_>) -> Res<Val> {
    use crate::data::Data;
    let text = args.text(0)?;
    args.evaluator.charge(text.len())?;
    let codes = text.chars().map(|letter| Arc::new(Data::Atom(Atom::int(letter as i128))));
    Ok(Val::Data(Arc::new(Data::List(codes.collect()))))
}

fn byte_at(args: &mut Args<'_>) -> Res<Val> {
    let (bytes, index) = (args.bytes(0)?, args.size(1)?);
    match bytes.get(index) {
        Some(byte) => Ok(int(usize::from(*byte))),
        None => args.fail(format!("index {index} is out of range")),
    }
}

fn byte_slice(args: &mut Args<'_>) -> Res<Val> {
    let (bytes, start, end) = (args.bytes(0)?, args.size(1)?, args.size(2)?);
    match bytes.get(start..end) {
        Some(slice) => args.created_bytes(slice.to_vec()),
        None => args.fail(format!("slice {start}:{end} is out of range")),
    }
}

fn slice_runes(args: &mut Args<'_>) -> Res<Val> {
    let (text, start, end) = (args.text(0)?, args.size(1)?, args.size(2)?);
    if start > end || end > text.chars().count() {
        return args.fail(format!("slice {start}:{end} is out of range"));
    }
    args.created(text.chars().skip(start).take(end - start).collect())
}
