//! Numbers: integers of up to 127 bits and decimals of 34 digits.
//!
//! CUE has integers of any size and decimals without binary rounding. Here, a result that needs more than 127 bits is an
//! error; decimals are rounded half-even to 34 significant digits, as the reference implementation does.

use std::cmp::Ordering;
use std::fmt;

use crate::wide::{Wide, pow10};

/// Significant digits of decimals.
const PRECISION: u32 = 34;
/// The maximum exponent. Larger numbers are rejected, so that printing them stays cheap.
const MAX_EXPONENT: i32 = 4096;

/// A number: `coefficient × 10^exponent`. Integers have exponent 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    coefficient: i128,
    exponent: i32,
    is_int: bool,
}

/// Why an operation has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberError {
    Overflow,
    DivisionByZero,
}

impl fmt::Display for NumberError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Overflow => "number too large: integers have up to 127 bits, exponents up to 4096",
            Self::DivisionByZero => "division by zero",
        })
    }
}

pub(crate) type Result<T = Number> = std::result::Result<T, NumberError>;

impl Number {
    pub(crate) fn int(value: i128) -> Self {
        Self { coefficient: value, exponent: 0, is_int: true }
    }

    /// Creates a decimal from parts, rounded.
    pub(crate) fn decimal(coefficient: i128, exponent: i64) -> Result {
        Self::rounded(coefficient < 0, Wide::from(coefficient.unsigned_abs()), exponent)
    }

    fn rounded(negative: bool, magnitude: Wide, exponent: i64) -> Result {
        let (digits, dropped) = magnitude.round_to_digits(PRECISION);
        let exponent = i32::try_from(exponent + i64::from(dropped)).map_err(|_| NumberError::Overflow)?;
        if exponent.abs() > MAX_EXPONENT {
            return Err(NumberError::Overflow);
        }
        // 34 digits fit in 113 bits.
        let coefficient = digits as i128;
        Ok(Self { coefficient: if negative { -coefficient } else { coefficient }, exponent, is_int: false })
    }

    /// Parses the text of a literal without suffix: digits, optional fraction, optional exponent.
    pub(crate) fn parse_decimal(text: &str) -> Option<Self> {
        let (mantissa, exponent) = match text.find(['e', 'E']) {
            Some(at) => (&text[..at], text[at + 1..].parse::<i64>().ok()?),
            None => (text, 0),
        };
        let is_int = mantissa.len() == text.len() && !mantissa.contains('.');
        let (negative, mantissa) = match mantissa.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = || whole.chars().chain(fraction.chars());
        if digits().next().is_none() || !digits().all(|c| c.is_ascii_digit()) {
            return None;
        }
        if is_int {
            let value: i128 = whole.parse().ok()?;
            return Some(Self::int(if negative { -value } else { value }));
        }
        let text: String = digits().skip_while(|c| *c == '0').collect();
        let (kept, rest) = text.split_at(text.len().min(38));
        let magnitude: u128 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
        let exponent = exponent.checked_sub(fraction.len() as i64)?.checked_add(rest.len() as i64)?;
        Self::rounded(negative, Wide::from(magnitude), exponent).ok()
    }

    pub(crate) fn is_int(&self) -> bool {
        self.is_int
    }

    /// Returns the value of an integer, or of a decimal without fraction.
    pub(crate) fn as_i128(&self) -> Option<i128> {
        if self.is_int {
            return Some(self.coefficient);
        }
        if self.exponent >= 0 {
            let scale = i128::try_from(pow10(u32::try_from(self.exponent).ok()?)?).ok()?;
            return self.coefficient.checked_mul(scale);
        }
        if self.coefficient == 0 {
            return Some(0);
        }
        let scale = i128::try_from(pow10(self.exponent.unsigned_abs())?).ok()?;
        (self.coefficient % scale == 0).then(|| self.coefficient / scale)
    }

    /// Drops the fraction.
    pub(crate) fn integer_part(&self) -> Option<i128> {
        if self.exponent >= 0 {
            return self.as_i128();
        }
        let scale = pow10(self.exponent.unsigned_abs()).and_then(|scale| i128::try_from(scale).ok());
        Some(scale.map_or(0, |scale| self.coefficient / scale))
    }

