//! CEL expressions over tokens: their variables, and conversion of their results.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use setpoint_cel::admission::object;
use setpoint_cel::{CALL_LIMIT, Declared, Environment, Program, Type, Val, Variables};

use crate::auth::User;

/// Compiles an expression over `claims`.
pub(super) fn about_claims(expression: &str) -> Result<Program, String> {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    let claims = || Arc::new(Declared::plain(Type::map(Type::String, Type::Dyn)));
    compile(ENVIRONMENT.get_or_init(|| Environment::new().with("claims", claims())), expression)
}

/// Compiles an expression over `user`.
pub(super) fn about_user(expression: &str) -> Result<Program, String> {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    compile(ENVIRONMENT.get_or_init(|| Environment::new().with("user", Arc::new(user_type()))), expression)
}

/// Requires that an expression is a boolean.
pub(super) fn condition(program: Program) -> Result<Program, String> {
    match program.output() {
        Type::Bool => Ok(program),
        _ => Err("must evaluate to bool".into()),
    }
}

fn compile(environment: &Environment, expression: &str) -> Result<Program, String> {
    environment.compile(expression).map_err(|why| format!("compilation failed: {why}"))
}

fn user_type() -> Declared {
    let text = || Declared::plain(Type::String);
    let fields = [
        ("username", text()),
        ("uid", text()),
        ("groups", Declared::plain(Type::list(Type::String))),
        ("extra", Declared::plain(Type::map(Type::String, Type::list(Type::String)))),
    ];
    let fields: BTreeMap<String, Declared> =
        fields.into_iter().map(|(name, declared)| (name.to_owned(), declared)).collect();
    object("kubernetes.UserInfo", fields)
}

pub(super) fn claims_variables(claims: &Value) -> Variables {
    Variables::from([("claims", Val::of_untyped(claims))])
}

pub(super) fn user_variables(user: &User) -> Variables {
    let value = json!({"username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra});
    Variables::from([("user", Val::of_untyped(&value))])
}

pub(super) fn evaluate(program: &Program, variables: &Variables) -> Result<Val, String> {
    program.evaluate(variables, CALL_LIMIT).0.map_err(|why| why.to_string())
}

/// Requires that an expression's result is a string.
pub(super) fn text(value: Val, of: &str) -> Result<String, String> {
    match value {
        Val::String(text) => Ok(text.to_string()),
        _ => Err(format!("{of} claim expression must return a string")),
    }
}

/// Returns a string or a list of strings, without empty ones. To v1.34, the lists that `split` and `findAll` return
/// are not lists of strings.
pub(super) fn texts(program: &Program, value: Val) -> Result<Vec<String>, String> {
    let wrong = || "expression must return a string or a list of strings".to_owned();
    let mut found = match value {
        Val::Null => return Ok(Vec::new()),
        Val::String(text) => vec![text.to_string()],
        Val::List(_) if ["split", "findAll"].iter().any(|name| program.ends_in(name)) => return Err(wrong()),
        Val::List(list) => {
            let texts = list.items.iter().map(|item| match item {
                Val::String(text) => Ok(text.to_string()),
                _ => Err(wrong()),
            });
            texts.collect::<Result<Vec<_>, _>>()?
        }
        _ => return Err(wrong()),
    };
    found.retain(|text| !text.is_empty());
    Ok(found)
}

/// Checks that a rule is true.
pub(super) fn check(program: &Program, variables: &Variables, rule: (&str, &str)) -> Result<(), String> {
    let (expression, message) = rule;
    match evaluate(program, variables)
        .map_err(|why| format!("expression '{expression}' resulted in error: {why}"))?
    {
        Val::Bool(true) => Ok(()),
        Val::Bool(false) => Err(format!("validation expression '{expression}' failed: {message}")),
        _ => Err("validation expression must return a boolean".into()),
    }
}
