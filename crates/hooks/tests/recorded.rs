//! Recorded hooks: what a hook has answered once is enough for a test without it.

use setpoint_hooks::{Recorded, Recording};

use super::*;

async fn life(cluster: &Running) {
    create_controller(cluster, composite("maps", "InPlace")).await;
    create_thing(cluster, "a", json!({"value": "1", "count": 2})).await;
    until_value(cluster, &things(), "a", "/status/children", json!(2)).await;
    patch(cluster, &things(), &key("a"), json!({"spec": {"value": "2"}})).await;
    until_value(cluster, &config_maps(), "a-1", "/data/value", json!("2")).await;
}

#[test]
fn a_recorded_hook_answers_in_a_cluster_as_it_did_in_another() {
    let recording = Recording::of(Functions::new().on(SYNC, |request| maps(&request)));
    with_options(Options::new(recording.clone()), life);
    let recorded = Recorded::parse(&recording.text()).expect("a recording");
    with_options(Options::new(recorded), async |cluster| {
        life(cluster).await;
        // The hook has never been asked about this.
        patch(cluster, &things(), &key("a"), json!({"spec": {"value": "3"}})).await;
        cluster.pass(std::time::Duration::from_secs(5)).await;
        let errors = messages(cluster, "a", "SyncError").await;
        assert!(errors.iter().any(|error| error.contains("was not recorded")), "{errors:?}");
    });
}
