//! CSIDrivers.

use super::STORAGE;
use crate::kind::{Kind, Scope};
use crate::kinds::entry;
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind { scope: Scope::Cluster, ..entry(&STORAGE, "CSIDriver", "csidrivers", CSIDriver) }
}

struct CSIDriver;

impl Strategy for CSIDriver {
    fn unconditional_update(&self) -> bool {
        false
    }
}
