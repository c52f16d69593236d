//! PriorityClasses: names for pod priorities.

use serde_json::{Value, json};

use super::{SCHEDULING, entry, metadata};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope};
use crate::strategy::{Lifecycle, Validation};
use crate::table::Column;
use crate::validation::immutable;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        short_names: vec!["pc".into()],
        columns: vec![
            Column::name(),
            Column::integer("Value", VALUE, |class, _| class.count("value").into()),
            Column {
                data_type: "boolean",
                ..Column::text("Global-Default", DEFAULT, |class, _| class.flag("globalDefault").into())
            },
            Column::age(),
            Column::text("PreemptionPolicy", PREEMPTION, |class, _| class.text("preemptionPolicy").into()),
        ],
        ..entry(&SCHEDULING, "PriorityClass", "priorityclasses", PriorityClass)
    }
}

const VALUE: &str = "value represents the integer value of this priority class. This is the actual priority that pods receive when they have the name of this class in their pod spec.";
const DEFAULT: &str = "globalDefault specifies whether this PriorityClass should be considered as the default priority for pods that do not have any priority class. Only one PriorityClass can be marked as `globalDefault`. However, if more than one PriorityClasses exists with their `globalDefault` field set to true, the smallest value of such global default PriorityClasses will be used as the default priority.";
const PREEMPTION: &str = "preemptionPolicy is the Policy for preempting pods with lower priority. One of Never, PreemptLowerPriority. Defaults to PreemptLowerPriority if unset.";

const MAX_USER_PRIORITY: i64 = 1_000_000_000;
const SYSTEM_PREFIX: &str = "system-";
/// The system classes: name, value, and description.
const SYSTEM_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];

/// Returns the classes that every cluster starts with.
pub fn system_classes() -> impl Iterator<Item = Value> {
    SYSTEM_CLASSES.iter().map(|(name, value, description)| {
        json!({"metadata": {"name": name}, "value": value, "description": description})
    })
}

struct PriorityClass;

impl Lifecycle for PriorityClass {
    fn refuses_deletion(&self, name: &str) -> Option<&'static str> {
        let is_of_system = SYSTEM_CLASSES.iter().any(|(own, ..)| *own == name);
        is_of_system.then_some("this is a system priority class and cannot be deleted")
    }

    fn default(&self, class: &mut Value) {
        class.or_insert("preemptionPolicy", "PreemptLowerPriority");
    }

    /// Leaves the generation alone: it does not count changes to the mutable fields.
    fn changes_generation(&self, _: &Value, _: &Value) -> bool {
        false
    }
}

impl Validation for PriorityClass {
    fn validate(&self, class: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(class, &mut errors);
        check_value(class, &mut errors);
        check_policy(class, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        if new.count("value") != old.count("value") {
            errors.forbidden(&Path::root("value"), "may not be changed in an update.");
        }
        let policy = "preemptionPolicy";
        immutable(new.at(policy), old.at(policy), &Path::root(policy), &mut errors);
        errors
    }
}

fn check_value(class: &Value, errors: &mut Errors) {
    let (name, value) = (class.at("metadata").text("name"), class.count("value"));
    if name.starts_with(SYSTEM_PREFIX) {
        if let Some(problem) = problem_of_system_class(name, value, class.flag("globalDefault")) {
            let path = Path::root("metadata");
            let detail = format!(
                "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {problem}"
            );
            errors.forbidden(&path.child("name"), detail);
        }
    } else if value > MAX_USER_PRIORITY {
        let detail = format!("maximum allowed value of a user defined priority is {MAX_USER_PRIORITY}");
        errors.forbidden(&Path::root("value"), detail);
    }
}

fn problem_of_system_class(name: &str, value: i64, is_default: bool) -> Option<String> {
    match SYSTEM_CLASSES.iter().find(|(known, ..)| *known == name) {
        None => Some(format!("{name} is not a known system priority class")),
        Some((_, expected, _)) if *expected != value => {
            Some(format!("value of {name} PriorityClass must be {expected}"))
        }
        Some(_) if is_default => Some(format!("globalDefault of {name} PriorityClass must be false")),
        Some(_) => None,
    }
}

fn check_policy(class: &Value, errors: &mut Errors) {
    let path = Path::root("preemptionPolicy");
    match class.at("preemptionPolicy").as_str() {
        None | Some("PreemptLowerPriority" | "Never") => {}
        Some("") => errors.required(&path, ""),
        Some(other) => errors.not_supported(&path, other, &["PreemptLowerPriority", "Never"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;

    fn class(name: &str, value: i64) -> Value {
        json!({"metadata": {"name": name}, "value": value})
    }

    fn complaints(class: &Value) -> Vec<String> {
        let errors = PriorityClass.validate(class);
        errors.0.iter().map(|error| format!("{:?} {}", error.reason, error.field)).collect()
    }

    #[test]
    fn users_stay_below_the_system() {
        assert!(complaints(&class("a", MAX_USER_PRIORITY)).is_empty());
        assert_eq!(complaints(&class("a", MAX_USER_PRIORITY + 1)), ["Forbidden value"]);
        assert_eq!(complaints(&class("system-a", 1)), ["Forbidden metadata.name"]);
        assert_eq!(complaints(&class("system-node-critical", 1)), ["Forbidden metadata.name"]);
        for class in system_classes() {
            assert!(complaints(&class).is_empty(), "{class}");
        }
    }

    #[test]
    fn value_and_policy_stay() {
        let mut other = class("a", 2);
        other["preemptionPolicy"] = json!("Never");
        check::update(
            &PriorityClass,
            other,
            &class("a", 1),
            &["Forbidden value", "Invalid preemptionPolicy"],
        );
    }
}
