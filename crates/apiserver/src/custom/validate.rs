//! Validates values against a schema, with v1.34's messages.
//!
//! If all alternatives fail, the one with the most passed checks is reported. Values that an update leaves unchanged
//! are not reported again, even if invalid.

use serde_json::{Map, Value};

use super::props::{Items, OrBool, Props};
use super::{correlate, formats};
use crate::field::{Errors, FieldError, MAX_ERRORS, Reason, shown_path};
use crate::pattern;

/// Validates a new value. `at` is its path: empty for a whole object.
pub(crate) fn validate(at: &str, value: &Value, schema: &Props) -> Errors {
    Validation { at }.value("", value, None, schema).into()
}

/// Validates a value that replaces another.
pub(crate) fn validate_update(at: &str, value: &Value, old: Option<&Value>, schema: &Props) -> Errors {
    Validation { at }.value("", value, old, schema).into()
}

/// The result of checking a value.
#[derive(Default)]
struct CheckResult {
    errors: Vec<FieldError>,
    /// How many checks passed.
    passed: usize,
}

impl From<CheckResult> for Errors {
    fn from(found: CheckResult) -> Self {
        found.errors.into()
    }
}

impl CheckResult {
    fn passed() -> Self {
        Self { errors: Vec::new(), passed: 1 }
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    fn merge(&mut self, other: Self) {
        let room = MAX_ERRORS.saturating_sub(self.errors.len());
        self.errors.extend(other.errors.into_iter().take(room));
        self.passed += other.passed;
    }
}

struct Validation<'a> {
    at: &'a str,
}

