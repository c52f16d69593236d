//! Validates a version's schema.

use serde_json::{Value, json};

use super::rules::{Count, RuleChecks};
use crate::custom::props::{Items, OrBool, Props, Rule, is_meta_field};
use crate::custom::{default_values, field_path as paths, structural};
use crate::field::{Errors, Path};

/// Options for checking a schema.
#[derive(Clone, Copy)]
pub(super) struct Checks {
    /// Whether there is a status subresource, for which the status is cut out of the schema.
    pub has_status: bool,
    /// Whether the schema is unchanged, so that its rules may be as expensive as before.
    pub is_unchanged: bool,
}

/// Resolves the path of a selectable field.
pub(super) fn field_path<'s>(
    written: &str,
    schema: &'s Props,
    with_brackets: bool,
) -> Result<&'s Props, String> {
    paths::follow(written, schema, with_brackets).map(|(_, found)| found)
}

pub(super) fn check(schema: &Props, checks: Checks, path: &Path<'_>, errors: &mut Errors) {
    let mut found = Errors::default();
    let at = path.child("openAPIV3Schema");
    if checks.has_status {
        check_root(schema, path, &mut found);
    }
    if schema.nullable {
        found.forbidden(&path.child("openAPIV3Schema.nullable"), "nullable cannot be true at the root");
    }
    let unsupported = structural::unsupported(schema);
    let mut rules = RuleChecks::new(checks.is_unchanged);
    let mut count = None;
    if unsupported.is_none() {
        let mut structure = structural::check(schema, &at);
        if structure.is_empty() {
            structure = default_values::check(schema, &at);
            count = structure.is_empty().then_some(Count::ONE);
        }
        found.extend(structure);
    }
    let place = SchemaContext {
        path: &at,
        is_root: true,
        in_metadata: false,
        no_defaults: None,
        no_old: None,
        count,
    };
    let mut schema_errors = Errors::default();
    check_schema(schema, place, &mut schema_errors, &mut rules);
    found.extend(schema_errors);
    found.extend(rules.finish(&at));
    if let Some(why) = unsupported.filter(|_| found.is_empty()) {
        found.invalid(&at, "", why);
    }
    errors.extend(found);
}

/// The context of a subschema.
#[derive(Clone, Copy)]
struct SchemaContext<'p> {
    path: &'p Path<'p>,
    is_root: bool,
    in_metadata: bool,
    /// Why defaults are not allowed here.
    no_defaults: Option<&'p str>,
    /// The enclosing part whose items cannot be correlated, so that nothing in it has an old value.
    no_old: Option<&'p Path<'p>>,
    /// How often values of this schema can occur; `None` if rules are not checked.
    count: Option<Count>,
}

impl<'p> SchemaContext<'p> {
    fn below(self, path: &'p Path<'p>) -> Self {
        Self { path, is_root: false, ..self }
    }

    /// Returns the context below a schema, with the number of occurrences updated.
    fn counted(self, schema: &Props) -> Self {
        Self { count: self.count.map(|count| count.within(schema)), ..self }
    }
}

const AT_ROOT: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations]";

fn check_root(schema: &Props, path: &Path<'_>, errors: &mut Errors) {
    if !schema.ty.is_empty() && schema.ty != "object" {
        let detail = r#"only "object" is allowed as the type at the root of the schema if the status subresource is enabled"#;
        return errors.invalid(&path.child("openAPIV3Schema.type"), schema.ty.as_str(), detail);
    }
    let is_more = !schema.id.is_empty()
        || !schema.schema.is_empty()
        || schema.reference.is_some()
        || schema.nullable
        || schema.default.is_some()
        || !schema.values.is_empty()
        || schema.max_properties.is_some()
        || schema.min_properties.is_some()
        || !schema.all_of.is_empty()
        || !schema.one_of.is_empty()
        || !schema.any_of.is_empty()
        || schema.not.is_some()
        || schema.additional_properties.is_some()
        || !schema.pattern_properties.is_empty()
        || schema.dependencies.is_some()
        || schema.additional_items.is_some()
        || !schema.definitions.is_empty()
        || schema.embedded_resource
        || schema.int_or_string
        || !schema.list_map_keys.is_empty()
        || schema.list_type.is_some()
        || schema.map_type.is_some();
    if is_more {
        let detail = format!(
            "only {AT_ROOT} fields are allowed at the root of the schema if the status subresource is enabled"
        );
        errors.invalid(&path.child("openAPIV3Schema"), json!({}), detail);
    }
}

