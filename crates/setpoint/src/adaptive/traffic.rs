//! Statistics of calls to the API server between two decisions.

use std::time::Duration;

use parking_lot::Mutex;

use super::decide::Calls;

/// Call statistics since they were last taken.
#[derive(Default)]
pub(crate) struct Traffic(Mutex<Counters>);

#[derive(Default)]
struct Counters {
    made: u64,
    failed: u64,
    seconds: f64,
    /// The fastest average of any interval, slowly drifting up: the response time when nothing is wrong.
    usual: Option<f64>,
}

/// How fast the usual time drifts up per interval. It doubles within about six minutes, so that one fast interval does
/// not define the norm forever.
const DRIFT: f64 = 1.01;

impl Traffic {
    /// Records a call. `code` is `None` if there was no response. Only failures caused by the API server count as
    /// failed.
    pub(crate) fn note(&self, code: Option<u16>, took: Duration) {
        let mut tally = self.0.lock();
        tally.made += 1;
        tally.seconds += took.as_secs_f64();
        if code.is_none_or(|code| code == 429 || code >= 500) {
            tally.failed += 1;
        }
    }

    /// Takes the calls since the last time.
    pub(crate) fn take(&self) -> Calls {
        let mut tally = self.0.lock();
        let (made, failed) = (tally.made, tally.failed);
        let seconds = if made == 0 { 0.0 } else { tally.seconds / made as f64 };
        let usual = tally.usual.map(|usual| usual * DRIFT);
        if made > 0 {
            tally.usual = Some(usual.map_or(seconds, |usual| usual.min(seconds)));
        }
        (tally.made, tally.failed, tally.seconds) = (0, 0, 0.0);
        Calls { made, failed, seconds, usual_seconds: tally.usual.unwrap_or(0.0) }
    }
}
