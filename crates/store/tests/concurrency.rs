//! Tests of overlapping calls, on real threads.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use setpoint_clock::Clock;
use setpoint_store::*;

use crate::engines::disk::{Fault, SimDisk};
use crate::engines::{pods, text};

fn engines() -> [Arc<dyn Store>; 2] {
    let disk = Arc::<SimDisk>::default().share();
    let durable = DurableStore::open_on(disk, Clock::system(), DurableOptions::default()).unwrap();
    [Arc::new(MemoryStore::new(Clock::system())), Arc::new(durable)]
}

fn put(path: &str, expect: Expect) -> Write {
    let payload = Payload::plain(path.to_owned());
    Write { key: pods().key(path), expect, change: Change::Put { payload, ttl: None } }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_may_follow_one_that_is_not_acknowledged_yet() {
    for store in engines() {
        store.commit(put("a", Expect::Absent)).await.unwrap();
        let mut writes = Vec::new();
        for revision in 2..20_000 {
            let mut write = store.commit(put("a", Expect::Revision(revision)));
            // After one poll, a write is in the queue.
            match (&mut write).now_or_never() {
                Some(answer) => assert_eq!(answer.unwrap().modified, revision + 1),
                None => writes.push((revision + 1, write)),
            }
            if revision.is_multiple_of(64) {
                // A task that does not yield runs out of budget, however much room there is.
                tokio::task::yield_now().await;
            }
        }
        for (revision, write) in writes {
            assert_eq!(write.await.unwrap().modified, revision);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_with_the_same_precondition_have_one_winner() {
    const RIVALS: usize = 16;
    for store in engines() {
        let mut expect = Expect::Absent;
        for round in 0..100 {
            let contend = |store: Arc<dyn Store>| async move { store.commit(put("contended", expect)).await };
            let rivals = (0..RIVALS).map(|_| tokio::spawn(contend(store.clone())));
            let results: Vec<_> = join_all(rivals).await.into_iter().map(Result::unwrap).collect();
            let winners: Vec<_> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
            let [winner] = winners[..] else { panic!("{} winners in round {round}", winners.len()) };
            for loser in results.iter().filter_map(|result| result.as_ref().err()) {
                let Error::Conflict { current: Some(current) } = loser else { panic!("{loser}") };
                assert_eq!(current.modified, winner.modified, "a failed precondition returns the winner");
            }
            expect = Expect::Revision(winner.modified);
        }
    }
}

/// One side asks and waits for a reply, the other waits for the question and replies. A lost wake-up would leave both
/// waiting forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost() {
    const ROUNDS: usize = 10_000;
    async fn say(store: &dyn Store, what: &str, round: usize) {
        store.commit(put(&format!("{what}/{round}"), Expect::Absent)).await.unwrap();
    }
    async fn hear(watch: &mut Watch, what: &str, round: usize) {
        let events = watch.next().await.unwrap();
        let heard: Vec<_> = events.iter().map(|event| text(&event.record)).collect();
        assert_eq!(heard, [format!("{what}/{round}")]);
    }
    for store in engines() {
        let mut answers = store.watch(pods().under("answer/"), 1).unwrap();
        let mut questions = store.watch(pods().under("question/"), 1).unwrap();
        let other = store.clone();
        let answering = tokio::spawn(async move {
            for round in 0..ROUNDS {
                hear(&mut questions, "question", round).await;
                say(&*other, "answer", round).await;
            }
        });
        for round in 0..ROUNDS {
            say(&*store, "question", round).await;
            hear(&mut answers, "answer", round).await;
        }
        answering.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_that_come_and_go_while_others_write_see_every_change_once() {
    const WRITERS: usize = 4;
    const WRITES: usize = 500;
    const NEWEST: Revision = 1 + (WRITERS * WRITES) as Revision;
    for store in engines() {
        let write = |number: usize, store: Arc<dyn Store>| async move {
            for write in 0..WRITES {
                store.commit(put(&format!("{number}/{write}"), Expect::Absent)).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let watch = |batches: usize, store: Arc<dyn Store>| async move {
            let mut seen = 1;
            while seen < NEWEST {
                let mut watch = store.watch(pods().all(), seen).unwrap();
                for _ in 0..batches.min((NEWEST - seen) as usize) {
                    for event in watch.next().await.unwrap() {
                        assert_eq!(event.revision(), seen + 1);
                        seen = event.revision();
                    }
                    assert!(watch.revision() >= seen);
                    if seen == NEWEST {
                        break;
                    }
                }
            }
        };
        let watchers: Vec<_> = (1..8).map(|batches| tokio::spawn(watch(batches, store.clone()))).collect();
        let writers: Vec<_> = (0..WRITERS).map(|number| tokio::spawn(write(number, store.clone()))).collect();
        join_all(writers).await.into_iter().chain(join_all(watchers).await).for_each(Result::unwrap);
    }
}

/// Rejected writers, watchers that come and go, and compaction take the queue's and the state's lock in every
/// combination. In the wrong order, they deadlock.
#[test]
fn a_failing_disk_under_load_does_not_hang_the_store() {
    const WRITERS: usize = 8;
    const WRITES: usize = 2_000;
    const WATCHERS: usize = 4;
    // A minute means a hang: the whole test takes a second or two.
    const PATIENCE: Duration = Duration::from_secs(60);
    let disk = Arc::<SimDisk>::default();
    disk.inject((10..1_000_000).step_by(3).map(|at| (at, Fault::Full)));
    let store = DurableStore::open_on(disk.share(), Clock::system(), DurableOptions::default()).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let (done, is_done) = sync_channel(WRITERS);
    for writer in 0..WRITERS {
        let (store, done) = (store.clone(), done.clone());
        thread::spawn(move || {
            for write in 0..WRITES {
                let outcome = futures::executor::block_on(
                    store.commit(put(&format!("{writer}/{write}"), Expect::Absent)),
                );
                assert!(matches!(outcome, Ok(_) | Err(Error::Full)), "{outcome:?}");
            }
            done.send(()).unwrap();
        });
    }
    // They end when the store is closed.
    for _ in 0..WATCHERS {
        let store = store.clone();
        thread::spawn(move || {
            while let Ok(mut watch) = store.watch(pods().all(), store.revision()) {
                if matches!(watch.try_next(), Err(WatchError::Closed)) {
                    return;
                }
                _ = futures::executor::block_on(store.compact(store.revision().saturating_sub(1)));
            }
        });
    }
    for _ in 0..WRITERS {
        is_done.recv_timeout(PATIENCE).expect("the store hangs");
    }
    futures::executor::block_on(store.close());
}
