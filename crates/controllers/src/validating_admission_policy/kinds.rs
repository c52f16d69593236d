//! The kinds a policy applies to, as far as it names them.

use std::collections::BTreeMap;

use setpoint::Kind;
use setpoint::discovery::Discovered;

use super::view::{Policy, Rule};

/// The maximum number of kinds checked per policy.
const MAX_KINDS: usize = 10;

/// Returns the kinds that the policy's rules name, sorted by group, version and kind.
pub(super) fn of(policy: &Policy, served: &Discovered) -> Vec<Kind> {
    let mut found = BTreeMap::new();
    for rule in &policy.spec.match_constraints.resource_rules {
        let mut count = 0;
        for kind in named(rule, served) {
            found.insert((kind.group().to_owned(), kind.version().to_owned(), kind.kind().to_owned()), kind);
            count += 1;
            if count == MAX_KINDS {
                return found.into_values().collect();
            }
        }
    }
    found.into_values().collect()
}

/// Returns the served kinds of one rule. Empty if it has a wildcard group or version.
fn named(rule: &Rule, served: &Discovered) -> Vec<Kind> {
    let open = |names: &[String]| names.iter().any(|name| name.contains('*'));
    if open(&rule.api_groups) || open(&rule.api_versions) {
        return Vec::new();
    }
    let sorted = |names: &[String]| {
        let mut names = names.to_vec();
        names.sort();
        names
    };
    let mut found = Vec::new();
    for group in sorted(&rule.api_groups) {
        for version in sorted(&rule.api_versions) {
            for resource in sorted(&rule.resources).iter().filter(|name| !name.contains(['*', '/'])) {
                let kinds = served.resources().iter().map(|served| &served.kind);
                let matching = kinds.filter(|kind| {
                    kind.group() == group && kind.version() == version && kind.plural() == resource
                });
                found.extend(matching.cloned());
            }
        }
    }
    found
}
