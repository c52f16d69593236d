//! Bindings posted by themselves: an old way to assign a pod to a node.

use super::{CORE, entry};
use crate::kind::{Kind, Verb};
use crate::strategy::{Creation, Strategy};

pub fn kind() -> Kind {
    Kind { verbs: vec![Verb::Create], ..entry(&CORE, "Binding", "bindings", Binding) }
}

struct Binding;

impl Strategy for Binding {
    fn creation(&self) -> Creation {
        Creation::Binding
    }
}
