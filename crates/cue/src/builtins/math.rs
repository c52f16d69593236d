//! Package `math`.

use super::{Args, Builtin};
use crate::eval::Res;
use crate::eval::operators::arithmetic;
use crate::eval::value_of::Val;
use crate::number::Number;
use crate::value::Atom;

pub(super) const TABLE: &[Builtin] = &[
    Builtin::new("Abs", 1, |args| {
        let number = args.number(0)?;
        let number = if number.is_negative() { arithmetic(number.negate(), args.at)? } else { number };
        Ok(wrap(number))
    }),
    Builtin::new("Floor", 1, |args| {
        rounded(args, |value, exact, negative| if exact || !negative { value } else { value - 1 })
    }),
    Builtin::new("Ceil", 1, |args| {
        rounded(args, |value, exact, negative| if exact || negative { value } else { value + 1 })
    }),
    Builtin::new("Trunc", 1, |args| rounded(args, |value, _, _| value)),
    Builtin::new("Round", 1, |args| shifted(args, false)),
    Builtin::new("RoundToEven", 1, |args| shifted(args, true)),
    Builtin::check("MultipleOf", 2, multiple_of),
    Builtin::new("Pow", 2, power),
    Builtin::new("Sqrt", 1, |args| float(args, f64::sqrt)),
    Builtin::new("Cbrt", 1, |args| float(args, f64::cbrt)),
    Builtin::new("Exp", 1, |args| float(args, f64::exp)),
    Builtin::new("Exp2", 1, |args| float(args, f64::exp2)),
    Builtin::new("Log", 1, |args| float(args, f64::ln)),
    Builtin::new("Log2", 1, |args| float(args, f64::log2)),
    Builtin::new("Log10", 1, |args| float(args, f64::log10)),
    Builtin::new("Sin", 1, |args| float(args, f64::sin)),
    Builtin::new("Cos", 1, |args| float(args, f64::cos)),
    Builtin::new("Tan", 1, |args| float(args, f64::tan)),
    Builtin::new("Signbit", 1, |args| Ok(Val::bool(args.number(0)?.is_negative()))),
];

pub(super) fn constant(name: &str) -> Option<Atom> {
    let text = match name {
        "Pi" => "3.141592653589793238462643383279503",
        "E" => "2.718281828459045235360287471352662",
        "Phi" => "1.618033988749894848204586834365638",
        "Sqrt2" => "1.414213562373095048801688724209698",
        "Ln2" => "0.6931471805599453094172321214581766",
        "Ln10" => "2.302585092994045684017991454684364",
        _ => return None,
    };
    Number::parse_decimal(text).map(Atom::Number)
}

fn wrap(number: Number) -> Val {
    Val::Atom(Atom::Number(number))
}

/// Drops the fraction, then corrects: the function gets the integer part, whether it is exact, and the sign.
fn rounded(args: &mut Args<'_>, correct: fn(i128, bool, bool) -> i128) -> Res<Val> {
    let number = args.number(0)?;
    if let Some(value) = number.as_i128() {
        return Ok(wrap(Number::int(value)));
    }
    match number.integer_part() {
        Some(value) => Ok(wrap(Number::int(correct(value, false, number.is_negative())))),
        None => args.fail("number too large"),
    }
}

fn shifted(args: &mut Args<'_>, to_even: bool) -> Res<Val> {
    let number = args.number(0)?;
    match number.nearest(to_even) {
        Some(value) => Ok(wrap(Number::int(value))),
        None => args.fail("number too large"),
    }
}

fn multiple_of(args: &mut Args<'_>) -> Res<Val> {
    let (number, divisor) = (args.number(0)?, args.number(1)?);
    let quotient = arithmetic(number.divide(divisor), args.at)?;
    Ok(Val::bool(quotient.as_i128().is_some()))
}

/// Multiplies integers exactly; anything else is a float.
fn power(args: &mut Args<'_>) -> Res<Val> {
    let (base, exponent) = (args.number(0)?, args.number(1)?);
    if let Some(times) =
        exponent.as_i128().and_then(|times| u32::try_from(times).ok()).filter(|times| *times <= 4096)
    {
        let mut result = if base.is_int() { Number::int(1) } else { Number::int(1).to_decimal() };
        for _ in 0..times {
            args.evaluator.charge(1)?;
            result = arithmetic(result.multiply(base), args.at)?;
        }
        return Ok(wrap(result));
    }
    from_float(args, base.to_f64().powf(exponent.to_f64()))
}

fn float(args: &mut Args<'_>, operation: fn(f64) -> f64) -> Res<Val> {
    let number = args.number(0)?;
    from_float(args, operation(number.to_f64()))
}

fn from_float(args: &Args<'_>, value: f64) -> Res<Val> {
    match Number::from_f64(value) {
        Some(number) => Ok(wrap(number)),
        None => args.fail("the result is not a number"),
    }
}
