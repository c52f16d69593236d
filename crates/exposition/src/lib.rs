//! Prometheus' text format, version 0.0.4: the only place in the workspace that writes it.
//!
//! ```
//! use setpoint_exposition::Text;
//! let mut text = Text::default();
//! text.head("backups_total", "counter", "Backups made.");
//! text.sample("backups_total", &[("to", "disk")], 3);
//! assert_eq!(text.finish(), "# HELP backups_total Backups made.\n# TYPE backups_total counter\nbackups_total{to=\"disk\"} 3\n");
//! ```
//!
//! Invariants:
//! - Label values are escaped, so a value from a client cannot add lines.
//! - Numbers are written as Go writes them, so scrapes compare equal to those of Kubernetes.

#![deny(missing_docs)]

use std::fmt::Write;

/// The content type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A scrape being written. Samples of a metric follow its header.
#[derive(Debug, Default)]
pub struct Text(String);

impl Text {
    /// Writes the header of a metric; `kind` is `counter`, `gauge` or `histogram`.
    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        _ = writeln!(self.0, "# HELP {name} {}\n# TYPE {name} {kind}", Help(help));
    }

    /// Writes one sample.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Number) {
        self.0.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            self.0.push(if at == 0 { '{' } else { ',' });
            self.0.push_str(label);
            self.0.push_str("=\"");
            value.chars().for_each(|character| self.push_escaped(character));
            self.0.push('"');
        }
        self.0.push_str(if labels.is_empty() { " " } else { "} " });
        value.write(&mut self.0);
        self.0.push('\n');
    }

    /// Writes a histogram: the cumulative count of each finite bound, then the total count and the sum.
    pub fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        buckets: impl IntoIterator<Item = (f64, u64)>,
        count: u64,
        sum: f64,
    ) {
        let bucket_name = format!("{name}_bucket");
        let mut bucket = |bound: &str, count: u64| {
            self.sample(&bucket_name, &[labels, &[("le", bound)]].concat(), count);
        };
        for (bound, count) in buckets {
            bucket(&number(bound), count);
        }
        bucket("+Inf", count);
        self.sample(&format!("{name}_sum"), labels, sum);
        self.sample(&format!("{name}_count"), labels, count);
    }

    /// Appends text in the same format.
    pub fn append(&mut self, text: &str) {
        self.0.push_str(text);
        if !text.is_empty() && !text.ends_with('\n') {
            self.0.push('\n');
        }
    }

    /// Returns the text.
    pub fn finish(self) -> String {
        self.0
    }

    fn push_escaped(&mut self, character: char) {
        match character {
            '"' => self.0.push_str("\\\""),
            '\\' => self.0.push_str("\\\\"),
            '\n' => self.0.push_str("\\n"),
            character => self.0.push(character),
        }
    }
}

/// Escapes line feeds and backslashes in a help text.
struct Help<'a>(&'a str);

impl std::fmt::Display for Help<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '\\' => f.write_str("\\\\"),
            '\n' => f.write_str("\\n"),
            character => f.write_char(character),
        })
    }
}

/// A number that a sample can have.
pub trait Number {
    /// Appends the number.
    fn write(&self, text: &mut String);
}

impl Number for f64 {
    fn write(&self, text: &mut String) {
        text.push_str(&number(*self));
    }
}

impl<N: Number> Number for &N {
    fn write(&self, text: &mut String) {
        (*self).write(text);
    }
}

macro_rules! integers {
    ($($integer:ty)*) => {
        $(impl Number for $integer {
            fn write(&self, text: &mut String) {
                _ = write!(text, "{self}");
            }
        })*
    };
}

integers!(u8 u16 u32 u64 usize i32 i64);

/// Formats a number as Go does: `1`, `0.005`, `1e-08`, `+Inf`.
fn number(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let scientific = format!("{value:e}");
    match scientific.split_once('e').map(|(mantissa, exponent)| (mantissa, exponent.parse::<i32>())) {
        Some((mantissa, Ok(exponent))) if !(-4..21).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_written_as_go_writes_it() {
        let check = |value: f64, expected: &str| assert_eq!(number(value), expected);
        check(0.0, "0");
        check(1.0, "1");
        check(-2.5, "-2.5");
        check(1e-8, "1e-08");
        check(0.00015, "0.00015");
        check(123_456_789.0, "123456789");
        check(1e21, "1e+21");
        check(f64::INFINITY, "+Inf");
        check(f64::NEG_INFINITY, "-Inf");
        check(f64::NAN, "NaN");
    }

    #[test]
    fn labels_and_help_are_escaped() {
        let mut text = Text::default();
        text.head("a", "gauge", "one\\two\nthree");
        text.sample("a", &[], 1);
        text.sample("b", &[("l", "x\"y\\z\n"), ("m", "")], 2.5);
        let expected =
            "# HELP a one\\\\two\\nthree\n# TYPE a gauge\na 1\nb{l=\"x\\\"y\\\\z\\n\",m=\"\"} 2.5\n";
        assert_eq!(text.finish(), expected);
    }

    #[test]
    fn a_histogram_ends_with_all_its_observations() {
        let mut text = Text::default();
        text.histogram("h", &[("l", "v")], [(0.5, 1), (1.0, 2)], 3, 7.25);
        let expected = "h_bucket{l=\"v\",le=\"0.5\"} 1\nh_bucket{l=\"v\",le=\"1\"} 2\nh_bucket{l=\"v\",le=\"+Inf\"} 3\n\
                        h_sum{l=\"v\"} 7.25\nh_count{l=\"v\"} 3\n";
        assert_eq!(text.finish(), expected);
    }

    #[test]
    fn appended_text_ends_its_last_line() {
        let mut text = Text::default();
        text.append("a 1");
        text.append("");
        text.sample("b", &[], 2_u64);
        assert_eq!(text.finish(), "a 1\nb 2\n");
    }
}