    /// Rounds to the nearest integer; a half goes away from zero, or to the even neighbour.
    pub(crate) fn nearest(&self, to_even: bool) -> Option<i128> {
        let whole = self.integer_part()?;
        let scale = pow10(self.exponent.min(0).unsigned_abs()).and_then(|scale| i128::try_from(scale).ok());
        let Some(scale) = scale.filter(|_| self.exponent < 0) else { return Some(whole) };
        let rest = (self.coefficient % scale).unsigned_abs();
        let half = (scale / 2) as u128;
        let up = rest > half || (rest == half && scale > 1 && (!to_even || whole % 2 != 0));
        Some(if up { whole + self.coefficient.signum() } else { whole })
    }

    pub(crate) fn as_usize(&self) -> Option<usize> {
        self.is_int.then(|| usize::try_from(self.coefficient).ok()).flatten()
    }

    pub(crate) fn to_f64(self) -> f64 {
        if self.is_int {
            return self.coefficient as f64;
        }
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    pub(crate) fn from_f64(value: f64) -> Option<Self> {
        if !value.is_finite() {
            return None;
        }
        let text = format!("{value:?}");
        Self::parse_decimal(&text).map(Self::to_decimal)
    }

    /// Returns the number as a decimal.
    pub(crate) fn to_decimal(self) -> Self {
        Self { is_int: false, ..self }
    }

    pub(crate) fn negate(self) -> Result {
        let coefficient = self.coefficient.checked_neg().ok_or(NumberError::Overflow)?;
        Ok(Self { coefficient, ..self })
    }

    pub(crate) fn is_negative(&self) -> bool {
        self.coefficient < 0
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.coefficient == 0
    }

    pub(crate) fn add(self, other: Self) -> Result {
        if self.is_int && other.is_int {
            return self
                .coefficient
                .checked_add(other.coefficient)
                .map(Self::int)
                .ok_or(NumberError::Overflow);
        }
        let (high, low) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        let gap = high.exponent.abs_diff(low.exponent);
        let width = Wide::from(high.coefficient.unsigned_abs()).digits() + gap;
        // 76 digits fit. Beyond, the smaller number (at most 39 digits) cannot change one of the first 34 digits.
        if low.is_zero() || (width > 76 && !high.is_zero()) {
            return Self::decimal(high.coefficient, i64::from(high.exponent));
        }
        if high.is_zero() {
            return Self::decimal(low.coefficient, i64::from(low.exponent));
        }
        let mut scaled = Wide::from(high.coefficient.unsigned_abs());
        let mut gap_left = gap;
        while gap_left > 0 {
            let step = gap_left.min(18);
            scaled = scaled.times(pow10(step).unwrap_or(1)).ok_or(NumberError::Overflow)?;
            gap_left -= step;
        }
        let (negative, sum) = scaled.add_signed(
            high.is_negative(),
            Wide::from(low.coefficient.unsigned_abs()),
            low.is_negative(),
        );
        Self::rounded(negative, sum, i64::from(low.exponent))
    }

    pub(crate) fn subtract(self, other: Self) -> Result {
        self.add(other.negate()?)
    }

    pub(crate) fn multiply(self, other: Self) -> Result {
        if self.is_int && other.is_int {
            return self
                .coefficient
                .checked_mul(other.coefficient)
                .map(Self::int)
                .ok_or(NumberError::Overflow);
        }
        let product = Wide::from(self.coefficient.unsigned_abs())
            .times(other.coefficient.unsigned_abs())
            .ok_or(NumberError::Overflow)?;
        let negative = self.is_negative() != other.is_negative();
        Self::rounded(negative, product, i64::from(self.exponent) + i64::from(other.exponent))
    }

    /// Divides. The result is always a decimal.
    pub(crate) fn divide(self, other: Self) -> Result {
        if other.is_zero() {
            return Err(NumberError::DivisionByZero);
        }
        if self.is_zero() {
            return Self::decimal(0, 0);
        }
        let divisor = other.coefficient.unsigned_abs();
        // 38 more digits than needed for the integer part leave 34 significant ones and a sticky one.
        let mut scaled = Wide::from(self.coefficient.unsigned_abs());
        let mut exponent = i64::from(self.exponent) - i64::from(other.exponent);
        while scaled.digits() < 74 {
            let Some(next) = scaled.times(10) else { break };
            scaled = next;
            exponent -= 1;
        }
        let (quotient, rest) = scaled.divide(divisor);
        let quotient = if rest == 0 { quotient } else { quotient.with_sticky() };
        let negative = self.is_negative() != other.is_negative();
        Self::rounded(negative, quotient, exponent).map(Self::trimmed)
    }

    /// Drops trailing zeros of a quotient.
    fn trimmed(mut self) -> Self {
        while self.exponent < 0 && self.coefficient != 0 && self.coefficient % 10 == 0 {
            self.coefficient /= 10;
            self.exponent += 1;
        }
        self
    }

    /// Compares by value: 1 and 1.0 are equal in order.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        match (self.coefficient.signum(), other.coefficient.signum()) {
            (a, b) if a != b => a.cmp(&b),
            (0, _) => Ordering::Equal,
            (sign, _) => {
                let order = self.compare_magnitude(other);
                if sign < 0 { order.reverse() } else { order }
            }
        }
    }

    fn compare_magnitude(&self, other: &Self) -> Ordering {
        let a = (self.coefficient.unsigned_abs(), self.exponent);
        let b = (other.coefficient.unsigned_abs(), other.exponent);
        let scale = |(c, e): (u128, i32)| i64::from(Wide::from(c).digits()) + i64::from(e);
        scale(a).cmp(&scale(b)).then_with(|| {
            let (gap, swap) = if a.1 >= b.1 { (a.1 - b.1, false) } else { (b.1 - a.1, true) };
            let (high, low) = if swap { (b.0, a.0) } else { (a.0, b.0) };
            // Equal scale: the gap is at most the number of digits, 39.
            let mut wide = Wide::from(high);
            for _ in 0..gap {
                wide = wide.times(10).unwrap_or(wide);
            }
            let order = wide.cmp(&Wide::from(low));
            if swap { order.reverse() } else { order }
        })
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.compare(other) == Ordering::Equal
    }
}

