//! Records that expire. The engines in this process remove them when they are told the time; etcd does by itself.

use std::time::Duration;

use setpoint_store::*;

use crate::engines::{World, drain, pods};

on_embedded_engines![a_record_expires_as_an_ordinary_delete, a_rewritten_record_lives_by_its_new_deadline];

fn paths(page: &Page) -> Vec<&str> {
    page.records.iter().map(|record| &*record.key.path).collect()
}

async fn a_record_expires_as_an_ordinary_delete(world: World) {
    let mut watch = world.watch("", 1);
    world.create_for("b", Duration::from_secs(20)).await;
    world.create_for("a", Duration::from_secs(10)).await;
    world.create_for("c", Duration::from_secs(10)).await;
    world.create("forever").await;
    assert_eq!(world.get("a").await.unwrap().expires, Some("2025-01-01T00:00:10Z".parse().unwrap()));
    world.advance(Duration::from_millis(9_999)).await;
    assert_eq!(world.expire().await, 0);
    world.advance(Duration::from_millis(1)).await;
    assert_eq!(world.expire().await, 2);
    world.advance(Duration::from_secs(60)).await;
    assert_eq!(world.expire().await, 1);
    assert_eq!(world.expire().await, 0);
    assert_eq!(drain(&mut watch).unwrap()[4..], ["-a@6", "-c@7", "-b@8"]);
    assert_eq!(paths(&world.list("", ListOptions::default()).await.unwrap()), ["forever"]);
}

async fn a_rewritten_record_lives_by_its_new_deadline(world: World) {
    for path in ["longer", "forever", "gone"] {
        world.create_for(path, Duration::from_secs(10)).await;
    }
    let expect = Expect::Revision(world.get("longer").await.unwrap().modified);
    world.put(pods().key("longer"), expect, "x", Some(Duration::from_secs(30))).await.unwrap();
    world.update("forever", "x").await;
    world.delete("gone").await;
    world.create("gone").await;
    world.advance(Duration::from_secs(20)).await;
    assert_eq!(world.expire().await, 0);
    world.advance(Duration::from_secs(20)).await;
    assert_eq!(world.expire().await, 1);
    assert_eq!(paths(&world.list("", ListOptions::default()).await.unwrap()), ["forever", "gone"]);
}
