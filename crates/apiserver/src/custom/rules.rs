//! The validation rules of a schema (`x-kubernetes-validations`): compiled once, checked on every write.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::props::{Props, Rule};
use super::{correlate, declared, field_path};
use crate::cel::{CALL_LIMIT, Declared, Environment, EvalError, Program, Type, Val, Variables};
use crate::field::{Errors, FieldError, Reason, shown_path};
use crate::server::MAX_WARNINGS;

/// Total CEL cost budget of all rules per object, as in v1.34.
const BUDGET: u64 = 10_000_000;
/// Maximum length of a message from a `messageExpression`.
const MAX_MESSAGE: usize = 5 << 10;

/// A rule, whether it compiled or not.
pub(crate) struct Compiled {
    pub(crate) rule: Rule,
    pub(crate) program: Result<Program, String>,
    pub(crate) message: Option<Result<Program, String>>,
    pub(crate) uses_old: bool,
    /// The path of its errors, relative to the rule's schema.
    field: String,
}

/// Compiles the rules of one schema, without its subschemas.
pub(crate) fn compile(schema: &Props, declared: &Arc<Declared>) -> Vec<Compiled> {
    let plain = Environment::new().with("self", declared.clone());
    let old = plain.clone().with("oldSelf", declared.clone());
    let optional = Declared { ty: Type::optional(declared.ty.clone()), ..(**declared).clone() };
    let optional_old = plain.with("oldSelf", Arc::new(optional));
    let rules = schema.validations.iter();
    rules
        .map(|rule| {
            let environment = if rule.optional_old_self == Some(true) { &optional_old } else { &old };
            compile_rule(rule, schema, environment)
        })
        .collect()
}

fn compile_rule(rule: &Rule, schema: &Props, environment: &Environment) -> Compiled {
    let program = environment.compile(&rule.rule).map_err(|why| format!("compilation failed: {why}"));
    let program = program.and_then(|program| match program.output() {
        Type::Bool => Ok(program),
        _ => Err("cel expression must evaluate to a bool".to_owned()),
    });
    let message = (!rule.message_expression.is_empty()).then(|| {
        let compiled = environment.compile(&rule.message_expression);
        let compiled = compiled.map_err(|why| format!("messageExpression compilation failed: {why}"));
        compiled.and_then(|program| match program.output() {
            Type::String => Ok(program),
            _ => Err("messageExpression must evaluate to a string".to_owned()),
        })
    });
    let uses_old = program.as_ref().is_ok_and(|program| program.uses("oldSelf"));
    let field = match rule.field_path.as_str() {
        "" => String::new(),
        written => field_path::follow(written, schema, true).map(|(path, _)| path).unwrap_or_default(),
    };
    Compiled { rule: rule.clone(), program, message, uses_old, field }
}

/// The rules of a schema and all its subschemas.
pub(crate) struct Rules {
    ty: String,
    declared: Arc<Declared>,
    rules: Vec<Compiled>,
    properties: BTreeMap<String, Rules>,
    additional: Option<Box<Rules>>,
    items: Option<Box<Rules>>,
    /// The list's schema, for correlating its items.
    list: Props,
}

impl Rules {
    /// Returns `None` for a schema without rules.
    pub(crate) fn of(schema: &Props, is_resource: bool) -> Option<Self> {
        let has_rules = schema.any(&mut |part| !part.validations.is_empty());
        let declared = declared::of(schema, is_resource).filter(|_| has_rules)?;
        let declared = Arc::new(declared);
        let below = |part: &Props| Self::of(part, part.embedded_resource);
        let properties = schema.properties.iter();
        let rules = Self {
            ty: schema.ty.clone(),
            rules: compile(schema, &declared),
            properties: properties.filter_map(|(name, part)| Some((name.clone(), below(part)?))).collect(),
            additional: schema.additional().and_then(below).map(Box::new),
            items: schema.item().and_then(below).map(Box::new),
            list: Props {
                list_type: schema.list_type.clone(),
                list_map_keys: schema.list_map_keys.clone(),
                ..Props::default()
            },
            declared,
        };
        let is_needed = !rules.rules.is_empty()
            || !rules.properties.is_empty()
            || rules.additional.is_some()
            || rules.items.is_some();
        is_needed.then_some(rules)
    }

