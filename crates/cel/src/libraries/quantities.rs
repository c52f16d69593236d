//! Resource quantities.

use setpoint_quantity::Quantity;

use super::{Outcome, failed};
use crate::value::Val;

pub(super) fn call(function: &str, args: &[Val]) -> Option<Outcome> {
    Some(match (function, args) {
        ("quantity", [Val::String(text)]) => match Quantity::parse(text) {
            Ok(quantity) => Ok(Val::Quantity(Box::new(quantity))),
            Err(why) => Err(failed(why.to_string())),
        },
        ("isQuantity", [Val::String(text)]) => Ok(Val::Bool(Quantity::parse(text).is_ok())),
        ("sign", [Val::Quantity(quantity)]) => Ok(Val::Int(quantity.sign().into())),
        ("isInteger", [Val::Quantity(quantity)]) => Ok(Val::Bool(whole(quantity).is_some())),
        ("asInteger", [Val::Quantity(quantity)]) => {
            whole(quantity).map(Val::Int).ok_or_else(|| failed("cannot convert value to integer"))
        }
        ("asApproximateFloat", [Val::Quantity(quantity)]) => {
            Ok(Val::Double(quantity.milli_value() as f64 / 1e3))
        }
        ("add" | "sub", [Val::Quantity(a), b]) => {
            let other = match b {
                Val::Quantity(other) => **other,
                Val::Int(number) => match Quantity::parse(&number.to_string()) {
                    Ok(other) => other,
                    Err(why) => return Some(Err(failed(why.to_string()))),
                },
                _ => return None,
            };
            let mut sum = **a;
            match function {
                "add" => sum.add(&other),
                _ => sum.sub(&other),
            }
            Ok(Val::Quantity(Box::new(sum)))
        }
        ("isGreaterThan", [Val::Quantity(a), Val::Quantity(b)]) => Ok(Val::Bool(a > b)),
        ("isLessThan", [Val::Quantity(a), Val::Quantity(b)]) => Ok(Val::Bool(a < b)),
        ("compareTo", [Val::Quantity(a), Val::Quantity(b)]) => Ok(Val::Int(a.cmp(b) as i64)),
        _ => return None,
    })
}

/// Converts a quantity to an integer, if it is one.
fn whole(quantity: &Quantity) -> Option<i64> {
    let value = quantity.value();
    let exact = Quantity::parse(&value.to_string()).is_ok_and(|exact| exact == *quantity);
    exact.then_some(value)
}
