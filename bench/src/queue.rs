//! The work queue, beside the figures that client-go's own benchmarks give on a machine of this kind.

use std::time::Duration;

use setpoint::{Clock, Key, Queue, Rng, Runtime};

use crate::report::{Report, grouped, per_call};

const KEYS: usize = 100;

pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let surroundings = Runtime { clock: Clock::system(), rng: Rng::seeded(1) };
    let keys: Vec<Key> =
        (0..KEYS).map(|number| Key::namespaced("team-1", format!("web-{number:03}"))).collect();
    let mut report = Report::new("Work queue (µs)", &["setpoint", "client-go"]);
    let micros = |nanos: u64| format!("{:.2}", nanos as f64 / 1e3);

    let queue = Queue::<Key>::new("cycle", &surroundings);
    let cycle = per_call(2_000, || {
        runtime.block_on(async {
            keys.iter().for_each(|key| queue.add(key.clone()));
            for _ in 0..KEYS {
                let key = queue.take().await.expect("the queue is open");
                queue.done(&key);
            }
        });
    });
    report.row("100 keys added, taken, done", [micros(cycle), "15.6".into()]);
    let a_second = |micros: f64| grouped((KEYS as f64 * 1e6 / micros) as u64);
    report.row("keys a second", [a_second(cycle as f64 / 1e3), a_second(15.6)]);

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
