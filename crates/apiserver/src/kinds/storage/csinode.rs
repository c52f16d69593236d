//! CSINodes.

use super::STORAGE;
use crate::kind::{Kind, Scope};
use crate::kinds::entry;
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind { scope: Scope::Cluster, ..entry(&STORAGE, "CSINode", "csinodes", CSINode) }
}

struct CSINode;

impl Strategy for CSINode {
    fn counts_generations(&self) -> bool {
        false
    }

    fn unconditional_update(&self) -> bool {
        false
    }
}
