//! The lock around a queue's state. The model checker in `tests/queue_loom` substitutes its own.

pub(super) use parking_lot::{Mutex, MutexGuard};
