//! The report for operators: counts per controller, and the differences.

use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::fields::Mismatch;
use crate::target::{Resource, Target};

/// The maximum length of a displayed value. Longer ones are truncated. With at most 1,000 differences of a few fields
/// each, a report stays within a few megabytes.
const MAX_VALUE_LENGTH: usize = 1024;
/// The maximum number of fields listed for a difference.
const MAX_FIELDS: usize = 50;

/// The results of the writes of one controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Distinct writes.
    pub intended: u64,
    /// The cluster shows the same.
    pub matched: u64,
    /// Their input changed before the cluster showed anything.
    pub superseded: u64,
    /// The cluster shows something else.
    pub differences: u64,
    /// Not decided yet.
    pub pending: u64,
    /// Dropped because there were too many: not compared.
    pub dropped: u64,
    /// Events, which are not compared.
    pub events: u64,
}

/// Why a difference is in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Finding {
    /// A write was intended here, and the cluster shows something else.
    Difference,
    /// A live write was not intended here.
    Missing,
}

/// A field that differs from the intended one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldDifference {
    /// `status.conditions[type=Available].status`
    pub path: String,
    /// The intended value. Absent if the field was to be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intended: Option<Value>,
    /// The live value. Absent if the field does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<Value>,
}

/// A difference between the controllers here and the live ones.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Why it is listed.
    pub finding: Finding,
    /// The writer: the controller here, or the field manager of the live write.
    pub controller: String,
    /// The verb of the write.
    pub verb: &'static str,
    /// `deployments.apps`
    pub resource: String,
    /// `status`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// The namespace; absent for cluster-scoped objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The object's name. The prefix of a generated name ends with `*`.
    pub name: String,
    /// One sentence.
    pub message: String,
    /// The fields that differ, if it is about fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldDifference>,
    /// When it was first intended or seen.
    pub first: Timestamp,
    /// When it was last intended or seen.
    pub last: Timestamp,
    /// The number of occurrences.
    pub count: u64,
    /// Whether the cluster agreed later.
    pub resolved: bool,
    #[serde(skip)]
    pub(crate) id: u64,
}

/// A report of the comparison.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// When recording started.
    pub started: Timestamp,
    /// When the report was made.
    pub until: Timestamp,
    /// How long the cluster has to show an intended write.
    pub window_seconds: u64,
    /// The counts by controller.
    pub controllers: BTreeMap<String, Counts>,
    /// Live writes that were not intended here.
    pub missing: u64,
    /// Live writes that the controllers here had no chance to intend first, and accepted.
    pub accepted: u64,
    /// All differences and missing writes, oldest first, at most 1,000.
    pub differences: Vec<Difference>,
    /// The number of those beyond the first 1,000.
    pub unlisted: u64,
}

impl Report {
    /// Whether the controllers here agree with the live ones in every write, and every write was compared.
    pub fn is_clean(&self) -> bool {
        let agrees = |counts: &Counts| counts.differences == 0 && counts.dropped == 0;
        self.missing == 0 && self.controllers.values().all(agrees)
    }

