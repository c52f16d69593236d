//! Encodes objects as JSON, with their fields in v1.34's order.
//!
//! Built-in types are structs in v1.34, encoded in declaration order: `kind`, `apiVersion`, `metadata`, ... Custom
//! resources and maps are encoded with sorted keys, which is how values are stored here anyway.
//!
//! Invariant: only the order of fields is affected.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{Scalar, Schema, Shape, Struct, Table, TypeId, number};

/// Appends a value of a schema's type.
pub(crate) fn write(schema: &Schema, value: &Value, into: &mut Vec<u8>) {
    let mut writer = Writer::new(schema.table(), into);
    writer.value(schema.root(), value);
}

/// Appends the members of an object of a schema's type that `keeps` selects, in order and without braces. Calls `note`
/// with the position of each.
pub(crate) fn write_members<'v>(
    schema: &Schema,
    members: &'v Map<String, Value>,
    into: &mut Vec<u8>,
    keeps: impl Fn(&str) -> bool,
    mut note: impl FnMut(&'v str, usize),
) {
    let Some(of) = schema.root_struct() else { return };
    let mut writer = Writer::new(schema.table(), into);
    writer.order(of, members);
    writer.open.retain(|member| keeps(member.name));
    let count = writer.open.len();
    for at in 0..count {
        if at > 0 {
            writer.into.push(b',');
        }
        let member = writer.open[at];
        note(member.name, writer.into.len());
        writer.member(member);
    }
}

/// Appends a value without a schema.
pub(crate) fn write_value(into: &mut Vec<u8>, value: &Value) {
    let mut writer = serde_json::Serializer::with_formatter(into, number::GoFormatter);
    value.serialize(&mut writer).expect("JSON values always encode into memory");
}

/// Appends anything without numbers that Go writes differently.
pub(crate) fn write_plain(into: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(into, value).expect("JSON values always encode into memory");
}

/// The typical number of open members: at most 64 in all enclosing objects together.
const OPEN: usize = 64;

/// A member of an object being encoded.
#[derive(Clone, Copy)]
struct Member<'v> {
    rank: u16,
    ty: Option<TypeId>,
    name: &'v str,
    value: &'v Value,
}

struct Writer<'t, 'v, 'b> {
    table: &'t Table,
    into: &'b mut Vec<u8>,
    /// The members of the enclosing objects, innermost last. One list for all of them, so that it is allocated once.
    open: Vec<Member<'v>>,
}

impl<'t, 'v, 'b> Writer<'t, 'v, 'b> {
    fn new(table: &'t Table, into: &'b mut Vec<u8>) -> Self {
        Self { table, into, open: Vec::with_capacity(OPEN) }
    }

    fn value(&mut self, ty: TypeId, value: &'v Value) {
        match (value, self.table.shape(ty)) {
            (Value::Object(members), Shape::Struct(of)) => self.object(of, members),
            (Value::Object(members), Shape::Map(map)) => self.map(members, Some(map.value)),
            (Value::Array(items), Shape::List(list)) => self.list(items, Some(list.item)),
            (value, _) => self.untyped(value),
        }
    }

    /// Appends a value whose type may be unknown.
    fn part(&mut self, ty: Option<TypeId>, value: &'v Value) {
        match ty {
            Some(ty) => self.value(ty, value),
            None => self.untyped(value),
        }
    }

    fn untyped(&mut self, value: &'v Value) {
        match value {
            Value::Object(members) => self.map(members, None),
            Value::Array(items) => self.list(items, None),
            Value::String(text) => write_text(self.into, text),
            Value::Bool(true) => self.into.extend_from_slice(b"true"),
            Value::Bool(false) => self.into.extend_from_slice(b"false"),
            Value::Null => self.into.extend_from_slice(b"null"),
            Value::Number(number) => number::write(number, self.into),
        }
    }

