//! The model checker's lock, with the interface of the real one.

pub(super) use loom::sync::MutexGuard;

pub(super) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(super) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("no holder of the lock panics")
    }
}