    /// Formats the counts as a table, followed by every difference.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let header = ["CONTROLLER", "INTENDED", "MATCHED", "SUPERSEDED", "DIFFERENCES", "PENDING"];
        let row = |name: &str, counts: &Counts| {
            let Counts { intended, matched, superseded, differences, pending, .. } = *counts;
            let numbers =
                [intended, matched, superseded, differences, pending].map(|number| number.to_string());
            [vec![name.to_owned()], numbers.to_vec()].concat()
        };
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        rows.extend(self.controllers.iter().map(|(name, counts)| row(name, counts)));
        rows.push(row("total", &self.total()));
        let widths: Vec<usize> =
            (0..header.len()).map(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0)).collect();
        for row in rows {
            let cells: Vec<_> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            let _ = writeln!(text, "{}", cells.join("   ").trim_end());
        }
        let _ = writeln!(text, "\nMissing: {}. Accepted: {}.", self.missing, self.accepted);
        let dropped = self.total().dropped;
        if dropped > 0 {
            let _ = writeln!(text, "Dropped: {dropped}. Too many were pending, so these were not compared.");
        }
        self.differences.iter().for_each(|one| one.describe(&mut text));
        if self.unlisted > 0 {
            let _ = writeln!(text, "and {} more", self.unlisted);
        }
        text
    }

    /// Returns the total of all controllers.
    pub fn total(&self) -> Counts {
        self.controllers.values().fold(Counts::default(), |sum, one| Counts {
            intended: sum.intended + one.intended,
            matched: sum.matched + one.matched,
            superseded: sum.superseded + one.superseded,
            differences: sum.differences + one.differences,
            pending: sum.pending + one.pending,
            dropped: sum.dropped + one.dropped,
            events: sum.events + one.events,
        })
    }
}

impl Difference {
    /// `deployments.apps/status shop/web`
    pub fn object(&self) -> String {
        let part = self.subresource.as_ref().map_or_else(String::new, |part| format!("/{part}"));
        let namespace = self.namespace.as_ref().map_or_else(String::new, |namespace| format!("{namespace}/"));
        format!("{}{part} {namespace}{}", self.resource, self.name)
    }

    fn describe(&self, text: &mut String) {
        let times = if self.count > 1 { format!(" ({} times)", self.count) } else { String::new() };
        let resolved = if self.resolved { " (resolved later)" } else { "" };
        let _ = writeln!(
            text,
            "\n{} {} {}: {}{times}{resolved}",
            self.controller,
            self.verb,
            self.object(),
            self.message
        );
        let show = |value: &Option<Value>| value.as_ref().map_or("(absent)".to_owned(), ToString::to_string);
        for FieldDifference { path, intended, live } in &self.fields {
            let _ =
                writeln!(text, "  {path}\n    intended: {}\n    live:     {}", show(intended), show(live));
        }
    }
}

/// Returns the fields of a difference for display: long values truncated, the contents of Secrets redacted.
pub(crate) fn shown(target: &Target, disagreements: &[Mismatch]) -> Vec<FieldDifference> {
    let is_secret = target.resource == Resource::new("", "secrets");
    let show = |one: &Mismatch| {
        let value = |value: &Option<Value>| {
            value.as_ref().map(|value| if is_secret { redacted() } else { cut(value) })
        };
        FieldDifference { path: one.path.to_string(), intended: value(&one.want), live: value(&one.live) }
    };
    disagreements.iter().take(MAX_FIELDS).map(show).collect()
}

fn redacted() -> Value {
    "(redacted)".into()
}

fn cut(value: &Value) -> Value {
    let text = value.to_string();
    match text.char_indices().nth(MAX_VALUE_LENGTH) {
        None => value.clone(),
        Some((end, _)) => format!("{}…", &text[..end]).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::fields::Comparison;

    #[test]
    fn secrets_and_long_values_are_not_shown() {
        let comparison = Comparison { tolerance: Duration::ZERO };
        let found =
            comparison.of_object(&json!({"data": {"key": "c2VjcmV0"}}), &json!({"data": {"key": "x"}}));
        let secret = Target::parse("/api/v1/namespaces/a/secrets/b").expect("a path");
        let fields = shown(&secret, &found);
        assert_eq!((&fields[0].intended, &fields[0].live), (&Some(redacted()), &Some(redacted())));
        let map = Target::parse("/api/v1/namespaces/a/configmaps/b").expect("a path");
        assert_eq!(shown(&map, &found)[0].live, Some("x".into()));
        let found = comparison.of_object(&json!({"data": {"key": "é".repeat(5000)}}), &json!({}));
        let text = shown(&map, &found)[0].intended.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(text.chars().count() < 1100, "{} characters", text.chars().count());
    }
}
