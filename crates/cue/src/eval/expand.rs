//! Expansion: taking a node's conjuncts apart until only fields, constraints and tasks are left.

use std::rc::Rc;
use std::sync::Arc;

use super::closed::{Closer, Group, with};
use super::env;
use super::node::{Bottom, Conjunct, ListPart, Mode, NodeId, Task, Term, Ties, Undecided};
use super::{Evaluator, Res};
use crate::data::Data;
use crate::error::{Error, ErrorKind};
use crate::ir::{self, ExprKind, Reference};
use crate::syntax::ast::Marker;
use crate::value::{Bound, Kind};

impl Evaluator {
    /// Takes all conjuncts of a node apart and runs its tasks.
    pub(super) fn expand(&mut self, id: NodeId) {
        let mut queue = self.node(id).conjuncts.clone();
        queue.reverse();
        self.shape_mut(id).queue = queue;
        if let Err(bottom) = self.drain(id).and_then(|()| self.run_tasks(id)) {
            self.conflict(id, bottom);
        }
    }

    /// Records a permanent error.
    pub(super) fn conflict(&mut self, id: NodeId, bottom: Bottom) {
        let shape = self.shape_mut(id);
        shape.error.get_or_insert(bottom);
    }

    /// Processes queued conjuncts until none are left, a conflict is found or a choice is needed.
    pub(super) fn drain(&mut self, id: NodeId) -> Res<()> {
        while self.shape(id).undecided.is_none() {
            let Some(conjunct) = self.shape_mut(id).queue.pop() else { break };
            self.charge(1)?;
            self.take_apart(id, conjunct)?;
            if let Some(error) = &self.shape(id).error {
                return Err(error.clone());
            }
        }
        Ok(())
    }

    fn take_apart(&mut self, id: NodeId, conjunct: Conjunct) -> Res<()> {
        match &conjunct.term {
            Term::Expr(expr) => {
                let expr = expr.clone();
                self.expression(id, &expr, conjunct)
            }
            Term::Literal(literal) => {
                let literal = literal.clone();
                self.structure(id, &literal, &conjunct.env, &conjunct.ties)
            }
            Term::Data(data) => {
                let data = data.clone();
                self.data(id, &data, &conjunct)
            }
            Term::Atom(atom, position) => {
                self.liven(id, &conjunct);
                let (atom, position) = (atom.clone(), position.clone());
                self.meet_atom(id, atom, Some(position))
            }
            Term::Node(target) => self.include(id, *target, &conjunct, false),
            Term::Items(items) => {
                let items = items.clone();
                self.items(id, &items, &conjunct);
                Ok(())
            }
            Term::Either(options) => {
                let options = options.clone();
                let modes = vec![Mode::Maybe; options.len()];
                let identity = Rc::as_ptr(&options) as usize;
                self.choose(id, modes, identity, &conjunct, |choice| Term::Node(options[choice]));
                Ok(())
            }
            Term::Validator(validator) => {
                self.liven(id, &conjunct);
                self.shape_mut(id).validators.push(validator.clone());
                Ok(())
            }
            Term::Fields(fields) => {
                self.liven(id, &conjunct);
                self.shape_mut(id).has_struct = true;
                self.meet_kind(id, Kind::STRUCT, None)?;
                for (label, node) in fields.iter() {
                    let field = Conjunct { term: Term::Node(*node), env: None, ties: Ties::default() };
                    self.add_field(id, label, Marker::None, field, &conjunct.ties, None)?;
                }
                Ok(())
            }
        }
    }

    /// Records that a conjunct contributes, and whether only through a cycle.
    pub(super) fn liven(&mut self, id: NodeId, conjunct: &Conjunct) {
        let shape = self.shape_mut(id);
        shape.is_live |= !conjunct.ties.cyclic;
        shape.is_cyclic |= conjunct.ties.cyclic;
    }

