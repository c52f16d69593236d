//! Activates workers whose number is below a limit that can change.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The state of one worker.
pub(crate) struct WorkerSlot {
    /// Its number, starting at 0.
    pub(crate) number: usize,
    /// The number of active workers. `None`: all are active.
    pub(crate) limit: Option<watch::Receiver<usize>>,
    /// Once cancelled, all workers are active.
    pub(crate) stop: CancellationToken,
}

impl WorkerSlot {
    /// Polls `waiting` while this worker is active. Returns `None` if it no longer is, and can be called again.
    ///
    /// `waiting` is dropped when the limit falls below this worker's number, so it must be cancel safe.
    pub(crate) async fn wait<T>(&mut self, waiting: impl Future<Output = T>) -> Option<T> {
        self.wait_until_active().await;
        let Some(limit) = &mut self.limit else { return Some(waiting.await) };
        let (number, stop) = (self.number, &self.stop);
        let dismissed = async {
            let fell = limit.wait_for(|limit| *limit <= number).await.is_ok();
            if !fell || stop.is_cancelled() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            done = waiting => Some(done),
            () = dismissed => None,
        }
    }

    async fn wait_until_active(&mut self) {
        let Some(limit) = &mut self.limit else { return };
        let number = self.number;
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            _ = limit.wait_for(|limit| *limit > number) => {}
        }
    }
}