fn check_schema(schema: &Props, place: SchemaContext<'_>, errors: &mut Errors, rules: &mut RuleChecks) {
    let path = place.path;
    let before = errors.0.len();
    check_standard(schema, place, errors);
    if schema.unique_items {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(&path.child("uniqueItems"), detail);
    }
    check_fields(schema, place, errors, rules);
    check_alternatives(schema, place, errors, rules);
    let items = path.child("items");
    let mut below = place.below(&items).counted(schema);
    if schema.list_type.as_deref() != Some("map") {
        below.no_old = below.no_old.or(Some(path));
    }
    match &schema.items {
        Some(Items::One(item)) => check_schema(item, below, errors, rules),
        Some(Items::Each(each)) => {
            for (index, item) in each.iter().enumerate() {
                check_schema(item, below.below(&items.index(index)), errors, rules);
            }
        }
        None => {}
    }
    if schema.preserve_unknown == Some(false) {
        let at = path.child("x-kubernetes-preserve-unknown-fields");
        errors.invalid(&at, false, "must be true or undefined");
    }
    check_map_type(schema, path, errors);
    check_list_type(schema, path, errors);
    check_list_keys(schema, path, errors);
    let validations = path.child("x-kubernetes-validations");
    for (index, rule) in schema.validations.iter().enumerate() {
        check_rule(rule, schema, &validations.index(index), errors);
    }
    // Errors about rules on an invalid schema would not help.
    if let Some(count) = place.count.filter(|_| errors.0.len() == before && !schema.validations.is_empty()) {
        let no_old = place.no_old.map(ToString::to_string);
        rules.check(schema, place.is_root, count, no_old.as_deref(), &validations);
    }
}

/// Rejects what OpenAPI allows and CRDs do not.
fn check_standard(schema: &Props, place: SchemaContext<'_>, errors: &mut Errors) {
    const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
    let path = place.path;
    let ty = schema.ty.as_str();
    if !ty.is_empty() && !TYPES.contains(&ty) {
        errors.not_supported(&path.child("type"), ty, &TYPES);
    }
    if let Some(why) = place.no_defaults.filter(|_| schema.default.is_some()) {
        errors.forbidden(&path.child("default"), format!("must not be set {why}"));
    }
    let unsupported = [
        ("id", !schema.id.is_empty()),
        ("additionalItems", schema.additional_items.is_some()),
        ("patternProperties", !schema.pattern_properties.is_empty()),
        ("definitions", !schema.definitions.is_empty()),
        ("dependencies", schema.dependencies.is_some()),
        ("$ref", schema.reference.is_some()),
    ];
    for (field, _) in unsupported.into_iter().filter(|(_, is_set)| *is_set) {
        errors.forbidden(&path.child(field), format!("{field} is not supported"));
    }
    if ty == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.forbidden(&path.child("type"), detail);
    }
    if matches!(&schema.items, Some(Items::Each(each)) if !each.is_empty()) {
        errors.forbidden(&path.child("items"), "items must be a schema object and not an array");
    }
    if place.in_metadata && schema.embedded_resource {
        let at = path.child("x-kubernetes-embedded-resource");
        errors.forbidden(&at, "must not be used inside of resource meta");
    }
}

