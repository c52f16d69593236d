//! Packages `encoding/json`, `encoding/yaml`, `encoding/base64`, `encoding/hex`.

use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value as Json;

use super::{Args, Builtin, base64, yaml};
use crate::data::Data;
use crate::eval::Res;
use crate::eval::value_of::Val;
use crate::value::Atom;

pub(super) const JSON: &[Builtin] = &[
    Builtin::new("Marshal", 1, |args| {
        let json = json(args, 0)?;
        args.created(json.to_string())
    }),
    Builtin::new("MarshalStream", 1, |args| {
        let Json::Array(items) = json(args, 0)? else { return args.fail("argument 1 must be a list") };
        args.created(items.iter().map(|item| format!("{item}\n")).collect())
    }),
    Builtin::new("Indent", 3, indent),
    Builtin::new("Unmarshal", 1, |args| {
        let text = args.text(0)?;
        parsed(args, serde_json::from_str(&text).map_err(|error| format!("not JSON: {error}")))
    }),
    Builtin::check("Valid", 1, |args| {
        let text = args.text(0)?;
        Ok(Val::bool(serde_json::from_str::<Json>(&text).is_ok()))
    }),
    Builtin::check("Validate", 2, |args| {
        let text = args.text(0)?;
        validate(args, serde_json::from_str(&text).ok())
    }),
    Builtin::new("HTMLEscape", 1, |args| {
        let text = args.text(0)?;
        args.created(text.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e"))
    }),
];

pub(super) const YAML: &[Builtin] = &[
    Builtin::new("Marshal", 1, |args| {
        let json = json(args, 0)?;
        args.created(yaml::write(&json))
    }),
    Builtin::new("MarshalStream", 1, |args| {
        let Json::Array(items) = json(args, 0)? else { return args.fail("argument 1 must be a list") };
        let documents: Vec<String> = items.iter().map(yaml::write).collect();
        args.created(documents.join("---\n"))
    }),
    Builtin::new("Unmarshal", 1, |args| {
        let text = args.text(0)?;
        parsed(args, read_yaml(&text))
    }),
    Builtin::check("Validate", 2, |args| {
        let text = args.text(0)?;
        validate(args, read_yaml(&text).ok())
    }),
    Builtin::check("ValidatePartial", 2, |args| {
        let text = args.text(0)?;
        validate(args, read_yaml(&text).ok())
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

/// The first argument is the alphabet; null is the standard one, and there is no other.
fn alphabet(args: &mut Args<'_>) -> Res<()> {
    match args.atom(0)? {
        Atom::Null => Ok(()),
        other => args.wrong(0, "null (the standard alphabet)", &other),
    }
}

fn json(args: &mut Args<'_>, index: usize) -> Res<Json> {
    args.data(index)?.to_json().map_err(Rc::new)
}

fn indent(args: &mut Args<'_>) -> Res<Val> {
    use serde::Serialize;
    let (text, prefix, unit) = (args.text(0)?, args.text(1)?, args.text(2)?);
    let Ok(json) = serde_json::from_str::<Json>(&text) else { return args.fail("not JSON") };
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(unit.as_bytes());
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
    if json.serialize(&mut serializer).is_err() {
        return args.fail("not JSON");
    }
    let text = String::from_utf8_lossy(&out).replace('\n', &format!("\n{prefix}"));
    args.created(text)
}

fn read_yaml(text: &str) -> Result<Json, String> {
    serde_saphyr::from_str(text).map_err(|error| format!("not YAML: {error}"))
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
