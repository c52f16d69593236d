//! Numbers without a schema, as Go reads and writes them: integers of 64 bits are exact, all others are doubles. A whole
//! double is written without a fraction, and read as an integer the next time.

use std::io;

use serde_json::ser::Formatter;
use serde_json::{Number, Value};

/// 2^63: doubles below it are integers of 64 bits if they are whole.
const END: f64 = 9_223_372_036_854_775_808.0;
/// Between these, Go writes doubles without an exponent.
const PLAIN: std::ops::Range<f64> = 1e-6..1e21;

/// Gives all numbers in a value the form in which they are read after they were stored, so that `1.0` equals a stored
/// `1`.
pub(crate) fn normalize(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if !number.is_i64()
                && let Some(double) = number.as_f64()
            {
                *value = of_double(double);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        Value::Object(fields) => fields.values_mut().for_each(normalize),
        _ => {}
    }
}

/// Returns a double as it is read after it was stored.
pub(super) fn of_double(double: f64) -> Value {
    match double.fract() == 0.0 && double.abs() < END {
        true => (double as i64).into(),
        false => double.into(),
    }
}

/// Appends a number.
pub(super) fn write(number: &Number, into: &mut Vec<u8>) {
    match number.as_f64().filter(|_| number.is_f64()) {
        Some(double) => into.extend_from_slice(text(double).as_bytes()),
        None => into.extend_from_slice(number.to_string().as_bytes()),
    }
}

fn text(double: f64) -> String {
    if double == 0.0 || PLAIN.contains(&double.abs()) {
        return double.to_string();
    }
    let text = format!("{double:e}");
    // Go writes the sign of every exponent.
    if text.contains("e-") { text } else { text.replace('e', "e+") }
}

/// Formats JSON without spaces.
pub(super) struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_f64<W: io::Write + ?Sized>(&mut self, into: &mut W, double: f64) -> io::Result<()> {
        into.write_all(text(double).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_written_as_go_does() {
        for (read, expected) in [
            ("1", "1"),
            ("1.0", "1"),
            ("1E5", "100000"),
            ("-0.0", "0"),
            ("0.1", "0.1"),
            ("12345678.9", "12345678.9"),
            ("1e-6", "0.000001"),
            ("1e-7", "1e-7"),
            ("5e-324", "5e-324"),
            ("1e15", "1000000000000000"),
            ("9223372036854775807", "9223372036854775807"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("9223372036854775808", "9223372036854776000"),
            ("18446744073709551615", "18446744073709552000"),
            ("-9223372036854775809", "-9223372036854776000"),
            ("1e19", "10000000000000000000"),
            ("1e20", "100000000000000000000"),
            ("1e21", "1e+21"),
            ("-1.5e300", "-1.5e+300"),
        ] {
            let mut value = serde_json::from_str(&format!("[{{\"a\":{read}}}]")).unwrap();
            normalize(&mut value);
            let Value::Number(number) = &value[0]["a"] else { panic!() };
            let mut written = Vec::new();
            write(number, &mut written);
            assert_eq!(String::from_utf8(written).unwrap(), expected, "{read}");
        }
    }
}
