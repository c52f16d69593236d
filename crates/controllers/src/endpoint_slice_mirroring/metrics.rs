//! Metrics, with v1.34's names.

use crate::discovery::metrics::Names;

pub(super) const NAMES: Names = Names {
    added: (
        "endpoint_slice_mirroring_controller_endpoints_added_per_sync",
        "Endpoints added by one reconcile of an Endpoints object",
    ),
    updated: Some((
        "endpoint_slice_mirroring_controller_endpoints_updated_per_sync",
        "Endpoints changed by one reconcile of an Endpoints object",
    )),
    removed: (
        "endpoint_slice_mirroring_controller_endpoints_removed_per_sync",
        "Endpoints removed by one reconcile of an Endpoints object",
    ),
    endpoints: ("endpoint_slice_mirroring_controller_endpoints_desired", "Endpoints that should exist"),
    slices: ("endpoint_slice_mirroring_controller_num_endpoint_slices", "EndpointSlices that exist"),
    wanted: (
        "endpoint_slice_mirroring_controller_desired_endpoint_slices",
        "EndpointSlices needed if each were filled to its limit",
    ),
    changes: ("endpoint_slice_mirroring_controller_changes", "Writes of EndpointSlices, by operation"),
};

pub(super) const SKIPPED: (&str, &str) = (
    "endpoint_slice_mirroring_controller_addresses_skipped_per_sync",
    "Addresses left out by one reconcile: invalid, or beyond the limit of a subset",
);

pub(super) const DURATION: (&str, &str) = (
    "endpoint_slice_mirroring_controller_endpoints_sync_duration",
    "Seconds one reconcile of an Endpoints object took",
);

/// Histogram buckets: 1 ms, doubling, fifteen in total.
pub(super) const SECONDS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];
