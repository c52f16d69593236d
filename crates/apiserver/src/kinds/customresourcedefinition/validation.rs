//! Validates CRDs.

use serde_json::Value;

use super::schema::{self, Checks};
use super::written::{Parts, Spec, Version};
use crate::custom::names::{APPROVED, Approval, approval, has_valid_bundle, is_protected, is_true};
use crate::custom::props::Props;
use crate::field::{Errors, Path, Reason};
use crate::json::Json;
use crate::kinds::admissionregistration::webhook::check_client;
use crate::metadata;
use crate::names;
use crate::tls::bundle_problem;
use crate::validation::{self, IMMUTABLE};

/// Maximum number of selectable fields per version.
const MAX_SELECTABLE: usize = 8;

pub(super) fn create(definition: &Value) -> Errors {
    let mut errors = Errors::default();
    let spec = definition.at("spec");
    let name = metadata::of(definition).text("name");
    if !name.is_empty() && name != format!("{}.{}", spec.at("names").text("plural"), spec.text("group")) {
        let detail = r#"must be spec.names.plural+"."+spec.group"#;
        errors.invalid(&Path::root("metadata").child("name"), name, detail);
    }
    check_spec(spec, None, &mut errors);
    check_rest(definition, None, &mut errors);
    errors
}

pub(super) fn update(new: &Value, old: &Value) -> Errors {
    let mut errors = Errors::default();
    let (spec, old_spec) = (new.at("spec"), old.at("spec"));
    check_spec(spec, Some(old_spec), &mut errors);
    let path = Path::root("spec");
    let names = path.child("names");
    let mut immutable = |field: &str, path: &Path<'_>, new: &Value, old: &Value| {
        if new.text(field) != old.text(field) {
            errors.invalid(&path.child(field), new.text(field), IMMUTABLE);
        }
    };
    if is_true(old, "Established") {
        immutable("scope", &path, spec, old_spec);
        immutable("kind", &names, spec.at("names"), old_spec.at("names"));
    }
    immutable("group", &path, spec, old_spec);
    immutable("plural", &names, spec.at("names"), old_spec.at("names"));
    check_rest(new, Some(old), &mut errors);
    check_bundle(new, old, &mut errors);
    errors
}

/// Checks that the CA bundle of an established CRD's conversion webhook stays valid.
fn check_bundle(new: &Value, old: &Value, errors: &mut Errors) {
    let may_be_invalid = !is_true(old, "Established") || !has_valid_bundle(old);
    let conversion = new.at("spec").at("conversion");
    if may_be_invalid || conversion.text("strategy") != "Webhook" {
        return;
    }
    let bundle = conversion.at("webhook").at("clientConfig").text("caBundle");
    if let Some(why) = bundle_problem(bundle) {
        let path = Path::root("spec");
        let path = path.child("conversion");
        errors.invalid(&path.child("webhookClientConfig").child("caBundle"), bundle, why);
    }
}

pub(super) fn status(definition: &Value) -> Errors {
    let mut errors = Errors::default();
    let names = definition.at("status").at("acceptedNames");
    check_names(names, &Path::root("status").child("acceptedNames"), &mut errors);
    errors
}

fn check_rest(definition: &Value, old: Option<&Value>, errors: &mut Errors) {
    errors.extend(status(definition));
    check_stored_versions(definition, errors);
    check_approval(definition, old, errors);
    let preserves = |definition: &Value| definition.at("spec").flag("preserveUnknownFields");
    if preserves(definition) && !old.is_some_and(preserves) {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.invalid(&Path::root("spec").child("preserveUnknownFields"), true, detail);
    }
}

/// Whether a version's schema is unchanged.
fn is_unchanged(version: &Value, old: Option<&Value>) -> bool {
    let before = old.into_iter().flat_map(|old| old.list("versions"));
    let mut same = before.filter(|before| before.text("name") == version.text("name"));
    same.next().is_some_and(|before| before.at("schema") == version.at("schema"))
}

