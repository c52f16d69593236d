//! A validating policy with its compiled expressions, and their evaluation for a request.

use std::time::Duration;

use serde_json::Value;
use setpoint_clock::Clock;

use crate::admission::policy::expression::{
    BUDGET, Conditions, Evaluation, Expression, Failure, OUT_OF_BUDGET,
};
use crate::admission::policy::source::Compile;
use crate::admission::policy::variables::Declarations;
use crate::cel::{Type, Val, Variables};
use crate::json::Json;
use crate::kinds::admissionregistration::expressions::{Compiler, ExtraVariables};
use crate::kinds::admissionregistration::policy;

/// Maximum length of a message from a `messageExpression`, as in v1.34.
const MESSAGE_BYTES: usize = 5 << 10;
/// Maximum length of an annotation's value, as in v1.34.
const ANNOTATION_BYTES: usize = 10 << 10;

/// A failed validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// Whether the request is allowed nevertheless, because the failure policy ignores errors.
    pub(super) is_ignored: bool,
    pub(super) reason: String,
    pub(super) message: String,
    /// The index of the validation.
    pub(super) index: usize,
    /// How long the validation took.
    pub(super) took: Duration,
}

/// An audit annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Annotation {
    Value {
        key: String,
        value: String,
    },
    /// Its error denies the request.
    Error {
        message: String,
        took: Duration,
    },
}

/// The result of evaluating a policy: failed validations and audit annotations.
#[derive(Debug, Default)]
pub(super) struct Evaluated {
    pub(super) decisions: Vec<Decision>,
    pub(super) annotations: Vec<Annotation>,
}

/// The compiled expressions of a policy.
pub(in crate::admission::policy) struct Validations {
    declared: Declarations,
    pub(super) conditions: Conditions,
    validations: Vec<Validation>,
    /// Audit annotations, by key.
    annotations: Vec<(String, Expression)>,
}

struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: String,
}

impl Compile for Validations {
    fn compile(spec: &Value) -> Self {
        let (mut compiler, about) = (Compiler::new(true), policy::about(spec));
        let declared = Declarations::compile(spec.list("variables"), &mut compiler, about);
        let (compiler, declared) = (&compiler, declared);
        let compile = |text: &str, about: ExtraVariables, types: &[Type]| {
            Expression::compile(text, compiler, &declared, about, types)
        };
        let validation = |validation: &Value| {
            let about_message = ExtraVariables { authorizer: false, ..about };
            let message_expression = match validation.text("messageExpression") {
                "" => None,
                text => Some(compile(text, about_message, &[Type::String])),
            };
            Validation {
                expression: compile(validation.text("expression"), about, &[Type::Bool]),
                message: validation.text("message").trim().to_owned(),
                message_expression,
                reason: validation.text("reason").to_owned(),
            }
        };
        let annotation = |annotation: &Value| {
            let value = compile(annotation.text("valueExpression"), about, &[Type::String, Type::Null]);
            (annotation.text("key").to_owned(), value)
        };
        Self {
            conditions: Conditions::new(spec.list("matchConditions"), compiler, &declared, about),
            validations: spec.list("validations").iter().map(validation).collect(),
            annotations: spec.list("auditAnnotations").iter().map(annotation).collect(),
            declared,
        }
    }
}

impl Validations {
    /// Evaluates a policy whose conditions hold. Errors deny the request unless the failure policy ignores them.
    pub(super) fn evaluate(&self, values: &Variables, ignores_failures: bool, clock: &Clock) -> Evaluated {
        let failed = |index: usize, message: String, took: Duration| Decision {
            is_ignored: ignores_failures,
            reason: String::new(),
            message,
            index,
            took,
        };
        let spent = || {
            let decisions = vec![failed(0, OUT_OF_BUDGET.into(), Duration::ZERO)];
            Evaluated { decisions, annotations: Vec::new() }
        };
        let Ok((results, left)) = self.results(values, clock) else { return spent() };
        let messages = self.messages(unauthorized(values), left);
        let mut decisions = Vec::new();
        for (index, (validation, (result, took))) in self.validations.iter().zip(results).enumerate() {
            match (result, &messages) {
                (Err(why), _) => decisions.push(failed(index, why, took)),
                (Ok(_), Err(Failure::OutOfBudget)) => {
                    let message = format!("failed messageExpression: {OUT_OF_BUDGET}");
                    decisions.push(failed(index, message, took));
                }
                (Ok(true), _) => {}
                (Ok(false), messages) => {
                    let made = messages.as_ref().ok().and_then(|messages| messages.get(index)?.clone());
                    let message = validation.message(made);
                    let reason = validation.reason.clone();
                    decisions.push(Decision { is_ignored: false, reason, message, index, took });
                }
            }
        }
        match self.annotations(values, ignores_failures, clock) {
            Some(annotations) => Evaluated { decisions, annotations },
            None => spent(),
        }
    }

