//! Predeclared names: types, sized integers, builtins. Any scope may declare the same name for itself.

use std::sync::Arc;

use crate::error::Position;
use crate::ir;
use crate::number::Number;
use crate::value::{Atom, BoundOp, Kind};

/// The builtins that need no import.
const BUILTINS: &[&str] =
    &["len", "close", "and", "or", "div", "mod", "quo", "rem", "error", "matchN", "matchIf"];

/// A predeclared name.
pub(crate) enum Predeclared {
    Kind(Kind),
    Range(i128, i128),
    Float(&'static str),
    Builtin(&'static str),
}

pub(crate) fn predeclared(name: &str) -> Option<Predeclared> {
    let name = name.strip_prefix("__").unwrap_or(name);
    if let Some(kind) = Kind::named(name) {
        return Some(Predeclared::Kind(kind));
    }
    if let Some(builtin) = BUILTINS.iter().find(|builtin| **builtin == name) {
        return Some(Predeclared::Builtin(builtin));
    }
    Some(match name {
        "uint" => Predeclared::Range(0, i128::MAX),
        "uint8" => Predeclared::Range(0, u8::MAX.into()),
        "uint16" => Predeclared::Range(0, u16::MAX.into()),
        "uint32" => Predeclared::Range(0, u32::MAX.into()),
        "uint64" => Predeclared::Range(0, u64::MAX.into()),
        "uint128" => Predeclared::Range(0, i128::MAX),
        "int8" => Predeclared::Range(i8::MIN.into(), i8::MAX.into()),
        "int16" => Predeclared::Range(i16::MIN.into(), i16::MAX.into()),
        "int32" | "rune" => Predeclared::Range(
            if name == "rune" { 0 } else { i32::MIN.into() },
            if name == "rune" { 0x10ffff } else { i32::MAX.into() },
        ),
        "int64" => Predeclared::Range(i64::MIN.into(), i64::MAX.into()),
        "int128" => Predeclared::Range(i128::MIN, i128::MAX),
        "float32" => Predeclared::Float("3.40282346638528859811704183484516925440e+38"),
        "float64" => Predeclared::Float("1.797693134862315708145274237317043567981e+308"),
        _ => return None,
    })
}

impl Predeclared {
    /// Returns the expression of the name.
    pub(crate) fn into_expr(self, position: &Position) -> ir::ExprKind {
        let make = |kind| Arc::new(ir::Expr { position: position.clone(), kind });
        let bound =
            |op, number| make(ir::ExprKind::Bound(op, make(ir::ExprKind::Atom(Atom::Number(number)))));
        match self {
            Self::Kind(kind) => ir::ExprKind::Basic(kind),
            Self::Builtin(name) => ir::ExprKind::Builtin(name),
            Self::Range(low, high) => {
                let mut all = vec![make(ir::ExprKind::Basic(Kind::INT))];
                if low != i128::MIN {
                    all.push(bound(BoundOp::GreaterEqual, Number::int(low)));
                }
                if high != i128::MAX {
                    all.push(bound(BoundOp::LessEqual, Number::int(high)));
                }
                ir::ExprKind::And(all)
            }
            Self::Float(limit) => {
                let limit = Number::parse_decimal(limit).unwrap_or(Number::int(i128::MAX));
                let low = limit.negate().unwrap_or(limit);
                ir::ExprKind::And(vec![
                    make(ir::ExprKind::Basic(Kind::NUMBER)),
                    bound(BoundOp::GreaterEqual, low),
                    bound(BoundOp::LessEqual, limit),
                ])
            }
        }
    }
}
