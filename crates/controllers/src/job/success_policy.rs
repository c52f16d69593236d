//! `successPolicy`: when some indexes are enough. Pure.

use serde::Deserialize;

use super::indexes::Indexes;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SuccessPolicy {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Rule {
    succeeded_indexes: Option<String>,
    succeeded_count: Option<i32>,
}

impl SuccessPolicy {
    /// Returns the message for the first rule that the succeeded indexes satisfy.
    pub(super) fn met(&self, succeeded: &Indexes, of: usize) -> Option<String> {
        if succeeded.is_empty() {
            return None;
        }
        let at = self.rules.iter().position(|rule| rule.is_met(succeeded, of))?;
        Some(format!("Matched rules at index {at}"))
    }
}

impl Rule {
    fn is_met(&self, succeeded: &Indexes, of: usize) -> bool {
        let enough = |count: usize| {
            self.succeeded_count
                .is_some_and(|wanted| i64::try_from(count).is_ok_and(|count| count >= i64::from(wanted)))
        };
        let Some(required) = &self.succeeded_indexes else { return enough(succeeded.len()) };
        let required = Indexes::parse(required, of);
        let shared = required.shared_with(succeeded);
        !required.is_empty() && (shared == required.len() || enough(shared))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_rule_is_met_by_its_indexes_its_count_or_a_count_of_its_indexes() {
        let check = |rules: Value, succeeded: &str, expected: Option<usize>| {
            let policy: SuccessPolicy = serde_json::from_value(json!({"rules": rules})).unwrap();
            let met = policy.met(&Indexes::parse(succeeded, 10), 10);
            assert_eq!(
                met,
                expected.map(|at| format!("Matched rules at index {at}")),
                "{rules} with {succeeded}"
            );
        };
        check(json!([{"succeededCount": 2}]), "3,4", Some(0));
        check(json!([{"succeededCount": 2}]), "3", None);
        check(json!([{"succeededIndexes": "0,2-3"}]), "0-3", Some(0));
        check(json!([{"succeededIndexes": "0,2-3"}]), "0,2", None);
        check(json!([{"succeededIndexes": "0,2-3", "succeededCount": 2}]), "1,2,3", Some(0));
        check(json!([{"succeededIndexes": "0,2-3", "succeededCount": 2}]), "1,2", None);
        check(json!([{"succeededIndexes": "x"}]), "0-9", None);
        check(json!([{"succeededIndexes": "5"}, {"succeededCount": 1}]), "0", Some(1));
        check(json!([{"succeededCount": 0}]), "", None);
    }
}
