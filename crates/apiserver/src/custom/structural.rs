//! Checks that a schema is structural: every value has one type, specified outside of `allOf`, `anyOf`, `oneOf` and
//! `not`, which only constrain it.

use super::props::{Items, Props};
use crate::field::{Errors, Path};
use crate::pattern;

/// The position of a subschema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Returns the errors that keep a schema from being structural, sorted.
pub fn check(schema: &Props, path: &Path<'_>) -> Errors {
    let mut errors = Errors::default();
    invariants(schema, Level::Root, path, &mut errors);
    completeness(schema, Some(schema), path, path, &mut errors);
    errors.0.sort_by_cached_key(|error| format!("{}: {}", error.field, error.body()));
    errors
}

/// Returns the error about constructs that structural schemas do not support, if any.
pub fn unsupported(schema: &Props) -> Option<&'static str> {
    let mut found = None;
    schema.any(&mut |part| {
        found = if !part.id.is_empty() {
            Some("OpenAPIV3Schema 'id' is not supported")
        } else if !part.schema.is_empty() {
            Some("OpenAPIV3Schema 'schema' is not supported")
        } else if part.reference.is_some() {
            Some("OpenAPIV3Schema '$ref' is not supported")
        } else if matches!(part.items, Some(Items::Each(_))) {
            Some("OpenAPIV3Schema 'items' must be a schema, but is an array")
        } else if part.dependencies.is_some() {
            Some("OpenAPIV3Schema 'dependencies' is not supported")
        } else if !part.pattern_properties.is_empty() {
            Some("OpenAPIV3Schema 'patternProperties' is not supported")
        } else if part.additional_items.is_some() {
            Some("OpenAPIV3Schema 'additionalItems' is not supported")
        } else if !part.definitions.is_empty() {
            Some("OpenAPIV3Schema 'definitions' is not supported")
        } else {
            None
        };
        found.is_some()
    });
    found
}

fn invariants(schema: &Props, level: Level, path: &Path<'_>, errors: &mut Errors) {
    match schema.item() {
        Some(item) => invariants(item, Level::Item, &path.child("items"), errors),
        None if schema.ty == "array" => errors.required(&path.child("items"), "must be specified"),
        None => {}
    }
    let properties = path.child("properties");
    for (name, property) in &schema.properties {
        invariants(property, Level::Field, &properties.key(name), errors);
    }
    if schema.additional_properties.is_some() && level == Level::Root {
        errors.forbidden(&path.child("additionalProperties"), "must not be used at the root");
    }
    if let Some(additional) = schema.additional() {
        invariants(additional, Level::Field, &path.child("additionalProperties"), errors);
    }
    extensions(schema, path, errors);
    restrictions(schema, is_int_or_string(&schema.any_of), is_int_or_string_below(schema), path, errors);
    types(schema, level, path, errors);
    resource(schema, level, path, errors);
}

fn extensions(schema: &Props, path: &Path<'_>, errors: &mut Errors) {
    let detail = "must be false if x-kubernetes-int-or-string is true";
    if schema.int_or_string && schema.preserves_unknown() {
        errors.invalid(&path.child("x-kubernetes-preserve-unknown-fields"), true, detail);
    }
    if schema.int_or_string && schema.embedded_resource {
        errors.invalid(&path.child("x-kubernetes-embedded-resource"), true, detail);
    }
}

fn types(schema: &Props, level: Level, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("type");
    if schema.embedded_resource && schema.ty != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        match schema.ty.as_str() {
            "" => errors.required(&at, detail),
            ty => errors.invalid(&at, ty, detail),
        }
    } else if schema.ty.is_empty() && !schema.int_or_string && !schema.preserves_unknown() {
        errors.required(
            &at,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        );
    }
    if level == Level::Root && !schema.ty.is_empty() && schema.ty != "object" {
        errors.invalid(&at, schema.ty.as_str(), "must be object at the root");
    }
}

fn resource(schema: &Props, level: Level, path: &Path<'_>, errors: &mut Errors) {
    let is_resource = level == Level::Root || schema.embedded_resource;
    if schema.embedded_resource && schema.additional_properties.is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.forbidden(&path.child("additionalProperties"), detail);
    }
    let properties = path.child("properties");
    for name in ["kind", "apiVersion"] {
        if let Some(property) =
            schema.properties.get(name).filter(|property| is_resource && property.ty != "string")
        {
            errors.invalid(&properties.key(name).child("type"), property.ty.as_str(), "must be string");
        }
    }
    if let Some(metadata) = schema.properties.get("metadata") {
        let at = properties.key("metadata");
        if is_resource && metadata.ty != "object" {
            errors.invalid(&at.child("type"), metadata.ty.as_str(), "must be object");
        }
        if level == Level::Root && !restricts_names_only(metadata) {
            let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            errors.forbidden(&at, detail);
        }
    }
    if schema.embedded_resource && !schema.preserves_unknown() && schema.properties.is_empty() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.required(&properties, detail);
    }
}

