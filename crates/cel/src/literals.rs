//! Checks of literals in well-typed expressions, as in v1.34: elements of lists and maps have one type, and format
//! strings match their arguments.

use std::collections::BTreeMap;

use super::ast::{Expr, Kind, Literal};
use super::clauses::{self, Clause};
use super::lexer::Mistake;
use super::types::Type;

/// The types of all expressions, by ID.
type Types = BTreeMap<usize, Type>;

/// Returns the errors, by position.
pub(super) fn mistakes(expr: &Expr, types: &Types) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    find(expr, types, false, &mut mistakes);
    mistakes.sort_by_key(|mistake| mistake.at);
    mistakes
}

/// Walks an expression. The arguments of `format` may have any types. The recursion is bounded by the nesting depth.
fn find(expr: &Expr, types: &Types, is_formatted: bool, mistakes: &mut Vec<Mistake>) {
    let is_format = matches!(&expr.kind, Kind::Call { function, .. } if function == "format");
    match &expr.kind {
        Kind::List(elements) if !is_formatted => {
            let elements = elements.iter().map(|(element, is_optional)| (element, *is_optional));
            mistakes.extend(other_type(elements, types));
        }
        Kind::Map(entries) if !is_formatted => {
            mistakes.extend(other_type(entries.iter().map(|(key, ..)| (key, false)), types));
            let values = entries.iter().map(|(_, value, is_optional)| (value, *is_optional));
            mistakes.extend(other_type(values, types));
        }
        Kind::Call { target: Some(target), args, .. } if is_format => {
            if let (Kind::Literal(Literal::String(text)), [Expr { kind: Kind::List(values), .. }]) =
                (&target.kind, args.as_slice())
            {
                let values: Vec<&Expr> = values.iter().map(|(value, _)| value).collect();
                let checked = Format { values: &values, types }.check(text);
                let mistake =
                    |(at, message): (Option<usize>, _)| Mistake { at: at.unwrap_or(expr.at), message };
                mistakes.extend(checked.err().map(mistake));
            }
        }
        _ => {}
    }
    for part in expr.kind.parts() {
        find(part, types, is_formatted || is_format, mistakes);
    }
}

/// Returns the first element whose type differs from that of the first one.
fn other_type<'e>(elements: impl Iterator<Item = (&'e Expr, bool)>, types: &Types) -> Option<Mistake> {
    let mut elements = elements.filter_map(|(element, is_optional)| {
        let ty = match types.get(&element.id)? {
            Type::Optional(of) if is_optional => of,
            ty => ty,
        };
        Some((element.at, ty))
    });
    let (_, first) = elements.next()?;
    let (at, other) = elements.find(|(_, ty)| !first.is_equivalent(ty))?;
    let message = format!("expected type '{}' but found '{}'", first.shown(), other.shown());
    Some(Mistake { at, message })
}

/// A message, and the position if it is not that of the call.
type FormatMistake = (Option<usize>, String);

fn at_call(message: String) -> FormatMistake {
    (None, message)
}

/// The arguments of a call of `format`.
struct Format<'e> {
    values: &'e [&'e Expr],
    types: &'e Types,
}

impl Format<'_> {
    /// Checks a format string: its clauses, and that there is an argument of the right type for each.
    fn check(&self, text: &str) -> Result<(), FormatMistake> {
        let (mut rest, mut index) = (text.as_bytes(), 0);
        while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
            rest = &rest[at + 1..];
            match rest.first() {
                Some(b'%') => rest = &rest[1..],
                None => return Err(at_call("unexpected end of string".into())),
                Some(_) => {
                    let value = self.values.get(index);
                    let value = value.ok_or_else(|| at_call(format!("index {index} out of range")))?;
                    rest = self.check_clause(rest, value)?;
                    index += 1;
                }
            }
        }
        match self.values.len() {
            count if count > index => Err(at_call(format!(
                "too many arguments supplied to string.format (expected {index}, got {count})"
            ))),
            _ => Ok(()),
        }
    }

    /// Checks the clause at the start of a string. Returns the rest.
    fn check_clause<'t>(&self, text: &'t [u8], value: &Expr) -> Result<&'t [u8], FormatMistake> {
        let Clause { verb, rest, .. } = clauses::parse(text).map_err(at_call)?;
        let wrong = match verb {
            b's' => self.not_shown(value),
            _ => (!fits(verb, self.ty(value))).then_some(value),
        };
        match wrong.and_then(|wrong| Some((wrong.at, clauses::misfit(verb, &self.ty(wrong).name())?))) {
            Some((at, message)) => Err((Some(at), message)),
            None => Ok(rest),
        }
    }

    fn ty(&self, value: &Expr) -> &Type {
        self.types.get(&value.id).unwrap_or(&Type::Dyn)
    }

    /// Returns the part of a value that cannot be formatted.
    fn not_shown<'v>(&self, value: &'v Expr) -> Option<&'v Expr> {
        let ty = self.ty(value);
        if matches!(ty, Type::Object(_) | Type::Opaque(_) | Type::Message(_) | Type::Optional(_)) {
            return Some(value);
        }
        match &value.kind {
            Kind::List(_) | Kind::Map(_) => {
                value.kind.parts().into_iter().find_map(|part| self.not_shown(part))
            }
            _ => None,
        }
    }
}

/// Whether a clause formats values of a type.
fn fits(verb: u8, ty: &Type) -> bool {
    use Type::{Bool, Bytes, Double, Dyn, Int, String, Uint};
    match verb {
        b'd' | b'o' => matches!(ty, Dyn | Int | Uint),
        b'b' => matches!(ty, Dyn | Int | Uint | Bool),
        b'f' | b'e' => matches!(ty, Dyn | Double | String),
        _ => matches!(ty, Dyn | Int | Uint | String | Bytes),
    }
}
