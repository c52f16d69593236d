//! PriorityClasses.

use super::SCHEDULING;
use crate::kind::{Kind, Scope};
use crate::kinds::entry;
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        short_names: vec!["pc".into()],
        ..entry(&SCHEDULING, "PriorityClass", "priorityclasses", PriorityClass)
    }
}

struct PriorityClass;

impl Strategy for PriorityClass {}