    fn expression(&mut self, id: NodeId, expr: &Arc<ir::Expr>, conjunct: Conjunct) -> Res<()> {
        match &expr.kind {
            ExprKind::Atom(atom) => {
                self.liven(id, &conjunct);
                self.meet_atom(id, atom.clone(), Some(expr.position.clone()))
            }
            ExprKind::Basic(kind) => {
                self.liven(id, &conjunct);
                self.meet_kind(id, *kind, Some(&expr.position))
            }
            ExprKind::Top => {
                self.liven(id, &conjunct);
                if conjunct.ties.members.is_some() {
                    self.shape_mut(id).opened.push(conjunct.ties.members.clone());
                }
                Ok(())
            }
            ExprKind::Bottom => {
                let error = self.error(id, ErrorKind::Conflict, "explicit error (_|_)");
                Err(Rc::new(error.at(&expr.position)))
            }
            ExprKind::Struct(literal) => self.structure(id, literal, &conjunct.env, &conjunct.ties),
            ExprKind::List(literal) => {
                self.list_literal(id, literal, conjunct);
                Ok(())
            }
            ExprKind::And(all) => {
                let ties = self.operand_ties(&conjunct.ties);
                for operand in all.iter().rev() {
                    let term = Term::Expr(operand.clone());
                    self.enqueue(id, Conjunct { term, env: conjunct.env.clone(), ties: ties.clone() });
                }
                Ok(())
            }
            ExprKind::Or(disjunction) => {
                self.alternatives(id, disjunction, &conjunct);
                Ok(())
            }
            ExprKind::Alias(inner) => {
                let env = env::value(&conjunct.env, id);
                self.enqueue(id, Conjunct { term: Term::Expr(inner.clone()), env, ties: conjunct.ties });
                Ok(())
            }
            ExprKind::Reference(reference) if is_direct(reference) => self.direct(id, expr, conjunct),
            ExprKind::Bound(op, operand) if matches!(operand.kind, ExprKind::Atom(_)) => {
                let ExprKind::Atom(value) = &operand.kind else { return Ok(()) };
                self.liven(id, &conjunct);
                self.meet_bound(id, Bound { op: *op, value: value.clone() }, &expr.position)
            }
            ExprKind::Call(function, arguments) if matches!(function.kind, ExprKind::Builtin("close")) => {
                self.close(id, arguments, &conjunct)
            }
            _ => {
                self.shape_mut(id).tasks.push(Task::Expr(conjunct));
                Ok(())
            }
        }
    }

    /// Returns the ties of the operands of `&`. Where it is embedded, one operand does not open another.
    fn operand_ties(&mut self, ties: &Ties) -> Ties {
        let mut ties = ties.clone();
        if ties.embedding.scopes.is_some() {
            let operation = self.new_group(Group::Scope);
            ties.members = with(&ties.members, operation);
            ties.embedding.operand_of = with(&ties.embedding.operand_of, operation);
        }
        ties
    }

    pub(super) fn enqueue(&mut self, id: NodeId, conjunct: Conjunct) {
        self.shape_mut(id).queue.push(conjunct);
    }

    /// Includes a reference now if its target is known, otherwise later.
    fn direct(&mut self, id: NodeId, expr: &Arc<ir::Expr>, conjunct: Conjunct) -> Res<()> {
        match self.resolve(expr, &conjunct.env) {
            Ok(target) => self.include(id, target, &conjunct, names_definition(expr)),
            Err(bottom) if bottom.kind.is_incomplete() => {
                self.shape_mut(id).tasks.push(Task::Expr(conjunct));
                Ok(())
            }
            Err(bottom) => Err(bottom),
        }
    }

    fn close(&mut self, id: NodeId, arguments: &[Arc<ir::Expr>], conjunct: &Conjunct) -> Res<()> {
        let [argument] = arguments else {
            let error = self.error(id, ErrorKind::Conflict, "close takes one struct");
            return Err(Rc::new(error));
        };
        let group = self.new_group(Group::Close);
        let mut ties = conjunct.ties.clone();
        ties.members = with(&ties.members, group);
        self.shape_mut(id).closers.push(Closer { group, embedding: conjunct.ties.embedding.clone() });
        self.enqueue(id, Conjunct { term: Term::Expr(argument.clone()), env: conjunct.env.clone(), ties });
        Ok(())
    }

    fn alternatives(&mut self, id: NodeId, disjunction: &Arc<ir::Disjunction>, conjunct: &Conjunct) {
        let modes = disjunction.alternatives.iter().map(|(mark, _)| match (disjunction.marked, mark) {
            (false, _) => Mode::Maybe,
            (true, true) => Mode::Default,
            (true, false) => Mode::Not,
        });
        let term = |choice: usize| Term::Expr(disjunction.alternatives[choice].1.clone());
        self.choose(id, modes.collect(), Arc::as_ptr(disjunction) as usize, conjunct, term);
    }

