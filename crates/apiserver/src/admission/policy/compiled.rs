//! A policy with its compiled expressions, and their evaluation for a request.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::auth::aggregate;
use crate::cel::{CALL_LIMIT, Declared, Environment, Key, Program, Type, Val, Variables};
use crate::json::Json;
use crate::metadata;

/// Total CEL cost budget of a policy's expressions per request, as in v1.34.
const BUDGET: u64 = 10_000_000;
/// The conditions of one webhook together may cost this much for one request, as in v1.34.
const CONDITIONS_BUDGET: u64 = BUDGET / 4;
/// Maximum length of a message from a `messageExpression`, as in v1.34.
const MESSAGE_BYTES: usize = 5 << 10;

/// A failed validation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) reason: String,
    pub(super) message: String,
    /// Denies the request regardless of the binding's `validationActions`.
    pub(super) always_denies: bool,
    /// The index of the validation.
    pub(super) index: usize,
}

/// The result of evaluating a policy: failed validations and audit annotations.
#[derive(Debug, Default)]
pub(super) struct Evaluated {
    pub(super) decisions: Vec<Decision>,
    /// Keys and values of audit annotations.
    pub(super) annotations: Vec<(String, String)>,
}

impl From<Vec<Decision>> for Evaluated {
    fn from(decisions: Vec<Decision>) -> Self {
        Self { decisions, annotations: Vec::new() }
    }
}

pub(super) struct Compiled {
    pub(super) name: String,
    pub(super) constraints: Value,
    /// The group, version and kind of the policy's params.
    pub(super) parameters: Option<(String, String, String)>,
    /// Whether evaluation errors are ignored (`failurePolicy: Ignore`).
    ignores_failures: bool,
    rules: Result<Rules, String>,
}

struct Rules {
    variables: Vec<(Arc<str>, Expression)>,
    conditions: Conditions,
    validations: Vec<Validation>,
    /// Audit annotations, by key.
    annotations: Vec<(String, Expression)>,
}

/// Match conditions of a policy or a webhook.
pub(in crate::admission) struct Conditions(Vec<Expression>);

struct Expression {
    text: String,
    program: Program,
}

struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: String,
}

impl Compiled {
    pub(super) fn new(policy: &Value) -> Self {
        let spec = policy.at("spec");
        let kind = spec.at("paramKind");
        let version = kind.text("apiVersion");
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let parameters = (group.to_owned(), version.to_owned(), kind.text("kind").to_owned());
        Self {
            name: metadata::of(policy).text("name").to_owned(),
            constraints: spec.at("matchConstraints").clone(),
            parameters: (!kind.is_null()).then_some(parameters),
            ignores_failures: spec.text("failurePolicy") == "Ignore",
            rules: Rules::new(spec),
        }
    }

    /// Decides what an evaluation error means (failurePolicy).
    pub(super) fn failed(&self, why: &str) -> Vec<Decision> {
        match self.ignores_failures {
            true => Vec::new(),
            false => {
                let message = why.to_owned();
                vec![Decision { reason: String::new(), message, always_denies: false, index: 0 }]
            }
        }
    }

    /// Decides what a binding without params means (parameterNotFoundAction), or one with another configuration error:
    /// denies the request if the failure policy is Fail.
    pub(super) fn misconfigured(&self, why: &str) -> Vec<Decision> {
        self.failed(why).into_iter().map(|failed| Decision { always_denies: true, ..failed }).collect()
    }

    /// Evaluates the policy for a request.
    pub(super) fn evaluate(&self, variables: &Variables) -> Evaluated {
        let rules = match &self.rules {
            Ok(rules) => rules,
            Err(why) => return self.failed(why).into(),
        };
        let mut budget = BUDGET;
        let variables = rules.with_own(variables, &mut budget);
        match rules.conditions.all(&variables, &mut budget) {
            Ok(true) => {}
            Ok(false) => return Evaluated::default(),
            Err(failures) => return self.failed(&aggregate(&failures).unwrap_or_default()).into(),
        }
        let mut decisions = Vec::new();
        for (index, validation) in rules.validations.iter().enumerate() {
            match validation.expression.evaluate(&variables, &mut budget) {
                Ok(Val::Bool(true)) => {}
                Ok(_) => {
                    decisions.push(Decision { index, ..validation.denial(&variables, &mut budget) });
                }
                Err(why) => {
                    decisions.extend(self.failed(&why).into_iter().map(|one| Decision { index, ..one }));
                }
            }
        }
        let mut annotations = Vec::new();
        for (key, expression) in &rules.annotations {
            match noted(expression, &variables, &mut budget) {
                Ok(Some(value)) => annotations.push((key.clone(), value)),
                Ok(None) => {}
                Err(Unnoted::Failed(why)) => {
                    decisions.extend(self.misconfigured(&why));
                }
                Err(Unnoted::NoText(message)) => {
                    decisions.push(Decision {
                        reason: String::new(),
                        message,
                        always_denies: true,
                        index: 0,
                    });
                }
            }
        }
        Evaluated { decisions, annotations }
    }
}

