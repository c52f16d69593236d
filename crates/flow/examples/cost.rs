//! Measures the cost of a seat without contention: `cargo run --release -p setpoint-flow --example cost`.

use std::sync::Arc;

use setpoint_clock::Clock;
use setpoint_flow::{FlowStats, Level, Queuing, Started, Work};

const COUNT: u32 = 1_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let _inside = runtime.enter();
    let queues = Queuing::Queue { queues: 128, hand_size: 6, length_limit: 50 };
    let lingering = Work::mutating(100, None);
    measure("exempt", Queuing::Exempt, Work::ONE_SEAT)?;
    measure("128 queues", queues, Work::ONE_SEAT)?;
    measure("128 queues, 100 watchers", queues, lingering)?;
    Ok(())
}

fn measure(what: &str, queuing: Queuing, work: Work) -> Result<(), Box<dyn std::error::Error>> {
    let clock = Clock::system();
    let level = Level::new(clock.clone(), queuing, 1_000_000)?;
    let flow = Arc::<FlowStats>::default();
    let began = clock.instant();
    for request in 0..COUNT {
        let hash = u64::from(request).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match level.start(work, hash, &flow, false, ()) {
            Started::Admitted(seat) => drop(seat),
            Started::Queued(_) | Started::Rejected(_) => return Err("there are seats for all".into()),
        }
    }
    println!("{what}: {:?} a request", (clock.instant() - began) / COUNT);
    Ok(())
}
