//! Validates the pod failure and success policies of jobs.

use std::collections::BTreeSet;

use serde_json::Value;

use super::indexes;
use crate::declared;
use crate::field::{Errors, Path, Reason};
use crate::json::Json;
use crate::validation::{Seen, nonnegative, qualified_name, too_long, too_many};

const MAX_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;
const MAX_PATTERNS: usize = 20;
const INDEXES_BYTES: usize = 64 << 10;
const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// Validates the pod failure policy.
pub(super) fn check_failure(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rules = spec.at("podFailurePolicy").list("rules");
    let path = path.child("rules");
    if rules.len() > MAX_RULES {
        too_many(rules.len(), MAX_RULES, &path, errors);
    }
    let pod = spec.at("template").at("spec");
    let containers = ["containers", "initContainers"].into_iter().flat_map(|list| pod.list(list));
    let containers: BTreeSet<&str> = containers.map(|container| container.text("name")).collect();
    for (index, rule) in rules.iter().enumerate() {
        check_rule(spec, &containers, rule, &path.index(index), errors);
    }
}

fn check_rule(spec: &Value, containers: &BTreeSet<&str>, rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let action = rule.text("action");
    if action == "FailIndex" {
        if !spec.has("backoffLimitPerIndex") {
            errors.invalid(&path.child("action"), action, "requires the backoffLimitPerIndex to be set");
        }
    } else {
        one_of(action, &ACTIONS, &path.child("action"), errors);
    }
    let (codes, conditions) = (rule.at("onExitCodes"), rule.list("onPodConditions"));
    if !codes.is_null() {
        check_exit_codes(containers, codes, &path.child("onExitCodes"), errors);
    }
    if !conditions.is_empty() {
        check_conditions(conditions, &path.child("onPodConditions"), errors);
    }
    let detail = match (!codes.is_null(), !conditions.is_empty()) {
        (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    errors.push(Reason::Invalid, path, None, detail);
}

/// Requires one of a few values; the error lists them.
fn one_of(word: &str, supported: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if word.is_empty() {
        let quoted: Vec<String> = supported.iter().map(|word| format!("{word:?}")).collect();
        errors.required(path, format!("valid values: [{}]", quoted.join(" ")));
    } else if !supported.contains(&word) {
        errors.not_supported(path, word, supported);
    }
}

fn check_exit_codes(containers: &BTreeSet<&str>, codes: &Value, path: &Path<'_>, errors: &mut Errors) {
    one_of(codes.text("operator"), &OPERATORS, &path.child("operator"), errors);
    if let Some(name) = codes.at("containerName").as_str().filter(|name| !containers.contains(name)) {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.invalid(&path.child("containerName"), name, detail);
    }
    let values = codes.list("values");
    let path = path.child("values");
    if values.is_empty() {
        errors.invalid(&path, codes.at("values").clone(), "at least one value is required");
    } else if values.len() > MAX_EXIT_CODES {
        too_many(values.len(), MAX_EXIT_CODES, &path, errors);
    }
    let values: Vec<i64> = values.iter().filter_map(Value::as_i64).collect();
    let mut seen = Seen::new();
    for (index, value) in values.iter().enumerate() {
        if codes.text("operator") == "In" && *value == 0 {
            errors.invalid(&path.index(index), *value, "must not be 0 for the In operator");
        }
        if seen.again(*value) {
            errors.duplicate(&path.index(index), *value);
        }
    }
    if !values.is_sorted() {
        errors.invalid(&path, codes.at("values").clone(), "must be ordered");
    }
}

fn check_conditions(patterns: &[Value], path: &Path<'_>, errors: &mut Errors) {
    if patterns.len() > MAX_PATTERNS {
        too_many(patterns.len(), MAX_PATTERNS, path, errors);
    }
    for (index, pattern) in patterns.iter().enumerate() {
        let path = path.index(index);
        qualified_name(pattern.text("type"), &path.child("type"), errors);
        one_of(pattern.text("status"), &STATUSES, &path.child("status"), errors);
    }
}

/// Validates the success policy.
pub(super) fn check_success(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let policy = spec.at("successPolicy");
    if policy.is_null() {
        return;
    }
    if spec.text("completionMode") != "Indexed" {
        let shown = declared::of(policy, &declared::SUCCESS_POLICY);
        return errors.invalid(path, shown, "requires indexed completion mode");
    }
    let path = path.child("rules");
    let rules = policy.list("rules");
    if rules.is_empty() {
        errors.required(&path, "at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > MAX_RULES {
        too_many(rules.len(), MAX_RULES, &path, errors);
    }
    for (index, rule) in rules.iter().enumerate() {
        check_success_rule(rule, spec.count("completions"), &path.index(index), errors);
    }
}

fn check_success_rule(rule: &Value, completions: i64, path: &Path<'_>, errors: &mut Errors) {
    let (count, listed) = (rule.int("succeededCount"), rule.at("succeededIndexes").as_str());
    if count.is_none() && listed.is_none() {
        errors.required(path, "at least one of succeededCount or succeededIndexes must be specified");
    }
    let mut total = 0;
    if let Some(listed) = listed {
        let path = path.child("succeededIndexes");
        if listed.len() > INDEXES_BYTES {
            too_long(INDEXES_BYTES, &path, errors);
        }
        match indexes::count(listed, completions) {
            Ok(count) => total = count,
            Err(why) => errors.invalid(&path, listed, format!("error parsing succeededIndexes: {why}")),
        }
    }
    let Some(count) = count else { return };
    let path = path.child("succeededCount");
    nonnegative(count, &path, errors);
    let bounds = [
        (completions, true, "the number of specified completions"),
        (total, listed.is_some(), "the number of indexes in the specified succeededIndexes field"),
    ];
    for (most, applies, what) in bounds {
        if applies && count > most {
            errors.invalid(&path, count, format!("must be less than or equal to {most} ({what})"));
        }
    }
}
