//! Tests what survives when the disk fails or the machine stops, at every possible operation.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::join_all;
use setpoint_clock::Rng;
use setpoint_store::*;

use crate::engines::disk::{Fault, SimDisk, Unsynced};
use crate::engines::{self, clock, pods};

const KEYS: u64 = 8;

/// The length of a run: enough for a few checkpoints.
const ROUNDS: u64 = 14;

/// Small enough for several checkpoints per run.
const OPTIONS: DurableOptions =
    DurableOptions { limits: LIMITS, checkpoint_after: 3_000, checkpoint_slice: 1_000 };
const LIMITS: Limits =
    Limits { events: 1_000, bytes: 1 << 20, total_bytes: 1 << 20, age: std::time::Duration::from_secs(300) };

/// Drives a store and records its replies.
///
/// Every key is written in versions 1, 2, 3 and so on, and every seventh version is a removal. So the value of a key
/// shows its version.
#[derive(Default)]
struct Ledger {
    keys: BTreeMap<u64, Account>,
    /// The newest revision that was acknowledged or seen.
    revision: Revision,
    refused: u64,
}

#[derive(Clone, Default)]
struct Account {
    /// The newest acknowledged version.
    acknowledged: u64,
    /// The newest attempted version.
    tried: u64,
    /// The rejected versions.
    refused: Vec<u64>,
    /// The record's current revision, for the next write.
    modified: Option<Revision>,
}

fn is_removal(version: u64) -> bool {
    version.is_multiple_of(7)
}

fn value(key: u64, version: u64) -> String {
    let filling = "x".repeat((key * 37 + version * 101) as usize % 900);
    format!("{{\"key\":{key},\"version\":{version},\"filling\":\"{filling}\"}}")
}

fn write(key: u64, account: &Account, version: u64) -> Write {
    let expect = account.modified.map_or(Expect::Absent, Expect::Revision);
    let payload = Payload {
        bytes: value(key, version).into(),
        stamp_at: Some(1),
        inset_at: None,
        inset: Inset::default(),
        facts: None,
    };
    let change = if is_removal(version) { Change::Delete } else { Change::Put { payload, ttl: None } };
    Write { key: pods().key(format!("{key}")), expect, change }
}

impl Ledger {
    /// Writes all keys concurrently, in rounds that alternate with single writes. With `until_refused`, stops at the
    /// first error, as after the machine has stopped.
    async fn work(&mut self, store: &DurableStore, rounds: u64, until_refused: bool) {
        for round in 0..rounds {
            let keys: Vec<u64> =
                if round.is_multiple_of(3) { vec![round % KEYS] } else { (0..KEYS).collect() };
            self.round(store, &keys).await;
            if until_refused && self.refused > 0 {
                return;
            }
        }
    }

    async fn round(&mut self, store: &DurableStore, keys: &[u64]) {
        let writes = keys.iter().map(|key| {
            let account = self.keys.entry(*key).or_default();
            account.tried = account.next_version();
            store.commit(write(*key, account, account.tried))
        });
        let writes: Vec<_> = writes.collect();
        for (key, result) in keys.iter().zip(join_all(writes).await) {
            let account = self.keys.get_mut(key).unwrap();
            match result {
                Ok(record) => {
                    account.acknowledged = account.tried;
                    account.modified = (!is_removal(account.tried)).then_some(record.modified);
                    self.revision = self.revision.max(record.modified);
                }
                Err(Error::Full | Error::Io(_)) => {
                    account.refused.push(account.tried);
                    self.refused += 1;
                }
                Err(error) => panic!("unexpected error: {error}"),
            }
        }
        assert!(store.revision() >= self.revision);
    }

    /// Checks a store against the ledger. With `may_have_happened`, writes that failed because the machine stopped may
    /// be visible or not. Any other failed write must not be visible.
    async fn check(&mut self, store: &DurableStore, may_have_happened: bool) {
        assert!(store.revision() >= self.revision, "the revision decreased");
        for (key, account) in &mut self.keys {
            let found = store.get(&pods().key(format!("{key}")), None).await.unwrap();
            let version = found.as_deref().map(|record| check_record(*key, record));
            let mut possible = vec![account.acknowledged];
            if may_have_happened {
                possible.extend(account.refused.iter().filter(|version| **version > account.acknowledged));
            }
            let is_possible = |possible: &&u64| {
                version == (!is_removal(**possible) && **possible > 0).then_some(**possible)
            };
            let Some(version) = possible.iter().find(is_possible) else {
                panic!("key {key} is at {version:?}, expected one of {possible:?}")
            };
            account.acknowledged = *version;
            account.modified = found.map(|record| record.modified);
        }
    }
}

