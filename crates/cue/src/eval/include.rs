//! Inclusion: unifies a node with the target of a reference by copying its conjuncts.
//!
//! A reference to something that is already part of the node adds nothing, so `a: b, b: a` means `_`. A reference to a
//! node that contains this one makes its conjuncts *cyclic*: a node with only cyclic conjuncts is an infinite
//! structure.

use std::rc::Rc;

use super::closed::{Closer, Group, with};
use super::node::{Conjunct, Key, Link, NodeId, State, Ties};
use super::{Evaluator, Res};
use crate::error::ErrorKind;
use crate::syntax::ast::Marker;

/// The longest chain of references to references. It is walked, and dropped recursively.
const MAX_CHAIN: usize = 1_000;

impl Evaluator {
    /// Unifies a node with another.
    pub(super) fn include(
        &mut self,
        id: NodeId,
        target: NodeId,
        conjunct: &Conjunct,
        closes: bool,
    ) -> Res<()> {
        let length = conjunct.ties.chain.as_ref().map_or(0, |link| link.length);
        if length >= MAX_CHAIN {
            let error = self.error(
                id,
                ErrorKind::Limit,
                format!("evaluation was stopped: more than {MAX_CHAIN} references in a row"),
            );
            return Err(self.stop(error.hint("look for endless recursion")));
        }
        // Both lists are searched.
        self.charge(1 + (length + self.shape(id).included.len()) / 16)?;
        let origin = self.node(target).origin;
        if origin == self.node(id).origin {
            return Ok(());
        }
        let known = self.shape(id).included.iter().find(|(included, _)| *included == origin).copied();
        if let Some((_, group)) = known {
            self.include_again(id, group, conjunct, closes);
            return Ok(());
        }
        let group = closes.then(|| self.new_group(Group::Definition(conjunct.ties.embedding.clone())));
        self.shape_mut(id).included.push((origin, group));
        self.available(target)?;
        let mut ties = self.ties_of(id, origin, &conjunct.ties);
        if let Some(group) = group {
            ties.members = with(&ties.members, group);
        }
        self.take_over(id, target, &ties)
    }

    /// A second use of the same definition closes, but adds nothing.
    fn include_again(&mut self, id: NodeId, group: Option<u32>, conjunct: &Conjunct, closes: bool) {
        if let Some(group) = group.filter(|_| closes) {
            let closer = Closer { group, embedding: conjunct.ties.embedding.clone() };
            self.shape_mut(id).closers.push(closer);
        }
    }

    /// Checks that a target can be referenced, and records it if more may be added to it.
    fn available(&mut self, target: NodeId) -> Res<()> {
        let node = self.node(target);
        if let Some(refused) = &node.refused {
            return Err(refused.clone());
        }
        if node.marker != Marker::None {
            return Err(Rc::new(self.error(target, ErrorKind::Absent, "the field is optional and not set")));
        }
        if let Some(parent) = node.parent.filter(|parent| self.node(*parent).state == State::Expanding) {
            self.depend(parent, target);
        }
        Ok(())
    }

    fn ties_of(&self, id: NodeId, target: NodeId, ties: &Ties) -> Ties {
        let mut link = ties.chain.as_ref();
        let mut followed = false;
        while let Some(at) = link {
            followed |= at.target == target;
            link = at.next.as_ref();
        }
        let cyclic = ties.cyclic || followed || self.contains(target, id);
        let length = 1 + ties.chain.as_ref().map_or(0, |link| link.length);
        let chain = Some(Rc::new(Link { target, next: ties.chain.clone(), length }));
        Ties { chain, cyclic, ..ties.clone() }
    }

    /// Returns whether `inner` lies below `outer`.
    fn contains(&self, outer: NodeId, inner: NodeId) -> bool {
        let mut at = self.node(inner).parent;
        while let Some(id) = at {
            let node = self.node(id);
            if node.origin == outer {
                return node.key != Key::Anonymous;
            }
            at = node.parent;
        }
        false
    }

    /// Queues the conjuncts of a target.
    fn take_over(&mut self, id: NodeId, target: NodeId, ties: &Ties) -> Res<()> {
        let conjuncts = self.node(target).conjuncts.clone();
        self.charge(conjuncts.len())?;
        for conjunct in conjuncts.into_iter().rev() {
            self.enqueue(id, Conjunct { ties: ties.clone(), ..conjunct });
        }
        Ok(())
    }
}
