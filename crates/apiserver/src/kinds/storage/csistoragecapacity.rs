//! CSIStorageCapacities.

use super::STORAGE;
use crate::kind::Kind;
use crate::kinds::entry;
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind { ..entry(&STORAGE, "CSIStorageCapacity", "csistoragecapacities", CSIStorageCapacity) }
}

struct CSIStorageCapacity;

impl Strategy for CSIStorageCapacity {
    fn counts_generations(&self) -> bool {
        false
    }

    fn unconditional_update(&self) -> bool {
        false
    }
}
