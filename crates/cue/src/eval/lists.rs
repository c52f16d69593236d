//! Lists: unifying several lists element by element.

use super::node::{Conjunct, Key, ListPart, NodeId};
use super::{Evaluator, Res};
use crate::syntax::ast::Marker;

impl Evaluator {
    /// Creates the elements of a list from its parts.
    pub(super) fn join_lists(&mut self, id: NodeId) -> Res<()> {
        let parts = self.shape(id).lists.clone();
        let length = parts.iter().map(|part| part.elements.len()).max().unwrap_or(0);
        self.check_lengths(id, &parts, length)?;
        let mut elements = Vec::with_capacity(length);
        for index in 0..length {
            self.charge(parts.len())?;
            let element = self.add_node(Some(id), Key::Index(index));
            self.node_mut(element).marker = Marker::None;
            for part in &parts {
                if let Some(conjunct) = part_element(part, index) {
                    let ties = self.inherited(&conjunct.ties);
                    self.node_mut(element).conjuncts.push(Conjunct { ties, ..conjunct.clone() });
                }
            }
            elements.push(element);
        }
        self.shape_mut(id).elements = elements;
        Ok(())
    }

    fn check_lengths(&self, id: NodeId, parts: &[ListPart], length: usize) -> Res<()> {
        let Some(short) = parts.iter().find(|part| part.tail.is_none() && part.elements.len() < length)
        else {
            return Ok(());
        };
        let long = parts.iter().find(|part| part.elements.len() == length).unwrap_or(short);
        let message = format!("incompatible list lengths ({} and {length})", short.elements.len());
        Err(self.contradict(id, message, [short.position.clone(), long.position.clone()]))
    }
}

fn part_element(part: &ListPart, index: usize) -> Option<&Conjunct> {
    part.elements.get(index).or_else(|| part.tail.as_ref()?.as_ref())
}
