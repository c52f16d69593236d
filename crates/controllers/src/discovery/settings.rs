//! Settings of the endpoint controllers.

use std::time::Duration;

use crate::flags::number;

/// Settings of the endpoint controllers.
#[derive(Clone, Copy, Debug)]
pub struct EndpointSettings {
    /// How long to batch pod changes before Endpoints are written.
    pub endpoints_batch: Duration,
    /// How long to batch pod changes before EndpointSlices are written.
    pub slices_batch: Duration,
    /// The maximum number of endpoints per slice.
    pub max_endpoints_per_slice: usize,
    /// How long to batch changes of mirrored Endpoints.
    pub mirroring_batch: Duration,
    /// The maximum number of mirrored addresses per subset.
    pub max_endpoints_per_subset: usize,
}

impl Default for EndpointSettings {
    fn default() -> Self {
        Self {
            endpoints_batch: Duration::ZERO,
            slices_batch: Duration::ZERO,
            max_endpoints_per_slice: 100,
            mirroring_batch: Duration::ZERO,
            max_endpoints_per_subset: 1000,
        }
    }
}

/// Parses a maximum. It is limited to what fits into an API object.
pub(crate) fn parse_max_endpoints(text: &str) -> Result<usize, String> {
    let max_endpoints: usize = number(text)?;
    if (1..=1000).contains(&max_endpoints) {
        Ok(max_endpoints)
    } else {
        Err("expected a number from 1 to 1000".into())
    }
}
