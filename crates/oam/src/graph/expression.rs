//! `${…}` in templates. An expression that is the whole field may have any value; inside a string it results in a
//! string.
//!
//! Expressions are CEL. All names are fields of one variable, because the variables of a program are fixed and the
//! names of resources are not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use setpoint_cel::{CALL_LIMIT, Declared, Environment, JsonLimit, Key, Program, Type, Val, Variables};

/// The variable that holds all others.
const SCOPE: &str = "vars";

/// The maximum size of an expression's result as JSON: that of a request. Values share their parts, so a short
/// expression can describe far more.
const MAX_JSON: usize = 3 << 20;

/// The scope of expressions. Cheap to clone: an item of a collection adds its own name and shares the rest.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope(Arc<BTreeMap<Key, Val>>);

impl Scope {
    pub(super) fn set(&mut self, name: &str, value: &Value) {
        Arc::make_mut(&mut self.0).insert(Key::String(name.into()), Val::of_json(value));
    }

    /// Returns this scope with another name.
    pub(super) fn with(&self, name: &str, value: &Value) -> Self {
        let mut more = self.clone();
        more.set(name, value);
        more
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(&Key::String(name.into()))
    }

    /// Returns a scope with only one of the names.
    pub(super) fn only(&self, name: &str) -> Self {
        let key = Key::String(name.into());
        let found = self.0.get(&key).cloned();
        Self(Arc::new(found.into_iter().map(|value| (key.clone(), value)).collect()))
    }
}

/// A compiled expression.
#[derive(Debug)]
pub(super) struct Expression {
    program: Program,
    text: String,
    /// With names as fields of the scope.
    scoped: String,
    /// The names it uses.
    pub(super) uses: BTreeSet<String>,
}

/// A template: JSON with expressions in its strings.
#[derive(Debug)]
pub(super) enum Template {
    Fixed(Value),
    Alone(Box<Expression>),
    /// Alternating text and expressions.
    Text(Vec<Part>),
    List(Vec<Template>),
    Object(Vec<(String, Template)>),
}

#[derive(Debug)]
pub(super) enum Part {
    Text(String),
    Expression(Box<Expression>),
}

impl Expression {
    /// Compiles an expression that may use `names`.
    pub(super) fn compile(text: &str, names: &BTreeSet<String>) -> Result<Self, String> {
        let (rewritten, uses) = scoped(text, names);
        let environment = environment(Declared::plain(Type::Dyn).into());
        let program = environment.compile(&rewritten).map_err(|error| format!("{text}: {error}"))?;
        Ok(Self { program, text: text.to_owned(), scoped: rewritten, uses })
    }

    /// Returns the type of the result, given the types of the scope's fields.
    pub(super) fn type_in(&self, scope: &Arc<Declared>) -> Result<Type, String> {
        let program = environment(scope.clone()).compile(&self.scoped);
        let program = program.map_err(|error| format!("{self}: {}", plainly(&error.to_string())))?;
        Ok(program.output().clone())
    }

    /// Evaluates the expression.
    pub(super) fn evaluate(&self, scope: &Scope) -> Result<Value, String> {
        let variables = Variables::from([(SCOPE, Val::Map(scope.0.clone()))]);
        let (value, _) = self.program.evaluate(&variables, CALL_LIMIT);
        let json = match value {
            Ok(Val::Optional(None)) => Ok(Value::Null),
            Ok(value) => JsonLimit::new(MAX_JSON).convert(&value),
            Err(error) => Err(error.to_string()),
        };
        json.map_err(|why| format!("{}: {why}", self.text))
    }

    /// Evaluates a condition.
    pub(super) fn holds(&self, scope: &Scope) -> Result<bool, String> {
        let value = self.evaluate(scope)?;
        value.as_bool().ok_or_else(|| format!("{}: {value} is no bool", self.text))
    }
}

fn environment(scope: Arc<Declared>) -> Environment {
    Environment::new().with_graph_functions().with(SCOPE, scope)
}

