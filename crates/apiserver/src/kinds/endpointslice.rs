//! EndpointSlices.

use super::DISCOVERY;
use crate::kind::Kind;
use crate::kinds::entry;
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind { ..entry(&DISCOVERY, "EndpointSlice", "endpointslices", EndpointSlice) }
}

struct EndpointSlice;

impl Strategy for EndpointSlice {}
