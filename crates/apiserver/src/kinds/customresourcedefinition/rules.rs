//! Validates the rules of a schema, and estimates their cost.

use std::sync::Arc;

use serde_json::Value;

use crate::cel::Program;
use crate::custom::declared::{self, REQUEST_BYTES};
use crate::custom::props::{Props, Rule};
use crate::custom::rules::{self, Compiled};
use crate::declared::escaped;
use crate::field::{Errors, Path, Reason};

/// Maximum cost of a rule, over all values it is checked on, as in v1.34.
const RULE_LIMIT: u64 = 10_000_000;
/// Maximum cost of all rules in a schema.
const SCHEMA_LIMIT: u64 = 100_000_000;
/// How many rules to name if a schema is too expensive.
const NAMED: usize = 4;

/// How often values of a schema can occur in one object; `None` if unbounded.
#[derive(Clone, Copy)]
pub(super) struct Count(Option<u64>);

impl Count {
    pub(super) const ONE: Self = Self(Some(1));

    /// Returns the count for the parts of a schema's values.
    pub(super) fn within(self, schema: &Props) -> Self {
        let natural = |number: i64| u64::try_from(number).unwrap_or(0);
        let each = match schema.ty.as_str() {
            "object" if schema.additional_properties.is_some() => schema.max_properties.map(natural),
            "array" => schema.max_items.map(natural),
            _ => Some(1),
        };
        Self(self.0.zip(each).map(|(count, each)| count.saturating_mul(each)))
    }
}

/// The results of checking a schema's rules.
pub(super) struct RuleChecks {
    is_unchanged: bool,
    errors: Errors,
    total: u64,
    /// The paths and costs of the most expensive rules.
    expensive: Vec<(String, u64)>,
}

impl RuleChecks {
    pub(super) fn new(is_unchanged: bool) -> Self {
        Self { is_unchanged, errors: Errors::default(), total: 0, expensive: Vec::new() }
    }

    /// Compiles the rules of one schema. `no_old` is the enclosing part in which nothing has an old value.
    pub(super) fn check(
        &mut self,
        schema: &Props,
        is_root: bool,
        count: Count,
        no_old: Option<&str>,
        path: &Path<'_>,
    ) {
        let Some(declared) = declared::of(schema, is_root || schema.embedded_resource) else {
            let why = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            return self.errors.push(Reason::Internal, path, None, why);
        };
        let count = count.0.unwrap_or(REQUEST_BYTES / (declared.min_size + 1));
        for (index, compiled) in rules::compile(schema, &Arc::new(declared)).iter().enumerate() {
            if !compiled.rule.rule.trim().is_empty() {
                self.check_rule(compiled, count, no_old, &path.index(index));
            }
        }
    }

    fn check_rule(&mut self, compiled: &Compiled, count: u64, no_old: Option<&str>, path: &Path<'_>) {
        let (rule, at) = (&compiled.rule, path.child("rule"));
        match &compiled.program {
            Ok(program) => self.count(program, count, "estimated rule cost", &at),
            Err(why) => return self.invalid(&at, rule, why),
        }
        match &compiled.message {
            Some(Ok(program)) => {
                let at = path.child("messageExpression");
                self.count(program, 1, "estimated messageExpression cost", &at);
            }
            Some(Err(why)) => {
                self.invalid(&path.child("messageExpression"), rule, why);
            }
            None => {}
        }
        if let Some(part) = no_old.filter(|_| compiled.uses_old) {
            let detail =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {part}");
            self.errors.invalid(&at, rule.rule.as_str(), detail);
        }
        if let Some(is_optional) = rule.optional_old_self.filter(|_| !compiled.uses_old) {
            let detail = "may not be set if oldSelf is not used in rule";
            self.errors.invalid(&path.child("optionalOldSelf"), is_optional, detail);
        }
    }

    fn invalid(&mut self, at: &Path<'_>, rule: &Rule, why: &str) {
        self.errors.push(Reason::Invalid, at, None, format!("{}: {why}", shown(rule)));
    }

    fn count(&mut self, program: &Program, count: u64, what: &str, at: &Path<'_>) {
        let cost = program.max_cost().saturating_mul(count);
        if cost > RULE_LIMIT && !self.is_unchanged {
            self.errors.forbidden(at, too_expensive(what, cost, RULE_LIMIT));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_LIMIT / 100 {
            self.expensive.push((at.to_string(), cost));
            self.expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.expensive.truncate(NAMED);
        }
    }

    /// Returns all errors, including those about the rules as a whole.
    pub(super) fn finish(mut self, path: &Path<'_>) -> Errors {
        if self.total > SCHEMA_LIMIT {
            for (at, _) in std::mem::take(&mut self.expensive) {
                let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
                self.errors.forbidden(&Path::root(&at), detail);
            }
            let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
            self.errors.forbidden(path, too_expensive(what, self.total, SCHEMA_LIMIT));
        }
        self.errors
    }
}

fn too_expensive(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        _ if factor > 100.0 => "more than 100x".to_owned(),
        _ if factor < 1.5 => format!("{factor:.6}x"),
        _ => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// Formats a rule for messages, with its fields in order.
fn shown(rule: &Rule) -> String {
    let json = |text: &str| escaped(&Value::from(text).to_string());
    let reason = rule.reason.as_deref().map_or_else(|| "null".into(), json);
    let optional = rule.optional_old_self.map_or_else(|| "null".into(), |on| on.to_string());
    format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{reason},"FieldPath":{},"OptionalOldSelf":{optional}}}"#,
        json(&rule.rule),
        json(&rule.message),
        json(&rule.message_expression),
        json(&rule.field_path),
    )
}
