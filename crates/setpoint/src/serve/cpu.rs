//! CPU profiles: stacks sampled while the process runs.

use std::time::Duration;

use parking_lot::Mutex;
use setpoint_clock::Clock;

use super::Profile;

/// Samples per second. Not a divisor of common periods, so that periodic work is not always or never hit.
const FREQUENCY: i32 = 99;

/// The sampler uses a process-wide signal, so there is one profile at a time.
static SAMPLING: Mutex<()> = Mutex::new(());

/// Samples for this long, in real time.
pub(super) async fn profile(clock: &Clock, seconds: Duration) -> Result<Profile, String> {
    let failed = |error: pprof::Error| format!("Could not enable CPU profiling: {error}");
    let guard = {
        let _one =
            SAMPLING.try_lock().ok_or("Could not enable CPU profiling: cpu profiling already in use")?;
        // Unwinding inside these libraries can wait for a lock that the interrupted code holds.
        let blocklist = ["libc", "libgcc", "pthread", "vdso"];
        pprof::ProfilerGuardBuilder::default()
            .frequency(FREQUENCY)
            .blocklist(&blocklist)
            .build()
            .map_err(failed)?
    };
    let started = clock.now();
    clock.sleep(seconds).await;
    let report = guard.report().build().map_err(failed)?;
    let period = 1_000_000_000 / i64::from(FREQUENCY);
    let mut profile = Profile::new("cpu", "nanoseconds").taken(started, seconds, period);
    for (stack, count) in &report.data {
        let frames = stack.frames.iter().flatten().map(|symbol| symbol.name());
        profile.add(frames, i64::try_from(*count).unwrap_or(i64::MAX).saturating_mul(period));
    }
    Ok(profile)
}