    /// Checks an object. Warnings are about values that an update leaves unchanged.
    pub(crate) fn check(&self, at: &str, object: &Value, old: Option<&Value>) -> (Errors, Vec<String>) {
        let mut checking = Checking { budget: BUDGET, errors: Errors::default(), warnings: Vec::new() };
        let ratchet = Ratchet { current: old.map(|old| (object, old)), parent: None };
        let _ = checking.value(self, at, object, old, ratchet);
        (checking.errors, checking.warnings)
    }
}

/// Decides whether an error existed before: the value is unchanged or, if it has no old value, its nearest ancestor
/// with an old value is.
#[derive(Clone, Copy)]
struct Ratchet<'v> {
    current: Option<(&'v Value, &'v Value)>,
    parent: Option<(&'v Value, &'v Value)>,
}

impl<'v> Ratchet<'v> {
    fn is_unchanged(self) -> bool {
        self.current.or(self.parent).is_some_and(|(new, old)| new == old)
    }

    fn below(self, new: &'v Value, old: Option<&'v Value>) -> Self {
        match self.current {
            None => self,
            Some(current) => Self { current: old.map(|old| (new, old)), parent: Some(current) },
        }
    }
}

/// The budget is used up; checking stops.
struct Spent;

struct Checking {
    budget: u64,
    errors: Errors,
    warnings: Vec<String>,
}

