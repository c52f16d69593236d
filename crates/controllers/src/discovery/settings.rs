//! What can be set for the controllers of endpoints.

use std::time::Duration;

use crate::flags::number;

/// What can be set for the controllers of endpoints.
#[derive(Clone, Copy, Debug)]
pub struct EndpointSettings {
    /// How long changes of pods wait for others to come, before Endpoints are written.
    pub endpoints_batch: Duration,
    /// The same, before EndpointSlices are written.
    pub slices_batch: Duration,
    /// The most endpoints in a slice.
    pub most_in_slice: usize,
    /// How long changes of mirrored slices wait for others to come.
    pub mirroring_batch: Duration,
    /// The most addresses of a subset that are mirrored.
    pub most_in_subset: usize,
}

impl Default for EndpointSettings {
    fn default() -> Self {
        Self {
            endpoints_batch: Duration::ZERO,
            slices_batch: Duration::ZERO,
            most_in_slice: 100,
            mirroring_batch: Duration::ZERO,
            most_in_subset: 1000,
        }
    }
}

/// How many there may be: what fits into an object of the API.
pub(crate) fn most(text: &str) -> Result<usize, String> {
    let most: usize = number(text)?;
    if (1..=1000).contains(&most) { Ok(most) } else { Err("expected a number from 1 to 1000".into()) }
}
