//! VolumeAttributesClasses.

use super::STORAGE;
use crate::kind::{Kind, Scope};
use crate::kinds::entry;
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        short_names: vec!["vac".into()],
        ..entry(&STORAGE, "VolumeAttributesClass", "volumeattributesclasses", VolumeAttributesClass)
    }
}

struct VolumeAttributesClass;

impl Strategy for VolumeAttributesClass {
    fn counts_generations(&self) -> bool {
        false
    }
}
