//! The lock around a queue's state. The model checker of `tests/queue_loom` puts its own in this place.

pub(super) use parking_lot::{Mutex, MutexGuard};
