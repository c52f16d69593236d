//! PodDisruptionBudgets.

use serde_json::{Value, json};

use super::{POLICY, entry, workload};
use crate::declared;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kind::{Kind, Subresource};
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;
use crate::validation::labels::{self, Values};
use crate::validation::{conditions, optional_choice};

pub(crate) mod disruption;

pub fn kind() -> Kind {
    Kind {
        short_names: vec!["pdb".into()],
        subresources: vec![Subresource::Status],
        columns: vec![
            Column::name(),
            Column::text(
                "Min Available",
                "The minimum number of pods that must be available.",
                |budget, _| bound(budget, "minAvailable").into(),
            ),
            Column::text(
                "Max Unavailable",
                "The maximum number of pods that may be unavailable.",
                |budget, _| bound(budget, "maxUnavailable").into(),
            ),
            Column::integer(
                "Allowed Disruptions",
                "Calculated number of pods that may be disrupted at this time.",
                |budget, _| budget.at("status").count("disruptionsAllowed").into(),
            ),
            Column::age(),
        ],
        semantics: Semantics {
            names: NameRule::PathSegment,
            unconditional_update: false,
            ..Semantics::with_status(
                || json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}),
            )
        },
        ..entry(&POLICY, "PodDisruptionBudget", "poddisruptionbudgets", PodDisruptionBudget)
    }
}

fn bound(budget: &Value, field: &str) -> String {
    match budget.at("spec").at(field) {
        Value::Null => "N/A".into(),
        Value::String(text) => text.clone(),
        number => number.to_string(),
    }
}

struct PodDisruptionBudget;

impl Lifecycle for PodDisruptionBudget {}

impl Validation for PodDisruptionBudget {
    fn validate(&self, budget: &Value) -> Errors {
        check_spec(budget.at("spec"), Values::Checked)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut old_errors = Errors::default();
        labels::selector(old.at("spec").at("selector"), Values::Checked, &Path::root(""), &mut old_errors);
        let values = if old_errors.is_empty() { Values::Checked } else { Values::Unchecked };
        check_spec(new.at("spec"), values)
    }

    fn validate_status_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        let status = new.at("status");
        conditions(status.list("conditions"), &Path::root("status").child("conditions"), &mut errors);
        let counts = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
        workload::check_counts(status, &counts, &mut errors);
        errors
    }
}

fn check_spec(spec: &Value, values: Values) -> Errors {
    let mut errors = Errors::default();
    let path = Path::root("spec");
    if spec.has("minAvailable") && spec.has("maxUnavailable") {
        let shown = declared::of(spec, &declared::DISRUPTION_BUDGET);
        errors.invalid(&path, shown, "minAvailable and maxUnavailable cannot be both set");
    }
    for field in ["minAvailable", "maxUnavailable"] {
        if spec.has(field) {
            workload::check_int_or_percent(spec.at(field), &path.child(field), &mut errors);
            workload::check_at_most_all(spec.at(field), &path.child(field), &mut errors);
        }
    }
    labels::selector(spec.at("selector"), values, &path.child("selector"), &mut errors);
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    optional_choice(spec, "unhealthyPodEvictionPolicy", &policies, &path, &mut errors);
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;

    #[test]
    fn a_budget_is_a_floor_or_a_ceiling() {
        let of = |spec: Value| json!({"spec": spec});
        check::create(&PodDisruptionBudget, of(json!({"minAvailable": "50%"})), &[]);
        check::create(&PodDisruptionBudget, of(json!({})), &[]);
        check::create(
            &PodDisruptionBudget,
            of(json!({"minAvailable": -1, "maxUnavailable": "101%", "unhealthyPodEvictionPolicy": "X"})),
            &[
                "Invalid spec",
                "Invalid spec.minAvailable",
                "Invalid spec.maxUnavailable",
                "NotSupported spec.unhealthyPodEvictionPolicy",
            ],
        );
    }
}
