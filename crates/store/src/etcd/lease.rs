//! Leases, which make records expire: shared by records that expire at about the same time, as in v1.34.
//!
//! Only one lease is remembered, because only events expire soon, and all after the same time. Creating a lease costs
//! etcd more than a write. A record lives at most a minute, or a twentieth of its time, longer than it should.

use std::time::Duration;

use setpoint_clock::{Clock, Instant};
use tokio::sync::Mutex;

use super::client::{EtcdClient, EtcdError};

/// How long a lease is shared, at most.
const REUSE: u64 = 60;
/// The part of the time to live for which a lease is shared.
const REUSE_PART: u64 = 20;
/// How many writes share a lease, at most: etcd removes their keys in one revision.
const MAX_WRITES: usize = 1000;

#[derive(Default)]
pub(super) struct Leases(Mutex<Option<Lease>>);

struct Lease {
    id: i64,
    expires: Instant,
    writes: usize,
}

impl Leases {
    /// Returns a lease that ends after `ttl` or a little later.
    pub(super) async fn get(
        &self,
        client: &dyn EtcdClient,
        clock: &Clock,
        ttl: Duration,
    ) -> Result<i64, EtcdError> {
        // Creating one lease is enough for everyone who waits.
        let mut lease = self.0.lock().await;
        let (now, ttl) = (clock.instant(), ttl.as_secs().max(1));
        let longest = ttl + (ttl / REUSE_PART).min(REUSE);
        if let Some(lease) = lease.as_mut() {
            let is_long_enough = now + Duration::from_secs(ttl) < lease.expires;
            let is_short_enough = now + Duration::from_secs(longest) >= lease.expires;
            if is_long_enough && is_short_enough && lease.writes < MAX_WRITES {
                lease.writes += 1;
                return Ok(lease.id);
            }
        }
        let id = client.grant_lease(i64::try_from(longest).unwrap_or(i64::MAX)).await?;
        *lease = Some(Lease { id, expires: now + Duration::from_secs(longest), writes: 1 });
        Ok(id)
    }

    /// Forgets a lease that etcd does not know.
    pub(super) async fn forget(&self, id: i64) {
        self.0.lock().await.take_if(|lease| lease.id == id);
    }
}
