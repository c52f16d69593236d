//! Resource quantities, parsed, compared and formatted like `resource.Quantity` of v1.34.
//!
//! A quantity is `mantissa × 10^scale`, never a float. It remembers its suffix format and is formatted in the same one,
//! in canonical form: no fraction, the largest suffix that loses nothing. One quirk is kept on purpose: text that v1.34
//! considers canonical at first glance is written back verbatim (`1.500`, `+5`).
//!
//! Magnitudes beyond 2^127 saturate; v1.34 has arbitrary precision.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

/// The smallest scale. Finer values are rounded away from zero.
const NANO: i32 = -9;
/// The maximum number of decimal digits of v1.34's fast path.
const FAST_DIGITS: i32 = 18;

/// Larger exponents make no difference: the number saturates or rounds to the smallest.
const MAX_EXPONENT: i64 = 1_000_000;

/// The suffix format of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySi,
    /// `12M`
    DecimalSi,
}

/// A fixed-point resource quantity.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    mantissa: i128,
    scale: i32,
    format: Format,
    /// Whether the source text is written back unchanged.
    verbatim: bool,
}

/// Why a text is not a quantity, with v1.34's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Number,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

impl Quantity {
    pub const ZERO: Self = Self { mantissa: 0, scale: 0, format: Format::DecimalSi, verbatim: false };

    pub const fn new(value: i64, format: Format) -> Self {
        Self { mantissa: value as i128, scale: 0, format, verbatim: false }
    }

    pub fn parse(text: &str) -> Result<Self, ParseError> {
        if text.is_empty() {
            return Err(ParseError::Format);
        }
        if text == "0" {
            return Ok(Self { verbatim: true, ..Self::ZERO });
        }
        let parts = Parts::scan(text)?;
        let suffix = Suffix::interpret(parts.suffix).ok_or(ParseError::Suffix)?;
        match parts.fast(suffix) {
            Some(quantity) => Ok(quantity),
            None => parts.slow(suffix),
        }
    }

    /// Parses a JSON value: a string or, leniently, a number.
    pub fn of(value: &Value) -> Result<Self, ParseError> {
        match value {
            Value::String(text) => Self::parse(text.trim()),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => Err(ParseError::Format),
        }
    }

    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    pub fn sign(&self) -> i32 {
        self.mantissa.signum() as i32
    }

    /// Returns the value in units of `10^scale`, rounded up, saturating.
    fn scaled(&self, scale: i32) -> i64 {
        let mantissa = match self.scale.cmp(&scale) {
            Ordering::Less => divide_away(self.mantissa, scale - self.scale).0,
            _ => multiply(self.mantissa, self.scale - scale).unwrap_or(saturated(self.mantissa)),
        };
        mantissa.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// Returns whole units, rounded up.
    pub fn value(&self) -> i64 {
        self.scaled(0)
    }

    /// Returns thousandths, rounded up.
    pub fn milli_value(&self) -> i64 {
        self.scaled(-3)
    }

    /// Rounds away from zero to thousandths, like every incoming resource list.
    pub fn round_up_to_milli(&mut self) {
        if self.scale < -3 {
            self.mantissa = divide_away(self.mantissa, -3 - self.scale).0;
            self.scale = -3;
            self.verbatim = false;
        }
    }

    pub fn add(&mut self, other: &Self) {
        if self.is_zero() {
            self.format = other.format;
        }
        let scale = self.scale.min(other.scale);
        self.mantissa = self.at_scale(scale).saturating_add(other.at_scale(scale));
        self.scale = scale;
        self.verbatim = false;
    }

    pub fn sub(&mut self, other: &Self) {
        // The minimum value, to which underflow saturates, has no negation.
        self.add(&Self { mantissa: other.mantissa.checked_neg().unwrap_or(i128::MAX), ..*other });
    }

    pub fn format(&self) -> Format {
        self.format
    }

    fn at_scale(&self, scale: i32) -> i128 {
        multiply(self.mantissa, self.scale - scale).unwrap_or(saturated(self.mantissa))
    }

    /// Returns the text that replaces `source`, which this was parsed from. `None` if it stays.
    pub fn rewritten(&self, source: &str) -> Option<String> {
        if self.verbatim {
            return None;
        }
        let text = self.to_string();
        (text != source).then_some(text)
    }

    fn is_whole(&self) -> bool {
        self.scale >= 0 || divide_away(self.mantissa, -self.scale).1
    }

    fn decimal_text(&self, f: &mut fmt::Formatter<'_>, format: Format) -> fmt::Result {
        let (mut mantissa, mut exponent) = (self.mantissa, self.scale);
        while mantissa % 10 == 0 {
            mantissa /= 10;
            exponent += 1;
        }
        while exponent % 3 != 0 {
            mantissa = mantissa.saturating_mul(10);
            exponent -= 1;
        }
        match format {
            Format::DecimalExponent if exponent != 0 => write!(f, "{mantissa}e{exponent}"),
            Format::DecimalExponent => write!(f, "{mantissa}"),
            _ => write!(f, "{mantissa}{}", decimal_suffix(exponent)),
        }
    }

    fn binary_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut mantissa, mut exponent) = (self.at_scale(0.min(self.scale)), 0);
        if self.scale < 0 {
            mantissa = divide_away(mantissa, -self.scale).0;
        }
        while mantissa % 1024 == 0 {
            mantissa /= 1024;
            exponent += 1;
        }
        let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].get(exponent).copied().unwrap_or_default();
        write!(f, "{mantissa}{suffix}")
    }
}

