//! RuntimeClasses: the container runtime of a pod, and its overhead.

use serde_json::{Value, json};

use super::pod::validation::scheduling::check_tolerations;
use super::pod::warnings::old_node_label;
use super::{NODE, entry, resources};
use crate::declared;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope};
use crate::metadata;
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;
use crate::validation::labels;
use crate::validation::resources::{Requirements, container_name};
use crate::validation::{Seen, dns_label, immutable};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        columns: vec![
            Column::name(),
            Column::text("Handler", "", |class, _| class.text("handler").into()),
            Column::age(),
        ],
        semantics: Semantics {
            counts_generations: false,
            create_on_update: true,
            unconditional_update: false,
            ..Semantics::default()
        },
        ..entry(&NODE, "RuntimeClass", "runtimeclasses", RuntimeClass)
    }
}

struct RuntimeClass;

impl Lifecycle for RuntimeClass {
    fn default(&self, class: &mut Value) {
        if let Some(fixed) = class.at_mut("overhead").and_then(|overhead| overhead.at_mut("podFixed")) {
            resources::default_list(fixed);
        }
    }
}

impl Validation for RuntimeClass {
    fn validate(&self, class: &Value) -> Errors {
        let mut errors = Errors::default();
        check(class, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = metadata::validate(new, false, NameRule::Subdomain);
        check(new, &mut errors);
        let handler = |class: &Value| Value::from(class.text("handler"));
        immutable(&handler(new), &handler(old), &Path::root("handler"), &mut errors);
        errors
    }

    fn warnings(&self, new: &Value, _: Option<&Value>) -> Vec<String> {
        let keys = new.at("scheduling").map("nodeSelector").into_iter().flat_map(serde_json::Map::keys);
        let old = keys.filter_map(|key| old_node_label(key));
        old.map(|message| format!("scheduling.nodeSelector: {message}")).collect()
    }
}

fn check(class: &Value, errors: &mut Errors) {
    dns_label(class.text("handler"), &Path::root("handler"), errors);
    if class.has("overhead") {
        let limits = json!({"limits": class.at("overhead").at("podFixed")});
        let rules = Requirements { name: container_name, allow_broken_pages: false, claims: &[] };
        rules.check(&limits, &Path::root("overhead"), errors);
    }
    let scheduling = class.at("scheduling");
    if !scheduling.is_null() {
        let path = Path::root("scheduling");
        labels::labels(scheduling, "nodeSelector", &path, errors);
        check_distinct_tolerations(scheduling.list("tolerations"), &path.child("tolerations"), errors);
    }
}

fn check_distinct_tolerations(tolerations: &[Value], path: &Path<'_>, errors: &mut Errors) {
    check_tolerations(tolerations, &path.child("tolerations"), errors);
    let mut seen = Seen::new();
    for (index, toleration) in tolerations.iter().enumerate() {
        if seen.again(["key", "operator", "value", "effect"].map(|field| toleration.text(field))) {
            errors.duplicate(&path.index(index), declared::of(toleration, &declared::TOLERATION));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check as checking;

    #[test]
    fn a_handler_is_a_label_and_stays() {
        checking::create(&RuntimeClass, json!({"handler": "runc"}), &[]);
        checking::create(&RuntimeClass, json!({"handler": "a.b"}), &["Invalid handler"]);
        checking::update(
            &RuntimeClass,
            json!({"handler": "b"}),
            &json!({"handler": "a"}),
            &["Invalid handler"],
        );
    }

    #[test]
    fn overhead_and_scheduling_are_checked_as_in_pods() {
        checking::create(
            &RuntimeClass,
            json!({"handler": "a", "overhead": {"podFixed": {"cpu": "-1"}},
                "scheduling": {"nodeSelector": {"-": "x"}, "tolerations": [{"key": "a"}, {"key": "a"}]}}),
            &[
                "Invalid overhead.limits[cpu]",
                "Invalid scheduling.nodeSelector",
                "Duplicate scheduling.tolerations[1]",
            ],
        );
    }
}
