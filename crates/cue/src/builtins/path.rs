//! Package `path`, for Unix paths.

use super::{Args, Builtin};
use crate::eval::Res;
use crate::eval::value_of::Val;
use crate::value::Atom;

pub(super) const TABLE: &[Builtin] = &[
    Builtin::new("Base", 1, |args| map(args, base)).up_to(2),
    Builtin::new("Dir", 1, |args| map(args, directory)).up_to(2),
    Builtin::new("Ext", 1, |args| map(args, extension)).up_to(2),
    Builtin::new("Clean", 1, |args| map(args, clean)).up_to(2),
    Builtin::new("IsAbs", 1, |args| Ok(Val::bool(args.text(0)?.starts_with('/')))).up_to(2),
    Builtin::new("Join", 1, join).up_to(2),
    Builtin::new("Split", 1, split).up_to(2),
];

/// The operating systems: only Unix paths are implemented.
pub(super) fn constant(name: &str) -> Option<Atom> {
    matches!(name, "Unix" | "unix").then(|| Atom::text("unix"))
}

fn map(args: &mut Args<'_>, change: fn(&str) -> String) -> Res<Val> {
    if args.count() > 1 && &*args.text(1)? != "unix" {
        return args.fail("only Unix paths are supported");
    }
    let text = args.text(0)?;
    args.created(change(&text))
}

fn base(path: &str) -> String {
    if path.is_empty() {
        return ".".to_owned();
    }
    let trimmed = path.trim_end_matches('/');
    match trimmed.rsplit('/').next() {
        Some("") | None => "/".to_owned(),
        Some(name) => name.to_owned(),
    }
}

fn directory(path: &str) -> String {
    clean(path.rfind('/').map_or("", |at| &path[..=at]))
}

fn extension(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.rfind('.').map_or(String::new(), |at| name[at..].to_owned())
}

fn clean(path: &str) -> String {
    let absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if absolute => {}
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (absolute, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

fn join(args: &mut Args<'_>) -> Res<Val> {
    let parts = args.texts(0)?;
    let parts: Vec<&str> = parts.iter().map(|part| &**part).filter(|part| !part.is_empty()).collect();
    let joined = if parts.is_empty() { String::new() } else { clean(&parts.join("/")) };
    args.created(joined)
}

fn split(args: &mut Args<'_>) -> Res<Val> {
    let path = args.text(0)?;
    let at = path.rfind('/').map_or(0, |at| at + 1);
    args.created_list([path[..at].to_owned(), path[at..].to_owned()])
}