impl Validation<'_> {
    fn value(&self, path: &str, value: &Value, old: Option<&Value>, schema: &Props) -> CheckResult {
        let path = shown_path(path);
        let mut found = CheckResult::default();
        if value.is_null() {
            found.merge(self.ty(path, value, schema));
            found.merge(self.one_of_values(path, value, schema));
        } else {
            self.checks(path, value, old, schema, &mut found);
        }
        if old.is_some_and(|old| correlate::is_same(schema, value, old)) {
            found.errors.clear();
        }
        found
    }

    fn checks(
        &self,
        path: &str,
        value: &Value,
        old: Option<&Value>,
        schema: &Props,
        found: &mut CheckResult,
    ) {
        if !types(schema).is_empty() || !format(schema).is_empty() {
            found.merge(self.ty(path, value, schema));
            found.passed += 1;
        }
        found.merge(self.alternatives(path, value, old, schema));
        found.passed += 1;
        match value {
            Value::String(text) => {
                found.merge(self.text(path, text, schema));
                found.passed += 1;
                if formats::is_known(format(schema)) {
                    found.merge(self.format(path, text, format(schema)));
                    found.passed += 1;
                }
            }
            Value::Number(_) => {
                found.merge(self.number(path, value, schema));
                found.passed += 2;
            }
            Value::Array(items) => {
                found.merge(self.items(path, items, old, schema));
                found.passed += 2;
            }
            _ => {}
        }
        found.merge(self.one_of_values(path, value, schema));
        found.passed += 1;
        if let Value::Object(fields) = value {
            found.merge(self.fields(path, fields, old, schema));
            found.passed += 1;
        }
        found.passed += 1;
    }

    fn error(&self, reason: Reason, path: &str, value: Option<Value>, detail: String) -> CheckResult {
        let path = path.strip_prefix('.').unwrap_or(path);
        let field = match (self.at, path) {
            ("", "") => "<nil>".to_owned(),
            ("", path) => path.to_owned(),
            (at, "") => at.to_owned(),
            (at, path) => format!("{at}.{path}"),
        };
        CheckResult { errors: vec![FieldError { reason, field, value, detail }], passed: 0 }
    }

    fn invalid(&self, path: &str, value: impl Into<Value>, what: &str) -> CheckResult {
        self.error(Reason::Invalid, path, Some(value.into()), format!("{path} in body {what}"))
    }

    fn wrong_type(&self, path: &str, expected: &str, found: &str) -> CheckResult {
        let detail = format!("{path} in body must be of type {expected}: {found:?}");
        self.error(Reason::TypeInvalid, path, Some(found.into()), detail)
    }

    /// Reports an error about a value as a whole, which has no path of its own.
    fn composite(&self, detail: String) -> CheckResult {
        let field = if self.at.is_empty() { "<nil>" } else { self.at };
        let error =
            FieldError { reason: Reason::Invalid, field: field.into(), value: Some("".into()), detail };
        CheckResult { errors: vec![error], passed: 0 }
    }

    fn ty(&self, path: &str, value: &Value, schema: &Props) -> CheckResult {
        let types = types(schema);
        let found = type_of(value);
        let has = |ty: &str| types.contains(&ty);
        if value.is_null() {
            return match types.is_empty() || schema.nullable {
                true => CheckResult::passed(),
                false => self.wrong_type(path, &types.join(","), "null"),
            };
        }
        let is_whole = found == "number" && is_whole(value) && has("integer");
        let fits = has(found) || is_whole || found == "integer" && has("number");
        let is_formatted = !format(schema).is_empty();
        let is_text = matches!(value, Value::String(_) | Value::Array(_));
        if is_formatted && is_text && !has("number") && !has("integer") {
            return CheckResult::passed();
        }
        match fits {
            true => CheckResult::passed(),
            false if is_formatted => self.wrong_type(path, format(schema), format_of(value)),
            false => self.wrong_type(path, &types.join(","), found),
        }
    }

    fn alternatives(&self, path: &str, value: &Value, old: Option<&Value>, schema: &Props) -> CheckResult {
        let mut found = CheckResult::default();
        let check = |schema: &Props| {
            let mut found = CheckResult::default();
            self.checks(path, value, old, schema, &mut found);
            found
        };
        if !schema.any_of.is_empty() {
            found.merge(self.any_of(path, schema.any_of.iter().map(check)));
        }
        if !schema.one_of.is_empty() {
            found.merge(self.one_of(path, schema.one_of.iter().map(check)));
        }
        if !schema.all_of.is_empty() {
            found.merge(self.all_of(path, schema.all_of.iter().map(check)));
        }
        if schema.not.as_deref().is_some_and(|not| check(not).is_valid()) {
            found.merge(self.composite(format!("{path:?} must not validate the schema (not)")));
        }
        found.passed += 1;
        found
    }

    fn any_of(&self, path: &str, results: impl Iterator<Item = CheckResult>) -> CheckResult {
        let mut best: Option<CheckResult> = None;
        for result in results {
            if result.is_valid() {
                return result;
            }
            if best.as_ref().is_none_or(|best| result.passed > best.passed) {
                best = Some(result);
            }
        }
        let mut found = self.composite(format!("{path:?} must validate at least one schema (anyOf)"));
        found.merge(best.unwrap_or_default());
        found
    }

    fn one_of(&self, path: &str, results: impl Iterator<Item = CheckResult>) -> CheckResult {
        let (mut best, mut first, mut valid): (Option<CheckResult>, Option<CheckResult>, usize) =
            (None, None, 0);
        for result in results {
            if result.is_valid() {
                valid += 1;
                best = None;
                first.get_or_insert(result);
            } else if valid == 0 && best.as_ref().is_none_or(|best| result.passed > best.passed) {
                best = Some(result);
            }
        }
        let many = match valid {
            1 => return first.unwrap_or_default(),
            0 => "Found none valid".to_owned(),
            many => format!("Found {many} valid alternatives"),
        };
        let mut found =
            self.composite(format!("{path:?} must validate one and only one schema (oneOf). {many}"));
        found.merge(best.unwrap_or_default());
        found
    }

    fn all_of(&self, path: &str, results: impl Iterator<Item = CheckResult>) -> CheckResult {
        let (mut found, mut valid, mut all) = (CheckResult::default(), 0, 0);
        for result in results {
            all += 1;
            valid += usize::from(result.is_valid());
            found.merge(result);
        }
        if valid < all {
            let none = if valid == 0 { ". None validated" } else { "" };
            found.merge(self.composite(format!("{path:?} must validate all the schemas (allOf){none}")));
        }
        found
    }

    /// Stops at the first violation.
    fn text(&self, path: &str, text: &str, schema: &Props) -> CheckResult {
        let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        if let Some(longest) = schema.max_length.filter(|longest| length > *longest) {
            let detail = format!("may not be more than {longest} bytes");
            return self.error(Reason::TooLong, path, None, detail);
        }
        if let Some(shortest) = schema.min_length.filter(|shortest| length < *shortest) {
            return self.invalid(path, text, &format!("should be at least {shortest} chars long"));
        }
        if !schema.pattern.is_empty() && !matches_pattern(&schema.pattern, text) {
            return self.invalid(path, text, &format!("should match '{}'", schema.pattern));
        }
        CheckResult::default()
    }

    fn format(&self, path: &str, text: &str, format: &str) -> CheckResult {
        match formats::is_valid(format, text) {
            true => CheckResult::default(),
            false => self.wrong_type(path, format, text),
        }
    }

    fn number(&self, path: &str, value: &Value, schema: &Props) -> CheckResult {
        let mut found = CheckResult::default();
        if let Some(factor) = schema.multiple_of
            && !is_positive(value, factor)
        {
            let shown = if value.is_f64() { Value::from(factor) } else { Value::from(factor as i64) };
            let detail = format!("factor MultipleOf declared for {path} must be positive: {shown}");
            found.merge(self.error(Reason::Invalid, path, Some(shown), detail));
        } else if let Some(factor) = schema.multiple_of
            && !is_multiple(value, factor)
        {
            let what = format!("should be a multiple of {}", bound(value, factor));
            found.merge(self.invalid(path, value.clone(), &what));
        }
        if let Some(minimum) = schema.minimum
            && let Some(order) = compare(value, minimum)
            && (order.is_lt() || schema.exclusive_minimum && order.is_eq())
        {
            let than = if schema.exclusive_minimum { "greater than" } else { "greater than or equal to" };
            let what = format!("should be {than} {}", bound(value, minimum));
            found.merge(self.invalid(path, value.clone(), &what));
        }
        if let Some(maximum) = schema.maximum
            && let Some(order) = compare(value, maximum)
            && (order.is_gt() || schema.exclusive_maximum && order.is_eq())
        {
            let than = if schema.exclusive_maximum { "less than" } else { "less than or equal to" };
            let what = format!("should be {than} {}", bound(value, maximum));
            found.merge(self.invalid(path, value.clone(), &what));
        }
        found
    }

    fn items(&self, path: &str, items: &[Value], old: Option<&Value>, schema: &Props) -> CheckResult {
        let mut found = CheckResult::default();
        match &schema.items {
            Some(Items::One(item)) => {
                let before = correlate::Items::of(schema, old);
                for (index, value) in items.iter().enumerate() {
                    let old = before.find(value);
                    found.merge(self.value(&format!("{path}[{index}]"), value, old, item));
                }
            }
            Some(Items::Each(each)) => {
                for (index, (value, item)) in items.iter().zip(each).enumerate() {
                    found.merge(self.value(&format!("{path}[{index}]"), value, None, item));
                }
            }
            None => {}
        }
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        if let Some(fewest) = schema.min_items.filter(|fewest| length < *fewest) {
            found.merge(self.invalid(path, length, &format!("should have at least {fewest} items")));
        }
        if let Some(most) = schema.max_items.filter(|most| length > *most) {
            found.merge(self.error(Reason::TooMany, path, Some(length.into()), at_most(most)));
        }
        if schema.unique_items && (1..items.len()).any(|at| items[..at].contains(&items[at])) {
            found.merge(self.invalid(path, "", "shouldn't contain duplicates"));
        }
        found
    }

    fn one_of_values(&self, path: &str, value: &Value, schema: &Props) -> CheckResult {
        if schema.values.is_empty() || !value.is_null() && schema.values.iter().any(|one| same(one, value)) {
            return CheckResult::default();
        }
        let supported: Vec<String> = schema
            .values
            .iter()
            .map(|value| format!("{:?}", value.as_str().map_or_else(|| value.to_string(), Into::into)))
            .collect();
        let detail = format!("supported values: {}", supported.join(", "));
        self.error(Reason::NotSupported, path, Some(value.clone()), detail)
    }

    fn fields(
        &self,
        path: &str,
        fields: &Map<String, Value>,
        old: Option<&Value>,
        schema: &Props,
    ) -> CheckResult {
        let mut found = CheckResult::default();
        let count = i64::try_from(fields.len()).unwrap_or(i64::MAX);
        if let Some(fewest) = schema.min_properties.filter(|fewest| count < *fewest) {
            found.merge(self.invalid(path, count, &format!("should have at least {fewest} properties")));
        }
        if let Some(most) = schema.max_properties.filter(|most| count > *most) {
            found.merge(self.error(Reason::TooMany, path, Some(count.into()), at_most(most)));
        }
        for (name, value) in fields.iter().filter(|(name, _)| !schema.properties.contains_key(*name)) {
            let below = format!("{path}.{name}");
            match &schema.additional_properties {
                Some(OrBool::Schema(additional)) => {
                    let old = correlate::field(name, old);
                    found.merge(self.value(&below, value, old, additional));
                }
                Some(OrBool::Bool(false)) => {
                    let detail = format!("{path}.{name} in body is a forbidden property");
                    found.merge(self.error(Reason::Invalid, path, Some(name.as_str().into()), detail));
                }
                _ => {}
            }
        }
        for (name, property) in &schema.properties {
            let Some(value) = fields.get(name) else { continue };
            let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            // A version change is not visible here, so these fields never count as unchanged.
            let is_type = path.is_empty() && matches!(name.as_str(), "kind" | "apiVersion");
            let old = if is_type { None } else { correlate::field(name, old) };
            found.merge(self.value(&below, value, old, property));
        }
        for name in schema.required.iter().filter(|name| !fields.contains_key(*name)) {
            found.merge(self.error(Reason::Required, &format!("{path}.{name}"), None, String::new()));
        }
        found
    }
}