/// Returns the message of a compile error, without the position, which is in rewritten text.
fn plainly(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    let message = line.rsplit_once("<input>:").map_or(line, |(_, rest)| rest);
    message.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == ':').trim().to_owned()
}

impl fmt::Display for Expression {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// Returns the expression of a string that consists of nothing else.
pub(super) fn alone(text: &str) -> Option<&str> {
    let inside = text.trim().strip_prefix("${")?;
    let end = end(inside)?;
    (end + 1 == inside.len()).then(|| &inside[..end])
}

/// Returns where an expression ends: at its closing brace.
fn end(text: &str) -> Option<usize> {
    let (mut depth, mut quote, mut escaped) = (0_usize, None, false);
    for (at, letter) in text.char_indices() {
        match (letter, quote) {
            _ if escaped => escaped = false,
            ('\\', Some(_)) => escaped = true,
            (letter, Some(open)) if letter == open => quote = None,
            (_, Some(_)) => {}
            ('"' | '\'', None) => quote = Some(letter),
            ('{', None) => depth += 1,
            ('}', None) if depth == 0 => return Some(at),
            ('}', None) => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Rewrites names to fields of the scope: `a.b` to `vars.a.b`. Names after a dot are fields already.
fn scoped(text: &str, names: &BTreeSet<String>) -> (String, BTreeSet<String>) {
    let (mut out, mut uses, mut rest, mut before) = (String::new(), BTreeSet::new(), text, ' ');
    while let Some(letter) = rest.chars().next() {
        let length = match letter {
            '"' | '\'' => literal(rest, letter),
            letter if letter.is_ascii_alphanumeric() || letter == '_' => rest
                .find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
                .unwrap_or(rest.len()),
            other => other.len_utf8(),
        };
        let token = &rest[..length];
        if before != '.' && before != '?' && names.contains(token) {
            uses.insert(token.to_owned());
            out.push_str(SCOPE);
            out.push('.');
        }
        out.push_str(token);
        if !letter.is_whitespace() {
            before = letter;
        }
        // `a ? b : c` is not an optional access.
        if before == '?'
            && !rest[length..].starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_')
        {
            before = ' ';
        }
        if before == '?' && !out.ends_with(".?") {
            before = ' ';
        }
        rest = &rest[length..];
    }
    (out, uses)
}

/// Returns the length of a quoted text, with its quotes.
fn literal(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            letter if letter == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

impl Template {
    /// Compiles all expressions of a template. The error names the path.
    pub(super) fn compile(value: &Value, names: &BTreeSet<String>, path: &str) -> Result<Self, String> {
        match value {
            Value::String(text) if text.contains("${") => {
                Self::of_text(text, names).map_err(|why| format!("{path}: {why}"))
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                let items =
                    items.map(|(index, item)| Self::compile(item, names, &format!("{path}[{index}]")));
                Ok(Self::List(items.collect::<Result<_, _>>()?))
            }
            Value::Object(fields) => {
                let fields = fields.iter();
                let fields = fields.map(|(name, field)| {
                    Ok((name.clone(), Self::compile(field, names, &format!("{path}.{name}"))?))
                });
                Ok(Self::Object(fields.collect::<Result<_, String>>()?))
            }
            other => Ok(Self::Fixed(other.clone())),
        }
    }

    fn of_text(text: &str, names: &BTreeSet<String>) -> Result<Self, String> {
        if let Some(inside) = alone(text) {
            return Ok(Self::Alone(Box::new(Expression::compile(inside, names)?)));
        }
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some(start) = rest.find("${") {
            if start > 0 {
                parts.push(Part::Text(rest[..start].to_owned()));
            }
            let inside = &rest[start + 2..];
            let end = end(inside).ok_or_else(|| format!("{rest:?}: `${{` is not closed"))?;
            parts.push(Part::Expression(Box::new(Expression::compile(&inside[..end], names)?)));
            rest = &inside[end + 1..];
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self::Text(parts))
    }

    /// Collects the names that the expressions use.
    pub(super) fn uses(&self, names: &mut BTreeSet<String>) {
        match self {
            Self::Fixed(_) => {}
            Self::Alone(expression) => names.extend(expression.uses.iter().cloned()),
            Self::Text(parts) => parts.iter().for_each(|part| {
                if let Part::Expression(expression) = part {
                    names.extend(expression.uses.iter().cloned());
                }
            }),
            Self::List(items) => items.iter().for_each(|item| item.uses(names)),
            Self::Object(fields) => fields.iter().for_each(|(_, field)| field.uses(names)),
        }
    }

    /// Evaluates all expressions.
    pub(super) fn render(&self, scope: &Scope) -> Result<Value, String> {
        match self {
            Self::Fixed(value) => Ok(value.clone()),
            Self::Alone(expression) => expression.evaluate(scope),
            Self::Text(parts) => Ok(Value::String(text(parts, scope)?)),
            Self::List(items) => items.iter().map(|item| item.render(scope)).collect(),
            Self::Object(fields) => {
                let fields = fields.iter().map(|(name, field)| Ok((name.clone(), field.render(scope)?)));
                Ok(Value::Object(fields.collect::<Result<_, String>>()?))
            }
        }
    }

    /// Evaluates the expressions that can be, and omits the rest.
    pub(super) fn render_known(&self, scope: &Scope) -> Option<Value> {
        match self {
            Self::Object(fields) => {
                let fields = fields
                    .iter()
                    .filter_map(|(name, field)| Some((name.clone(), field.render_known(scope)?)));
                Some(Value::Object(fields.collect()))
            }
            other => other.render(scope).ok(),
        }
    }
}

fn text(parts: &[Part], scope: &Scope) -> Result<String, String> {
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Text(fixed) => text.push_str(fixed),
            Part::Expression(expression) => match expression.evaluate(scope)? {
                Value::String(value) => text.push_str(&value),
                Value::Array(_) | Value::Object(_) | Value::Null => {
                    return Err(format!("{}: expected a text", expression.text));
                }
                other => text.push_str(&other.to_string()),
            },
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names() -> BTreeSet<String> {
        ["schema", "desk"].map(str::to_owned).into()
    }

    #[test]
    fn names_become_fields_of_the_scope() {
        let check = |text: &str, expected: &str| assert_eq!(scoped(text, &names()).0, expected);
        check("schema.desk.schema", "vars.schema.desk.schema");
        check("desk.?schema.orValue('desk')", "vars.desk.?schema.orValue('desk')");
        check("true ? desk : schema", "true ? vars.desk : vars.schema");
        check("true ?desk.a:1", "true ?vars.desk.a:1");
        check("[1].map(x, x + desk.n)", "[1].map(x, x + vars.desk.n)");
    }

    #[test]
    fn a_template_keeps_types_and_joins_texts() {
        let template = json!({"n": "${schema.n}", "t": "a-${schema.n}-${schema.s}", "f": 1, "m": "${ {'a': schema.n} }"});
        let compiled = Template::compile(&template, &names(), "t").unwrap();
        let scope = Scope::default().with("schema", &json!({"n": 2, "s": "x"}));
        assert_eq!(compiled.render(&scope), Ok(json!({"n": 2, "t": "a-2-x", "f": 1, "m": {"a": 2}})));
    }

    #[test]
    fn a_result_that_does_not_fit_into_a_request_is_refused() {
        let doubled = format!("optional.of([1]){}.value()", ".optMap(a, [dyn(a), dyn(a)])".repeat(40));
        let expression = Expression::compile(&doubled, &names()).unwrap();
        let error = expression.evaluate(&Scope::default()).unwrap_err();
        assert!(error.contains("larger than 3145728 bytes"), "{error}");
    }

    #[test]
    fn unknown_names_are_refused_with_their_path() {
        let error = Template::compile(&json!({"a": "${other.x}"}), &names(), "t").unwrap_err();
        assert!(error.starts_with("t.a: ") && error.contains("other"), "{error}");
    }
}