impl Account {
    fn next_version(&self) -> u64 {
        // After an error, the same kind of write is retried with a new version.
        let next = self.tried.max(self.acknowledged) + 1;
        match (is_removal(next), self.modified) {
            (true, None) => next + 1,
            _ => next,
        }
    }
}

/// Returns the version of a record, which must be intact.
fn check_record(key: u64, record: &Record) -> u64 {
    let text = engines::text(record);
    let stamp = format!("{{\"resourceVersion\":\"{}\",", record.modified);
    let version =
        text.split("\"version\":").nth(1).and_then(|rest| rest.split(',').next()).unwrap().parse().unwrap();
    assert_eq!(text, format!("{stamp}{}", &value(key, version)[1..]), "a half-written record");
    version
}

fn open(disk: &Arc<SimDisk>) -> DurableStore {
    DurableStore::open_on(disk.share(), clock(), OPTIONS).unwrap()
}

/// Returns the number of disk operations in an undisturbed run of `rounds`.
async fn operations_of(rounds: u64) -> u64 {
    let disk = Arc::<SimDisk>::default();
    let mut ledger = Ledger::default();
    let store = open(&disk);
    ledger.work(&store, rounds, false).await;
    ledger.check(&store, false).await;
    drop(store);
    assert!(disk.names().iter().any(|name| name.starts_with("checkpoint-")), "the run has seen a checkpoint");
    disk.operations()
}

/// Runs until the disk stops at an operation. Returns the disk and the replies so far.
async fn run_until(stop_at: u64) -> (Arc<SimDisk>, Ledger) {
    let (disk, mut ledger) = (Arc::<SimDisk>::default(), Ledger::default());
    disk.inject([(stop_at, Fault::Stop)]);
    if let Ok(store) = DurableStore::open_on(disk.share(), clock(), OPTIONS) {
        ledger.work(&store, ROUNDS + 6, true).await;
    }
    (disk, ledger)
}

