//! Packages `encoding/json`, `encoding/yaml`, `encoding/base64`, `encoding/hex`.

use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value as Json;

use super::{Args, Builtin, base64, yaml};
use crate::data::Data;
use crate::error::Error;
use crate::eval::Res;
use crate::eval::value_of::Val;
use crate::value::Atom;

pub(super) const JSON: &[Builtin] = &[
    Builtin::new("Marshal", 1, |args| written(args, |data| Some(data.json_text()))),
    Builtin::new("MarshalStream", 1, |args| {
        let line = |item: &Arc<Data>| item.json_text().map(|line| line + "\n");
        written(args, move |data| Some(data.items()?.iter().map(line).collect()))
    }),
    Builtin::new("Indent", 3, indent),
    Builtin::new("Unmarshal", 1, |args| {
        let json = read_json(args)?;
        parsed(args, json)
    }),
    Builtin::check("Valid", 1, |args| {
        let text = args.text(0)?;
        Ok(Val::bool(serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok()))
    }),
    Builtin::check("Validate", 2, |args| {
        let json = read_json(args)?;
        validate(args, json.ok())
    }),
    Builtin::new("HTMLEscape", 1, |args| {
        let text = args.text(0)?;
        args.created(text.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e"))
    }),
];

pub(super) const YAML: &[Builtin] = &[
    Builtin::new("Marshal", 1, |args| written(args, |data| Some(yaml::write(data)))),
    Builtin::new("MarshalStream", 1, |args| {
        written(args, |data| {
            let documents: Result<Vec<String>, Error> =
                data.items()?.iter().map(|item| yaml::write(item)).collect();
            Some(documents.map(|documents| documents.join("---\n")))
        })
    }),
    Builtin::new("Unmarshal", 1, |args| {
        let json = read_yaml(args)?;
        parsed(args, json)
    }),
    Builtin::check("Validate", 2, |args| {
        let json = read_yaml(args)?;
        validate(args, json.ok())
    }),
    Builtin::check("ValidatePartial", 2, |args| {
        let json = read_yaml(args)?;
        validate(args, json.ok())
    }),
];

pub(super) const BASE64: &[Builtin] = &[
    Builtin::new("Encode", 2, |args| {
        alphabet(args)?;
        let bytes = args.bytes(1)?;
        args.created(base64::encode(&bytes))
    }),
    Builtin::new("Decode", 2, |args| {
        alphabet(args)?;
        let text = args.text(1)?;
        match base64::decode(&text) {
            Ok(bytes) => args.created_bytes(bytes),
            Err(why) => args.fail(why),
        }
    }),
    Builtin::new("EncodedLen", 2, |args| Ok(super::int(args.size(1)?.div_ceil(3).saturating_mul(4)))),
    Builtin::new("DecodedLen", 2, |args| Ok(super::int((args.size(1)? / 4).saturating_mul(3)))),
];

pub(super) const HEX: &[Builtin] = &[
    Builtin::new("Encode", 1, |args| {
        let bytes = args.bytes(0)?;
        args.created(hex(&bytes))
    }),
    Builtin::new("Decode", 1, |args| {
        let text = args.text(0)?;
        let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
        match digits.filter(|digits| digits.len() % 2 == 0) {
            Some(digits) => {
                let bytes = digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect();
                args.created_bytes(bytes)
            }
            None => args.fail("not hexadecimal"),
        }
    }),
];

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first argument is the alphabet; only null, the standard one, is supported.
fn alphabet(args: &mut Args<'_>) -> Res<()> {
    match args.atom(0)? {
        Atom::Null => Ok(()),
        other => args.wrong(0, "null (the standard alphabet)", &other),
    }
}

/// Writes the first argument. It is charged before it is written: a level of nesting adds at most two spaces a line, and
/// a character at most six times itself as an escape. Fields keep their order.
fn written(args: &mut Args<'_>, write: impl FnOnce(&Data) -> Option<Result<String, Error>>) -> Res<Val> {
    let data = args.data(0)?;
    let size = data.written_size();
    args.evaluator.charge_text(size)?;
    let Some(text) = write(&data) else { return args.fail("argument 1 must be a list") };
    let text = text.map_err(Rc::new)?;
    args.evaluator.charge_text(text.len().saturating_sub(size))?;
    Ok(Val::text(text))
}

/// Lays out JSON. Every line is charged, with its indentation, before it is written.
fn indent(args: &mut Args<'_>) -> Res<Val> {
    use serde::Serialize;
    let (text, prefix, unit) = (args.text(0)?, args.text(1)?, args.text(2)?);
    // Parsing nests at most 128 deep.
    let (mut size, mut depth) = (text.len(), 0_usize);
    for letter in text.bytes() {
        match letter {
            b'{' | b'[' => depth = (depth + 1).min(128),
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => {}
            _ => continue,
        }
        let line = 2 + prefix.len() + (depth + 1).saturating_mul(unit.len());
        size = size.saturating_add(line);
    }
    args.evaluator.charge_text(size)?;
    let json: Json = match read_json(args)? {
        Ok(json) => json,
        Err(why) => return args.fail(why),
    };
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(unit.as_bytes());
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
    if json.serialize(&mut serializer).is_err() {
        return args.fail("not JSON");
    }
    Ok(Val::text(String::from_utf8_lossy(&out).replace('\n', &format!("\n{prefix}"))))
}

/// Charges for parsing a text: its strings, and a value for each of the separators that can begin one.
fn charge_parsing(args: &mut Args<'_>, text: &str, separators: &[u8]) -> Res<()> {
    let values = 1 + text.bytes().filter(|letter| separators.contains(letter)).count();
    args.evaluator.charge_text(text.len())?;
    args.evaluator.charge(values)?;
    args.evaluator.charge_values(values)
}

/// Parses the first argument. The inner error says why it is invalid.
fn read_json(args: &mut Args<'_>) -> Res<Result<Json, String>> {
    let text = args.text(0)?;
    charge_parsing(args, &text, b",:[{")?;
    Ok(serde_json::from_str(&text).map_err(|error| format!("not JSON: {error}")))
}

fn read_yaml(args: &mut Args<'_>) -> Res<Result<Json, String>> {
    let text = args.text(0)?;
    charge_parsing(args, &text, b",:[{-?\n")?;
    // An alias may repeat the longest string, which is not longer than the text.
    let limits = args.evaluator.budget.limits();
    let replayed = (limits.string_bytes / text.len().max(1)).min(limits.nodes);
    let options = serde_saphyr::options! {
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: replayed },
    };
    let read = serde_saphyr::from_str_with_options(&text, options);
    Ok(read.map_err(|error| format!("not YAML: {error}")))
}

fn parsed(args: &mut Args<'_>, json: Result<Json, String>) -> Res<Val> {
    match json.and_then(|json| Data::from_json(&json).map_err(|error| error.message)) {
        Ok(data) => Ok(Val::Data(Arc::new(data))),
        Err(why) => args.fail(why),
    }
}

/// Returns whether a document unifies with a value.
fn validate(args: &mut Args<'_>, json: Option<Json>) -> Res<Val> {
    let Some(data) = json.and_then(|json| Data::from_json(&json).ok()) else { return Ok(Val::bool(false)) };
    let document = args.evaluator.materialize(Val::Data(Arc::new(data)));
    let schema = args.node(1);
    let both = args.evaluator.materialize(Val::All(Rc::new(vec![document, schema])));
    Ok(Val::bool(args.evaluator.deep_error(both).is_none()))
}
