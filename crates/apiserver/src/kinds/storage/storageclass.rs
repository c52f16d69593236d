//! StorageClasses: types of volumes and their provisioners.

use serde_json::Value;

use super::{STORAGE, check_parameters, check_parameters_unchanged, check_provisioner};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope};
use crate::kinds::pod::warnings::old_node_label;
use crate::kinds::{entry, metadata};
use crate::strategy::{Deletion, Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;
use crate::validation::{Seen, immutable, qualified_name};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        short_names: vec!["sc".into()],
        columns: vec![
            Column { cell: |class, _| shown_name(class).into(), ..Column::name() },
            Column::text("Provisioner", PROVISIONER, |class, _| class.text("provisioner").into()),
            Column::text("ReclaimPolicy", RECLAIM, |class, _| class.text("reclaimPolicy").into()),
            Column::text("VolumeBindingMode", BINDING, |class, _| class.text("volumeBindingMode").into()),
            Column::text("AllowVolumeExpansion", EXPANSION, |class, _| {
                class.flag("allowVolumeExpansion").into()
            }),
            Column::age(),
        ],
        semantics: Semantics {
            counts_generations: false,
            deletion: Deletion::RETURNS_OBJECT,
            ..Semantics::default()
        },
        ..entry(&STORAGE, "StorageClass", "storageclasses", StorageClass)
    }
}

const PROVISIONER: &str = "provisioner indicates the type of the provisioner.";
const RECLAIM: &str = "reclaimPolicy controls the reclaimPolicy for dynamically provisioned PersistentVolumes of this storage class. Defaults to Delete.";
const BINDING: &str = "volumeBindingMode indicates how PersistentVolumeClaims should be provisioned and bound.  When unset, VolumeBindingImmediate is used. This field is only honored by servers that enable the VolumeScheduling feature.";
const EXPANSION: &str = "allowVolumeExpansion shows whether the storage class allow volume expand.";
const DEFAULT_ANNOTATIONS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// Whether claims without a class get this one.
pub fn is_default(class: &Value) -> bool {
    let annotations = class.at("metadata").at("annotations");
    DEFAULT_ANNOTATIONS.iter().any(|annotation| annotations.text(annotation) == "true")
}

fn shown_name(class: &Value) -> String {
    let mark = if is_default(class) { " (default)" } else { "" };
    format!("{}{mark}", class.at("metadata").text("name"))
}

struct StorageClass;

impl Lifecycle for StorageClass {
    fn default(&self, class: &mut Value) {
        class.or_insert("reclaimPolicy", "Delete");
        class.or_insert("volumeBindingMode", "Immediate");
    }
}

impl Validation for StorageClass {
    fn validate(&self, class: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(class, &mut errors);
        check(class, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::whole(new, Scope::Cluster, NameRule::Subdomain, &mut errors);
        check(new, &mut errors);
        metadata::change(new, &mut errors);
        check_parameters_unchanged(new, old, &mut errors);
        for field in ["provisioner", "reclaimPolicy"] {
            if new.at(field) != old.at(field) {
                errors.forbidden(&Path::root(field), format!("updates to {field} are forbidden."));
            }
        }
        let mode = "volumeBindingMode";
        immutable(new.at(mode), old.at(mode), &Path::root(mode), &mut errors);
        errors
    }

    fn warnings(&self, new: &Value, _: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        for (term_index, term) in new.list("allowedTopologies").iter().enumerate() {
            for (index, expression) in term.list("matchLabelExpressions").iter().enumerate() {
                if let Some(message) = old_node_label(expression.text("key")) {
                    warnings.push(format!(
                        "allowedTopologies[{term_index}].matchLabelExpressions[{index}].key: {message}"
                    ));
                }
            }
        }
        warnings
    }
}

fn check(class: &Value, errors: &mut Errors) {
    check_provisioner(class.text("provisioner"), &Path::root("provisioner"), errors);
    check_parameters(class, errors);
    check_word(class, "reclaimPolicy", &["", "Delete", "Retain"], errors);
    if !class.has("volumeBindingMode") {
        errors.required(&Path::root("volumeBindingMode"), "");
    }
    check_word(class, "volumeBindingMode", &["Immediate", "WaitForFirstConsumer"], errors);
    check_topologies(class.list("allowedTopologies"), errors);
}

/// Requires one of a few values; the message omits the empty one.
fn check_word(class: &Value, field: &str, supported: &[&str], errors: &mut Errors) {
    if let Some(word) = class.at(field).as_str().filter(|word| !supported.contains(word)) {
        let named: Vec<&str> = supported.iter().copied().filter(|word| !word.is_empty()).collect();
        errors.not_supported(&Path::root(field), word, &named);
    }
}

/// Checks that terms are distinct. As in v1.34, a term without requirements is reported once per term in addition.
fn check_topologies(terms: &[Value], errors: &mut Errors) {
    let path = Path::root("allowedTopologies");
    let mut known: Vec<Vec<(&str, Vec<&str>)>> = vec![Vec::new(); terms.len()];
    for (index, term) in terms.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("matchLabelExpressions");
        let mut requirements = check_term(term, &path, errors);
        requirements.sort();
        for _ in known.iter().filter(|known| **known == requirements) {
            errors.duplicate(&path, "");
        }
        known.push(requirements);
    }
}

