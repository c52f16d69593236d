//! Structs: fields, patterns and embeddings of literals and data.

use std::sync::Arc;

use super::closed::{Group, with};
use super::env::{self, Env};
use super::node::{Arm, Conjunct, Key, NodeId, PatternRule, State, Task, Term, Ties};
use super::{Evaluator, Res};
use crate::data::Data;
use crate::error::{Error, ErrorKind};
use crate::ir::{self, Decl, ExprKind};
use crate::label::Label;
use crate::syntax::ast::{Marker, Meta};
use crate::value::{Atom, Kind};

impl Evaluator {
    /// Unifies a node with a struct literal.
    pub(super) fn structure(
        &mut self,
        id: NodeId,
        literal: &Arc<ir::StructLit>,
        env: &Env,
        ties: &Ties,
    ) -> Res<()> {
        self.charge(1 + literal.decls.len())?;
        let mut ties = ties.clone();
        let mut embedded = ties.clone();
        if literal.embeds {
            let scope = self.new_group(Group::Scope);
            ties.members = with(&ties.members, scope);
            embedded = ties.clone();
            embedded.embedding.scopes = with(&ties.embedding.scopes, scope);
        }
        self.begin_struct(id, literal, &ties)?;
        let env = env::structure(env, id, literal);
        let inherited = self.inherited(&ties);
        let mut embeddings = Vec::new();
        for decl in &literal.decls {
            match decl {
                Decl::Field(field) => {
                    let term = Term::Expr(field.value.clone());
                    let conjunct = Conjunct { term, env: env.clone(), ties: inherited.clone() };
                    self.add_field(id, &field.label, field.marker, conjunct, &ties, Some(&field.meta))?;
                }
                Decl::Dynamic(field) => {
                    let task = Task::Dynamic(field.clone(), env.clone(), ties.clone());
                    self.shape_mut(id).tasks.push(task);
                }
                Decl::Pattern(pattern) => self.add_pattern(id, pattern, &env, &ties)?,
                Decl::Embed(expr) => embeddings.push(expr.clone()),
                Decl::Comprehension(comprehension) => {
                    let task = Task::Comprehension(comprehension.clone(), env.clone(), embedded.clone());
                    self.shape_mut(id).tasks.push(task);
                }
            }
        }
        for expr in embeddings.into_iter().rev() {
            self.enqueue(id, Conjunct { term: Term::Expr(expr), env: env.clone(), ties: embedded.clone() });
        }
        Ok(())
    }

    /// Records the properties of a literal that affect the whole struct.
    fn begin_struct(&mut self, id: NodeId, literal: &ir::StructLit, ties: &Ties) -> Res<()> {
        let shape = self.shape_mut(id);
        if literal.is_struct {
            shape.has_struct = true;
        } else {
            shape.has_braces = true;
        }
        if literal.is_struct || !literal.embeds {
            shape.is_live |= !ties.cyclic;
            shape.is_cyclic |= ties.cyclic;
        }
        shape.meta.extend(literal.meta.clone());
        if literal.is_open {
            shape.opened.push(ties.members.clone());
        }
        self.note_struct(id, ties);
        if literal.is_struct { self.meet_kind(id, Kind::STRUCT, Some(&literal.position)) } else { Ok(()) }
    }

    pub(super) fn data_struct(
        &mut self,
        id: NodeId,
        fields: &[(Arc<str>, Arc<Data>)],
        conjunct: &Conjunct,
    ) -> Res<()> {
        self.charge(fields.len())?;
        self.shape_mut(id).has_struct = true;
        self.meet_kind(id, Kind::STRUCT, None)?;
        for (name, value) in fields {
            let ties = self.inherited(&conjunct.ties);
            let field = Conjunct { term: Term::Data(value.clone()), env: None, ties };
            self.add_field(id, &Label::regular(name.clone()), Marker::None, field, &conjunct.ties, None)?;
        }
        Ok(())
    }

    /// Adds a declaration of a field.
    pub(super) fn add_field(
        &mut self,
        id: NodeId,
        label: &Label,
        marker: Marker,
        conjunct: Conjunct,
        ties: &Ties,
        meta: Option<&Arc<Meta>>,
    ) -> Res<()> {
        let known = self.shape(id).arms.get(label).map(|arm| arm.node);
        let child = match known {
            Some(child) => child,
            None => self.new_arm(id, label)?,
        };
        self.contradiction(id, child, marker, &conjunct)?;
        let node = self.node_mut(child);
        node.marker = node.marker.max(marker);
        node.meta.extend(meta.filter(|meta| !meta.is_empty()).cloned());
        self.add_conjunct(child, conjunct);
        if let Some(arm) = self.shape_mut(id).arms.get_mut(label) {
            arm.evidence.push(ties.members.clone());
        }
        Ok(())
    }

    /// Creates a field and applies the known patterns.
    fn new_arm(&mut self, id: NodeId, label: &Label) -> Res<NodeId> {
        self.charge(1)?;
        let child = self.add_node(Some(id), Key::Label(label.clone()));
        self.shape_mut(id).arms.insert(label.clone(), Arm { node: child, evidence: Vec::new() });
        self.node_mut(id).version += 1;
        for index in 0..self.shape(id).patterns.len() {
            let rule = self.shape(id).patterns[index].clone();
            self.apply(&rule, child, label);
        }
        Ok(child)
    }

