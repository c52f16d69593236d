//! Tests the operator in simulated clusters. `setpoint add` extends this file; your tests are in the modules.

mod manifests;

mod widget;

use setpoint_sim::{Running, TestCluster};

use setpoint_example_operator_template::{controllers, definitions};

/// A cluster that runs the operator.
pub(crate) fn cluster() -> TestCluster {
    TestCluster::new().controllers(&["garbagecollector"]).with(controllers)
}

/// Installs the operator's CRDs.
pub(crate) async fn install(cluster: &Running) {
    for definition in definitions() {
        cluster.install(&definition).await;
    }
}
