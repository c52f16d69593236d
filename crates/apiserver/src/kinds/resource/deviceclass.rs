//! DeviceClasses.

use super::RESOURCE;
use crate::kind::{Kind, Scope};
use crate::kinds::entry;
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind { scope: Scope::Cluster, ..entry(&RESOURCE, "DeviceClass", "deviceclasses", DeviceClass) }
}

struct DeviceClass;

impl Strategy for DeviceClass {}
