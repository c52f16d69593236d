//! Compares durable engines for the store: the log, redb and fjall.
//!
//! All three get the same load from the same number of concurrent writers, each of which waits for its write to be
//! synced. redb and fjall get group commit like the log: a thread takes everything queued and commits it as one batch.
//! They do not do some work that is included in the log's results: checking the expectation, the index, the history and
//! the watchers. A store on top of them would need those as well.
//!
//! Every measurement runs in its own process, so that CPU time and memory are its own.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use fjall::{KeyspaceCreateOptions, PersistMode};
use redb::{ReadableDatabase, ReadableTable, TableDefinition};
use setpoint_clock::{Clock, Rng};
use setpoint_store::{Change, DurableStore, Expect, ListOptions, Payload, Resource, Revision, Store, Write};
use tokio::sync::oneshot;

use crate::process;

const ENGINES: [&str; 3] = ["log", "redb", "fjall"];
const WRITERS: [usize; 3] = [1, 32, 256];
const VALUE: usize = 2048;
const RECORDS: usize = 100_000;
const RUN: Duration = Duration::from_secs(4);
const QUEUE: usize = 1024;

/// Runs all measurements and prints a table.
pub(crate) fn run() {
    println!("{:8}{:>10}{:>14}{:>16}", "engine", "writers", "commits/s", "CPU µs/commit");
    for writers in WRITERS {
        for engine in ENGINES {
            println!("{}", in_own_process(&["commits", engine, &writers.to_string()]));
        }
    }
    println!("\n{:8}{:>12}{:>12}{:>12}{:>12}", "engine", "disk MiB", "open ms", "scan ms", "RSS MiB");
    for engine in ENGINES {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().to_string_lossy().into_owned();
        in_own_process(&["fill", engine, &path]);
        println!("{}", in_own_process(&["open", engine, &path]));
    }
}

/// Runs one measurement, as requested by `in_own_process`.
pub(crate) fn run_one(arguments: &[String]) {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["commits", engine, writers] => {
            measure_commits(engine, writers.parse().expect("a number of writers"))
        }
        ["fill", engine, directory] => fill(engine, Path::new(directory)),
        ["open", engine, directory] => measure_open(engine, Path::new(directory)),
        _ => panic!("unknown measurement {arguments:?}"),
    }
}

fn in_own_process(arguments: &[&str]) -> String {
    let program = std::env::current_exe().expect("the path of this program");
    let output = Command::new(program).arg("store-engine").args(arguments).output().expect("a child process");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

fn measure_commits(engine: &str, writers: usize) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let engine_name = engine;
    let engine = Engine::open(engine, directory.path());
    let runtime = runtime();
    let clock = Clock::system();
    let (start, cpu) = (clock.instant(), process::cpu());
    let writers_at_work = (0..writers).map(|writer| {
        let (engine, clock) = (engine.clone(), clock.clone());
        runtime.spawn(async move {
            let mut writer = Writer::new(engine, writer);
            while start + RUN > clock.instant() {
                writer.write().await;
            }
            writer.written
        })
    });
    let writers_at_work: Vec<_> = writers_at_work.collect();
    let written: Vec<_> = runtime.block_on(futures::future::join_all(writers_at_work));
    let commits: usize = written.into_iter().map(|written| written.expect("a writer")).sum();
    let seconds = (clock.instant() - start).as_secs_f64();
    let cpu = (process::cpu() - cpu).as_secs_f64() * 1e6 / commits as f64;
    println!("{engine_name:8}{writers:>10}{:>14.0}{cpu:>16.1}", commits as f64 / seconds);
}

fn fill(engine: &str, directory: &Path) {
    let engine = Engine::open(engine, directory);
    runtime().block_on(async {
        for some in (0..RECORDS).collect::<Vec<_>>().chunks(512) {
            let writers = some.iter().map(|key| engine.put(*key, None, 0));
            futures::future::join_all(writers).await;
        }
    });
}

