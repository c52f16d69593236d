//! Device claims of pods: allocation and waiting.

use std::collections::BTreeMap;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use serde_json::{Value, json};
use setpoint::Kind;
use setpoint::client::DeleteOptions;
use setpoint_sim::{History, World};
use setpoint_store::EventKind;

use super::scenarios::{create, key, survives, until};
use super::scheduling::{account, pod, runs};

const CONTROLLERS: &[&str] = &["resourceclaim-controller", "garbage-collector-controller"];

/// One device on the only node, and two pods that each need one: the second runs when the first is gone.
fn one_after_the_other(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        account(world).await;
        let selectors = json!([{"cel": {"expression": "device.attributes['d.io'].model == 'a'"}}]);
        let class = json!({"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}});
        world.create(&Kind::of::<DeviceClass>(), None, class).await;
        let device = json!({"name": "a", "attributes": {"model": {"string": "a"}}});
        let pool = json!({"name": "node-0", "generation": 1, "resourceSliceCount": 1});
        let spec = json!({"driver": "d.io", "pool": pool, "nodeName": "node-0", "devices": [device]});
        let slice = json!({"metadata": {"name": "node-0"}, "spec": spec});
        world.create(&Kind::of::<ResourceSlice>(), None, slice).await;
        let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu"}});
        let template = json!({"spec": {"spec": {"devices": {"requests": [request]}}}});
        create::<ResourceClaimTemplate>(world, "t", template).await;
        let claims = json!({"resourceClaims": [{"name": "dev", "resourceClaimTemplateName": "t"}]});
        create::<Pod>(world, "first", pod(1, claims.clone())).await;
        until::<Pod>(world, "first", runs).await;
        create::<Pod>(world, "second", pod(1, claims)).await;
        until::<Pod>(world, "second", waits_for_devices).await;
        let first = world.get(&Kind::of::<Pod>(), &key("first")).await.expect("it runs");
        let delete = DeleteOptions::of_uid(first["metadata"]["uid"].as_str().unwrap_or_default());
        world.client().delete(&Kind::of::<Pod>(), &key("first"), &delete).await.expect("it goes");
        until::<Pod>(world, "second", runs).await;
        let claim = first["status"]["resourceClaimStatuses"][0]["resourceClaimName"].as_str();
        let claim = key(claim.unwrap_or_default());
        world.until(&Kind::of::<ResourceClaim>(), &claim, |claim| claim.is_none()).await;
    }
    .boxed_local()
}

fn waits_for_devices(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let expected = "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, \
                    preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    conditions.iter().any(|one| one["reason"] == "Unschedulable" && one["message"] == expected)
}

/// The device is never allocated to two claims at once.
fn no_device_is_shared(history: &History) -> Result<(), String> {
    let mut allocated: BTreeMap<String, String> = BTreeMap::new();
    for (change, claim) in history.changes().filter(|(_, object)| object["kind"] == "ResourceClaim") {
        let name = claim["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let device = &claim["status"]["allocation"]["devices"]["results"][0]["device"];
        match device.as_str().filter(|_| change != EventKind::Deleted) {
            Some(device) => _ = allocated.insert(name, device.to_owned()),
            None => _ = allocated.remove(&name),
        }
        if allocated.len() > 1 {
            return Err(format!("the device is allocated twice: {allocated:?}"));
        }
    }
    Ok(())
}

#[test]
fn devices_are_reallocated_whatever_crashes_and_whatever_is_hidden() {
    survives("devices", CONTROLLERS, one_after_the_other, no_device_is_shared);
}
