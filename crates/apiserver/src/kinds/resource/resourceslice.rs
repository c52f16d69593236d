//! ResourceSlices.

use super::RESOURCE;
use crate::kind::{Kind, Scope};
use crate::kinds::entry;
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind { scope: Scope::Cluster, ..entry(&RESOURCE, "ResourceSlice", "resourceslices", ResourceSlice) }
}

struct ResourceSlice;

impl Strategy for ResourceSlice {}
