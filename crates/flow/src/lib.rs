//! API priority and fairness: decides which requests run now, which wait and which are rejected.
//!
//! ```text
//!  level ── seats ──► QueueSet: fair queuing over shuffle-sharded queues   (pure, time is an argument)
//!    │                   ▲
//!    └── Level: waits, wakes and returns seats                            (async)
//!  limits: shares ─► nominal, lower and upper limits ─► current limits from demand
//! ```
//!
//! Invariants:
//! - A seat that was taken is returned exactly once, however the request ends: it finishes, panics, or is cancelled
//!   while it waits or between its dispatch and its first poll.
//! - Nothing runs in the background. Without waiting requests, there is no task and no timer.
//! - The order of dispatch depends only on the arrivals and the clock.
//!
//! The algorithms are those of Kubernetes v1.34: fair queuing for server requests, with the estimated work in
//! seat-seconds, and borrowing of seats between levels.

mod allocation;
mod dealer;
mod integrator;
mod level;
mod limits;
mod queue_set;
mod retry_after;
mod seat_seconds;
mod stats;
mod work;

pub use allocation::{AllocationError, Class, allocate};
pub use dealer::{Dealer, InvalidHand};
pub use integrator::{Demand, Integrator};
pub use level::{Level, Queued, Seat, Started};
pub use limits::{Adjusted, DemandStats, LevelLimits, Shares, adjust, max_seats, nominal_limits};
pub use queue_set::{Dispatch, QueueDump, QueueSet, Queuing, Reason, RequestDump, RequestId, Start, Totals};
pub use retry_after::RetryAfter;
pub use seat_seconds::SeatSeconds;
pub use stats::{FlowStats, Histogram, LevelGauges, TimingRatio};
pub use work::{ListWork, MAX_LIST_SEATS, MAX_MUTATING_SEATS, Work};
