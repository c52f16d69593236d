//! Shutdown signals.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Returns a token that SIGTERM or SIGINT cancels. A second signal exits the process immediately.
///
/// ```no_run
/// # async fn example(manager: setpoint::Manager) -> std::io::Result<()> {
/// manager.run(setpoint::manager::stop_signal()?).await;
/// # Ok(()) }
/// ```
pub fn stop_signal() -> std::io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let cancelled = stop.clone();
    tokio::spawn(async move {
        let mut next = async || tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} };
        next().await;
        cancelled.cancel();
        next().await;
        std::process::exit(130);
    });
    Ok(stop)
}
