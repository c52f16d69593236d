//! The Prometheus text format 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Write;

use prometheus_client::registry::Registry;

use super::Labels;
use super::histogram::Histogram;

/// Encoded metric families, by name.
#[derive(Default)]
pub(super) struct Families(BTreeMap<String, String>);

impl Families {
    /// Adds a family of counters or gauges.
    pub(super) fn add(
        &mut self,
        name: &str,
        help: &str,
        kind: &str,
        samples: impl Iterator<Item = (Labels, f64)>,
    ) {
        let mut text = header(name, help, kind);
        for (labels, value) in samples {
            sample(&mut text, name, &labels, None, value);
        }
        self.0.insert(name.to_owned(), text);
    }

    pub(super) fn add_histograms<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl Iterator<Item = (Labels, &'a Histogram)>,
    ) {
        let mut text = header(name, help, "histogram");
        let (bucket, sum, count) = (format!("{name}_bucket"), format!("{name}_sum"), format!("{name}_count"));
        for (labels, histogram) in samples {
            for (bound, under) in histogram.cumulative() {
                sample(&mut text, &bucket, &labels, Some(bound), under as f64);
            }
            sample(&mut text, &sum, &labels, None, histogram.sum());
            sample(&mut text, &count, &labels, None, histogram.count() as f64);
        }
        self.0.insert(name.to_owned(), text);
    }

    pub(super) fn into_text(self) -> String {
        self.0.into_values().collect()
    }
}

/// Encodes the registry. It produces OpenMetrics, where the family of a counter is named without `_total` and the text
/// ends with `# EOF`.
pub(super) fn of_registry(registry: &Registry) -> String {
    let mut open_metrics = String::new();
    // Fails only if the writer fails, which a String does not, or one of the user's metrics does.
    if prometheus_client::encoding::text::encode(&mut open_metrics, registry).is_err() {
        tracing::warn!("a registered metric could not be encoded: what comes after it is missing");
    }
    classic(&open_metrics)
}

fn classic(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len() + 256);
    let mut lines = open_metrics.lines().filter(|line| *line != "# EOF").peekable();
    while let Some(line) = lines.next() {
        match counter_of(line, lines.peek().copied()) {
            None => text.extend([line, "\n"]),
            Some((name, help)) => {
                lines.next();
                text += &header(&format!("{name}_total"), help, "counter");
            }
        }
    }
    text
}

/// Returns the name and help of a counter whose family begins with these two lines.
fn counter_of<'a>(line: &'a str, next: Option<&str>) -> Option<(&'a str, &'a str)> {
    let (name, help) = line.strip_prefix("# HELP ")?.split_once(' ')?;
    (next?.strip_prefix("# TYPE ")?.strip_prefix(name)? == " counter").then_some((name, help))
}

fn header(name: &str, help: &str, kind: &str) -> String {
    format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")
}

fn sample(text: &mut String, name: &str, labels: &Labels, bound: Option<f64>, value: f64) {
    text.push_str(name);
    let bound = bound.map(|bound| ("le", number(bound)));
    let mut open = '{';
    for (name, value) in labels.iter().chain(&bound) {
        let escaped = value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
        let _ = write!(text, "{open}{name}=\"{escaped}\"");
        open = ',';
    }
    text.push_str(if open == ',' { "} " } else { " " });
    text.extend([&number(value), "\n"]);
}

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
    }

    #[test]
    fn a_label_value_is_escaped() {
        let mut text = String::new();
        sample(&mut text, "a", &vec![("x", "1\"2\\3\n".to_owned())], None, 1.0);
        assert_eq!(text, "a{x=\"1\\\"2\\\\3\\n\"} 1\n");
    }
}