/// Validates a term and returns its requirements: keys with their sorted values.
fn check_term<'a>(term: &'a Value, path: &Path<'_>, errors: &mut Errors) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut requirements: Vec<(&str, Vec<&str>)> = Vec::new();
    for (index, expression) in term.list("matchLabelExpressions").iter().enumerate() {
        let path = path.index(index);
        let values_path = path.child("values");
        let mut values: Vec<&str> = expression.list("values").iter().filter_map(Value::as_str).collect();
        if values.is_empty() {
            errors.required(&values_path, "");
        }
        let mut seen = Seen::new();
        for (index, value) in values.iter().enumerate() {
            if seen.again(*value) {
                errors.duplicate(&values_path.index(index), *value);
            }
        }
        let key = expression.text("key");
        qualified_name(key, &path.child("key"), errors);
        if requirements.iter().any(|(known, _)| *known == key) {
            errors.duplicate(&path.child("key"), key);
            requirements.retain(|(known, _)| *known != key);
        }
        values.sort_unstable();
        values.dedup();
        requirements.push((key, values));
    }
    requirements
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check as checking;
    use serde_json::json;

    #[test]
    fn a_class_names_its_provisioner() {
        checking::create(&StorageClass, json!({"provisioner": "A.io/b"}), &[]);
        checking::create(
            &StorageClass,
            json!({"reclaimPolicy": "Recycle", "volumeBindingMode": "X", "parameters": {"": "x"}}),
            &[
                "Required provisioner",
                "Invalid parameters",
                "NotSupported reclaimPolicy",
                "NotSupported volumeBindingMode",
            ],
        );
    }

    #[test]
    fn topologies_are_distinct() {
        let class = |terms: Value| json!({"provisioner": "a", "allowedTopologies": terms});
        let term = |values: Value| json!({"matchLabelExpressions": [{"key": "zone", "values": values}]});
        checking::create(&StorageClass, class(json!([term(json!(["a", "b"]))])), &[]);
        checking::create(
            &StorageClass,
            class(json!([term(json!(["a", "b"])), term(json!(["b", "a"])), term(json!([]))])),
            &[
                "Duplicate allowedTopologies[1].matchLabelExpressions",
                "Required allowedTopologies[2].matchLabelExpressions[0].values",
            ],
        );
    }

    #[test]
    fn only_expansion_can_change() {
        let old = json!({"provisioner": "a", "parameters": {"a": "b"}});
        let same = json!({"provisioner": "a", "parameters": {"a": "b"}, "allowVolumeExpansion": true});
        checking::update(&StorageClass, same, &old, &[]);
        checking::update(
            &StorageClass,
            json!({"provisioner": "b", "reclaimPolicy": "Retain", "volumeBindingMode": "WaitForFirstConsumer"}),
            &old,
            &[
                "Forbidden parameters",
                "Forbidden provisioner",
                "Forbidden reclaimPolicy",
                "Invalid volumeBindingMode",
            ],
        );
    }

    #[test]
    fn the_default_class_is_marked() {
        let class = json!({"metadata": {"name": "a", "annotations": {DEFAULT_ANNOTATIONS[0]: "true"}}});
        assert_eq!(shown_name(&class), "a (default)");
    }
}
