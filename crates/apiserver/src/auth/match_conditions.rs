//! The match conditions of an authorization webhook: CEL expressions over a `SubjectAccessReview`.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use setpoint_cel::admission::object;
use setpoint_cel::{CALL_LIMIT, Declared, Environment, Program, Type, Val, Variables};

use super::aggregate::aggregate;

/// Conditions that must all be true for the webhook to be called.
#[derive(Default)]
pub(super) struct MatchConditions(Vec<Condition>);

struct Condition {
    expression: String,
    program: Program,
}

/// The result of evaluating the conditions.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Matched {
    Yes,
    No,
    Failed(String),
}

/// Compiles an expression, or explains why it is invalid.
pub(super) fn compile(expression: &str) -> Result<Program, String> {
    static ENVIRONMENT: OnceLock<(Environment, Arc<Declared>)> = OnceLock::new();
    let (environment, _) = ENVIRONMENT.get_or_init(environment);
    let program = environment.compile(expression).map_err(|why| format!("compilation failed: {why}"))?;
    match program.output() {
        Type::Bool => Ok(program),
        other => Err(format!("must evaluate to bool but got {other}")),
    }
}

fn environment() -> (Environment, Arc<Declared>) {
    let request = Arc::new(request());
    (Environment::new().with("request", request.clone()), request)
}

fn request() -> Declared {
    let text = || Declared::plain(Type::String);
    let texts = || Declared::plain(Type::list(Type::String));
    let fields = |of: Vec<(&str, Declared)>| -> BTreeMap<String, Declared> {
        of.into_iter().map(|(name, declared)| (name.to_owned(), declared)).collect()
    };
    let requirement = fields(vec![("key", text()), ("operator", text()), ("values", texts())]);
    let requirement = object("kubernetes.SelectorRequirement", requirement).ty;
    let selector = |name: &str| {
        let requirements = Declared::plain(Type::list(requirement.clone()));
        object(name, fields(vec![("rawSelector", text()), ("requirements", requirements)]))
    };
    let words = ["namespace", "verb", "group", "version", "resource", "subresource", "name"];
    let mut resource: Vec<_> = words.into_iter().map(|word| (word, text())).collect();
    resource.push(("fieldSelector", selector("kubernetes.FieldSelectorAttributes")));
    resource.push(("labelSelector", selector("kubernetes.LabelSelectorAttributes")));
    let resource = object("kubernetes.ResourceAttributes", fields(resource));
    let path = fields(vec![("path", text()), ("verb", text())]);
    let extra = Declared::plain(Type::map(Type::String, Type::list(Type::String)));
    let spec = fields(vec![
        ("resourceAttributes", resource),
        ("nonResourceAttributes", object("kubernetes.NonResourceAttributes", path)),
        ("user", text()),
        ("groups", texts()),
        ("extra", extra),
        ("uid", text()),
    ]);
    object("kubernetes.SubjectAccessReviewSpec", spec)
}

/// Fills in empty strings for all omitted string fields.
fn filled(spec: &Value) -> Value {
    let text = |of: &Value, field: &str| of.get(field).cloned().unwrap_or_else(|| "".into());
    let mut filled = json!({
        "user": text(spec, "user"),
        "uid": text(spec, "uid"),
        "groups": spec.get("groups").cloned().unwrap_or_else(|| json!([])),
        "extra": spec.get("extra").cloned().unwrap_or_else(|| json!({})),
    });
    if let Some(resource) = spec.get("resourceAttributes") {
        let words = ["namespace", "verb", "group", "version", "resource", "subresource", "name"];
        let mut attributes: serde_json::Map<String, Value> =
            words.into_iter().map(|word| (word.to_owned(), text(resource, word))).collect();
        for selector in ["fieldSelector", "labelSelector"] {
            if let Some(selected) = resource.get(selector) {
                attributes.insert(selector.to_owned(), selected.clone());
            }
        }
        filled["resourceAttributes"] = attributes.into();
    }
    if let Some(path) = spec.get("nonResourceAttributes") {
        filled["nonResourceAttributes"] = json!({"verb": text(path, "verb"), "path": text(path, "path")});
    }
    filled
}

impl MatchConditions {
    pub(super) fn new(expressions: &[String]) -> Result<Self, String> {
        let compiled = expressions.iter().map(|expression| {
            let program = compile(expression)?;
            Ok(Condition { expression: expression.clone(), program })
        });
        compiled.collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether to call the webhook for a review. A false condition excludes it, even after another one failed.
    pub(super) fn matches(&self, spec: &Value) -> Matched {
        if self.0.is_empty() {
            return Matched::Yes;
        }
        let variables = Variables::from([("request", Val::of_json(&filled(spec)))]);
        let mut errors = Vec::new();
        for Condition { expression, program } in &self.0 {
            match program.evaluate(&variables, CALL_LIMIT).0 {
                Ok(Val::Bool(true)) => {}
                Ok(Val::Bool(false)) => return Matched::No,
                Ok(other) => errors.push(format!(
                    "cel evaluation error: expression '{expression}' eval result type should be bool but got {}",
                    other.type_name()
                )),
                Err(why) => errors.push(format!(
                    "cel evaluation error: expression '{expression}' resulted in error: {why}"
                )),
            }
        }
        match aggregate(&errors) {
            None => Matched::Yes,
            Some(why) => Matched::Failed(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str, spec: &Value) -> Matched {
        MatchConditions::new(&[expression.to_owned()]).unwrap().matches(spec)
    }

    #[test]
    fn conditions_see_the_review() {
        let pods = json!({"user": "bob", "groups": ["dev"], "resourceAttributes": {"resource": "pods", "verb": "get"}});
        let path = json!({"user": "bob", "nonResourceAttributes": {"path": "/x", "verb": "get"}});
        assert_eq!(check("'dev' in request.groups", &pods), Matched::Yes);
        assert_eq!(check("'dev' in request.groups", &path), Matched::No);
        assert_eq!(check("has(request.resourceAttributes)", &path), Matched::No);
        assert_eq!(check("request.resourceAttributes.namespace == ''", &pods), Matched::Yes);
        assert!(matches!(check("request.resourceAttributes.name == ''", &path), Matched::Failed(_)));
        let both = ["request.resourceAttributes.name == ''".to_owned(), "request.user == 'eve'".to_owned()];
        assert_eq!(MatchConditions::new(&both).unwrap().matches(&path), Matched::No);
    }

    #[test]
    fn an_expression_must_be_a_condition() {
        assert_eq!(compile("request.user").unwrap_err(), "must evaluate to bool but got string");
        assert!(compile("request.nothing == ''").unwrap_err().starts_with("compilation failed: ERROR"));
    }
}
