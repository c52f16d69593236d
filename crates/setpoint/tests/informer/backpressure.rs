//! A full queue holds back the watch that feeds it, unless a caller waits for the cache.

use setpoint::handler::enqueue_self;
use setpoint::{Clock, Key, Queue, Rng, Runtime};

use crate::server::Server;
use crate::{World, seconds};

async fn world(bound: usize) -> (World, Queue<Key>) {
    let world = World::synced(Server::new()).await;
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let queue = Queue::new("bounded", &Runtime { clock, rng: Rng::seeded(1) }).bounded(bound);
    world.informer.add_handler(enqueue_self(&queue));
    world.informer.wait_for_sync().await;
    (world, queue)
}

async fn change(world: &World, names: impl IntoIterator<Item = u32>) {
    for name in names {
        world.server.put(&format!("object-{name}"));
        seconds(1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_holds_back_the_watch() {
    let (world, queue) = world(5).await;
    change(&world, 0..100).await;
    assert_eq!((queue.len(), world.cache().len()), (5, 5), "unread events stay on the server");

    for _ in 0..3 {
        queue.take().await;
    }
    seconds(1).await;
    assert!(queue.len() >= 5, "more events were read");
    while world.cache().len() < 100 {
        let key = queue.take().await.expect("the queue is open");
        queue.done(&key);
        seconds(1).await;
    }
    assert_eq!(world.cache(), world.server.world(), "nothing is lost");
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_does_not_block_waiting_for_the_cache() {
    let (world, queue) = world(1).await;
    change(&world, 0..3).await;
    assert_eq!(queue.len(), 1);
    world.informer.wait_for_version("3").await;
    assert_eq!((queue.len(), world.cache().len()), (3, 3));
}
