//! The time from process start to ready, and resource usage when idle.

use std::time::Duration;

use crate::control_plane::{ControlPlane, block_on};
use crate::report::Report;

const STARTS: usize = 5;

/// How long the idle process is measured.
const IDLE: Duration = Duration::from_secs(10);

pub(crate) fn run() {
    block_on(measure());
}

async fn measure() {
    let mut report = Report::new("Start (durable, all controllers)", &["ready ms", "idle MiB", "idle CPU %"]);
    for nodes in ["0", "10"] {
        let mut ready = Vec::new();
        for _ in 1..STARTS {
            ready.push(ControlPlane::start(&["--nodes", nodes]).await.ready_after.as_millis());
        }
        let plane = ControlPlane::start(&["--nodes", nodes]).await;
        ready.push(plane.ready_after.as_millis());
        ready.sort_unstable();
        // Startup work is not part of being idle.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (span, ()) = plane.during(tokio::time::sleep(IDLE)).await;
        let idle = span.cpu_seconds / span.seconds * 100.0;
        report.row(
            &format!("{nodes} nodes (median of {STARTS})"),
            [ready[STARTS / 2].to_string(), span.after.mib.to_string(), format!("{idle:.1}")],
        );
    }
    report.print();
}
