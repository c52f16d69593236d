//! Field selectors: `metadata.name=a,spec.nodeName!=b`. The supported fields depend on the kind.

use serde_json::Value;
use setpoint_store::Record;

use crate::facts::Facts;
use crate::kind::Kind;
use crate::registry::Served;
use crate::status::Status;

/// The fields by which watches are indexed, as in v1.34: every node watches its own pods.
const TRIGGERS: [&str; 1] = ["spec.nodeName"];

/// A list of terms that must all match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: Field,
    value: String,
    equal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    /// The index in the kind's own field selectors.
    Own(usize),
}

impl FieldSelector {
    pub fn parse(text: &str, kind: &Kind) -> Result<Self, Status> {
        let terms = requirements(text).map_err(Status::bad_request)?.into_iter().map(|required| {
            let field = Field::parse(required.field, kind)?;
            Ok(Term { field, value: required.value, equal: required.equal })
        });
        terms.collect::<Result<_, String>>().map(Self).map_err(Status::bad_request)
    }

    /// Selects objects by name.
    pub fn name(name: &str) -> Self {
        Self(vec![Term { field: Field::Name, value: name.into(), equal: true }])
    }

    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the name, if exactly one is selected.
    pub fn exact_name(&self) -> Option<&str> {
        let term = self.0.iter().find(|term| term.field == Field::Name && term.equal)?;
        Some(&term.value)
    }

    /// Returns the field by which a watch is indexed: its path, its index in a record's facts, and its value.
    pub(super) fn trigger(&self, served: &Served) -> Option<(&'static str, usize, &str)> {
        // Facts are those of the stored kind.
        if served.kind.conversion.is_some() || served.kind.custom.is_some() {
            return None;
        }
        self.0.iter().filter(|term| term.equal).find_map(|term| match term.field {
            Field::Own(index) => {
                let path = served.stored_selectors().get(index)?.path;
                TRIGGERS.contains(&path).then_some((path, index, term.value.as_str()))
            }
            _ => None,
        })
    }

    pub fn matches(&self, record: &Record, facts: &Facts, served: &Served) -> bool {
        if self.is_everything() {
            return true;
        }
        // Facts are those of the stored kind; another kind's fields have to be read from the converted object.
        let is_converted = served.kind.conversion.is_some() || served.kind.custom.is_some();
        let converted: Option<Value> =
            (is_converted && self.has_own_fields()).then(|| served.decode_bare(record).unwrap_or_default());
        self.0.iter().all(|term| {
            let found = match (term.field, &converted) {
                (Field::Name, _) => name_of(record).to_string(),
                (Field::Namespace, _) => namespace_of(record).to_string(),
                (Field::Own(index), None) => facts.field(index).to_string(),
                (Field::Own(index), Some(object)) => served.kind.selected(index, object),
            };
            (found == term.value) == term.equal
        })
    }

    fn has_own_fields(&self) -> bool {
        self.0.iter().any(|term| matches!(term.field, Field::Own(_)))
    }
}

/// A term of a field selector as written, before checking whether the kind has the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldRequirement<'a> {
    pub(crate) field: &'a str,
    pub(crate) equal: bool,
    pub(crate) value: String,
}

/// Parses the terms of a field selector in v1.34's order. This is the only parser, so the authorizer and the handler
/// see the same selector.
pub(crate) fn requirements(text: &str) -> Result<Vec<FieldRequirement<'_>>, String> {
    let mut parts = split_terms(text);
    parts.sort_unstable();
    parts.into_iter().filter(|part| !part.is_empty()).map(|part| split_term(part, text)).collect()
}

/// Returns the name in a record's key.
pub(crate) fn name_of(record: &Record) -> &str {
    record.key.path.split_once('/').map_or(&record.key.path, |(_, name)| name)
}

/// Returns the namespace in a record's key; empty for cluster-scoped objects.
pub(crate) fn namespace_of(record: &Record) -> &str {
    record.key.path.split_once('/').map_or("", |(namespace, _)| namespace)
}

fn split_term<'a>(part: &'a str, whole: &str) -> Result<FieldRequirement<'a>, String> {
    let (field, equal, value) = split_at_first_operator(part)
        .ok_or_else(|| format!("invalid selector: '{whole}'; can't understand '{part}'"))?;
    Ok(FieldRequirement { field, equal, value: unescape(value)? })
}

fn split_at_first_operator(part: &str) -> Option<(&str, bool, &str)> {
    part.match_indices(['=', '!']).find_map(|(at, _)| split_at_operator(part, at))
}

fn split_at_operator(part: &str, at: usize) -> Option<(&str, bool, &str)> {
    let (name, rest) = part.split_at(at);
    let operators = [("!=", false), ("==", true), ("=", true)];
    operators.into_iter().find_map(|(operator, equal)| Some((name, equal, rest.strip_prefix(operator)?)))
}

impl Field {
    fn parse(name: &str, kind: &Kind) -> Result<Self, String> {
        match name {
            "metadata.name" => Ok(Self::Name),
            // Cluster-scoped kinds have this field too, with no value, unless they list their fields.
            "metadata.namespace" if kind.is_namespaced() || is_plain(kind) => Ok(Self::Namespace),
            _ => match kind.selectable(name) {
                Some(index) => Ok(Self::Own(index)),
                None if is_plain(kind) => Err(format!(
                    "{name:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                )),
                None => Err((kind.presentation.unknown_field)(name)),
            },
        }
    }
}

/// Whether a built-in kind has no fields of its own, for which there is a special rule.
fn is_plain(kind: &Kind) -> bool {
    kind.custom.is_none() && kind.field_selectors.is_empty()
}

/// Formats a term.
pub(crate) fn written(field: &str, equal: bool, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
    format!("{field}{}{value}", if equal { "=" } else { "!=" })
}

/// Splits at unescaped commas.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn unescape(text: &str) -> Result<String, String> {
    let mut value = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => value.push(escaped),
                Some(other) => {
                    return Err(format!("invalid field selector: invalid escape sequence: \\{other}"));
                }
                None => return Err("invalid field selector: invalid escape sequence: \\".into()),
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(character)
                ));
            }
            other => value.push(other),
        }
    }
    Ok(value)
}
