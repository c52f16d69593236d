//! Metrics, with v1.34's names.

use crate::discovery::metrics::Names;

pub(super) const NAMES: Names = Names {
    added: (
        "endpoint_slice_controller_endpoints_added_per_sync",
        "Endpoints added by one reconcile of a Service",
    ),
    updated: None,
    removed: (
        "endpoint_slice_controller_endpoints_removed_per_sync",
        "Endpoints removed by one reconcile of a Service",
    ),
    endpoints: ("endpoint_slice_controller_endpoints_desired", "Endpoints that should exist"),
    slices: ("endpoint_slice_controller_num_endpoint_slices", "EndpointSlices that exist"),
    wanted: (
        "endpoint_slice_controller_desired_endpoint_slices",
        "EndpointSlices needed if each were filled to its limit",
    ),
    changes: ("endpoint_slice_controller_changes", "Writes of EndpointSlices, by operation"),
};

pub(super) const SYNCS: (&str, &str) = ("endpoint_slice_controller_syncs", "Service reconciles, by result");

pub(super) const CHANGED: (&str, &str) = (
    "endpoint_slice_controller_endpointslices_changed_per_sync",
    "EndpointSlices written by one reconcile of a Service",
);

/// Prometheus' default buckets.
pub(super) const DEFAULT_BOUNDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

pub(super) const BY_DISTRIBUTION: (&str, &str) = (
    "endpoint_slice_controller_services_count_by_traffic_distribution",
    "Services by their trafficDistribution",
);