    /// Takes the alternative that was chosen for the next disjunction, or asks for a choice.
    fn choose(
        &mut self,
        id: NodeId,
        modes: Vec<Mode>,
        identity: usize,
        conjunct: &Conjunct,
        term: impl Fn(usize) -> Term,
    ) {
        let met = self.shape(id).choices_met;
        match self.node(id).choices.get(met).copied() {
            Some(choice) => {
                self.shape_mut(id).choices_met += 1;
                let ties = Ties { within: Some(met), ..conjunct.ties.clone() };
                self.enqueue(id, Conjunct { term: term(choice), env: conjunct.env.clone(), ties });
            }
            None => {
                // Choices are numbered by node: a choice that does not precede this one belongs to another node.
                let within = conjunct.ties.within.filter(|within| *within < met);
                self.shape_mut(id).undecided = Some(Undecided { modes, identity, within });
            }
        }
    }

    fn data(&mut self, id: NodeId, data: &Arc<Data>, conjunct: &Conjunct) -> Res<()> {
        self.liven(id, conjunct);
        match &**data {
            Data::Atom(atom) => self.meet_atom(id, atom.clone(), None),
            Data::List(items) => {
                self.charge(items.len())?;
                let elements =
                    items.iter().map(|item| Conjunct { term: Term::Data(item.clone()), ..conjunct.clone() });
                let part = ListPart { elements: elements.collect(), tail: None, position: None };
                self.shape_mut(id).lists.push(part);
                self.meet_kind(id, Kind::LIST, None)
            }
            Data::Struct(fields) => self.data_struct(id, fields, conjunct),
        }
    }

    fn items(&mut self, id: NodeId, items: &Rc<Vec<NodeId>>, conjunct: &Conjunct) {
        self.liven(id, conjunct);
        let elements = items.iter().map(|item| Conjunct { term: Term::Node(*item), ..conjunct.clone() });
        let part = ListPart { elements: elements.collect(), tail: None, position: None };
        self.shape_mut(id).lists.push(part);
        if let Err(bottom) = self.meet_kind(id, Kind::LIST, None) {
            self.conflict(id, bottom);
        }
    }

    fn list_literal(&mut self, id: NodeId, literal: &Arc<ir::ListLit>, conjunct: Conjunct) {
        self.liven(id, &conjunct);
        if literal.has_comprehension {
            let task = Task::List(literal.clone(), conjunct.env, conjunct.ties);
            self.shape_mut(id).tasks.push(task);
            if let Err(bottom) = self.meet_kind(id, Kind::LIST, Some(&literal.position)) {
                self.conflict(id, bottom);
            }
            return;
        }
        let exprs = literal.elements.iter().filter_map(|element| match element {
            ir::Element::Expr(expr) => Some(expr.clone()),
            ir::Element::Comprehension(_) => None,
        });
        let elements = exprs.map(|expr| Conjunct { term: Term::Expr(expr), ..conjunct.clone() }).collect();
        if let Err(bottom) = self.list_part(id, literal, elements, &conjunct) {
            self.conflict(id, bottom);
        }
    }

    pub(super) fn list_part(
        &mut self,
        id: NodeId,
        literal: &Arc<ir::ListLit>,
        elements: Vec<Conjunct>,
        like: &Conjunct,
    ) -> Res<()> {
        self.charge(elements.len())?;
        let tail = literal.tail.as_ref().map(|tail| {
            tail.as_ref().map(|tail| Conjunct { term: Term::Expr(tail.clone()), ..like.clone() })
        });
        let position = Some(literal.position.clone());
        self.shape_mut(id).lists.push(ListPart { elements, tail, position });
        self.meet_kind(id, Kind::LIST, Some(&literal.position))
    }
}

/// Returns whether a reference is resolved without evaluating anything.
fn is_direct(reference: &Reference) -> bool {
    !matches!(reference, Reference::LabelOf { .. } | Reference::Dynamic { .. })
}

/// Returns whether an expression goes through a definition.
pub(super) fn names_definition(expr: &ir::Expr) -> bool {
    match &expr.kind {
        ExprKind::Reference(Reference::Field { label, .. } | Reference::Root { label }) => {
            label.is_definition()
        }
        ExprKind::Select(base, label) => label.is_definition() || names_definition(base),
        ExprKind::Index(base, _) => names_definition(base),
        _ => false,
    }
}

/// Creates the error of an operation.
pub(super) fn mistake(kind: ErrorKind, message: impl Into<String>, at: &crate::error::Position) -> Bottom {
    Rc::new(Error::new(kind, message).at(at))
}
