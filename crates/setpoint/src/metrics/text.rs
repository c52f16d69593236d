//! Families of samples, sorted by name.

use std::collections::BTreeMap;

use setpoint_exposition::Text;

use super::Labels;
use super::histogram::Histogram;

/// Families by name, each already encoded.
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
        let mut text = Text::default();
        text.head(name, kind, help);
        for (labels, value) in samples {
            text.sample(name, &borrowed(&labels), value);
        }
        self.0.insert(name.to_owned(), text.finish());
    }

    pub(super) fn add_histograms<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl Iterator<Item = (Labels, &'a Histogram)>,
    ) {
        let mut text = Text::default();
        text.head(name, "histogram", help);
        for (labels, histogram) in samples {
            text.histogram(
                name,
                &borrowed(&labels),
                histogram.cumulative(),
                histogram.count(),
                histogram.sum(),
            );
        }
        self.0.insert(name.to_owned(), text.finish());
    }

    pub(super) fn into_text(self) -> String {
        self.0.into_values().collect()
    }
}

fn borrowed(labels: &Labels) -> Vec<(&str, &str)> {
    labels.iter().map(|(name, value)| (*name, value.as_str())).collect()
}
