//! Forks of an in-memory store: they share records, and nothing after that.

use std::sync::Arc;
use std::time::Duration;

use setpoint_store::*;

use crate::engines::{World, clock, drain, pods, text};

async fn original() -> (MemoryStore, World) {
    let store = Arc::new(MemoryStore::new(clock()));
    let world = World::with_store(store.clone(), clock());
    world.create("a").await;
    world.create("b").await;
    world.update("a", "changed").await;
    world.create_for("short", Duration::from_secs(10)).await;
    (store.fork(clock()), world)
}

#[tokio::test(start_paused = true)]
async fn a_fork_has_the_records_at_their_revisions() {
    let (fork, original) = original().await;
    assert_eq!(fork.revision(), original.store.revision());
    let record = fork.get(&pods().key("a"), None).await.unwrap().unwrap();
    assert_eq!((text(&record), record.created, record.modified), ("changed", 2, 4));
}

#[tokio::test(start_paused = true)]
async fn writes_to_a_fork_and_its_original_do_not_mix() {
    let (fork, original) = original().await;
    let fork = World::with_store(Arc::new(fork), clock());
    assert_eq!(fork.create("c").await, original.create("d").await);
    assert!(original.get("c").await.is_none());
    assert!(fork.get("d").await.is_none());
    fork.update("a", "forked").await;
    assert_eq!(text(&original.get("a").await.unwrap()), "changed");
}

#[tokio::test(start_paused = true)]
async fn a_fork_knows_nothing_of_earlier_history_and_all_of_its_own() {
    let (fork, _) = original().await;
    let from = fork.revision();
    let fork = World::with_store(Arc::new(fork), clock());
    let mut watch = fork.watch("", from);
    fork.create("c").await;
    assert_eq!(drain(&mut watch).unwrap(), [format!("+c@{}", from + 1)]);
    assert!(matches!(fork.store.watch(pods().all(), from - 1), Err(Error::Compacted { .. })));
}

#[tokio::test(start_paused = true)]
async fn records_of_a_fork_expire() {
    let (fork, _) = original().await;
    let later = clock().now() + Duration::from_secs(11);
    assert_eq!(fork.expire(later).await.unwrap(), 1);
    assert!(fork.get(&pods().key("short"), None).await.unwrap().is_none());
}