impl fmt::Display for Quantity {
    /// Canonical form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        let small = || {
            let whole = self.at_scale(self.scale.min(0)).unsigned_abs();
            multiply(1024, -self.scale.min(0)).is_none_or(|limit| whole < limit.unsigned_abs())
        };
        match self.format {
            Format::BinarySi if !small() && self.is_whole() => self.binary_text(f),
            Format::BinarySi => self.decimal_text(f, Format::DecimalSi),
            format => self.decimal_text(f, format),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let scale = self.scale.min(other.scale);
        let aligned = |q: &Self| multiply(q.mantissa, q.scale - scale);
        match (aligned(self), aligned(other)) {
            (Some(a), Some(b)) => a.cmp(&b),
            // The one that overflows has the larger magnitude.
            (None, _) => self.mantissa.cmp(&0),
            (_, None) => 0.cmp(&other.mantissa),
        }
    }
}

/// Returns the canonical form of a quantity, if it differs from `source`.
pub fn canonical(source: &str) -> Result<Option<String>, ParseError> {
    let trimmed = source.trim();
    let quantity = Quantity::parse(trimmed)?;
    Ok(quantity.rewritten(trimmed).or_else(|| (trimmed.len() != source.len()).then(|| trimmed.to_owned())))
}

/// The parts of a text, before evaluation.
struct Parts<'a> {
    negative: bool,
    /// Without leading zeros.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn scan(text: &'a str) -> Result<Self, ParseError> {
        let negative = text.starts_with('-');
        let unsigned = if negative || text.starts_with('+') { &text[1..] } else { text };
        let (digits, rest) = split_digits(unsigned);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        let exponent = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if !exponent.bytes().all(|b| b.is_ascii_digit()) {
            return Err(ParseError::Format);
        }
        Ok(Self { negative, whole: digits.trim_start_matches('0'), fraction, suffix })
    }

    /// Counts digits like v1.34: zeros alone count as one.
    fn digits(&self) -> i32 {
        (self.whole.len().max(1) + self.fraction.len()) as i32
    }

    fn signed(&self, magnitude: i128) -> i128 {
        if self.negative { -magnitude } else { magnitude }
    }

    /// Parses small numbers, which most are. Only these may be written back verbatim.
    fn fast(&self, suffix: Suffix) -> Option<Quantity> {
        let (factor, precision, scale) = match suffix.base {
            Base::Ten => (1_i64, FAST_DIGITS - self.digits(), suffix.exponent),
            Base::Two if self.fraction.is_empty() => {
                let digits = self.whole.len().max(1) as i32;
                (1 << suffix.exponent, 15 - digits - suffix.exponent * 3 / 10 - 1, 0)
            }
            Base::Two => return None,
        };
        let scale = scale.checked_sub(self.fraction.len() as i32)?;
        if precision < 0 || scale < NANO {
            return None;
        }
        let value = self.integer().and_then(|digits| i64::try_from(digits).ok())?;
        let result = value.checked_mul(factor)?;
        let verbatim = match suffix.base {
            Base::Two => value & 0x07 != 0,
            Base::Ten => scale % 3 == 0 && !self.whole.is_empty() && !self.ends_in_three_zeros(),
        };
        Some(Quantity { mantissa: self.signed(result.into()), scale, format: suffix.format, verbatim })
    }

    fn ends_in_three_zeros(&self) -> bool {
        let digits = self.whole.bytes().chain(self.fraction.bytes()).rev();
        self.whole.len() + self.fraction.len() >= 3 && digits.take(3).all(|b| b == b'0')
    }

    fn integer(&self) -> Option<i128> {
        self.whole
            .bytes()
            .chain(self.fraction.bytes())
            .try_fold(0_i128, |number, digit| number.checked_mul(10)?.checked_add(i128::from(digit - b'0')))
    }

    fn slow(&self, suffix: Suffix) -> Result<Quantity, ParseError> {
        if self.whole.is_empty() && self.fraction.is_empty() && self.suffix.is_empty() {
            return Err(ParseError::Number);
        }
        let mut mantissa = self.integer().unwrap_or(i128::MAX);
        let mut scale = -(self.fraction.len() as i32);
        let mut format = suffix.format;
        match suffix.base {
            Base::Ten => scale = scale.saturating_add(suffix.exponent),
            Base::Two => mantissa = mantissa.saturating_mul(1 << suffix.exponent),
        }
        if scale < NANO && mantissa != 0 {
            mantissa = divide_away(mantissa, NANO.saturating_sub(scale)).0;
            scale = NANO;
        }
        let limit = i128::from(i64::MAX);
        if format == Format::BinarySi && multiply(limit, -scale).is_some_and(|limit| mantissa > limit) {
            (mantissa, scale) = (limit, 0);
        }
        let below_one = multiply(1, -scale).is_none_or(|one| mantissa < one);
        if format == Format::BinarySi && mantissa > 0 && below_one {
            format = Format::DecimalSi;
        }
        Ok(Quantity { mantissa: self.signed(mantissa), scale, format, verbatim: false })
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

#[derive(Clone, Copy)]
enum Base {
    Two,
    Ten,
}

#[derive(Clone, Copy)]
struct Suffix {
    base: Base,
    exponent: i32,
    format: Format,
}

impl Suffix {
    fn interpret(suffix: &str) -> Option<Self> {
        let decimal = |exponent| Some(Self { base: Base::Ten, exponent, format: Format::DecimalSi });
        let binary = |exponent| Some(Self { base: Base::Two, exponent, format: Format::BinarySi });
        match suffix {
            "n" => decimal(-9),
            "u" => decimal(-6),
            "m" => decimal(-3),
            "" => decimal(0),
            "k" => decimal(3),
            "M" => decimal(6),
            "G" => decimal(9),
            "T" => decimal(12),
            "P" => decimal(15),
            "E" => decimal(18),
            "Ki" => binary(10),
            "Mi" => binary(20),
            "Gi" => binary(30),
            "Ti" => binary(40),
            "Pi" => binary(50),
            "Ei" => binary(60),
            _ => {
                let exponent = suffix.strip_prefix(['e', 'E'])?.parse::<i64>().ok()?;
                let exponent = exponent.clamp(-MAX_EXPONENT, MAX_EXPONENT) as i32;
                Some(Self { base: Base::Ten, exponent, format: Format::DecimalExponent })
            }
        }
    }
}

fn decimal_suffix(exponent: i32) -> &'static str {
    match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => "",
    }
}