fn measure_open(name: &str, directory: &Path) {
    let disk = process::disk_usage(directory) as f64 / f64::from(1 << 20);
    let clock = Clock::system();
    let start = clock.instant();
    let engine = Engine::open(name, directory);
    let opened = (clock.instant() - start).as_secs_f64() * 1e3;
    let records = runtime().block_on(engine.scan());
    let scanned = (clock.instant() - start).as_secs_f64() * 1e3;
    assert_eq!(records, RECORDS);
    let rss = process::rss() as f64 / f64::from(1 << 20);
    println!("{name:8}{disk:>12.0}{opened:>12.0}{scanned:>12.0}{rss:>12.0}");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Writes its own hundred keys over and over.
struct Writer {
    engine: Engine,
    first_key: usize,
    revisions: Vec<Option<Revision>>,
    written: usize,
}

impl Writer {
    fn new(engine: Engine, number: usize) -> Self {
        Self { engine, first_key: number * 100, revisions: vec![None; 100], written: 0 }
    }

    async fn write(&mut self) {
        let turn = self.written % self.revisions.len();
        let key = self.first_key + turn;
        self.revisions[turn] = Some(self.engine.put(key, self.revisions[turn], self.written).await);
        self.written += 1;
    }
}

fn path(key: usize) -> String {
    format!("default/some-deployment-7c5ddbdf54-{key:06}")
}

/// Returns random bytes from an alphabet of sixteen, because fjall compresses. Each version is a different slice.
fn value(version: usize) -> Vec<u8> {
    static RANDOM: OnceLock<Vec<u8>> = OnceLock::new();
    let random = RANDOM.get_or_init(|| {
        let rng = Rng::seeded(1);
        (0..2 * VALUE).map(|_| b'a' + rng.below(16) as u8).collect()
    });
    let from = version % VALUE;
    random[from..from + VALUE].to_vec()
}

#[derive(Clone)]
enum Engine {
    Log(Arc<DurableStore>),
    Redb(Arc<redb::Database>, SyncSender<Request>),
    Fjall(fjall::Keyspace, SyncSender<Request>),
}

struct Request {
    key: String,
    value: Vec<u8>,
    done: oneshot::Sender<()>,
}

const TABLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("pods");

impl Engine {
    fn open(name: &str, directory: &Path) -> Self {
        match name {
            "log" => Self::Log(Arc::new(DurableStore::open(directory, Clock::system()).expect("a store"))),
            "redb" => Self::redb(directory),
            _ => Self::fjall(directory),
        }
    }

    fn redb(directory: &Path) -> Self {
        let database = redb::Database::builder().set_cache_size(64 << 20).create(directory.join("redb"));
        let database = Arc::new(database.expect("a redb database"));
        let (sender, requests) = sync_channel(QUEUE);
        let writer = database.clone();
        thread::spawn(move || {
            in_batches(&requests, |batch| {
                let transaction = writer.begin_write().expect("a transaction");
                let mut table = transaction.open_table(TABLE).expect("a table");
                for request in batch {
                    table.insert(request.key.as_str(), request.value.as_slice()).expect("an insert");
                }
                drop(table);
                transaction.commit().expect("a commit");
            });
        });
        Self::Redb(database, sender)
    }

    fn fjall(directory: &Path) -> Self {
        let database = fjall::Database::builder(directory.join("fjall")).open().expect("a fjall database");
        let keyspace = database.keyspace("pods", KeyspaceCreateOptions::default).expect("a keyspace");
        let (sender, requests) = sync_channel(QUEUE);
        let writer = keyspace.clone();
        thread::spawn(move || {
            in_batches(&requests, |batch| {
                let mut writes = database.batch().durability(Some(PersistMode::SyncData));
                for request in batch {
                    writes.insert(&writer, request.key.as_str(), request.value.as_slice());
                }
                writes.commit().expect("a commit");
            });
        });
        Self::Fjall(keyspace, sender)
    }

    /// Writes a version of a key and waits until it is durable.
    async fn put(&self, key: usize, previous: Option<Revision>, version: usize) -> Revision {
        let (key, value) = (path(key), value(version));
        match self {
            Self::Log(store) => {
                let expect = previous.map_or(Expect::Absent, Expect::Revision);
                let payload = Payload {
                    bytes: value.into(),
                    stamp_at: Some(1),
                    inset_at: None,
                    inset: setpoint_store::Inset::default(),
                    facts: None,
                };
                let change = Change::Put { payload, ttl: None };
                let write = Write { key: Resource::new("pods").key(key), expect, change };
                store.commit(write).await.expect("a commit").modified
            }
            Self::Redb(_, requests) | Self::Fjall(_, requests) => {
                let (done, wait) = oneshot::channel();
                requests.send(Request { key, value, done }).expect("a writer");
                wait.await.expect("an answer");
                0
            }
        }
    }

    /// Reads everything, as a store would to build its index. Returns the number of records.
    async fn scan(&self) -> usize {
        match self {
            Self::Log(store) => {
                let page =
                    store.list(&Resource::new("pods").all(), ListOptions::default()).await.expect("a list");
                page.records.len()
            }
            Self::Redb(database, _) => {
                let transaction = database.begin_read().expect("a transaction");
                let table = transaction.open_table(TABLE).expect("a table");
                let read = table
                    .iter()
                    .expect("an iterator")
                    .map(|entry| entry.expect("an entry").1.value().to_vec());
                held_in_memory(read)
            }
            Self::Fjall(keyspace, _) => {
                held_in_memory(keyspace.iter().map(|entry| entry.value().expect("an entry").to_vec()))
            }
        }
    }
}

/// Keeps all values until the process ends, because the index has to hold them for watches and lists.
fn held_in_memory(values: impl Iterator<Item = Vec<u8>>) -> usize {
    let values: Vec<_> = values.collect();
    values.leak().len()
}

/// Group commit, with the same patience as the log's.
fn in_batches(requests: &Receiver<Request>, mut commit: impl FnMut(&[Request])) {
    let clock = Clock::system();
    let (mut expected, mut patience) = (1, Duration::ZERO);
    while let Ok(first) = requests.recv() {
        let mut batch: Vec<_> = std::iter::once(first).chain(requests.try_iter().take(QUEUE)).collect();
        let deadline = clock.instant() + patience;
        while batch.len() < expected
            && let Ok(request) = requests.recv_timeout(deadline - clock.instant())
        {
            batch.push(request);
        }
        let start = clock.instant();
        commit(&batch);
        (expected, patience) = (batch.len(), (start.elapsed() / 8).min(Duration::from_micros(500)));
        for request in batch {
            let _ = request.done.send(());
        }
    }
}
