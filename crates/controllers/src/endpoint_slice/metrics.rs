//! Metrics, with v1.34's names.

use crate::discovery::metrics::Names;

pub(super) const NAMES: Names = Names {
    added: (
        "endpoint_slice_controller_endpoints_added_per_sync",
        "Number of endpoints added on each Service sync",
    ),
    updated: None,
    removed: (
        "endpoint_slice_controller_endpoints_removed_per_sync",
        "Number of endpoints removed on each Service sync",
    ),
    endpoints: ("endpoint_slice_controller_endpoints_desired", "Number of endpoints desired"),
    slices: ("endpoint_slice_controller_num_endpoint_slices", "Number of EndpointSlices"),
    wanted: (
        "endpoint_slice_controller_desired_endpoint_slices",
        "Number of EndpointSlices that would exist with perfect endpoint allocation",
    ),
    changes: ("endpoint_slice_controller_changes", "Number of EndpointSlice changes"),
};

pub(super) const SYNCS: (&str, &str) = ("endpoint_slice_controller_syncs", "Number of EndpointSlice syncs");

pub(super) const CHANGED: (&str, &str) = (
    "endpoint_slice_controller_endpointslices_changed_per_sync",
    "Number of EndpointSlices changed on each Service sync",
);

/// Prometheus' default buckets.
pub(super) const DEFAULT_BOUNDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

pub(super) const BY_DISTRIBUTION: (&str, &str) = (
    "endpoint_slice_controller_services_count_by_traffic_distribution",
    "Number of Services using some specific trafficDistribution",
);
