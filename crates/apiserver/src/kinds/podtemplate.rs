//! PodTemplates: standalone templates, from which no controller creates pods.

use serde_json::Value;

use super::pod::template;
use super::{CORE, entry, metadata, selector};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kind::Kind;
use crate::strategy::{Deletion, Lifecycle, Semantics, Validation};
use crate::table::{Column, or_none};

pub fn kind() -> Kind {
    let mut columns = vec![Column::name()];
    columns.extend(template::container_columns());
    columns.push(Column::text("Pod Labels", "The labels for the pod template.", |object, _| {
        or_none(&selector::shown_labels(object.at("template").at("metadata").map("labels")))
    }));
    Kind {
        columns,
        semantics: Semantics { deletion: Deletion::RETURNS_OBJECT, ..Semantics::default() },
        ..entry(&CORE, "PodTemplate", "podtemplates", PodTemplate)
    }
}

struct PodTemplate;

impl Lifecycle for PodTemplate {
    fn default(&self, object: &mut Value) {
        template::default(object);
    }

    fn prepare_for_create(&self, object: &mut Value) {
        template::drop_disabled(object);
    }

    fn prepare_for_update(&self, new: &mut Value, _: &Value) {
        template::drop_disabled(new);
    }
}

impl Validation for PodTemplate {
    fn validate(&self, object: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(object, &mut errors);
        template::check(object.at("template"), &Value::Null, &Path::root("template"), &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        template::check(new.at("template"), old.at("template"), &Path::root("template"), &mut errors);
        errors
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut found = Vec::new();
        if old.is_none_or(|old| self.changes_generation(new, old)) {
            template::warn(new.at("template"), &Path::root("template"), &mut found);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;
    use serde_json::json;

    #[test]
    fn a_template_is_checked_as_one_inside_a_workload() {
        let of = |spec: Value| json!({"template": {"metadata": {}, "spec": spec}});
        check::create(&PodTemplate, of(json!({"containers": [{"name": "c", "image": "i"}]})), &[]);
        check::create(&PodTemplate, of(json!({"containers": []})), &["Required template.spec.containers"]);
    }
}
