//! Faults of simulated nodes, injected by tests.

use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;

/// What happens to a request instead of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The connection is closed.
    Dropped,
    /// The response has this HTTP code and no content.
    Failed(u16),
}

type Interfere = Arc<dyn Fn() -> BoxFuture<'static, Option<Lost>> + Send + Sync>;

/// What is called before every request. Cheap to clone; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Interference(Arc<Mutex<Option<Interfere>>>);

impl Interference {
    pub(super) fn set(&self, with: impl Fn() -> BoxFuture<'static, Option<Lost>> + Send + Sync + 'static) {
        *self.0.lock() = Some(Arc::new(with));
    }

    /// Waits if the request is delayed. Returns whether its response is lost.
    pub(super) async fn next(&self) -> Option<Lost> {
        let interfere = self.0.lock().clone()?;
        interfere().await
    }
}