/// Returns the types that a schema allows.
fn types(schema: &Props) -> Vec<&str> {
    match schema.ty.as_str() {
        _ if schema.int_or_string => vec!["integer", "string"],
        "" => Vec::new(),
        ty => vec![ty],
    }
}

/// Returns the format, if it is a checked one.
fn format(schema: &Props) -> &str {
    if formats::is_known(&schema.format) { &schema.format } else { "" }
}

/// Returns the schema type of a value.
pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_whole(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn compare(value: &Value, bound: f64) -> Option<std::cmp::Ordering> {
    match value.as_i64() {
        Some(number) => Some(number.cmp(&(bound as i64))),
        None => value.as_f64()?.partial_cmp(&bound),
    }
}

/// Formats a bound for a message about a number: as an integer if the number is one.
fn bound(value: &Value, bound: f64) -> String {
    if value.is_f64() { super::number::shown(bound) } else { (bound as i64).to_string() }
}

/// Whether a `multipleOf` factor is usable for a value; for integers only its integer part counts.
fn is_positive(value: &Value, factor: f64) -> bool {
    if value.is_f64() { factor > 0.0 } else { factor as i64 > 0 }
}

fn is_multiple(value: &Value, factor: f64) -> bool {
    match value.as_i64() {
        Some(number) => match factor as i64 {
            0 => false,
            factor => number % factor == 0,
        },
        None => value.as_f64().is_some_and(|number| (number / factor).fract().abs() < 1e-9),
    }
}

fn same(one: &Value, other: &Value) -> bool {
    one == other || one.is_number() && other.is_number() && one.as_f64() == other.as_f64()
}

/// Whether a text matches a pattern, which was validated when the CRD was written.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    pattern::compile(pattern).is_ok_and(|pattern| pattern.is_match(text))
}

