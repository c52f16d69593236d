//! Kills a process under load, again and again, on the same data directory.
//!
//! The test runs itself as the child, which writes under load and prints what was acknowledged. Every key is written in
//! versions 1, 2, 3 and so on by one task, so a key must hold the last acknowledged version or the next one.
//!
//! Also tests a process whose disk fills up, simulated with the file size limit (`RLIMIT_FSIZE`), which needs no mount.
//! An append beyond it fails as on a full disk, and raising it corresponds to freeing space.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use futures::executor::block_on;
use rustix::process::{Resource as Limit, Rlimit, getrlimit, setrlimit};
use setpoint_clock::{Clock, Rng};
use setpoint_store::*;

const CHILD: &str = "STORE_KILL_TEST_DIRECTORY";
const KILLS: usize = 50;
const KEYS: usize = 24;

/// Small enough that every child writes checkpoints, so that some kills happen during one.
const OPTIONS: DurableOptions = DurableOptions {
    limits: Limits { events: 1_000, bytes: 1 << 20, total_bytes: 1 << 20, age: Duration::from_secs(300) },
    checkpoint_after: 20_000,
    checkpoint_slice: 2_000,
};

#[derive(Clone, Copy, Debug, Default)]
struct Acknowledged {
    version: u64,
    revision: Revision,
}

#[test]
fn fifty_kills_in_mid_traffic_lose_no_acknowledged_write() {
    if let Some(directory) = env::var_os(CHILD) {
        return write_until_killed(Path::new(&directory));
    }
    let directory = tempfile::tempdir().unwrap();
    let rng = Rng::from_entropy();
    let mut ledger: BTreeMap<_, _> = (0..KEYS).map(|key| (key, Acknowledged::default())).collect();
    let mut checkpoints = 0;
    for kill in 0..KILLS {
        let acknowledged = run_and_kill(directory.path(), Duration::from_micros(rng.below(120_000)));
        assert!(!acknowledged.is_empty(), "the child was killed before it did anything");
        ledger.extend(acknowledged);
        checkpoints = checkpoints.max(newest_generation(directory.path()));
        check(directory.path(), &mut ledger, kill);
    }
    assert!(checkpoints > 10, "{checkpoints} checkpoints are too few to mean anything");
    let writes: u64 = ledger.values().map(|acknowledged| acknowledged.version).sum();
    println!("{KILLS} kills, {writes} acknowledged writes, {checkpoints} checkpoints");
}