/// Why an annotation has no value.
enum Unnoted {
    /// The failure policy decides.
    Failed(String),
    /// The result is neither a string nor null, which always denies the request.
    NoText(String),
}

/// Maximum length of an annotation's value, as in v1.34.
const ANNOTATION_BYTES: usize = 10 << 10;

/// Evaluates an audit annotation; `None` if the value is empty or null.
fn noted(
    expression: &Expression,
    variables: &Variables,
    budget: &mut u64,
) -> Result<Option<String>, Unnoted> {
    match expression.evaluate(variables, budget).map_err(Unnoted::Failed)? {
        Val::Null => Ok(None),
        Val::String(text) => {
            let text = text.trim();
            let mut end = text.len().min(ANNOTATION_BYTES);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            Ok((!text.is_empty()).then(|| text[..end].to_owned()))
        }
        _ => Err(Unnoted::NoText(format!(
            "valueExpression '{}' resulted in unsupported return type. Return type must be either string or null.",
            expression.text
        ))),
    }
}

impl Rules {
    fn new(spec: &Value) -> Result<Self, String> {
        let environment = environment();
        let compile = |text: &str| Expression::compile(&environment, text);
        let named =
            |variable: &Value| Ok((variable.text("name").into(), compile(variable.text("expression"))?));
        Ok(Self {
            variables: spec.list("variables").iter().map(named).collect::<Result<_, String>>()?,
            conditions: Conditions::new(spec.list("matchConditions"))?,
            validations: spec
                .list("validations")
                .iter()
                .map(|validation| Validation::new(validation, &compile))
                .collect::<Result<_, String>>()?,
            annotations: spec
                .list("auditAnnotations")
                .iter()
                .map(|annotation| {
                    let key = annotation.text("key").to_owned();
                    Ok((key, compile(annotation.text("valueExpression"))?))
                })
                .collect::<Result<_, String>>()?,
        })
    }

    /// Adds the policy's own variables, in declaration order. One that fails to evaluate is missing where it is used.
    fn with_own(&self, variables: &Variables, budget: &mut u64) -> Variables {
        let mut all = variables.clone();
        let mut own: BTreeMap<Key, Val> = BTreeMap::new();
        for (name, expression) in &self.variables {
            all.insert("variables", Val::Map(Arc::new(own.clone())));
            if let Ok(value) = expression.evaluate(&all, budget) {
                own.insert(Key::String(name.clone()), value);
            }
        }
        all.insert("variables", Val::Map(Arc::new(own)));
        all
    }
}

impl Conditions {
    pub(in crate::admission) fn new(conditions: &[Value]) -> Result<Self, String> {
        let environment = environment();
        let compile = |one: &Value| Expression::compile(&environment, one.text("expression"));
        conditions.iter().map(compile).collect::<Result<_, _>>().map(Self)
    }

    /// Whether all hold of a request. One that does not counts more than those that fail.
    pub(in crate::admission) fn hold(&self, variables: &Variables) -> Result<bool, Vec<String>> {
        let mut budget = CONDITIONS_BUDGET;
        self.all(variables, &mut budget)
    }

    pub(in crate::admission) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn all(&self, variables: &Variables, budget: &mut u64) -> Result<bool, Vec<String>> {
        let mut failures = Vec::new();
        for condition in &self.0 {
            match condition.evaluate(variables, budget) {
                Ok(Val::Bool(true)) => {}
                Ok(_) => return Ok(false),
                Err(why) => failures.push(why),
            }
        }
        if failures.is_empty() { Ok(true) } else { Err(failures) }
    }
}

