//! Compares the work queue with client-go's: runs client-go's own benchmark, step by step, and more.
//!
//! If `CLIENT_GO` names a checkout of client-go and `go` is installed, client-go's benchmark is run too. Otherwise an
//! earlier result is shown.

use std::process::Command;
use std::time::Duration;

use setpoint::metrics::Metrics;
use setpoint::{Clock, Key, Queue, Rng, Runtime};

use crate::report::{Report, grouped, median, per_call};

const KEYS: usize = 100;

/// The result of `BenchmarkQueue` on two cores of an AMD EPYC, in nanoseconds.
const CLIENT_GO: u64 = 13_600;

pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let surroundings = Runtime { clock: Clock::system(), rng: Rng::seeded(1) };
    // The keys of client-go's benchmark.
    let keys: Vec<Key> = (0..KEYS).map(|number| Key::cluster(format!("key-{number}"))).collect();
    let mut report = Report::new("Work queue (µs)", &["setpoint", "client-go"]);
    let micros = |nanos: u64| format!("{:.2}", nanos as f64 / 1e3);

    let turns = |queue: &Queue<Key>| {
        runtime.block_on(async {
            for key in &keys {
                queue.add(key.clone());
                let key = queue.take().await.expect("the queue is open");
                queue.done(&key);
            }
        });
    };
    let turn = median(|| Queue::new("turns", &surroundings), turns);
    let client_go = measured().unwrap_or(CLIENT_GO);
    report.row("a new queue, 100 times: a key added, taken, done", [micros(turn), micros(client_go)]);
    let a_second = |nanos: u64| grouped(KEYS as u64 * 1_000_000_000 / nanos.max(1));
    report.row("keys a second", [a_second(turn), a_second(client_go)]);

    let (queue, metrics) = (Queue::new("observed", &surroundings), Metrics::new());
    queue.observe(&metrics);
    report.row(
        "the same with metrics, which read the clock",
        [micros(per_call(1_000, || turns(&queue))), "-".into()],
    );

    let queue = Queue::new("crowd", &surroundings);
    let crowd = per_call(1_000, || {
        runtime.block_on(async {
            keys.iter().for_each(|key| queue.add(key.clone()));
            for _ in 0..KEYS {
                let key = queue.take().await.expect("the queue is open");
                queue.done(&key);
            }
        });
    });
    report.row("100 keys added, then each taken, done", [micros(crowd), "-".into()]);

    let queue = Queue::<Key>::new("delay", &surroundings);
    let mut number = 0;
    let delayed = per_call(20_000, || {
        number += 1;
        let _in_runtime = runtime.enter();
        queue.add_after(Key::namespaced("team-1", format!("web-{number}")), Duration::from_secs(3600));
    });
    report.row("a key added with a delay", [micros(delayed), "3.1".into()]);

    let queue = Queue::<Key>::new("repeated", &surroundings);
    let repeated = per_call(100_000, || queue.add(keys[0].clone()));
    report.row("a key added that is already there", [micros(repeated), "-".into()]);
    report.print();
}

/// Runs client-go's benchmark. Returns nanoseconds.
fn measured() -> Option<u64> {
    let mut go = Command::new(std::env::var_os("GO").unwrap_or_else(|| "go".into()));
    go.args(["test", "-run=^$", "-bench=^BenchmarkQueue$", "-count=3", "./util/workqueue"]);
    let answer = go.current_dir(std::env::var_os("CLIENT_GO")?).output().ok()?;
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    let figure = |line: &str| line.split_once(" ns/op")?.0.split_whitespace().last()?.parse::<f64>().ok();
    text.lines().filter_map(figure).map(|nanos| nanos as u64).min()
}
