//! Metrics, with v1.34's names.

use crate::discovery::metrics::Names;

pub(super) const NAMES: Names = Names {
    added: (
        "endpoint_slice_mirroring_controller_endpoints_added_per_sync",
        "Number of endpoints added on each Endpoints sync",
    ),
    updated: Some((
        "endpoint_slice_mirroring_controller_endpoints_updated_per_sync",
        "Number of endpoints updated on each Endpoints sync",
    )),
    removed: (
        "endpoint_slice_mirroring_controller_endpoints_removed_per_sync",
        "Number of endpoints removed on each Endpoints sync",
    ),
    endpoints: ("endpoint_slice_mirroring_controller_endpoints_desired", "Number of endpoints desired"),
    slices: ("endpoint_slice_mirroring_controller_num_endpoint_slices", "Number of EndpointSlices"),
    wanted: (
        "endpoint_slice_mirroring_controller_desired_endpoint_slices",
        "Number of EndpointSlices that would exist with perfect endpoint allocation",
    ),
    changes: ("endpoint_slice_mirroring_controller_changes", "Number of EndpointSlice changes"),
};

pub(super) const SKIPPED: (&str, &str) = (
    "endpoint_slice_mirroring_controller_addresses_skipped_per_sync",
    "Number of addresses skipped on each Endpoints sync due to being invalid or exceeding MaxEndpointsPerSubset",
);

pub(super) const DURATION: (&str, &str) =
    ("endpoint_slice_mirroring_controller_endpoints_sync_duration", "Duration of syncEndpoints() in seconds");

/// Histogram buckets: 1 ms, doubling, fifteen in total.
pub(super) const SECONDS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];