fn at_most(most: i64) -> String {
    format!("must have at most {most} {}", if most == 1 { "item" } else { "items" })
}

/// Returns v1.34's name for the format of a non-string value.
fn format_of(value: &Value) -> &'static str {
    match value {
        Value::Number(number) if number.is_f64() => "double",
        Value::Number(_) => "int64",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: Value, value: Value, expected: &[&str]) {
        let schema = Props::parse(&schema).unwrap();
        let shown: Vec<String> = validate("", &value, &schema)
            .0
            .iter()
            .map(|error| format!("{}: {}", error.field, error.body()))
            .collect();
        assert_eq!(shown, expected, "{value}");
    }

    #[test]
    fn type_errors_name_expected_and_actual_type() {
        let schema =
            json!({"properties": {"i": {"type": "integer"}, "x": {"x-kubernetes-int-or-string": true}}});
        check(schema.clone(), json!({"i": 1, "x": "1"}), &[]);
        check(schema.clone(), json!({"i": 1.0}), &[]);
        check(
            schema,
            json!({"i": null, "x": true}),
            &[
                "i: Invalid value: \"null\": i in body must be of type integer: \"null\"",
                "x: Invalid value: \"boolean\": x in body must be of type integer,string: \"boolean\"",
            ],
        );
    }

    #[test]
    fn errors_name_bounds_and_formats_as_declared() {
        let schema = json!({"properties": {
            "f": {"type": "string", "format": "byte"},
            "l": {"type": "array", "maxItems": 1, "items": {"type": "string"}},
            "m": {"type": "number", "multipleOf": 0.5}}});
        check(schema.clone(), json!({"f": "YQ==", "l": ["a"], "m": 1.5}), &[]);
        check(
            schema,
            json!({"f": 1, "l": ["a", "b"], "m": 1}),
            &[
                "f: Invalid value: \"int64\": f in body must be of type byte: \"int64\"",
                "l: Too many: 2: must have at most 1 item",
                "m: Invalid value: 0: factor MultipleOf declared for m must be positive: 0",
            ],
        );
    }

    #[test]
    fn the_alternative_that_came_furthest_is_reported() {
        let schema = json!({"properties": {"a": {"type": "object", "oneOf": [
            {"required": ["x", "y"]}, {"required": ["z"], "properties": {"w": {"maxLength": 3}}}]}}});
        check(
            schema,
            json!({"a": {"w": "ab"}}),
            &[
                "<nil>: Invalid value: \"\": \"a\" must validate one and only one schema (oneOf). Found none valid",
                "a.z: Required value",
            ],
        );
    }

    #[test]
    fn unchanged_errors_are_not_reported_on_update() {
        let schema = json!({"properties": {"a": {"type": "string", "maxLength": 2}, "b": {"type": "string", "maxLength": 2}}});
        let schema = Props::parse(&schema).unwrap();
        let old = json!({"a": "long", "b": "x"});
        let errors = |new: Value| validate_update("", &new, Some(&old), &schema).0.len();
        assert_eq!(errors(json!({"a": "long", "b": "y"})), 0);
        assert_eq!(errors(json!({"a": "longer", "b": "y"})), 1);
    }
}