fn restricts_names_only(metadata: &Props) -> bool {
    let mut rest = metadata.clone();
    if rest.properties.keys().all(|name| matches!(name.as_str(), "name" | "generateName")) {
        rest.properties.clear();
    }
    rest.ty.clear();
    rest.default = None;
    rest.external_docs = None;
    rest.example = None;
    rest == Props::default()
}

fn is_int_or_string(alternatives: &[Props]) -> bool {
    let of = |ty: &str| Props { ty: ty.into(), ..Props::default() };
    matches!(alternatives, [first, second] if *first == of("integer") && *second == of("string"))
}

fn is_int_or_string_below(schema: &Props) -> bool {
    schema.all_of.first().is_some_and(|first| is_int_or_string(&first.any_of))
}

/// Checks the parts of a schema that only constrain values.
fn restrictions(schema: &Props, skips_any_of: bool, skips_first: bool, path: &Path<'_>, errors: &mut Errors) {
    let any_of = path.child("anyOf");
    for (index, part) in schema.any_of.iter().enumerate().filter(|_| !skips_any_of) {
        nested(part, false, &any_of.index(index), errors);
    }
    let all_of = path.child("allOf");
    for (index, part) in schema.all_of.iter().enumerate() {
        nested(part, skips_first && index == 0, &all_of.index(index), errors);
    }
    let one_of = path.child("oneOf");
    for (index, part) in schema.one_of.iter().enumerate() {
        nested(part, false, &one_of.index(index), errors);
    }
    if let Some(not) = &schema.not {
        nested(not, false, &path.child("not"), errors);
    }
    if let Some(why) = Some(&schema.pattern)
        .filter(|pattern| !pattern.is_empty())
        .and_then(|pattern| pattern::compile(pattern).err())
    {
        let detail = format!("must be a valid regular expression, but isn't: {}", why);
        errors.invalid(&path.child("pattern"), schema.pattern.as_str(), detail);
    }
}

/// Checks that a constraint does not specify types.
fn nested(schema: &Props, skips_any_of: bool, path: &Path<'_>, errors: &mut Errors) {
    restrictions(schema, skips_any_of, false, path, errors);
    if let Some(item) = schema.item() {
        nested(item, false, &path.child("items"), errors);
    }
    let properties = path.child("properties");
    for (name, property) in &schema.properties {
        nested(property, false, &properties.key(name), errors);
    }
    let forbidden = [
        ("type", !schema.ty.is_empty(), "must be empty to be structural"),
        (
            "additionalProperties",
            schema.additional_properties.is_some(),
            "must be undefined to be structural",
        ),
        ("default", schema.default.is_some(), "must be undefined to be structural"),
        ("title", !schema.title.is_empty(), "must be empty to be structural"),
        ("description", !schema.description.is_empty(), "must be empty to be structural"),
        ("nullable", schema.nullable, "must be false to be structural"),
        (
            "x-kubernetes-preserve-unknown-fields",
            schema.preserves_unknown(),
            "must be false to be structural",
        ),
        ("x-kubernetes-embedded-resource", schema.embedded_resource, "must be false to be structural"),
        ("x-kubernetes-int-or-string", schema.int_or_string, "must be false to be structural"),
        ("x-kubernetes-list-map-keys", !schema.list_map_keys.is_empty(), "must be empty to be structural"),
        ("x-kubernetes-list-type", schema.list_type.is_some(), "must be undefined to be structural"),
        ("x-kubernetes-map-type", schema.map_type.is_some(), "must be undefined to be structural"),
        ("x-kubernetes-validations", !schema.validations.is_empty(), "must be empty to be structural"),
    ];
    for (field, is_set, detail) in forbidden {
        if is_set {
            errors.forbidden(&path.child(field), detail);
        }
    }
    if schema.properties.contains_key("metadata") {
        errors.forbidden(&properties.key("metadata"), "must not be specified in a nested context");
    }
}

/// Checks that every constrained value has a type.
fn completeness(
    restricting: &Props,
    schema: Option<&Props>,
    schema_path: &Path<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if let Some(not) = &restricting.not {
        nested_completeness(not, schema, schema_path, &path.child("not"), errors);
    }
    for (field, parts) in
        [("allOf", &restricting.all_of), ("anyOf", &restricting.any_of), ("oneOf", &restricting.one_of)]
    {
        let at = path.child(field);
        for (index, part) in parts.iter().enumerate() {
            nested_completeness(part, schema, schema_path, &at.index(index), errors);
        }
    }
}

fn nested_completeness(
    restricting: &Props,
    schema: Option<&Props>,
    schema_path: &Path<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let Some(schema) = schema else {
        return errors.required(schema_path, format!("because it is defined in {path}"));
    };
    completeness(restricting, Some(schema), schema_path, path, errors);
    if let Some(item) = restricting.item() {
        let (schema_path, path) = (schema_path.child("items"), path.child("items"));
        nested_completeness(item, schema.item(), &schema_path, &path, errors);
    }
    let (schema_properties, properties) = (schema_path.child("properties"), path.child("properties"));
    for (name, property) in &restricting.properties {
        let (schema_path, path) = (schema_properties.key(name), properties.key(name));
        nested_completeness(property, schema.properties.get(name), &schema_path, &path, errors);
    }
}
