//! Closedness: which fields a struct may have once it includes a definition or `close`.
//!
//! Every use of a definition opens a *group*. Its conjuncts carry the group, and so do the fields that they declare, all
//! the way down. A struct that closes a group rejects every field without such evidence. A definition that is embedded
//! also accepts the fields of the struct that embeds it: each struct literal with embeddings is a *scope*, carried in
//! the same way.

use std::rc::Rc;

use super::Evaluator;
use super::node::{Bottom, NodeId, Ties};
use crate::error::{Error, ErrorKind};
use crate::label::Label;
use crate::syntax::ast::Marker;

/// A sorted set of group and scope numbers.
pub(crate) type Members = Option<Rc<Vec<u32>>>;

/// The meaning of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// A definition and how it is embedded. Also closes all nested structs.
    Definition(Embedding),
    /// `close(…)`
    Close,
    /// A struct literal with embeddings.
    Scope,
}

/// The embedding of a conjunct.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Embedding {
    /// The scopes that it is embedded in: their fields are allowed in addition to its own.
    pub(crate) scopes: Members,
    /// The unifications `a & b` of which it is an operand: fields of the other operand are not allowed.
    pub(crate) operand_of: Members,
}

/// A group that closes a node, and the further evidence for it.
#[derive(Clone, Debug)]
pub(crate) struct Closer {
    pub(crate) group: u32,
    pub(crate) embedding: Embedding,
}

pub(crate) fn with(members: &Members, number: u32) -> Members {
    let mut all = members.as_ref().map(|members| members.to_vec()).unwrap_or_default();
    if !all.contains(&number) {
        // Numbers increase, so this keeps the order.
        all.push(number);
        all.sort_unstable();
    }
    Some(Rc::new(all))
}

fn contains(members: &Members, number: u32) -> bool {
    members.as_ref().is_some_and(|members| members.binary_search(&number).is_ok())
}

fn intersect(a: &Members, b: &Members) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.iter().any(|number| b.binary_search(number).is_ok()),
        _ => false,
    }
}

impl Closer {
    fn accepts(&self, evidence: &Members) -> bool {
        contains(evidence, self.group)
            || (intersect(evidence, &self.embedding.scopes)
                && !intersect(evidence, &self.embedding.operand_of))
    }
}

impl Evaluator {
    pub(super) fn new_group(&mut self, group: Group) -> u32 {
        self.groups.push(group);
        (self.groups.len() - 1) as u32
    }

    /// Returns the ties that the fields of a conjunct inherit.
    pub(crate) fn inherited(&self, ties: &Ties) -> Ties {
        let members = ties.members.as_ref().and_then(|members| {
            let is_kept = |number: &&u32| self.groups[**number as usize] != Group::Close;
            if members.iter().all(|number| is_kept(&number)) {
                return Some(members.clone());
            }
            let kept: Vec<u32> = members.iter().filter(is_kept).copied().collect();
            (!kept.is_empty()).then(|| Rc::new(kept))
        });
        Ties {
            members,
            embedding: ties.embedding.clone(),
            chain: ties.chain.clone(),
            cyclic: ties.cyclic,
            within: None,
        }
    }

    /// Records that a node includes a struct literal with these ties.
    pub(super) fn note_struct(&mut self, id: NodeId, ties: &Ties) {
        let Some(members) = &ties.members else { return };
        let groups: Vec<u32> =
            members.iter().filter(|number| self.groups[**number as usize] != Group::Scope).copied().collect();
        let shape = self.shape_mut(id);
        for group in groups {
            if !shape.struct_groups.contains(&group) {
                shape.struct_groups.push(group);
            }
        }
    }

    /// Returns the groups that close a node.
    fn active(&self, id: NodeId) -> Vec<Closer> {
        let shape = self.shape(id);
        let mut active: Vec<Closer> = shape
            .closers
            .iter()
            .filter(|closer| shape.struct_groups.contains(&closer.group))
            .cloned()
            .collect();
        for group in &shape.struct_groups {
            if let Group::Definition(embedding) = &self.groups[*group as usize] {
                active.push(Closer { group: *group, embedding: embedding.clone() });
            }
        }
        active.retain(|closer| !shape.opened.iter().any(|members| closer.accepts(members)));
        active
    }

    /// Rejects fields of a node that are not allowed.
    pub(super) fn check_closed(&mut self, id: NodeId) {
        let active = self.active(id);
        if active.is_empty() {
            return;
        }
        let arms = self.shape(id).arms.iter();
        let labels: Vec<(Label, NodeId)> = arms
            .filter(|(label, arm)| !label.is_hidden() && self.node(arm.node).marker == Marker::None)
            .map(|(label, arm)| (label.clone(), arm.node))
            .collect();
        for (label, child) in labels {
            if !active.iter().all(|closer| self.allows(id, closer, &label)) {
                let error = self.not_allowed(id, child, &label);
                let child = self.node_mut(child);
                child.refused = Some(error);
                child.state = super::node::State::Fresh;
            }
        }
    }

    fn allows(&mut self, id: NodeId, closer: &Closer, label: &Label) -> bool {
        let declared = self
            .shape(id)
            .arms
            .get(label)
            .is_some_and(|arm| arm.evidence.iter().any(|members| closer.accepts(members)));
        if declared || !label.is_regular() {
            return declared;
        }
        let rules: Vec<Option<NodeId>> = self
            .shape(id)
            .patterns
            .iter()
            .filter(|rule| closer.accepts(&rule.ties.members))
            .map(|rule| rule.matcher)
            .collect();
        rules.into_iter().any(|matcher| self.matches(matcher, label))
    }

    /// Returns whether the node is closed and rejects the label.
    pub(super) fn refuses(&mut self, id: NodeId, label: &Label) -> bool {
        let active = self.active(id);
        !label.is_hidden() && !active.iter().all(|closer| self.allows(id, closer, label))
    }

    fn not_allowed(&self, id: NodeId, child: NodeId, label: &Label) -> Bottom {
        let mut error = Error::new(ErrorKind::Conflict, format!("field `{label}` is not allowed"));
        error.path = self.path(child);
        if let Some(position) = self.node(child).conjuncts.iter().find_map(|conjunct| self.place(conjunct)) {
            error = error.at(&position);
        }
        let known: Vec<String> = self
            .shape(id)
            .arms
            .iter()
            .filter(|(other, arm)| {
                *other != label && other.is_regular() && !arm.evidence.iter().all(Option::is_none)
            })
            .map(|(label, _)| label.to_string())
            .take(12)
            .collect();
        let hint = match known.is_empty() {
            true => "the definition is closed; remove the field".to_owned(),
            false => format!("the definition is closed and has {}", known.join(", ")),
        };
        Rc::new(error.hint(hint))
    }

    /// Returns whether a node is closed.
    pub(crate) fn is_closed(&self, id: NodeId) -> bool {
        !self.active(id).is_empty()
    }
}