fn check_spec(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::root("spec");
    let written = Spec::of(spec);
    check_group(spec.text("group"), &path.child("group"), errors);
    validation::choice(spec.text("scope"), &["Cluster", "Namespaced"], &path.child("scope"), errors);
    let versions = path.child("versions");
    for (index, version) in written.versions.iter().enumerate() {
        if written.shared.props().is_none() && version.own.props().is_none() {
            errors.required(&versions.index(index).child("schema").child("openAPIV3Schema"), "");
        }
    }
    if spec.flag("preserveUnknownFields") && written.has_defaults() {
        let detail = "must be false in order to use defaults in the schema";
        errors.invalid(&path.child("preserveUnknownFields"), true, detail);
    }
    for (index, version) in written.versions.iter().enumerate() {
        check_version(&written, version, old, &versions.index(index), errors);
    }
    check_uniqueness(&written, &versions, errors);
    check_first_version(spec, &path.child("version"), errors);
    let names = path.child("names");
    for field in ["plural", "singular", "kind", "listKind"] {
        validation::required(spec.at("names"), field, &names, errors);
    }
    check_names(spec.at("names"), &names, errors);
    let first = spec.list("versions").first().unwrap_or(&Value::Null);
    let checks = Checks { has_status: written.has_any_status(), is_unchanged: is_unchanged(first, old) };
    check_parts(&written.shared, checks, "validation", &path, errors);
    check_conversion(
        spec.at("conversion"),
        spec.flag("preserveUnknownFields"),
        &path.child("conversion"),
        errors,
    );
}

fn check_group(group: &str, path: &Path<'_>, errors: &mut Errors) {
    let complaints = names::dns_subdomain(group);
    if group.is_empty() {
        errors.required(path, "");
    } else if !complaints.is_empty() {
        errors.invalid(path, group, complaints.join(","));
    } else if !group.contains('.') {
        errors.invalid(path, group, "should be a domain with at least one dot");
    }
}

/// Checks the first version once more, as v1.34 does for its old field.
fn check_first_version(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let first = spec.list("versions").first().map_or("", |version| version.text("name"));
    let complaints = names::dns_1035_label(first);
    if !first.is_empty() && !complaints.is_empty() {
        errors.invalid(path, first, complaints.join(","));
    }
}

fn check_version(
    spec: &Spec<'_>,
    version: &Version<'_>,
    old: Option<&Value>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let name = version.value.text("name");
    let complaints = names::dns_1035_label(name);
    if !complaints.is_empty() {
        errors.invalid(&path.child("name"), name, complaints.join(","));
    }
    check_deprecation(version.value, &path.child("deprecationWarning"), errors);
    let is_unchanged = is_unchanged(version.value, old);
    let checks = Checks { has_status: spec.has_status(version), is_unchanged };
    check_parts(&version.own, checks, "schema", path, errors);
}

fn check_deprecation(version: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(warning) = version.at("deprecationWarning").as_str() else { return };
    let mut complaints = Vec::new();
    if !version.flag("deprecated") {
        complaints.push("can only be set for deprecated versions".to_owned());
    } else {
        if warning.len() > 256 {
            complaints.push("must be <= 256 characters long".into());
        }
        if warning.is_empty() {
            complaints.push("must not be an empty string".into());
        }
        let is_hidden = |letter: char| letter.is_control() || letter.is_whitespace() && letter != ' ';
        if let Some((at, _)) = warning.char_indices().find(|(_, letter)| is_hidden(*letter)) {
            let what = "must only contain printable UTF-8 characters";
            complaints.push(format!("{what}; non-printable character found at index {at}"));
        }
    }
    validation::add_invalid(complaints, warning, path, errors);
}

fn check_parts(parts: &Parts<'_>, checks: Checks, schema_field: &str, path: &Path<'_>, errors: &mut Errors) {
    let props = parts.props();
    let schema_path = path.child(schema_field);
    match &props {
        Some(Ok(props)) => schema::check(props, checks, &schema_path, errors),
        Some(Err(why)) => errors.invalid(&schema_path.child("openAPIV3Schema"), "", why.as_str()),
        None => {}
    }
    if let Some(subresources) = parts.subresources {
        check_scale(subresources.at("scale"), &path.child("subresources"), errors);
    }
    let columns = path.child("additionalPrinterColumns");
    for (index, column) in parts.columns.iter().enumerate() {
        check_column(column, &columns.index(index), errors);
    }
    if !parts.selectable.is_empty() {
        let fields = path.child("selectableFields");
        match &props {
            Some(Ok(props)) => check_selectable(parts.selectable, props, &fields, errors),
            _ => errors.invalid(&fields, "", "may only be set when validations.schema is included"),
        }
    }
}

