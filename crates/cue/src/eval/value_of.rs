//! Values of expressions: the operands of operators and calls.

use std::rc::Rc;
use std::sync::Arc;

use super::env::Env;
use super::expand::mistake;
use super::node::{Conjunct, NodeId, Term, Ties, Validator, Value};
use super::{Evaluator, Res};
use crate::builtins::Function;
use crate::data::Data;
use crate::error::{ErrorKind, Position};
use crate::ir::{self, ExprKind, Part};
use crate::label::Label;
use crate::syntax::ast::Marker;
use crate::value::Atom;

/// The result of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Val {
    Atom(Atom),
    Node(NodeId),
    Data(Arc<Data>),
    /// A list of existing nodes.
    Items(Rc<Vec<NodeId>>),
    /// The disjunction of nodes.
    Either(Rc<Vec<NodeId>>),
    /// The unification of nodes.
    All(Rc<Vec<NodeId>>),
    Validator(Rc<Validator>),
    Function(Function),
}

impl Val {
    pub(crate) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Atom(Atom::text(text))
    }

    pub(crate) fn bool(value: bool) -> Self {
        Self::Atom(Atom::Bool(value))
    }
}

impl Evaluator {
    /// Evaluates an expression.
    pub(crate) fn eval(&mut self, expr: &Arc<ir::Expr>, env: &Env) -> Res<Val> {
        self.charge(1)?;
        match &expr.kind {
            ExprKind::Atom(atom) => Ok(Val::Atom(atom.clone())),
            ExprKind::Select(base, label) => match &base.kind {
                ExprKind::Import(path) => self.member(path, label, &expr.position),
                _ => self.resolve(expr, env).map(Val::Node),
            },
            ExprKind::Reference(_) | ExprKind::Index(..) => self.resolve(expr, env).map(Val::Node),
            ExprKind::Import(path) => match self.import(path) {
                Some(root) => Ok(Val::Node(root)),
                None => Err(mistake(
                    ErrorKind::Reference,
                    format!("package {path:?} is not a value"),
                    &expr.position,
                )),
            },
            ExprKind::Builtin(name) => match crate::builtins::find("", name) {
                Some(function) => Ok(Val::Function(function)),
                None => {
                    Err(mistake(ErrorKind::Reference, format!("`{name}` is not a value"), &expr.position))
                }
            },
            ExprKind::Call(function, arguments) => self.call(function, arguments, env, &expr.position),
            ExprKind::Binary(op, left, right) => self.binary(op, left, right, env, &expr.position),
            ExprKind::Not(operand) => self.not(operand, env),
            ExprKind::Sign(negative, operand) => self.sign(*negative, operand, env),
            ExprKind::Interpolation(parts, bytes) => self.interpolate(parts, *bytes, env),
            ExprKind::Slice(base, low, high) => {
                self.slice(base, [low.as_ref(), high.as_ref()], env, &expr.position)
            }
            ExprKind::Bottom => Err(mistake(ErrorKind::Conflict, "explicit error (_|_)", &expr.position)),
            _ => {
                let term = Term::Expr(expr.clone());
                Ok(Val::Node(self.anonymous(Conjunct { term, env: env.clone(), ties: Ties::default() })))
            }
        }
    }

    /// Returns the atom of a value, defaults resolved.
    pub(crate) fn atom(&mut self, value: &Val, at: &Position) -> Res<Atom> {
        match value {
            Val::Atom(atom) => return Ok(atom.clone()),
            Val::Data(data) => {
                if let Data::Atom(atom) = &**data {
                    return Ok(atom.clone());
                }
            }
            _ => {}
        }
        let id = self.materialize(value.clone());
        let id = self.concrete(id, at)?;
        match &self.shape(id).value {
            Value::Atom(atom) => Ok(atom.clone()),
            _ => {
                let message = format!("{} cannot be used as a single value", self.describe(id));
                Err(self.error(id, ErrorKind::Conflict, message).at(at).into())
            }
        }
    }

    /// Returns the whole of a concrete value.
    pub(crate) fn data_of(&mut self, value: &Val, at: &Position) -> Res<Arc<Data>> {
        match value {
            Val::Atom(atom) => Ok(Arc::new(Data::Atom(atom.clone()))),
            Val::Data(data) => Ok(data.clone()),
            other => {
                let id = self.materialize(other.clone());
                self.node_data(id, at)
            }
        }
    }

    pub(crate) fn node_data(&mut self, id: NodeId, at: &Position) -> Res<Arc<Data>> {
        let id = self.concrete(id, at)?;
        self.enter(id)?;
        let data = self.parts_data(id, at);
        self.budget.leave();
        data.map(Arc::new)
    }

