//! Cached discovery of the resources that the API server serves.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint::discovery::{Discovered, discover};
use setpoint::{Client, ClientError, Clock, Context, Instant};

/// How long discovery results are cached.
const KNOWN_FOR: Duration = Duration::from_secs(30);

pub(crate) struct Served {
    client: Client,
    clock: Clock,
    known: Mutex<Option<(Instant, Arc<Discovered>)>>,
}

impl Served {
    pub(crate) fn new(context: &Context) -> Self {
        Self { client: context.client.clone(), clock: context.runtime.clock.clone(), known: Mutex::new(None) }
    }

    pub(crate) async fn get(&self) -> Result<Arc<Discovered>, ClientError> {
        let now = self.clock.instant();
        let known = self.known.lock().clone();
        if let Some((since, served)) = known
            && now.saturating_duration_since(since) < KNOWN_FOR
        {
            return Ok(served);
        }
        let served = Arc::new(discover(&self.client).await?);
        *self.known.lock() = Some((now, served.clone()));
        Ok(served)
    }
}