    fn map(&mut self, members: &'v Map<String, Value>, ty: Option<TypeId>) {
        self.into.push(b'{');
        for (at, (name, value)) in members.iter().enumerate() {
            if at > 0 {
                self.into.push(b',');
            }
            self.name(name);
            self.part(ty, value);
        }
        self.into.push(b'}');
    }

    fn list(&mut self, items: &'v [Value], item: Option<TypeId>) {
        self.into.push(b'[');
        for (at, value) in items.iter().enumerate() {
            if at > 0 {
                self.into.push(b',');
            }
            self.part(item, value);
        }
        self.into.push(b']');
    }

    fn object(&mut self, of: &Struct, members: &'v Map<String, Value>) {
        let start = self.open.len();
        self.order(of, members);
        self.into.push(b'{');
        for at in start..self.open.len() {
            if at > start {
                self.into.push(b',');
            }
            let member = self.open[at];
            match holds_schemas(self.table, of, &member) {
                Some(members) => {
                    self.name(member.name);
                    self.object(of, members);
                }
                None => self.member(member),
            }
        }
        self.into.push(b'}');
        self.open.truncate(start);
    }

    fn order(&mut self, of: &Struct, members: &'v Map<String, Value>) {
        let start = self.open.len();
        self.open.extend(members.iter().map(|(name, value)| {
            let (rank, ty) = of.ranked(name);
            Member { rank, ty, name, value }
        }));
        // Undeclared fields stay sorted by name.
        self.open[start..].sort_by_key(|member| member.rank);
    }

    fn member(&mut self, member: Member<'v>) {
        self.name(member.name);
        self.part(member.ty, member.value);
    }

    fn name(&mut self, name: &str) {
        write_text(self.into, name);
        self.into.push(b':');
    }
}

/// Returns the schema of a member where the table only declares an arbitrary value.
fn holds_schemas<'v>(table: &Table, of: &Struct, member: &Member<'v>) -> Option<&'v Map<String, Value>> {
    let members = member.value.as_object()?;
    let is_named = matches!(member.name, "items" | "additionalItems" | "additionalProperties");
    let is_open = || matches!(table.shape(member.ty?), Shape::Scalar(Scalar::Any)).then_some(members);
    if is_named && of.name.ends_with(".JSONSchemaProps") { is_open() } else { None }
}

/// Appends a quoted string. Most strings need no escapes.
fn write_text(into: &mut Vec<u8>, text: &str) {
    if text.bytes().any(|byte| byte < 0x20 || matches!(byte, b'"' | b'\\')) {
        return write_plain(into, text);
    }
    into.push(b'"');
    into.extend_from_slice(text.as_bytes());
    into.push(b'"');
}

/// Indents an encoded document, as v1.34 does on request.
pub(crate) fn indented(text: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(text.len() * 2);
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if in_string {
            lines.push(byte);
            in_string = is_escaped || byte != b'"';
            is_escaped = !is_escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'{' | b'[' => {
                lines.push(byte);
                match bytes.next_if(|next| matches!(next, b'}' | b']')) {
                    Some(closing) => lines.push(closing),
                    None => {
                        depth += 1;
                        new_line(&mut lines, depth);
                    }
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut lines, depth);
                lines.push(byte);
            }
            b',' => {
                lines.push(byte);
                new_line(&mut lines, depth);
            }
            b':' => lines.extend_from_slice(b": "),
            byte => {
                in_string = byte == b'"';
                lines.push(byte);
            }
        }
    }
    lines
}

fn new_line(lines: &mut Vec<u8>, depth: usize) {
    lines.push(b'\n');
    lines.extend(std::iter::repeat_n(b' ', 2 * depth));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_is_spread_over_lines_as_go_does() {
        let document = json!({"a": [1, {"b": "x\\\",:{"}], "c": {}, "d": [], "e": "é"});
        let spread = indented(document.to_string().as_bytes());
        assert_eq!(spread, serde_json::to_vec_pretty(&document).unwrap());
    }
}