    fn parts_data(&mut self, id: NodeId, at: &Position) -> Res<Data> {
        let shape = self.shape(id);
        if let Some(incomplete) = &shape.incomplete {
            return Err(incomplete.clone());
        }
        match &shape.value {
            Value::Atom(atom) => Ok(Data::Atom(atom.clone())),
            Value::List => {
                let elements = shape.elements.clone();
                self.charge(elements.len())?;
                let items = elements.into_iter().map(|element| self.node_data(element, at));
                Ok(Data::List(items.collect::<Res<_>>()?))
            }
            _ => {
                let arms = shape.arms.iter().filter(|(label, _)| label.is_regular());
                let fields: Vec<_> = arms.map(|(label, arm)| (label.name.clone(), arm.node)).collect();
                self.charge(fields.len())?;
                let mut data = Vec::with_capacity(fields.len());
                for (name, node) in fields {
                    match self.node(node).marker {
                        Marker::None => data.push((name, self.node_data(node, at)?)),
                        Marker::Optional => {}
                        Marker::Required => return Err(self.not_set(node)),
                    }
                }
                Ok(Data::Struct(data))
            }
        }
    }

    pub(crate) fn not_set(&self, node: NodeId) -> super::node::Bottom {
        let mut error = self.error(node, ErrorKind::Incomplete, "the required field is not set");
        if let Some(position) = self.node(node).conjuncts.iter().find_map(|conjunct| self.place(conjunct)) {
            error = error.at(&position);
        }
        error.into()
    }

    fn interpolate(&mut self, parts: &[Part], bytes: bool, env: &Env) -> Res<Val> {
        let mut text: Vec<u8> = Vec::new();
        for part in parts {
            match part {
                Part::Literal(literal) => text.extend_from_slice(literal),
                Part::Expression(expr) => {
                    let value = self.eval(expr, env)?;
                    match self.atom(&value, &expr.position)? {
                        Atom::Text(value) => text.extend_from_slice(value.as_bytes()),
                        Atom::Bytes(value) if bytes => text.extend_from_slice(&value),
                        Atom::Bytes(value) => {
                            text.extend_from_slice(String::from_utf8_lossy(&value).as_bytes());
                        }
                        Atom::Null => {
                            let message = "null cannot be interpolated into a string";
                            return Err(mistake(ErrorKind::Conflict, message, &expr.position));
                        }
                        other => text.extend_from_slice(other.to_string().as_bytes()),
                    }
                    self.charge_text(text.len())?;
                }
            }
        }
        Ok(Val::Atom(if bytes {
            Atom::Bytes(text.into())
        } else {
            Atom::text(String::from_utf8_lossy(&text).into_owned())
        }))
    }

    fn slice(
        &mut self,
        base: &Arc<ir::Expr>,
        ends: [Option<&Arc<ir::Expr>>; 2],
        env: &Env,
        at: &Position,
    ) -> Res<Val> {
        let value = self.eval(base, env)?;
        let id = self.materialize(value);
        let id = self.concrete(id, at)?;
        let mut bounds = [None, None];
        for (bound, end) in bounds.iter_mut().zip(ends) {
            let Some(end) = end else { continue };
            let value = self.eval(end, env)?;
            let Atom::Number(number) = self.atom(&value, &end.position)? else {
                return Err(mistake(
                    ErrorKind::Conflict,
                    "the bounds of a slice are integers",
                    &end.position,
                ));
            };
            *bound = number.as_usize();
            if bound.is_none() {
                return Err(mistake(ErrorKind::Conflict, format!("{number} is not an index"), &end.position));
            }
        }
        match self.shape(id).value.clone() {
            Value::List => {
                let elements = self.shape(id).elements.clone();
                let range = range(bounds, elements.len(), at)?;
                Ok(Val::Items(Rc::new(elements[range].to_vec())))
            }
            Value::Atom(Atom::Bytes(bytes)) => {
                let range = range(bounds, bytes.len(), at)?;
                Ok(Val::Atom(Atom::Bytes(bytes[range].into())))
            }
            _ => {
                let message = format!("{} cannot be sliced", self.describe(id));
                Err(mistake(ErrorKind::Conflict, message, at))
            }
        }
    }
}

fn range(bounds: [Option<usize>; 2], length: usize, at: &Position) -> Res<std::ops::Range<usize>> {
    let (low, high) = (bounds[0].unwrap_or(0), bounds[1].unwrap_or(length));
    if low > high || high > length {
        let message = format!("slice [{low}:{high}] is out of range: the length is {length}");
        return Err(mistake(ErrorKind::Conflict, message, at));
    }
    Ok(low..high)
}

/// Creates a struct of two nodes.
pub(crate) fn pair_struct(evaluator: &mut Evaluator, fields: [(&str, NodeId); 2]) -> NodeId {
    let id = evaluator.term(Term::Fields(Rc::new(fields.map(|(name, node)| (Label::ident(name), node)))));
    evaluator.evaluate(id);
    id
}