/// Declares the variables available to policy expressions.
fn environment() -> Environment {
    let open = || Arc::new(Declared::plain(Type::Dyn));
    let names = ["object", "oldObject", "params", "namespaceObject", "request", "variables"];
    let opaque = |name: &str| Arc::new(Declared::plain(Type::opaque(name)));
    let environment = Environment::new()
        .with("authorizer", opaque("kubernetes.authorization.Authorizer"))
        .with("authorizer.requestResource", opaque("kubernetes.authorization.ResourceCheck"));
    names.into_iter().fold(environment, |environment, name| environment.with(name, open()))
}

impl Expression {
    fn compile(environment: &Environment, text: &str) -> Result<Self, String> {
        let program = environment.compile(text);
        let program = program.map_err(|why| format!("compilation error: compilation failed: {why}"))?;
        Ok(Self { text: text.to_owned(), program })
    }

    /// Evaluates the expression and charges its cost to the budget.
    fn evaluate(&self, variables: &Variables, budget: &mut u64) -> Result<Val, String> {
        let (value, cost) = self.program.evaluate(variables, CALL_LIMIT.min(*budget));
        *budget = budget.saturating_sub(cost);
        value.map_err(|why| format!("expression '{}' resulted in error: {why}", self.text))
    }
}

impl Validation {
    fn new(
        validation: &Value,
        compile: &impl Fn(&str) -> Result<Expression, String>,
    ) -> Result<Self, String> {
        let message_expression = match validation.text("messageExpression") {
            "" => None,
            text => Some(compile(text)?),
        };
        Ok(Self {
            expression: compile(validation.text("expression"))?,
            message: validation.text("message").trim().to_owned(),
            message_expression,
            reason: validation.text("reason").to_owned(),
        })
    }

    fn denial(&self, variables: &Variables, budget: &mut u64) -> Decision {
        let made = self.message_expression.as_ref().and_then(|expression| {
            match expression.evaluate(variables, budget) {
                Ok(Val::String(text)) => Some(text.trim().to_owned()),
                _ => None,
            }
        });
        let is_usable =
            |text: &String| !text.is_empty() && text.len() <= MESSAGE_BYTES && !text.contains('\n');
        let said = Some(self.message.clone()).filter(|message| !message.is_empty());
        let message = made.filter(is_usable).or(said);
        let text = self.expression.text.trim();
        Decision {
            reason: self.reason.clone(),
            message: message.unwrap_or_else(|| format!("failed expression: {text}")),
            always_denies: false,
            index: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(spec: Value, object: Value, expected: &[&str]) {
        let compiled = Compiled::new(&json!({"spec": spec}));
        let variables = Variables::from([("object", Val::of_json(&object)), ("params", Val::Null)]);
        let found = compiled.evaluate(&variables).decisions.into_iter().map(|one| one.message);
        let found: Vec<String> = found.collect();
        assert_eq!(found, expected, "{spec}");
    }

    #[test]
    fn what_does_not_hold_is_told_in_the_words_of_the_policy() {
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
        let failing = json!({"message": "no", "messageExpression": "object.none"});
        check(rule(failing), object, &["no"]);
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
    fn what_fails_is_refused_or_ignored_as_the_policy_says() {
        let spec = |policy: &str| json!({"failurePolicy": policy, "validations": [{"expression": "object.none == 1"}]});
        check(spec("Ignore"), json!({}), &[]);
        check(
            spec("Fail"),
            json!({}),
            &["expression 'object.none == 1' resulted in error: no such key: none"],
        );
    }

    #[test]
    fn annotations_are_noted_unless_they_are_null_or_empty() {
        let annotation = |key: &str, value: &str| json!({"key": key, "valueExpression": value});
        let spec = json!({"auditAnnotations": [
            annotation("name", "' ' + object.name"),
            annotation("nothing", "null"),
            annotation("blank", "'  '"),
        ]});
        let compiled = Compiled::new(&json!({"spec": spec}));
        let variables = Variables::from([("object", Val::of_json(&json!({"name": "a"})))]);
        let evaluated = compiled.evaluate(&variables);
        assert_eq!(evaluated.annotations, [("name".to_owned(), "a".to_owned())]);
        assert_eq!(evaluated.decisions, []);
    }

    #[test]
    fn an_expression_beyond_its_budget_is_refused() {
        let items: Vec<u32> = (0..2000).collect();
        let nested = "object.items.all(a, object.items.all(b, object.items.all(c, a + b + c >= 0)))";
        let spec = json!({"validations": [{"expression": nested}]});
        let why = format!(
            "expression '{nested}' resulted in error: operation cancelled: actual cost limit exceeded"
        );
        check(spec, json!({"items": items}), &[&why]);
    }
}