impl fmt::Display for Number {
    /// Writes integers in full, and decimals so that they are read as decimals again.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_int {
            return write!(out, "{}", self.coefficient);
        }
        let sign = if self.is_negative() { "-" } else { "" };
        let digits = self.coefficient.unsigned_abs().to_string();
        let point = digits.len() as i64 + i64::from(self.exponent);
        if self.exponent == 0 {
            return write!(out, "{sign}{digits}.0");
        }
        if self.exponent > 0 || point < -5 {
            let (head, tail) = digits.split_at(1);
            let dot = if tail.is_empty() { "" } else { "." };
            return write!(out, "{sign}{head}{dot}{tail}e{:+}", point - 1);
        }
        match usize::try_from(point) {
            Ok(point) if point > 0 => write!(out, "{sign}{}.{}", &digits[..point], &digits[point..]),
            _ => write!(out, "{sign}0.{}{digits}", "0".repeat(point.unsigned_abs() as usize)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Number {
        Number::parse_decimal(text).unwrap()
    }

    #[test]
    fn decimals_are_exact() {
        assert_eq!(number("0.1").add(number("0.2")).unwrap().to_string(), "0.3");
        assert_eq!(number("1.5").multiply(number("2")).unwrap().to_string(), "3.0");
        assert_eq!(number("1").divide(number("8")).unwrap().to_string(), "0.125");
        assert_eq!(number("1").divide(number("3")).unwrap().to_string(), format!("0.{}", "3".repeat(34)));
        assert_eq!(number("2").divide(number("3")).unwrap().to_string(), format!("0.{}7", "6".repeat(33)));
        assert_eq!(number("1e3").to_string(), "1e+3");
        assert_eq!(number("0.000001").to_string(), "0.000001");
        assert_eq!(number("0.00000001").to_string(), "1e-8");
    }

    #[test]
    fn order_does_not_depend_on_the_form() {
        assert_eq!(number("1.50"), number("1.5"));
        assert_eq!(number("1"), number("1.0"));
        assert!(number("-1.5").compare(&number("-1.25")).is_lt());
        assert!(number("1e40").compare(&number("9e39")).is_gt());
        assert!(number("0").compare(&number("-1")).is_gt());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(Number::int(i128::MAX).add(Number::int(1)), Err(NumberError::Overflow));
        assert_eq!(number("1").divide(number("0")), Err(NumberError::DivisionByZero));
        assert!(Number::parse_decimal("1e99999").is_none());
        assert!(Number::parse_decimal(&"9".repeat(40)).is_none());
    }
}
