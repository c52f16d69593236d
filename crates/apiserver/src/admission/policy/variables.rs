//! The variables of a policy: each is evaluated when an expression first uses it, at most once.
//!
//! A variable may refer to the ones before it. Nested evaluation takes stack, so long chains of variables are evaluated
//! first, in the order of declaration.
//!
//! Invariants:
//! - a failed variable fails only the expressions that use it;
//! - variables are charged to the budget of the expressions that use them, and none is evaluated beyond it;
//! - a value is bounded in depth and size, so that walking it terminates and has enough stack.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::cel::{CALL_LIMIT, EvalError, Foreign, Program, Val, Variables};
use crate::json::Json;
use crate::kinds::admissionregistration::expressions::{Compiler, ExtraVariables};

/// The maximum depth of nested evaluation: less than that of one expression.
const MAX_DEPTH: usize = 200;
/// The maximum depth of a variable's value. Expressions that use it add at most 250 levels.
const MAX_VALUE_DEPTH: usize = 250;
/// The maximum number of parts of a variable's value: more than an object has.
const MAX_VALUE_PARTS: usize = 2_000_000;
/// The maximum number of parts that are counted of all variables together, at some 10 ns each: 0.2 s.
const MAX_COUNTED: usize = 20_000_000;
/// The length above which a failed variable's message is not extended by its users: in a chain of thousands, each would
/// repeat the previous one.
const LONG_MESSAGE: usize = 1024;

/// The compiled variables of a policy. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Declarations(Arc<Declared>);

#[derive(Default)]
struct Declared {
    variables: Vec<Variable>,
    /// The declarations of each name, in order.
    places: BTreeMap<String, Vec<usize>>,
}

struct Variable {
    name: String,
    program: Result<Program, String>,
    needs: Needs,
}

/// The variables that an expression refers to.
#[derive(Default)]
pub(super) struct Needs {
    direct: Direct,
    /// The depth of the expression, including the variables that it refers to.
    depth: usize,
}

enum Direct {
    /// By index.
    Some(Vec<usize>),
    /// All before this index.
    All(usize),
}

impl Default for Direct {
    fn default() -> Self {
        Self::Some(Vec::new())
    }
}

impl Declarations {
    /// Compiles variables and declares them to the compiler.
    pub(super) fn compile(variables: &[Value], compiler: &mut Compiler, about: ExtraVariables) -> Self {
        let mut declared = Declared::default();
        for (index, variable) in variables.iter().enumerate() {
            let name = variable.text("name").to_owned();
            let program = compiler.declare(&name, variable.text("expression"), about);
            let needs =
                program.as_ref().map_or_else(|_| Needs::default(), |program| declared.needs_of(program));
            declared.places.entry(name.clone()).or_default().push(index);
            declared.variables.push(Variable { name, program, needs });
        }
        Self(Arc::new(declared))
    }

    /// Returns the variables that an expression refers to, all of which are declared.
    pub(super) fn needs_of(&self, program: &Program) -> Needs {
        self.0.needs_of(program)
    }
}

impl Declared {
    /// Returns the references of a program to the variables declared so far.
    fn needs_of(&self, program: &Program) -> Needs {
        let count = self.variables.len();
        let direct = match program.fields_of("variables") {
            Some(fields) => {
                let mut found: Vec<usize> =
                    fields.into_iter().filter_map(|name| self.find(name, count)).collect();
                found.sort_unstable();
                found.dedup();
                Direct::Some(found)
            }
            None => Direct::All(count),
        };
        let depth_of = |index: usize| self.variables[index].needs.depth;
        let below = match &direct {
            Direct::Some(indexes) => indexes.iter().copied().map(depth_of).max(),
            Direct::All(before) => (0..*before).map(depth_of).max(),
        };
        Needs { direct, depth: program.depth().saturating_add(below.unwrap_or(0)) }
    }

    /// Returns the last variable of a name before an index.
    fn find(&self, name: &str, before: usize) -> Option<usize> {
        let places = self.places.get(name)?;
        let count = places.partition_point(|index| *index < before);
        count.checked_sub(1).map(|last| places[last])
    }

    /// Returns all direct and indirect references, in the order of declaration.
    fn all_needed(&self, needs: &Needs) -> Vec<usize> {
        let mut is_needed = vec![false; self.variables.len()];
        let mut open = vec![needs];
        while let Some(needs) = open.pop() {
            let direct: Vec<usize> = match &needs.direct {
                Direct::Some(indexes) => indexes.clone(),
                // Their references are included.
                Direct::All(before) => {
                    is_needed[..*before].fill(true);
                    continue;
                }
            };
            for index in direct {
                if !std::mem::replace(&mut is_needed[index], true) {
                    open.push(&self.variables[index].needs);
                }
            }
        }
        (0..self.variables.len()).filter(|index| is_needed[*index]).collect()
    }
}