fn check_scale(scale: &Value, path: &Path<'_>, errors: &mut Errors) {
    if scale.is_null() {
        return;
    }
    let rules: [(&str, &str, &[&str], &str); 3] = [
        ("specReplicasPath", "scale.specReplicasPath", &[".spec."], "should be a json path under .spec"),
        (
            "statusReplicasPath",
            "scale.statusReplicasPath",
            &[".status."],
            "should be a json path under .status",
        ),
        (
            "labelSelectorPath",
            "scale.labelSelectorPath",
            &[".spec.", ".status."],
            "should be a json path under either .spec or .status",
        ),
    ];
    for (field, shown, starts, detail) in rules {
        let (written, at) = (scale.text(field), path.child(shown));
        match written {
            "" if field == "labelSelectorPath" => {}
            "" => errors.required(&at, ""),
            _ if !written.starts_with('.') => {
                errors.invalid(&at, written, "must be a simple json path starting with .");
            }
            _ if !starts.iter().any(|start| written.starts_with(start)) => {
                errors.invalid(&at, written, detail)
            }
            _ => {}
        }
    }
}

fn check_column(column: &Value, path: &Path<'_>, errors: &mut Errors) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 9] =
        ["byte", "date", "date-time", "double", "float", "int32", "int64", "password", "string"];
    if column.text("name").is_empty() {
        errors.required(&path.child("name"), "");
    }
    let types = format!("must be one of {}", TYPES.join(","));
    match column.text("type") {
        "" => errors.required(&path.child("type"), types),
        ty if !TYPES.contains(&ty) => errors.invalid(&path.child("type"), ty, types),
        _ => {}
    }
    let format = column.text("format");
    if !format.is_empty() && !FORMATS.contains(&format) {
        errors.invalid(&path.child("format"), format, format!("must be one of {}", FORMATS.join(",")));
    }
    match column.text("jsonPath") {
        "" => errors.required(&path.child("JSONPath"), ""),
        written if !written.starts_with('.') => {
            errors.invalid(&path.child("JSONPath"), written, "must be a simple json path starting with .");
        }
        _ => {}
    }
}

fn check_selectable(fields: &[Value], props: &Props, path: &Path<'_>, errors: &mut Errors) {
    let mut unique: Vec<&str> = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let written = field.text("jsonPath");
        let at = path.index(index);
        let at = at.child("jsonPath");
        if written.is_empty() {
            errors.required(&at, "");
            continue;
        }
        let found = match schema::field_path(written, props, false) {
            Ok(found) => found,
            Err(why) => {
                errors.invalid(&at, written, format!("is an invalid path: {why}"));
                continue;
            }
        };
        if written.starts_with(".metadata") {
            errors.invalid(&at, written, "must not point to fields in metadata");
        }
        if !matches!(found.ty.as_str(), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.invalid(&at, written, detail);
        }
        match unique.contains(&written) {
            true => errors.duplicate(&at, written),
            false => unique.push(written),
        }
    }
    if unique.len() > MAX_SELECTABLE {
        let detail = format!("must have at most {MAX_SELECTABLE} items");
        errors.push(Reason::TooMany, path, Some(unique.len().into()), detail);
    }
}

fn check_uniqueness(spec: &Spec<'_>, path: &Path<'_>, errors: &mut Errors) {
    let names: Vec<&str> = spec.versions.iter().map(|version| version.value.text("name")).collect();
    if (1..names.len()).any(|at| names[..at].contains(&names[at])) {
        let detail = format!("{}: must contain unique version names", spec.shown_versions());
        errors.push(Reason::Invalid, path, None, detail);
    }
    if spec.versions.iter().filter(|version| version.value.flag("storage")).count() != 1 {
        let detail =
            format!("{}: must have exactly one version marked as storage version", spec.shown_versions());
        errors.push(Reason::Invalid, path, None, detail);
    }
}

