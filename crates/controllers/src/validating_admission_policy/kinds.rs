//! Which kinds a policy is about, as far as it names them.

use std::collections::BTreeMap;

use setpoint::Kind;
use setpoint::discovery::Discovered;

use super::view::{Policy, Rule};

/// No policy is checked against more kinds.
const MOST: usize = 10;

/// The kinds that the policy's rules name, in the order of group, version and kind.
pub(super) fn of(policy: &Policy, served: &Discovered) -> Vec<Kind> {
    let mut found = BTreeMap::new();
    for rule in &policy.spec.match_constraints.resource_rules {
        let mut count = 0;
        for kind in named(rule, served) {
            found.insert((kind.group().to_owned(), kind.version().to_owned(), kind.kind().to_owned()), kind);
            count += 1;
            if count == MOST {
                return found.into_values().collect();
            }
        }
    }
    found.into_values().collect()
}

/// The served kinds of one rule; none, if it has a wildcard for a group or a version.
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