/// The values that expressions see: those of the request, and the policy's variables.
pub(super) struct Scope {
    values: Variables,
    state: Arc<State>,
}

struct State {
    declared: Declarations,
    request: Variables,
    budget: u64,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    values: BTreeMap<usize, Result<Val, EvalError>>,
    /// The cost of all variables so far.
    spent: u64,
    /// The part of it that has not been charged to an expression yet.
    open: u64,
    /// How many parts of values have been counted.
    counted: usize,
}

impl Scope {
    pub(super) fn new(declared: &Declarations, request: Variables, budget: u64) -> Self {
        let known = Mutex::default();
        let state = Arc::new(State { declared: declared.clone(), request, budget, known });
        let count = state.declared.0.variables.len();
        Self { values: state.seen_by(count), state }
    }

    pub(super) fn values(&self) -> &Variables {
        &self.values
    }

    /// Evaluates the references of an expression, if their nesting is too deep for evaluation within the expression.
    pub(super) fn prepare(&self, needs: &Needs) {
        if needs.depth <= MAX_DEPTH {
            return;
        }
        for index in self.state.declared.0.all_needed(needs) {
            // An error is reported where the variable is used.
            _ = self.state.value(index);
        }
    }

    /// Returns the cost of the variables that have been evaluated since the last call.
    pub(super) fn take_cost(&self) -> u64 {
        std::mem::take(&mut self.state.known.lock().open)
    }
}

/// The value of a variable may be `variables`, which has all values: a cycle that would never be freed.
impl Drop for Scope {
    fn drop(&mut self) {
        let values = std::mem::take(&mut self.state.known.lock().values);
        // Dropped after the lock is released: a value may own the last reference to the state.
        drop(values);
    }
}

impl State {
    /// The values that the variable at an index sees: only the preceding ones.
    fn seen_by(self: &Arc<Self>, before: usize) -> Variables {
        let mut values = self.request.clone();
        values.insert("variables", Val::Foreign(Arc::new(View { state: self.clone(), before })));
        values
    }

    fn value(self: &Arc<Self>, index: usize) -> Result<Val, EvalError> {
        {
            let known = self.known.lock();
            if let Some(value) = known.values.get(&index) {
                return value.clone();
            }
            if known.spent > self.budget {
                return Err(EvalError::TooExpensive);
            }
        }
        let (value, cost) = self.evaluate(index);
        let mut known = self.known.lock();
        known.spent = known.spent.saturating_add(cost);
        known.open = known.open.saturating_add(cost);
        known.values.insert(index, value.clone());
        value
    }

    fn evaluate(self: &Arc<Self>, index: usize) -> (Result<Val, EvalError>, u64) {
        let variable = &self.declared.0.variables[index];
        let failed = |how: &str, why: String| {
            let why = match why.len() {
                ..LONG_MESSAGE => format!("composited variable {:?} fails to {how}: {why}", variable.name),
                _ => why,
            };
            Err(EvalError::Failed(why))
        };
        let program = match &variable.program {
            Ok(program) => program,
            Err(why) => return (failed("compile", why.clone()), 0),
        };
        let (value, cost) = program.evaluate(&self.seen_by(index), CALL_LIMIT);
        let value = match value {
            Ok(value) if !program.makes_values() || self.is_bounded(&value) => Ok(value),
            Ok(_) => failed("evaluate", "the value is too large".into()),
            Err(why) => failed("evaluate", why.to_string()),
        };
        (value, cost)
    }

    fn is_bounded(&self, value: &Val) -> bool {
        let left = MAX_COUNTED.saturating_sub(self.known.lock().counted);
        let most = MAX_VALUE_PARTS.min(left);
        let counted = value.parts(MAX_VALUE_DEPTH, most);
        self.known.lock().counted += counted.unwrap_or(most);
        counted.is_some()
    }
}

/// `variables` from the view of the variable at an index.
struct View {
    state: Arc<State>,
    before: usize,
}

impl Foreign for View {
    fn type_name(&self) -> &str {
        "kubernetes.variables"
    }

