//! Bindings as a resource of their own: an old way to assign a pod to a node.

use super::{CORE, entry};
use crate::kind::{Kind, Verb};
use crate::strategy::{Creation, Lifecycle, Semantics, Validation};

pub fn kind() -> Kind {
    Kind {
        verbs: vec![Verb::Create],
        semantics: Semantics { creation: Creation::Binding, ..Semantics::default() },
        ..entry(&CORE, "Binding", "bindings", Binding)
    }
}

struct Binding;

impl Lifecycle for Binding {}

impl Validation for Binding {}
