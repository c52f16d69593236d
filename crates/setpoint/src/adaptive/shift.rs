//! Which workers work: those whose number is below a limit that can change.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// One worker's place.
pub(crate) struct Shift {
    /// Its number, from 0.
    pub(crate) number: usize,
    /// How many work; without one, all do.
    pub(crate) limit: Option<watch::Receiver<usize>>,
    /// From here on all hands are needed.
    pub(crate) stop: CancellationToken,
}

impl Shift {
    /// Carries on with `waiting` while this worker is needed; `None` if it no longer is, to be asked again.
    ///
    /// `waiting` is dropped when the limit falls below this worker, so it must lose nothing by that.
    pub(crate) async fn wait<T>(&mut self, waiting: impl Future<Output = T>) -> Option<T> {
        self.on_duty().await;
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

    async fn on_duty(&mut self) {
        let Some(limit) = &mut self.limit else { return };
        let number = self.number;
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            _ = limit.wait_for(|limit| *limit > number) => {}
        }
    }
}