/// Starts a child, kills it a while after its first acknowledged write, and returns what was acknowledged.
fn run_and_kill(directory: &Path, after: Duration) -> BTreeMap<usize, Acknowledged> {
    let name = "kill::fifty_kills_in_mid_traffic_lose_no_acknowledged_write";
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (first, acknowledged) = (std::sync::mpsc::sync_channel(1), collect_lines(&mut child));
    let reader = thread::spawn(move || acknowledged(first.0));
    // The channel closes without a message if the child fails to start.
    let _ = first.1.recv();
    thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

type Reader = Box<dyn FnOnce(std::sync::mpsc::SyncSender<()>) -> BTreeMap<usize, Acknowledged> + Send>;

fn collect_lines(child: &mut Child) -> Reader {
    let output = child.stdout.take().unwrap();
    Box::new(move |first| {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        let acknowledged = lines.filter_map(|line| parse(&line));
        let tell = |_: &_| _ = first.try_send(());
        acknowledged.inspect(tell).collect()
    })
}

/// Parses `ack KEY VERSION REVISION`. Ignores a line that the kill cut off.
fn parse(line: &str) -> Option<(usize, Acknowledged)> {
    let [key, version, revision] =
        line.strip_prefix("ack ")?.strip_suffix(" .")?.split(' ').collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let (version, revision) = (version.parse().ok()?, revision.parse().ok()?);
    Some((key.parse().ok()?, Acknowledged { version, revision }))
}

/// Compares a store with what was acknowledged. What is visible now must still be there next time.
fn check(directory: &Path, ledger: &mut BTreeMap<usize, Acknowledged>, kill: usize) {
    let store = DurableStore::open_with(directory, Clock::system(), OPTIONS).unwrap();
    let newest = ledger.values().map(|acknowledged| acknowledged.revision).max().unwrap();
    assert!(store.revision() >= newest, "the revision decreased after kill {kill}");
    for (key, acknowledged) in ledger {
        let found = futures::executor::block_on(store.get(&path(*key), None)).unwrap();
        let found = found.map_or(0, |record| version_of(*key, &record));
        let expected = acknowledged.version..=acknowledged.version + 1;
        assert!(
            expected.contains(&found),
            "after kill {kill} key {key} is at {found}, expected {expected:?}"
        );
        *acknowledged = Acknowledged { version: found, revision: store.revision() };
    }
}

fn newest_generation(directory: &Path) -> u64 {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let generation = |name: std::ffi::OsString| name.to_str()?.strip_prefix("checkpoint-")?.parse().ok();
    names.filter_map(generation).max().unwrap_or(0)
}

fn path(key: usize) -> Key {
    Resource::new("pods").key(format!("default/{key}"))
}

fn value(key: usize, version: u64) -> String {
    format!("{{\"version\":{version},\"filling\":\"{}\"}}", "x".repeat(key * 40))
}

fn version_of(key: usize, record: &Record) -> u64 {
    let bytes = record.payload().bytes;
    let text = std::str::from_utf8(&bytes).unwrap();
    let version = text[11..].split(',').next().unwrap().parse().unwrap();
    assert_eq!(text, value(key, version), "a half-written record");
    version
}

fn write_until_killed(directory: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let store = Arc::new(DurableStore::open_with(directory, Clock::system(), OPTIONS).unwrap());
    let writers = (0..KEYS).map(|key| runtime.spawn(write_versions(store.clone(), key)));
    let writers: Vec<_> = writers.collect();
    runtime.block_on(futures::future::join_all(writers));
}

async fn write_versions(store: Arc<DurableStore>, key: usize) {
    let mut current = store.get(&path(key), None).await.unwrap();
    loop {
        let version = 1 + current.as_deref().map_or(0, |record| version_of(key, record));
        let expect = current.map_or(Expect::Absent, |record| Expect::Revision(record.modified));
        let payload = Payload {
            bytes: value(key, version).into(),
            stamp_at: Some(1),
            inset_at: None,
            inset: Inset::default(),
            facts: None,
        };
        let write = Write { key: path(key), expect, change: Change::Put { payload, ttl: None } };
        let record = store.commit(write).await.unwrap();
        println!("ack {key} {version} {} .", record.modified);
        current = Some(record);
    }
}

const FULL_CHILD: &str = "STORE_FULL_TEST_DIRECTORY";
const FULL_TEST: &str = "kill::a_full_disk_refuses_writes_serves_reads_and_recovers_without_a_restart";

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_recovers_without_a_restart() {
    if let Some(directory) = env::var_os(FULL_CHILD) {
        return fill_the_disk(Path::new(&directory));
    }
    let directory = tempfile::tempdir().unwrap();
    // A process that writes beyond the limit gets a signal. The child inherits that it is ignored.
    let mut child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(env::current_exe().unwrap())
        .args(["--exact", FULL_TEST, "--nocapture"])
        .env(FULL_CHILD, directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let acknowledged = collect_lines(&mut child)(std::sync::mpsc::sync_channel(1).0);
    assert!(child.wait().unwrap().success());
    assert_eq!(acknowledged.len(), KEYS);
    let store = DurableStore::open_with(directory.path(), Clock::system(), OPTIONS).unwrap();
    for (key, acknowledged) in acknowledged {
        let found = block_on(store.get(&path(key), None)).unwrap().unwrap();
        assert_eq!((version_of(key, &found), found.modified), (acknowledged.version, acknowledged.revision));
    }
}

/// Writes until the disk is full, twice. Each time, reads and watches continue, and writes do too after space is freed.
fn fill_the_disk(directory: &Path) {
    const ROOM: [u64; 2] = [30_000, 60_000];
    // Prevent a checkpoint from making room.
    let options = DurableOptions { checkpoint_after: 1 << 30, ..OPTIONS };
    let store = DurableStore::open_with(directory, Clock::system(), options).unwrap();
    let unlimited = getrlimit(Limit::Fsize);
    let mut watch = store.watch(Resource::new("pods").all(), store.revision()).unwrap();
    let mut versions = [0; KEYS];
    for room in ROOM {
        setrlimit(Limit::Fsize, Rlimit { current: Some(room), maximum: unlimited.maximum }).unwrap();
        let refused = (0..).find(|turn| put_next(&store, turn % KEYS, &mut versions).is_err()).unwrap();
        let key = refused % KEYS;
        assert!(matches!(put_next(&store, key, &mut versions), Err(Error::Full)), "still full");
        check_reads(&store, &versions, &mut watch);
        setrlimit(Limit::Fsize, unlimited).unwrap();
        put_next(&store, key, &mut versions).unwrap();
        check_reads(&store, &versions, &mut watch);
    }
    // Also end a process while the disk is full.
    let room = Rlimit { current: Some(1), maximum: unlimited.maximum };
    setrlimit(Limit::Fsize, room).unwrap();
    assert!(matches!(put_next(&store, 0, &mut versions), Err(Error::Full)));
    block_on(store.close());
}

/// Writes the next version of a key, and records it if it is acknowledged.
fn put_next(store: &DurableStore, key: usize, versions: &mut [u64; KEYS]) -> Result<(), Error> {
    let current = block_on(store.get(&path(key), None))?;
    let version = versions[key] + 1;
    let expect = current.map_or(Expect::Absent, |record| Expect::Revision(record.modified));
    let payload = Payload {
        bytes: value(key, version).into(),
        stamp_at: Some(1),
        inset_at: None,
        inset: Default::default(),
        facts: None,
    };
    let write = Write { key: path(key), expect, change: Change::Put { payload, ttl: None } };
    let record = block_on(store.commit(write))?;
    versions[key] = version;
    println!("ack {key} {version} {} .", record.modified);
    Ok(())
}

/// Checks that every key has its version, and that the watch returns exactly what was acknowledged.
fn check_reads(store: &DurableStore, versions: &[u64; KEYS], watch: &mut Watch) {
    let page = block_on(store.list(&Resource::new("pods").all(), ListOptions::default())).unwrap();
    assert_eq!(page.records.len(), versions.iter().filter(|version| **version > 0).count());
    for (key, version) in versions.iter().enumerate().filter(|(_, version)| **version > 0) {
        let found = block_on(store.get(&path(key), None)).unwrap().unwrap();
        assert_eq!(version_of(key, &found), *version);
    }
    let mut seen = watch.revision();
    while let Some(events) = watch.next().now_or_never() {
        seen = events.unwrap().last().unwrap().revision();
    }
    assert_eq!(seen, store.revision());
}