    /// Evaluates all validations. Returns the result and duration of each, and the remaining budget.
    fn results(&self, values: &Variables, clock: &Clock) -> Result<(Vec<Outcome>, u64), Failure> {
        let mut evaluation = Evaluation::new(&self.declared, values.clone(), BUDGET);
        let mut results = Vec::with_capacity(self.validations.len());
        for validation in &self.validations {
            let (value, took) = evaluation.timed(&validation.expression, clock);
            let result = match value {
                Ok(value) => Ok(value == Val::Bool(true)),
                Err(Failure::Failed(why)) => Err(why),
                Err(spent) => return Err(spent),
            };
            results.push((result, took));
        }
        Ok((results, evaluation.left()))
    }

    /// Evaluates the message expressions, even if all validations hold, as in v1.34: if that spends the budget, the request
    /// is denied.
    fn messages(&self, values: Variables, budget: u64) -> Result<Vec<Option<String>>, Failure> {
        let mut evaluation = Evaluation::new(&self.declared, values, budget);
        let expressions = self.validations.iter().map(|validation| validation.message_expression.as_ref());
        let message = |expression: Option<&Expression>| match expression.map(|one| evaluation.evaluate(one)) {
            Some(Ok(Val::String(text))) => Ok(Some(text.trim().to_owned())),
            Some(Err(spent @ Failure::OutOfBudget)) => Err(spent),
            _ => Ok(None),
        };
        expressions.map(message).collect()
    }

    /// Evaluates the audit annotations, with a separate budget. `None` if it is spent.
    fn annotations(
        &self,
        values: &Variables,
        ignores_failures: bool,
        clock: &Clock,
    ) -> Option<Vec<Annotation>> {
        if self.annotations.is_empty() {
            return Some(Vec::new());
        }
        let mut evaluation = Evaluation::new(&self.declared, unauthorized(values), BUDGET);
        let mut annotations = Vec::new();
        for (key, expression) in &self.annotations {
            let (value, took) = evaluation.timed(expression, clock);
            match value {
                Ok(Val::Null) => {}
                Ok(Val::String(text)) if text.trim().is_empty() => {}
                Ok(Val::String(text)) => {
                    let value = shortened(text.trim(), ANNOTATION_BYTES).to_owned();
                    annotations.push(Annotation::Value { key: key.clone(), value });
                }
                Ok(other) => {
                    let message = format!(
                        "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either \
                         string or null.",
                        expression.text,
                        other.type_name()
                    );
                    annotations.push(Annotation::Error { message, took });
                }
                Err(Failure::Failed(_)) if ignores_failures => {}
                Err(Failure::Failed(message)) => annotations.push(Annotation::Error { message, took }),
                Err(Failure::OutOfBudget) => return None,
            }
        }
        Some(annotations)
    }
}

/// Whether a validation holds, or why it failed, and how long that took.
type Outcome = (Result<bool, String>, Duration);

/// Messages and annotations cannot use the authorizer.
fn unauthorized(values: &Variables) -> Variables {
    let mut values = values.clone();
    values.remove("authorizer");
    values.remove("authorizer.requestResource");
    values
}