fn saturated(sign_of: i128) -> i128 {
    if sign_of < 0 { i128::MIN } else { i128::MAX }
}

/// Computes `mantissa × 10^power` for a non-negative power.
fn multiply(mantissa: i128, power: i32) -> Option<i128> {
    if mantissa == 0 {
        return Some(0);
    }
    mantissa.checked_mul(10_i128.checked_pow(power.unsigned_abs())?)
}

/// Computes `mantissa / 10^power` rounded away from zero, and whether it is exact.
fn divide_away(mantissa: i128, power: i32) -> (i128, bool) {
    let Some(divisor) = 10_i128.checked_pow(power.unsigned_abs()) else {
        return (mantissa.signum(), mantissa == 0);
    };
    let exact = mantissa % divisor == 0;
    let quotient = mantissa / divisor;
    (if exact { quotient } else { quotient + mantissa.signum() }, exact)
}

/// Tests the examples in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_are_written_in_canonical_form() {
        for (source, canonical) in [
            ("0", "0"),
            ("0m", "0"),
            ("-0", "0"),
            ("1000m", "1"),
            ("0.1", "100m"),
            ("1048576", "1048576"),
            ("1e3", "1e3"),
            ("1.5Gi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("1024Ki", "1Mi"),
            ("1025Ki", "1025Ki"),
            ("1000Mi", "1000Mi"),
            ("0.5Ki", "512"),
            ("0.0001Ki", "102400u"),
            ("2.5", "2500m"),
            ("1.500", "1.500"),
            ("+5", "+5"),
            ("0100m", "0100m"),
            ("1000", "1k"),
            ("1200", "1200"),
            ("12000k", "12M"),
            ("100000000000000000000", "100E"),
            ("1.5e2", "150"),
            ("12E2", "1200"),
            ("12E3", "12E3"),
            ("0.0000000001", "1n"),
            ("1n", "1n"),
            ("9223372036854775807", "9223372036854775807"),
            ("10Ei", "9223372036854775807"),
            ("5.", "5."),
            (".5", "500m"),
            ("-1.5Gi", "-1536Mi"),
        ] {
            let quantity = Quantity::parse(source).unwrap();
            assert_eq!(quantity.rewritten(source).as_deref().unwrap_or(source), canonical, "{source}");
        }
    }

    #[test]
    fn saturated_values_can_be_subtracted() {
        let mut least = Quantity::parse("-1e1000000").unwrap();
        least.add(&Quantity::parse("1").unwrap());
        let mut none = Quantity::ZERO;
        none.sub(&least);
        assert_eq!(none.sign(), 1);
    }

    #[test]
    fn resource_lists_round_up_to_thousandths() {
        for (source, rounded) in
            [("0.0015", "2m"), ("1u", "1m"), ("1.0000001", "1001m"), ("-1u", "-1m"), ("5", "5")]
        {
            let mut quantity = Quantity::parse(source).unwrap();
            quantity.round_up_to_milli();
            assert_eq!(quantity.rewritten(source).as_deref().unwrap_or(source), rounded, "{source}");
        }
    }

    #[test]
    fn invalid_quantities_have_a_reason() {
        for (source, error) in [
            ("", ParseError::Format),
            ("abc", ParseError::Format),
            ("1 Gi", ParseError::Format),
            ("1.2.3", ParseError::Format),
            ("--1", ParseError::Suffix),
            ("1Kib", ParseError::Format),
            ("1KiB", ParseError::Format),
            ("1ki", ParseError::Suffix),
            ("1MM", ParseError::Suffix),
            ("1e", ParseError::Suffix),
            ("1Ki5", ParseError::Suffix),
        ] {
            assert_eq!(Quantity::parse(source).unwrap_err(), error, "{source}");
        }
    }

    #[test]
    fn quantities_compare_by_value_across_formats() {
        let q = |text| Quantity::parse(text).unwrap();
        assert_eq!(q("1Ki"), q("1024"));
        assert!(q("1k") < q("1Ki"));
        assert!(q("999m") < q("1"));
        assert!(q("1e40") > q("1E"));
        assert!(q("-1e60") < q("1n"));
        assert_eq!((q("1500m").value(), q("1500m").milli_value()), (2, 1500));
    }

    proptest! {
        #[test]
        fn canonical_form_is_a_fixed_point_of_the_same_value(
            number in -1_000_000_i64..1_000_000, fraction in 0_u32..1000,
            suffix in prop::sample::select(vec!["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e2", "e-2"]),
        ) {
            let source = format!("{number}.{fraction}{suffix}");
            let quantity = Quantity::parse(&source).unwrap();
            let text = quantity.to_string();
            let again = Quantity::parse(&text).unwrap();
            prop_assert_eq!(again, quantity);
            prop_assert_eq!(again.to_string(), text);
        }
    }
}
