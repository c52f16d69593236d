//! Checks that the manifests in `config` fit the code. `make manifests` writes them.

use setpoint_sim::Manifest;

use crate::{cluster, install};

fn manifest(path: &str) -> Manifest {
    Manifest::at(concat!(env!("CARGO_MANIFEST_DIR"), "/config"), path).written_by("make manifests")
}

#[test]
fn the_definitions_in_config_are_those_of_the_code() {
    for definition in setpoint_example_operator_template::definitions() {
        let spec = &definition.spec;
        let path = format!("crd/bases/{}_{}.yaml", spec.group, spec.names.plural);
        manifest(&path).assert_is(&definition);
    }
}

/// Every kind lives through its whole life here. If your controller makes other requests in other cases, add them to
/// `life`.
#[test]
fn the_role_permits_what_the_controllers_do() {
    let used = cluster().run(async |cluster| {
        install(cluster).await;
        crate::widget::life(cluster).await;
        cluster.permissions()
    });
    manifest("rbac/role.yaml").assert_permits(&used);
}