fn check_names(written: &Value, path: &Path<'_>, errors: &mut Errors) {
    let label = |text: &str, path: &Path<'_>, errors: &mut Errors| {
        let complaints = names::dns_1035_label(text);
        if !complaints.is_empty() {
            errors.invalid(path, text, complaints.join(","));
        }
    };
    for field in ["plural", "singular"] {
        if !written.text(field).is_empty() {
            label(written.text(field), &path.child(field), errors);
        }
    }
    for field in ["kind", "listKind"] {
        if !written.text(field).is_empty() {
            crate::custom::meta::validate_kind(written.text(field), &path.child(field), errors);
        }
    }
    for (index, name) in written.list("shortNames").iter().filter_map(Value::as_str).enumerate() {
        label(name, &path.child("shortNames").index(index), errors);
    }
    let kind = written.text("kind");
    if !kind.is_empty() && kind == written.text("listKind") {
        errors.invalid(&path.child("listKind"), kind, "kind and listKind may not be the same");
    }
    for (index, category) in written.list("categories").iter().filter_map(Value::as_str).enumerate() {
        label(category, &path.child("categories").index(index), errors);
    }
}

fn check_conversion(conversion: &Value, preserves: bool, path: &Path<'_>, errors: &mut Errors) {
    if conversion.is_null() {
        return;
    }
    let strategy = conversion.text("strategy");
    if preserves && strategy != "None" {
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.invalid(&path.child("strategy"), strategy, detail);
    }
    validation::choice(strategy, &["None", "Webhook"], &path.child("strategy"), errors);
    let webhook = conversion.at("webhook");
    let config_path = path.child("webhookClientConfig");
    if strategy != "Webhook" {
        if webhook.has("clientConfig") {
            errors.forbidden(&config_path, "should not be set when strategy is not set to Webhook");
        }
        if !webhook.list("conversionReviewVersions").is_empty() {
            let detail = "should not be set when strategy is not set to Webhook";
            errors.forbidden(&path.child("conversionReviewVersions"), detail);
        }
        return;
    }
    let config = webhook.at("clientConfig");
    match config.is_null() {
        true => errors.required(&config_path, "required when strategy is set to Webhook"),
        false => check_client(config, &config_path, errors),
    }
    check_review_versions(
        webhook.list("conversionReviewVersions"),
        &path.child("conversionReviewVersions"),
        errors,
    );
}

fn check_review_versions(versions: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let texts: Vec<&str> = versions.iter().filter_map(Value::as_str).collect();
    if texts.is_empty() {
        return errors.required(path, "");
    }
    for (index, version) in texts.iter().enumerate() {
        match texts[..index].contains(version) {
            true => errors.invalid(&path.index(index), *version, "duplicate version"),
            false => {
                validation::add_invalid(names::dns_1035_label(version), version, &path.index(index), errors)
            }
        }
    }
    if !texts.iter().any(|version| matches!(*version, "v1" | "v1beta1")) {
        errors.invalid(path, versions.to_vec(), "must include at least one of v1, v1beta1");
    }
}

fn check_stored_versions(definition: &Value, errors: &mut Errors) {
    let status = Path::root("status");
    let path = status.child("storedVersions");
    let stored = definition.at("status").list("storedVersions");
    if stored.is_empty() {
        return errors.invalid(&path, Value::Null, "must have at least one stored version");
    }
    let versions = definition.at("spec").list("versions");
    for version in versions.iter().filter(|version| version.flag("storage")) {
        if !stored.contains(version.at("name")) {
            let detail = format!("must have the storage version {}", version.text("name"));
            errors.invalid(&path, stored.to_vec(), detail);
        }
    }
    for (index, name) in stored.iter().enumerate() {
        if !versions.iter().any(|version| version.at("name") == name) {
            let shown = name.as_str().unwrap_or_default();
            let detail = format!(
                "missing from spec.versions; {shown} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {shown} and removes {shown} from status.storedVersions"
            );
            errors.invalid(&path.index(index), shown, detail);
        }
    }
}

fn check_approval(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    if !is_protected(new.at("spec").text("group")) {
        return;
    }
    let (state, why) = approval(new);
    if old.is_some_and(|old| approval(old).0 == state) {
        return;
    }
    let metadata = Path::root("metadata");
    let annotations = metadata.child("annotations");
    let path = annotations.key(APPROVED);
    match state {
        Approval::Missing => errors.required(&path, why),
        Approval::Invalid => {
            let found = metadata::of(new).at("annotations").text(APPROVED);
            errors.invalid(&path, found, why);
        }
        Approval::Bypassed | Approval::Approved => {}
    }
}