fn check_fields(schema: &Props, place: SchemaContext<'_>, errors: &mut Errors, rules: &mut RuleChecks) {
    let path = place.path;
    if let Some(additional) = &schema.additional_properties {
        let at = path.child("additionalProperties");
        if !schema.properties.is_empty() && !matches!(additional, OrBool::Bool(true)) {
            errors.forbidden(&at, "additionalProperties and properties are mutual exclusive");
        }
        if let Some(additional) = additional.schema() {
            let mut below = place.below(&at).counted(schema);
            if place.in_metadata {
                below.no_defaults = Some("inside additionalProperties applying to object metadata");
            }
            check_schema(additional, below, errors, rules);
        }
    }
    let properties = path.child("properties");
    for (name, property) in &schema.properties {
        let at = properties.key(name);
        let why = format!("in top-level {name}");
        let mut below = place.below(&at).counted(schema);
        if (place.is_root || schema.embedded_resource) && is_meta_field(name) {
            below.in_metadata = true;
            if place.is_root {
                below.no_defaults = Some(&why);
            }
        }
        check_schema(property, below, errors, rules);
    }
}

fn check_alternatives(schema: &Props, place: SchemaContext<'_>, errors: &mut Errors, rules: &mut RuleChecks) {
    let path = place.path;
    let place = SchemaContext { count: None, ..place };
    if let Some(not) = &schema.not {
        check_schema(not, place.below(&path.child("not")), errors, rules);
    }
    for (field, parts) in [("allOf", &schema.all_of), ("oneOf", &schema.one_of), ("anyOf", &schema.any_of)] {
        let at = path.child(field);
        for (index, part) in parts.iter().enumerate() {
            check_schema(part, place.below(&at.index(index)), errors, rules);
        }
    }
    let definitions = path.child("definitions");
    for (name, part) in &schema.definitions {
        check_schema(part, place.below(&definitions.key(name)), errors, rules);
    }
}

fn must_be(ty: &str, expected: &str, extension: &str, path: &Path<'_>, errors: &mut Errors) {
    let detail = format!("must be {expected} if {extension} is specified");
    match ty {
        "" => errors.required(&path.child("type"), detail),
        ty if ty != expected => errors.invalid(&path.child("type"), ty, detail),
        _ => {}
    }
}

fn check_map_type(schema: &Props, path: &Path<'_>, errors: &mut Errors) {
    let Some(map_type) = schema.map_type.as_deref() else { return };
    must_be(&schema.ty, "object", "x-kubernetes-map-type", path, errors);
    if !matches!(map_type, "atomic" | "granular") {
        errors.not_supported(&path.child("x-kubernetes-map-type"), map_type, &["atomic", "granular"]);
    }
}

fn check_list_type(schema: &Props, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("x-kubernetes-list-type");
    let Some(list_type) = schema.list_type.as_deref() else {
        if !schema.list_map_keys.is_empty() {
            errors.required(&at, "must be map if x-kubernetes-list-map-keys is non-empty");
        }
        return;
    };
    must_be(&schema.ty, "array", "x-kubernetes-list-type", path, errors);
    if let Some(item) = schema.item().filter(|_| schema.ty == "array" && list_type == "set") {
        let items = path.child("items");
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let shown = item.list_type.as_deref().map_or(Value::Null, Value::from);
        if item.ty == "array" && item.list_type.as_deref().is_some_and(|of| of != "atomic") {
            errors.invalid(&items.child("x-kubernetes-list-type"), shown, detail);
        } else if item.ty == "object" && item.map_type.as_deref() != Some("atomic") {
            errors.invalid(&items.child("x-kubernetes-map-type"), shown, detail);
        }
    }
    if !matches!(list_type, "atomic" | "set" | "map") {
        errors.not_supported(&at, list_type, &["atomic", "set", "map"]);
    }
    if !schema.list_map_keys.is_empty() && list_type != "map" {
        errors.invalid(&at, list_type, "must be map if x-kubernetes-list-map-keys is non-empty");
    }
}