/// Everything acknowledged survives a crash at any operation.
async fn check_crashes(unsynced: Unsynced) {
    let operations = operations_of(ROUNDS).await;
    assert!(operations > 50, "{operations} operations are too few to mean anything");
    let rng = Rng::seeded(1);
    for stop_at in 0..operations {
        let (disk, mut ledger) = run_until(stop_at).await;
        let disk = disk.after_crash(unsynced, &rng);
        let store = open(&disk);
        ledger.check(&store, true).await;
        ledger.work(&store, 4, false).await;
        drop(store);
        ledger.check(&open(&disk), false).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_that_drops_unsynced_data_loses_no_acknowledged_write() {
    check_crashes(Unsynced::Lost).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_that_keeps_unsynced_data_loses_no_acknowledged_write() {
    check_crashes(Unsynced::Kept).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_that_tears_unsynced_data_loses_no_acknowledged_write() {
    check_crashes(Unsynced::Torn).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_that_scatters_unsynced_data_loses_no_acknowledged_write() {
    check_crashes(Unsynced::Scattered).await;
}

#[tokio::test(start_paused = true)]
async fn recovered_records_survive_another_crash() {
    let rng = Rng::seeded(4);
    for stop_at in 0..operations_of(ROUNDS).await {
        let (disk, mut ledger) = run_until(stop_at).await;
        disk.after_kill();
        let store = open(&disk);
        ledger.check(&store, true).await;
        ledger.revision = store.revision();
        drop(store);
        ledger.check(&open(&disk.after_crash(Unsynced::Lost, &rng)), false).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_recovering_from_a_crash_loses_nothing() {
    let rng = Rng::seeded(2);
    for stop_at in (0..operations_of(ROUNDS).await).step_by(5) {
        let (disk, ledger) = run_until(stop_at).await;
        let crashed = disk.after_crash(Unsynced::Torn, &rng);
        for again in 0..12 {
            let disk = crashed.after_crash(Unsynced::Kept, &rng);
            disk.inject([(again, Fault::Stop)]);
            drop(DurableStore::open_on(disk.share(), clock(), OPTIONS));
            let store = open(&disk.after_crash(Unsynced::Scattered, &rng));
            let mut ledger = Ledger { keys: ledger.keys.clone(), ..Ledger::default() };
            ledger.check(&store, true).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_operation_refuses_its_writes_and_harms_nothing_else() {
    let operations = operations_of(ROUNDS).await;
    let rng = Rng::seeded(3);
    for (fault, length) in
        [(Fault::Fail, 1), (Fault::Full, 1), (Fault::Fail, 2), (Fault::Full, 3), (Fault::Fail, 7)]
    {
        // The first four operations open the store.
        for first in 4..operations {
            let disk = Arc::<SimDisk>::default();
            disk.inject((first..first + length).map(|at| (at, fault)));
            let mut ledger = Ledger::default();
            let store = open(&disk);
            ledger.work(&store, ROUNDS + 6, false).await;
            ledger.check(&store, false).await;
            assert!(ledger.refused <= length * KEYS, "writes work again when the disk does");
            let crashed = disk.after_crash(Unsynced::Lost, &rng);
            drop(store);
            disk.inject([]);
            // If truncating after a failed sync failed too, its data may still be there.
            ledger.check(&open(&crashed), length > 1).await;
            ledger.check(&open(&disk), length > 1).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_not_found_by_the_next_process() {
    for fault in [Fault::Fail, Fault::Full] {
        for failing in 4..operations_of(ROUNDS).await {
            let (disk, mut ledger) = (Arc::<SimDisk>::default(), Ledger::default());
            disk.inject([(failing, fault)]);
            let store = open(&disk);
            ledger.work(&store, ROUNDS + 6, true).await;
            drop(store);
            disk.after_kill();
            ledger.check(&open(&disk), false).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn faults_in_any_combination_before_a_crash_lose_nothing_acknowledged() {
    let operations = operations_of(ROUNDS).await;
    for seed in 0..400 {
        let rng = Rng::seeded(seed);
        let (disk, mut ledger) = (Arc::<SimDisk>::default(), Ledger::default());
        let start = 4 + rng.below(operations);
        let kinds = [Fault::Fail, Fault::Fail, Fault::Full];
        let faults = (0..12).map(|_| (start + rng.below(24), kinds[rng.below(3) as usize]));
        disk.inject(faults.chain([(start + rng.below(48), Fault::Stop)]));
        let store = open(&disk);
        ledger.work(&store, ROUNDS + 10, false).await;
        ledger.check(&store, false).await;
        drop(store);
        let disk = disk.after_crash(Unsynced::Scattered, &rng);
        let store = DurableStore::open_on(disk.share(), clock(), OPTIONS);
        let store = store.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        ledger.check(&store, true).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_refuses_writes_serves_reads_and_recovers() {
    let disk = Arc::<SimDisk>::default();
    let store = open(&disk);
    let mut ledger = Ledger::default();
    ledger.work(&store, 20, false).await;
    // Some 7 KB are needed for the records, a checkpoint of them and a log.
    for capacity in [0, 100, 2_000, 4_000, 4_100, 4_500, 5_000] {
        disk.set_capacity(Some(capacity));
        let before = ledger.refused;
        ledger.work(&store, 20, false).await;
        assert!(ledger.refused > before);
        ledger.check(&store, false).await;
        disk.set_capacity(None);
        let refused = ledger.refused;
        ledger.work(&store, 20, false).await;
        assert_eq!(ledger.refused, refused, "space is available again");
        ledger.check(&store, false).await;
    }
    drop(store);
    ledger.check(&open(&disk), false).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_neither_read_nor_watched() {
    let disk = Arc::<SimDisk>::default();
    let store = open(&disk);
    let key = pods().key("a");
    let put = |expect| Write {
        key: key.clone(),
        expect,
        change: Change::Put { payload: Payload::plain("v"), ttl: None },
    };
    let created = store.commit(put(Expect::Absent)).await.unwrap();
    let mut watch = store.watch(pods().all(), created.modified).unwrap();
    let next = disk.operations();
    disk.inject([(next + 1, Fault::Fail)]);
    // The second write depends on the first, and the third is rejected because of it.
    let mut writes =
        [Expect::Revision(2), Expect::Revision(3), Expect::Absent].map(|expect| store.commit(put(expect)));
    disk.held(|| {
        for write in &mut writes {
            assert!(write.now_or_never().is_none(), "nothing is visible before it is durable");
        }
        assert_eq!(store.revision(), 2);
    });
    let [first, second, third] = <[_; 3]>::try_from(join_all(writes).await).unwrap();
    assert!(matches!((first, second), (Err(Error::Io(_)), Err(Error::Io(_)))));
    assert!(matches!(third, Err(Error::Io(_))), "a record that is not durable is not shown");
    assert_eq!((store.revision(), watch.revision()), (2, 2));
    assert_eq!(engines::drain(&mut watch).unwrap(), [""; 0]);
    assert_eq!(store.get(&key, None).await.unwrap().unwrap().modified, 2);
    assert_eq!(store.commit(put(Expect::Revision(2))).await.unwrap().modified, 3);
    assert_eq!(engines::drain(&mut watch).unwrap(), ["~a@3"]);
}

/// Returns a disk with one log of several frames, and where they start.
async fn log_of_frames() -> (Arc<SimDisk>, String, Vec<usize>) {
    let disk = Arc::<SimDisk>::default();
    let options = DurableOptions { checkpoint_after: 1 << 20, ..OPTIONS };
    let store = DurableStore::open_on(disk.share(), clock(), options).unwrap();
    let [name] = <[String; 1]>::try_from(disk.names()).unwrap();
    let mut frames = Vec::new();
    for key in 0..5 {
        frames.push(disk.content(&name).len());
        store.commit(write(key, &Account::default(), 1)).await.unwrap();
    }
    drop(store);
    (disk, name, frames)
}

fn open_error(disk: &Arc<SimDisk>) -> String {
    DurableStore::open_on(disk.share(), clock(), OPTIONS).err().expect("it is damaged").to_string()
}

#[tokio::test(start_paused = true)]
async fn damage_before_the_last_frame_is_an_error_that_names_the_place() {
    let (disk, name, frames) = log_of_frames().await;
    let good = disk.content(&name);
    for at in frames[1]..frames[4] {
        let mut content = good.clone();
        content[at] ^= 0x40;
        disk.replace(&name, content);
        let frame = frames.iter().rfind(|frame| **frame <= at).unwrap();
        let message = open_error(&disk);
        assert!(message.starts_with(&format!("{name} is damaged at byte {frame}: ")), "{at}: {message}");
    }
}

#[tokio::test(start_paused = true)]
async fn damage_in_the_last_frame_or_behind_it_is_an_unfinished_write() {
    let (disk, name, frames) = log_of_frames().await;
    let good = disk.content(&name);
    let check = |content: Vec<u8>, revision| {
        disk.replace(&name, content);
        assert_eq!(open(&disk).revision(), revision);
        assert_eq!(open(&disk).revision(), revision, "the log is complete again");
    };
    for at in frames[4]..good.len() {
        check(good[..at].to_vec(), 5);
        let mut flipped = good.clone();
        flipped[at] ^= 0x01;
        check(flipped, 5);
    }
    check([&good[..], &[0; 5_000]].concat(), 6);
    check([&good[..], b"rubbish"].concat(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_or_missing_checkpoint_is_an_error_that_names_it() {
    let disk = Arc::<SimDisk>::default();
    let mut ledger = Ledger::default();
    let store = open(&disk);
    ledger.work(&store, 24, false).await;
    drop(store);
    let checkpoint = disk.names().into_iter().rfind(|name| name.starts_with("checkpoint-")).unwrap();
    let good = disk.content(&checkpoint);
    for at in (0..good.len()).step_by(7) {
        let mut content = good.clone();
        content[at] ^= 0x10;
        disk.replace(&checkpoint, content);
        assert!(open_error(&disk).contains(&checkpoint));
        disk.replace(&checkpoint, good[..at].to_vec());
        assert!(open_error(&disk).contains(&checkpoint));
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_frame_is_an_error_that_names_the_place() {
    let (disk, name, frames) = log_of_frames().await;
    let good = disk.content(&name);
    disk.replace(&name, [&good[..frames[1]], &good[frames[2]..]].concat());
    let expected = format!("{name} is damaged at byte {}: revision 4 follows 2", frames[1]);
    assert_eq!(open_error(&disk), expected);
}

#[tokio::test(start_paused = true)]
async fn a_missing_log_is_an_error() {
    let disk = Arc::<SimDisk>::default();
    let store = open(&disk);
    Ledger::default().work(&store, 24, false).await;
    drop(store);
    let log = disk.names().into_iter().find(|name| name.starts_with("log-")).unwrap();
    disk.share().remove(&log).unwrap();
    assert!(open_error(&disk).contains("is missing"));
}

#[tokio::test(start_paused = true)]
async fn a_newer_format_is_refused_untouched() {
    let (disk, name, _) = log_of_frames().await;
    let mut content = disk.content(&name);
    content[8] = 4;
    disk.replace(&name, content.clone());
    assert_eq!(
        open_error(&disk),
        format!("{name} was written by a newer version: its format is 4, this version reads up to 3")
    );
    assert_eq!(disk.content(&name), content);
}
