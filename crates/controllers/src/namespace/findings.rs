//! Results of a round of deletions, as conditions of the namespace. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use setpoint::Kind;
use setpoint::discovery::Failures;

use crate::workload::condition::Condition;

/// The results of a round of deletions.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Why discovery was incomplete.
    discovery: Option<String>,
    /// Why a group version could not be parsed.
    parsing: Option<String>,
    /// Why deletions failed.
    failures: Vec<String>,
    remaining: Remaining,
}

/// The remaining objects.
#[derive(Debug, Default)]
pub(super) struct Remaining {
    /// Objects by `resource.group`.
    resources: BTreeMap<String, usize>,
    /// Objects by the finalizer that keeps them.
    finalizers: BTreeMap<String, usize>,
}

impl Findings {
    pub(super) fn discovery_failed(&mut self, why: &str) {
        self.discovery = Some(why.to_owned());
    }

    pub(super) fn discovered_partly(&mut self, failures: &Failures) {
        if !failures.is_empty() {
            let failing = failures.len();
            self.discovery = Some(format!("Discovery failed for some groups, {failing} failing: {failures}"));
        }
    }

    pub(super) fn unparsable(&mut self, api_version: &str) {
        self.parsing = Some(format!("unexpected GroupVersion string: {api_version}"));
    }

    pub(super) fn failed(&mut self, why: String) {
        self.failures.push(why);
    }

    /// The error for the retry, if anything failed.
    pub(super) fn error(&self) -> Option<String> {
        let errors: Vec<&str> =
            self.discovery.iter().chain(&self.parsing).chain(&self.failures).map(String::as_str).collect();
        (!errors.is_empty()).then(|| errors.join("; "))
    }

    pub(super) fn left_over(&mut self, kind: &Kind, count: usize, finalizers: &BTreeMap<String, usize>) {
        self.remaining.resources.insert(format!("{}.{}", kind.plural(), kind.group()), count);
        for (finalizer, count) in finalizers {
            *self.remaining.finalizers.entry(finalizer.clone()).or_default() += count;
        }
    }

    /// Updates the conditions. A condition keeps its transition time while its status stays the same.
    pub(super) fn report(&self, conditions: &mut Vec<Condition>, now: Timestamp) {
        for new in self.conditions(now) {
            match conditions.iter_mut().find(|old| old.r#type == new.r#type) {
                None => conditions.push(new),
                Some(old) => {
                    let since = if old.status == new.status {
                        old.last_transition_time
                    } else {
                        new.last_transition_time
                    };
                    *old = Condition { last_transition_time: since, ..new };
                }
            }
        }
    }

    fn conditions(&self, now: Timestamp) -> Vec<Condition> {
        let bad = [
            self.discovery.as_ref().map(|why| ("DiscoveryFailed", why.clone())),
            self.parsing.as_ref().map(|why| ("GroupVersionParsingFailed", why.clone())),
            self.content_failure().map(|why| ("ContentDeletionFailed", why)),
            self.remaining.resources().map(|what| ("SomeResourcesRemain", what)),
            self.remaining.finalizers().map(|what| ("SomeFinalizersRemain", what)),
        ];
        let new_conditions = GOOD.iter().zip(bad).map(|((r#type, reason, message), bad)| match bad {
            Some((reason, message)) => Condition::new(r#type, "True", reason, message, now),
            None => Condition::new(r#type, "False", reason, *message, now),
        });
        new_conditions.collect()
    }

    fn content_failure(&self) -> Option<String> {
        let mut failures: Vec<&str> = self.failures.iter().map(String::as_str).collect();
        failures.sort();
        let (count, list) = (failures.len(), failures.join(", "));
        (count > 0).then(|| format!("Failed to delete all resource types, {count} remaining: {list}"))
    }
}

/// The conditions in order: type, and the reason and message if all is well.
const GOOD: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

impl Remaining {
    fn resources(&self) -> Option<String> {
        let list = sorted(
            self.resources
                .iter()
                .map(|(resource, count)| format!("{resource} has {count} resource instances")),
        );
        list.map(|list| format!("Some resources are remaining: {list}"))
    }

    fn finalizers(&self) -> Option<String> {
        let list = sorted(
            self.finalizers
                .iter()
                .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances")),
        );
        list.map(|list| format!("Some content in the namespace has finalizers remaining: {list}"))
    }
}

fn sorted(parts: impl Iterator<Item = String>) -> Option<String> {
    let mut parts: Vec<String> = parts.collect();
    parts.sort();
    (!parts.is_empty()).then(|| parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::condition::find;
    use crate::workload::fixtures::at;

    fn kind(group: &str, plural: &str) -> Kind {
        Kind::new(group, "v1", "Any", plural, true)
    }

    fn findings() -> Findings {
        let mut findings = Findings::default();
        let hold = |count| BTreeMap::from([("example.com/hold".to_owned(), count)]);
        findings.left_over(&kind("", "configmaps"), 2, &hold(1));
        findings.left_over(&kind("apps", "deployments"), 1, &hold(1));
        findings.failed("two".into());
        findings.failed("one".into());
        findings
    }

    #[track_caller]
    fn check(findings: &Findings, r#type: &str, status: &str, reason: &str, message: &str) {
        let mut conditions = Vec::new();
        findings.report(&mut conditions, at(1));
        assert_eq!(find(&conditions, r#type), Some(&Condition::new(r#type, status, reason, message, at(1))));
    }

    #[test]
    fn conditions_report_what_remains_and_what_failed() {
        let findings = findings();
        let resources = "Some resources are remaining: configmaps. has 2 resource instances, \
                         deployments.apps has 1 resource instances";
        check(&findings, "NamespaceContentRemaining", "True", "SomeResourcesRemain", resources);
        let finalizers = "Some content in the namespace has finalizers remaining: example.com/hold in 2 resource instances";
        check(&findings, "NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", finalizers);
        let failures = "Failed to delete all resource types, 2 remaining: one, two";
        check(&findings, "NamespaceDeletionContentFailure", "True", "ContentDeletionFailed", failures);
        let discovered = "All resources successfully discovered";
        check(&findings, "NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", discovered);
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let mut conditions = vec![Condition::new("Other", "True", "", "", at(0))];
        Findings::default().report(&mut conditions, at(1));
        assert_eq!(conditions.len(), 6, "what others say stays");
        let before = conditions.clone();
        Findings::default().report(&mut conditions, at(2));
        assert_eq!(conditions, before, "nothing new, nothing to write");
        findings().report(&mut conditions, at(3));
        findings().report(&mut conditions, at(4));
        let since = |r#type| find(&conditions, r#type).and_then(|condition| condition.last_transition_time);
        assert_eq!(since("NamespaceContentRemaining"), Some(at(3)));
        assert_eq!(since("NamespaceDeletionDiscoveryFailure"), Some(at(1)));
    }
}