fn check_list_keys(schema: &Props, path: &Path<'_>, errors: &mut Errors) {
    let list_type = schema.list_type.as_deref();
    let (items, keys_path) = (path.child("items"), path.child("x-kubernetes-list-map-keys"));
    let keys = &schema.list_map_keys;
    if list_type == Some("map") {
        if keys.is_empty() {
            errors.required(&keys_path, "must not be empty if x-kubernetes-list-type is map");
        }
        match (schema.item(), &schema.items) {
            (None, None) => errors.required(&items, "must have a schema if x-kubernetes-list-type is map"),
            (None, Some(_)) => {
                let detail = "must only have a single schema if x-kubernetes-list-type is map";
                errors.invalid(&items, json!([]), detail);
            }
            (Some(item), _) if item.ty != "object" => {
                let detail = "must be object if parent array's x-kubernetes-list-type is map";
                errors.invalid(&items.child("type"), item.ty.as_str(), detail);
            }
            (Some(item), _) => check_keys(item, keys, &items, &keys_path, errors),
        }
    }
    let Some(item) = schema.item() else { return };
    let properties = items.child("properties");
    if let Some(list_type @ ("map" | "set")) = list_type {
        if item.nullable {
            let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
            errors.forbidden(&items.child("nullable"), detail);
        }
        for (key, property) in keys.iter().filter_map(|key| Some((key, item.properties.get(key)?))) {
            if list_type != "map" {
                break;
            }
            let at = properties.key(key);
            if !item.required.contains(key) && property.default.is_none() {
                let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                errors.required(&at.child("default"), detail);
            }
            if property.nullable {
                let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                errors.forbidden(&at.child("nullable"), detail);
            }
        }
    }
}

fn check_keys(item: &Props, keys: &[String], items: &Path<'_>, path: &Path<'_>, errors: &mut Errors) {
    let properties = items.child("properties");
    for (index, key) in keys.iter().enumerate() {
        match item.properties.get(key) {
            Some(property) if matches!(property.ty.as_str(), "array" | "object") => {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.invalid(&properties.key(key).child("type"), item.ty.as_str(), detail);
            }
            Some(_) => {}
            None => errors.invalid(path, keys.to_vec(), "entries must all be names of item properties"),
        }
        if keys[..index].contains(key) {
            errors.invalid(path, keys.to_vec(), "must not contain duplicate entries");
        }
    }
}

fn check_rule(rule: &Rule, schema: &Props, path: &Path<'_>, errors: &mut Errors) {
    const REASONS: [&str; 4] =
        ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let has_lines = |text: &str| text.contains(['\n', '\r']);
    let (text, message) = (rule.rule.trim(), rule.message.trim());
    if text.is_empty() {
        errors.required(&path.child("rule"), "rule is not specified");
    } else if !rule.message.is_empty() && message.is_empty() {
        errors.invalid(&path.child("message"), rule.message.as_str(), "must be non-empty if specified");
    } else if has_lines(message) {
        errors.invalid(&path.child("message"), rule.message.as_str(), "must not contain line breaks");
    } else if has_lines(text) && message.is_empty() {
        errors.required(&path.child("message"), "message must be specified if rule contains line breaks");
    }
    if !rule.message_expression.is_empty() && rule.message_expression.trim().is_empty() {
        let at = path.child("messageExpression");
        errors.required(&at, "messageExpression must be non-empty if specified");
    }
    if let Some(reason) = rule.reason.as_deref().filter(|reason| !REASONS.contains(reason)) {
        errors.not_supported(&path.child("reason"), reason, &REASONS);
    }
    let (written, at) = (rule.field_path.as_str(), path.child("fieldPath"));
    if !written.is_empty() && written.trim().is_empty() {
        errors.invalid(&at, written, "must be non-empty if specified");
    }
    if has_lines(written) {
        errors.invalid(&at, written, "must not contain line breaks");
    }
    if !written.is_empty()
        && structural::unsupported(schema).is_none()
        && paths::follow(written, schema, true).is_err()
    {
        errors.invalid(&at, written, "must be a valid path");
    }
}