    /// Detects conflicting atoms before anything is evaluated, which prunes alternatives early.
    fn contradiction(&mut self, id: NodeId, child: NodeId, marker: Marker, conjunct: &Conjunct) -> Res<()> {
        let Some(new) = written_atom(conjunct) else { return Ok(()) };
        if marker == Marker::Optional
            || !self.node(id).is_alternative
            || self.node(child).marker == Marker::Optional
        {
            return Ok(());
        }
        let other = self.node(child).conjuncts.iter().filter_map(written_atom).find(|old| !old.same(&new));
        let Some(other) = other else { return Ok(()) };
        let mut error =
            self.error(child, ErrorKind::Conflict, format!("conflicting values {other} and {new}"));
        for conjunct in self.node(child).conjuncts.iter().chain([conjunct]) {
            if let Some(position) = self.place(conjunct) {
                error = error.at(&position);
            }
        }
        Err(error.into())
    }

    /// Adds a pattern constraint and applies it to the known fields.
    fn add_pattern(&mut self, id: NodeId, pattern: &Arc<ir::Pattern>, env: &Env, ties: &Ties) -> Res<()> {
        let matcher = match &pattern.pattern.kind {
            ExprKind::Top => None,
            ExprKind::Basic(kind) if kind.contains(Kind::STRING) => None,
            _ => {
                let term = Term::Expr(pattern.pattern.clone());
                Some(self.anonymous(Conjunct { term, env: env.clone(), ties: Ties::default() }))
            }
        };
        let rule = PatternRule { pattern: pattern.clone(), env: env.clone(), ties: ties.clone(), matcher };
        let arms: Vec<(Label, NodeId)> =
            self.shape(id).arms.iter().map(|(label, arm)| (label.clone(), arm.node)).collect();
        self.shape_mut(id).patterns.push(rule.clone());
        for (label, child) in arms {
            self.charge(1)?;
            self.apply(&rule, child, &label);
        }
        Ok(())
    }

    /// Unifies a field with the value of a pattern that it matches.
    fn apply(&mut self, rule: &PatternRule, child: NodeId, label: &Label) {
        if !label.is_regular() || !self.matches(rule.matcher, label) {
            return;
        }
        let ties = self.inherited(&rule.ties);
        let env = env::value(&rule.env, child);
        let term = Term::Expr(rule.pattern.value.clone());
        if !rule.pattern.meta.is_empty() {
            self.node_mut(child).meta.push(rule.pattern.meta.clone());
        }
        self.add_conjunct(child, Conjunct { term, env, ties });
    }

    /// Returns whether a pattern accepts a label.
    pub(super) fn matches(&mut self, matcher: Option<NodeId>, label: &Label) -> bool {
        match matcher {
            None => true,
            Some(matcher) => self.accepts(matcher, &Atom::Text(label.name.clone())),
        }
    }

    /// Returns whether unifying a node with an atom gives that atom.
    pub(super) fn accepts(&mut self, id: NodeId, atom: &Atom) -> bool {
        self.evaluate(id);
        if self.node(id).state != State::Done {
            return false;
        }
        let alternatives = self.shape(id).alternatives.clone();
        if !alternatives.is_empty() {
            return alternatives.iter().any(|(alternative, _)| self.accepts(*alternative, atom));
        }
        self.admits(id, atom).is_ok()
    }

    /// Adds a field whose label was computed.
    pub(super) fn dynamic(&mut self, id: NodeId, field: &ir::Dynamic, env: &Env, ties: &Ties) -> Res<()> {
        let label = self.eval(&field.label, env)?;
        let Atom::Text(name) = self.atom(&label, &field.label.position)? else {
            let message = "a label must be a string";
            return Err(Error::new(ErrorKind::Conflict, message).at(&field.label.position).into());
        };
        self.shape_mut(id).has_struct = true;
        self.meet_kind(id, Kind::STRUCT, Some(&field.label.position))?;
        let label = Label::regular(name);
        let inherited = self.inherited(ties);
        let known = self.shape(id).arms.get(&label).map(|arm| arm.node);
        let child = match known {
            Some(child) => child,
            None => self.new_arm(id, &label)?,
        };
        let env = if field.scoped { env::value(env, child) } else { env.clone() };
        let conjunct = Conjunct { term: Term::Expr(field.value.clone()), env, ties: inherited };
        self.add_field(id, &label, field.marker, conjunct, ties, Some(&field.meta))
    }
}

/// Returns the atom if a conjunct is a literal.
fn written_atom(conjunct: &Conjunct) -> Option<Atom> {
    match &conjunct.term {
        Term::Atom(atom, _) => Some(atom.clone()),
        Term::Expr(expr) => match &expr.kind {
            ExprKind::Atom(atom) => Some(atom.clone()),
            _ => None,
        },
        Term::Data(data) => match &**data {
            Data::Atom(atom) => Some(atom.clone()),
            _ => None,
        },
        _ => None,
    }
}
