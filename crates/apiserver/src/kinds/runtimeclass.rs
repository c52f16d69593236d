//! RuntimeClasses.

use super::NODE;
use crate::kind::{Kind, Scope};
use crate::kinds::entry;
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind { scope: Scope::Cluster, ..entry(&NODE, "RuntimeClass", "runtimeclasses", RuntimeClass) }
}

struct RuntimeClass;

impl Strategy for RuntimeClass {
    fn counts_generations(&self) -> bool {
        false
    }

    fn create_on_update(&self) -> bool {
        true
    }

    fn unconditional_update(&self) -> bool {
        false
    }
}
