//! StorageClasses.

use super::STORAGE;
use crate::kind::{Kind, Scope};
use crate::kinds::entry;
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        short_names: vec!["sc".into()],
        ..entry(&STORAGE, "StorageClass", "storageclasses", StorageClass)
    }
}

struct StorageClass;

impl Strategy for StorageClass {
    fn counts_generations(&self) -> bool {
        false
    }
}
