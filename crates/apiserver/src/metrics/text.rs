//! The Prometheus text format.

use std::fmt::{Display, Write};

#[derive(Default)]
pub(crate) struct Text(String);

impl Text {
    /// Writes the header of a metric.
    pub(crate) fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            self.0.push(if at == 0 { '{' } else { ',' });
            let _ = write!(self.0, "{label}=\"");
            value.chars().for_each(|character| self.escaped(character));
            self.0.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    /// Writes a histogram: cumulative counts per bound, total count, and sum.
    pub(crate) fn histogram(
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
            bucket(&bound.to_string(), count);
        }
        bucket("+Inf", count);
        self.sample(&format!("{name}_sum"), labels, sum);
        self.sample(&format!("{name}_count"), labels, count);
    }

    fn escaped(&mut self, character: char) {
        match character {
            '"' => self.0.push_str("\\\""),
            '\\' => self.0.push_str("\\\\"),
            '\n' => self.0.push_str("\\n"),
            character => self.0.push(character),
        }
    }

    pub(crate) fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = Text::default();
        text.sample("a", &[], 1);
        text.sample("b", &[("l", "x\"y\\z\n"), ("m", "")], 2.5);
        assert_eq!(text.finish(), "a 1\nb{l=\"x\\\"y\\\\z\\n\",m=\"\"} 2.5\n");
    }
}
