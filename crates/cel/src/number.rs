//! Number formatting as in v1.34.

/// Formats a number in its shortest form, with an exponent if it is very large or very small.
pub fn shown(number: f64) -> String {
    let exponent = match number {
        0.0 => 0,
        _ => number.abs().log10().floor() as i32,
    };
    if (-4..21).contains(&exponent) || !number.is_finite() {
        return number.to_string();
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => match exponent.strip_prefix('-') {
            Some(exponent) => format!("{digits}e-{exponent:0>2}"),
            None => format!("{digits}e+{exponent:0>2}"),
        },
        None => text,
    }
}