    fn field(&self, name: &str) -> Option<Result<Val, EvalError>> {
        let index = self.state.declared.0.find(name, self.before)?;
        Some(self.state.value(index))
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(self.type_name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::policy::expression::{BUDGET, Evaluation, Expression, Failure};
    use serde_json::json;

    fn evaluation(variables: &[(String, String)], text: &str, budget: u64) -> Result<Val, Failure> {
        let mut compiler = Compiler::new(true);
        let about = ExtraVariables::default();
        let variables: Vec<Value> =
            variables.iter().map(|(name, text)| json!({"name": name, "expression": text})).collect();
        let declared = Declarations::compile(&variables, &mut compiler, about);
        let expression = Expression::compile(text, &compiler, &declared, about, &[]);
        let object = Val::of_json(&json!({"n": 1}));
        let values = Variables::from([("object", object), ("oldObject", Val::Null)]);
        let mut evaluation = Evaluation::new(&declared, values, budget);
        evaluation.evaluate(&expression)
    }

    fn named(variables: &[(&str, &str)]) -> Vec<(String, String)> {
        variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn only_used_variables_are_evaluated() {
        let variables =
            named(&[("bad", "object.none"), ("good", "object.n + 1"), ("sum", "variables.good + 1")]);
        assert_eq!(evaluation(&variables, "variables.sum == 3", BUDGET), Ok(Val::Bool(true)));
        assert_eq!(evaluation(&variables, "true || variables.bad", BUDGET), Ok(Val::Bool(true)));
        let why = "expression 'variables.bad' resulted in error: composited variable \"bad\" fails to evaluate: no \
                   such key: none";
        assert_eq!(evaluation(&variables, "variables.bad", BUDGET), Err(Failure::Failed(why.into())));
    }

    #[test]
    fn a_variable_sees_only_earlier_variables() {
        let variables = named(&[("x", "1"), ("x", "variables.x + 1"), ("y", "variables.x")]);
        assert_eq!(evaluation(&variables, "variables.x * 10 + variables.y", BUDGET), Ok(Val::Int(22)));
        let later = evaluation(&named(&[("a", "variables.b"), ("b", "1")]), "variables.a", BUDGET);
        assert!(matches!(later, Err(Failure::Failed(why)) if why.contains("\"a\" fails to compile")));
    }

    #[test]
    fn a_variable_that_holds_all_variables_is_freed() {
        let (mut compiler, about) = (Compiler::new(true), ExtraVariables::default());
        let variables = [json!({"name": "all", "expression": "[dyn(variables)]"})];
        let declared = Declarations::compile(&variables, &mut compiler, about);
        let scope = Scope::new(&declared, Variables::new(), BUDGET);
        let state = Arc::downgrade(&scope.state);
        assert!(matches!(scope.state.value(0), Ok(Val::List(list)) if list.items.len() == 1));
        drop(scope);
        assert!(state.upgrade().is_none());
    }

    #[test]
    fn variables_are_charged_to_the_budget() {
        let expensive = "lists.range(1000).all(x, x >= 0)";
        let variables = named(&[("a", expensive), ("b", expensive)]);
        assert_eq!(evaluation(&variables, "variables.a && variables.a", 10_000), Ok(Val::Bool(true)));
        assert_eq!(evaluation(&variables, "variables.a && variables.b", 10_000), Err(Failure::OutOfBudget));
    }

    /// Nested evaluation of these would overflow the stack.
    #[test]
    fn a_long_chain_of_variables_is_evaluated_in_order() {
        let chain = |first: &str, next: &dyn Fn(usize) -> String| {
            let mut variables = named(&[("v0", first)]);
            variables.extend((1..5000).map(|at| (format!("v{at}"), next(at - 1))));
            variables
        };
        let counted = chain("0", &|before| format!("variables.v{before} + 1"));
        assert_eq!(evaluation(&counted, "variables.v4999", BUDGET), Ok(Val::Int(4999)));
        let hidden = chain("0", &|before| format!("dyn(variables).v{before} + 1"));
        assert_eq!(evaluation(&hidden, "variables.v4999", BUDGET), Ok(Val::Int(4999)));
        let nested = chain("[1]", &|before| format!("[dyn(variables.v{before})]"));
        let why = evaluation(&nested, "variables.v4999", BUDGET).unwrap_err().message();
        assert!(why.contains("fails to evaluate: the value is too large"), "{why}");
    }

    #[test]
    fn a_value_that_doubles_with_each_variable_is_too_large() {
        let mut variables = named(&[("v0", "[1, 1]")]);
        variables.extend(
            (1..40)
                .map(|at| (format!("v{at}"), format!("[dyn(variables.v{0}), dyn(variables.v{0})]", at - 1))),
        );
        let why = evaluation(&variables, "variables.v39.size()", BUDGET).unwrap_err().message();
        assert!(why.contains("the value is too large"), "{why}");
    }
}