impl Checking {
    fn value<'v>(
        &mut self,
        rules: &Rules,
        at: &str,
        value: &'v Value,
        old: Option<&'v Value>,
        ratchet: Ratchet<'v>,
    ) -> Result<(), Spent> {
        if value.is_null() {
            return Ok(());
        }
        let at = shown_path(at);
        let old = old.filter(|old| !old.is_null());
        self.rules(rules, at, value, old, ratchet)?;
        match value {
            Value::Array(items) => {
                let Some(below) = &rules.items else { return Ok(()) };
                let before = correlate::Items::of(&rules.list, old);
                for (index, item) in items.iter().enumerate() {
                    let old = before.find(item);
                    self.value(below, &format!("{at}[{index}]"), item, old, ratchet.below(item, old))?;
                }
            }
            Value::Object(fields) => {
                for (name, field) in fields {
                    let old = correlate::field(name, old);
                    // A version change is not visible here, so these fields never count as unchanged.
                    let is_type = ratchet.parent.is_none() && matches!(name.as_str(), "apiVersion" | "kind");
                    let ratchet = match is_type {
                        true => Ratchet { current: None, parent: None },
                        false => ratchet.below(field, old),
                    };
                    if let Some(below) = &rules.additional {
                        self.value(below, &format!("{at}[{name}]"), field, old, ratchet)?;
                    }
                    if let Some(below) = rules.properties.get(name) {
                        self.value(below, &child(at, name), field, old, ratchet)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn rules(
        &mut self,
        rules: &Rules,
        at: &str,
        value: &Value,
        old: Option<&Value>,
        ratchet: Ratchet<'_>,
    ) -> Result<(), Spent> {
        if rules.rules.is_empty() {
            return Ok(());
        }
        if self.budget == 0 {
            return Err(self.out_of_budget(rules, at));
        }
        let this = Val::typed(value, &rules.declared);
        let before = rules.rules.iter().any(|rule| rule.uses_old).then_some(old).flatten();
        let before = before.map(|old| Val::typed(old, &rules.declared));
        for compiled in &rules.rules {
            self.rule(rules, compiled, at, &this, before.as_ref(), ratchet)?;
        }
        Ok(())
    }

    fn out_of_budget(&mut self, rules: &Rules, at: &str) -> Spent {
        let detail =
            "validation failed due to running out of cost budget, no further validation rules will be run";
        self.push(Reason::Invalid, at, &rules.ty, detail.into());
        Spent
    }

    fn push(&mut self, reason: Reason, at: &str, ty: &str, detail: String) {
        if !self.errors.is_full() {
            self.errors.0.push(error(reason, at, ty, detail));
        }
    }

    fn rule(
        &mut self,
        rules: &Rules,
        compiled: &Compiled,
        at: &str,
        this: &Val,
        old: Option<&Val>,
        ratchet: Ratchet<'_>,
    ) -> Result<(), Spent> {
        let rule = &compiled.rule;
        let program = match &compiled.program {
            Ok(program) => program,
            Err(why) => {
                self.push(Reason::Invalid, at, &rules.ty, format!("rule compile error: {why}"));
                return Ok(());
            }
        };
        let is_optional = rule.optional_old_self == Some(true);
        if compiled.uses_old && old.is_none() && !is_optional {
            return Ok(());
        }
        let variables = variables(this, old, is_optional);
        let (value, cost) = program.evaluate(&variables, CALL_LIMIT);
        if cost > self.budget {
            self.budget = 0;
            return Err(self.out_of_budget(rules, at));
        }
        self.budget -= cost;
        match value {
            Ok(Val::Bool(true)) => Ok(()),
            Ok(_) => self.failed(rules, compiled, at, &variables, ratchet),
            Err(why @ EvalError::TooExpensive) => {
                let detail = format!(
                    "'{why}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                    named(rule)
                );
                self.push(Reason::Invalid, at, &rules.ty, detail);
                Err(Spent)
            }
            Err(EvalError::Failed(why)) if why.starts_with("no such overload") => {
                let detail = format!(
                    "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                    named(rule)
                );
                self.push(Reason::Invalid, at, &rules.ty, detail);
                Ok(())
            }
            Err(EvalError::Failed(why)) => {
                self.push(Reason::Invalid, at, &rules.ty, format!("{why} evaluating rule: {}", named(rule)));
                Ok(())
            }
        }
    }

    fn failed(
        &mut self,
        rules: &Rules,
        compiled: &Compiled,
        at: &str,
        variables: &Variables,
        ratchet: Ratchet<'_>,
    ) -> Result<(), Spent> {
        let at = match compiled.field.as_str() {
            "" => at.to_owned(),
            field if field.starts_with('[') => format!("{at}{field}"),
            field => child(at, field),
        };
        let message = match &compiled.message {
            Some(Ok(program)) => self.message(program, variables)?,
            _ => None,
        };
        let detail = message.unwrap_or_else(|| match compiled.rule.message.trim() {
            "" => format!("failed rule: {}", compiled.rule.rule.trim()),
            message => message.to_owned(),
        });
        let reason = match compiled.rule.reason.as_deref() {
            Some("FieldValueForbidden") => Reason::Forbidden,
            Some("FieldValueRequired") => Reason::Required,
            Some("FieldValueDuplicate") => Reason::Duplicate,
            _ => Reason::Invalid,
        };
        let detail = if reason == Reason::Duplicate { String::new() } else { detail };
        let error = error(reason, &at, &rules.ty, detail);
        match !compiled.uses_old && ratchet.is_unchanged() {
            // Further warnings would not be sent.
            true if self.warnings.len() >= MAX_WARNINGS => {}
            true => self.warnings.push(format!("{}: {}", error.field, error.body())),
            false if self.errors.is_full() => {}
            false => self.errors.0.push(error),
        }
        Ok(())
    }

    /// Returns the result of the rule's `messageExpression`, if it is usable.
    fn message(&mut self, program: &Program, variables: &Variables) -> Result<Option<String>, Spent> {
        let (value, cost) = program.evaluate(variables, CALL_LIMIT);
        if cost > self.budget || value == Err(EvalError::TooExpensive) {
            self.budget = 0;
            return Err(Spent);
        }
        self.budget -= cost;
        let text = match value {
            Ok(Val::String(text)) => text.trim().to_owned(),
            _ => return Ok(None),
        };
        let is_fit = !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
        Ok(Some(text).filter(|_| is_fit))
    }
}

fn variables(this: &Val, old: Option<&Val>, is_optional: bool) -> Variables {
    let mut variables = Variables::from([("self", this.clone())]);
    match (old, is_optional) {
        (Some(old), true) => _ = variables.insert("oldSelf", Val::some(old.clone())),
        (None, true) => _ = variables.insert("oldSelf", Val::NONE),
        (Some(old), false) => _ = variables.insert("oldSelf", old.clone()),
        (None, false) => {}
    }
    variables
}

fn error(reason: Reason, at: &str, ty: &str, detail: String) -> FieldError {
    let field = if at.is_empty() { "<nil>" } else { at };
    FieldError { reason, field: field.into(), value: Some(ty.into()), detail }
}

fn child(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}

/// Returns the rule's name in errors: its message or its expression.
fn named(rule: &Rule) -> &str {
    match rule.message.trim() {
        "" => rule.rule.trim(),
        message => message,
    }
}

/// Whether errors are such that rules cannot be checked.
pub(super) fn blocks(errors: &Errors) -> bool {
    errors.0.iter().any(|error| {
        matches!(
            error.reason,
            Reason::NotSupported | Reason::Required | Reason::TooLong | Reason::TooMany | Reason::TypeInvalid
        )
    })
}