/// Truncates a string to a length in bytes.
fn shortened(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl Validation {
    /// Returns the message of a denial: the result of `messageExpression`, `message`, or else the expression.
    fn message(&self, made: Option<String>) -> String {
        let is_usable =
            |text: &String| !text.is_empty() && text.len() <= MESSAGE_BYTES && !text.contains('\n');
        let written = Some(self.message.clone()).filter(|message| !message.is_empty());
        let message = made.filter(is_usable).or(written);
        message.unwrap_or_else(|| format!("failed expression: {}", self.expression.text.trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn evaluate(spec: &Value, object: &Value) -> Evaluated {
        let values = Variables::from([
            ("object", Val::of_json(object)),
            ("oldObject", Val::Null),
            ("params", Val::Null),
            ("request", Val::of_json(&json!({}))),
        ]);
        let compiled = Validations::compile(spec);
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        match compiled.conditions.hold(&values) {
            Ok(true) => compiled.evaluate(&values, spec.text("failurePolicy") == "Ignore", &clock),
            Ok(false) => Evaluated::default(),
            Err(undecided) => panic!("{:?}", undecided.failures),
        }
    }

    fn check(spec: Value, object: Value, expected: &[&str]) {
        let decisions = evaluate(&spec, &object).decisions.into_iter().filter(|one| !one.is_ignored);
        let found: Vec<String> = decisions.map(|one| one.message).collect();
        assert_eq!(found, expected, "{spec}");
    }

    #[test]
    fn failed_validations_have_the_policys_message() {
        let object = json!({"name": "bad", "count": 3});
        let rule = |extra: Value| {
            let mut rule = json!({"expression": "object.name != 'bad'"});
            rule.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            json!({"validations": [rule]})
        };
        check(rule(json!({})), object.clone(), &["failed expression: object.name != 'bad'"]);
        check(rule(json!({"message": " no "})), object.clone(), &["no"]);
        let made = json!({"message": "no", "messageExpression": "'name ' + object.name"});
        check(rule(made), object.clone(), &["name bad"]);
        for unusable in ["object.none", "'a\\nb'", "' '", "object.long"] {
            let mut object = object.clone();
            object["long"] = "x".repeat(MESSAGE_BYTES + 1).into();
            let failing = json!({"message": "no", "messageExpression": format!("string({unusable})")});
            check(rule(failing), object, &["no"]);
        }
        check(rule(json!({})), json!({"name": "good"}), &[]);
    }

    #[test]
    fn conditions_come_first_and_variables_are_shared() {
        let spec = json!({
            "variables": [{"name": "big", "expression": "object.count > 2"}],
            "matchConditions": [{"name": "c", "expression": "object.name == 'a'"}],
            "validations": [{"expression": "!variables.big"}],
        });
        check(spec.clone(), json!({"name": "a", "count": 3}), &["failed expression: !variables.big"]);
        check(spec.clone(), json!({"name": "b", "count": 3}), &[]);
        check(spec, json!({"name": "a", "count": 1}), &[]);
    }

    #[test]
    fn failures_follow_the_failure_policy() {
        let spec = |policy: &str| json!({"failurePolicy": policy, "validations": [{"expression": "object.none == 1"}]});
        check(spec("Ignore"), json!({}), &[]);
        check(
            spec("Fail"),
            json!({}),
            &["expression 'object.none == 1' resulted in error: no such key: none"],
        );
    }

    #[test]
    fn a_message_expression_over_budget_fails_the_validation() {
        let expensive = "string(lists.range(1000).all(x, lists.range(100).all(y, y >= 0)))";
        let validation = json!({"expression": "true", "messageExpression": expensive});
        let spec = |count: usize| json!({"validations": vec![validation.clone(); count]});
        check(spec(1), json!({}), &[]);
        let why = format!("failed messageExpression: {OUT_OF_BUDGET}");
        check(spec(100), json!({}), &vec![why.as_str(); 100]);
    }

    #[test]
    fn an_expression_that_does_not_compile_fails_alone() {
        let spec = json!({"validations": [{"expression": "object."}, {"expression": "object.n == 1"}]});
        let decisions = evaluate(&spec, &json!({"n": 2})).decisions;
        assert!(decisions[0].message.starts_with("compilation error: compilation failed: ERROR: <input>"));
        assert_eq!(decisions[1].message, "failed expression: object.n == 1");
    }

    #[test]
    fn annotations_are_noted_unless_they_are_null_or_empty() {
        let annotation = |key: &str, value: &str| json!({"key": key, "valueExpression": value});
        let spec = json!({"auditAnnotations": [
            annotation("name", "' ' + object.name"),
            annotation("nothing", "null"),
            annotation("blank", "'  '"),
            annotation("user", "string(authorizer.path('/').check('get').allowed())"),
        ]});
        let evaluated = evaluate(&spec, &json!({"name": "a"}));
        let error = |message: &str| Annotation::Error { message: message.into(), took: Duration::ZERO };
        let untimed = evaluated.annotations.into_iter().map(|annotation| match annotation {
            Annotation::Error { message, .. } => error(&message),
            other => other,
        });
        assert_eq!(
            untimed.collect::<Vec<_>>(),
            [
                Annotation::Value { key: "name".into(), value: "a".into() },
                error(
                    "expression 'string(authorizer.path('/').check('get').allowed())' resulted in error: no such \
                   attribute(s): authorizer"
                ),
            ]
        );
        assert_eq!(evaluated.decisions, []);
    }

    #[test]
    fn an_expression_beyond_its_budget_is_refused() {
        let items: Vec<u32> = (0..2000).collect();
        let nested = "object.items.all(a, object.items.all(b, object.items.all(c, a + b + c >= 0)))";
        let why = format!(
            "expression '{nested}' resulted in error: operation cancelled: actual cost limit exceeded"
        );
        let one = json!({"validations": [{"expression": nested}]});
        check(one, json!({"items": items.clone()}), &[&why]);
        // Together they spend the budget, and none of them counts.
        let many = json!({"validations": vec![json!({"expression": nested}); 20]});
        check(many, json!({"items": items}), &[OUT_OF_BUDGET]);
    }
}
