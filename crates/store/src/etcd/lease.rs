//! Leases, which make records expire: shared by records that expire at about the same time, as in v1.34.
//!
//! One lease is remembered for each time to live, because creating a lease costs etcd more than a write. A record lives
//! at most a minute, or a twentieth of its time, longer than it should.

use std::collections::BTreeMap;
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

/// How many times to live are remembered. The API server has two: of events, and of the addresses of API servers.
const MAX_KINDS: usize = 8;

/// The leases that may be shared, by their time to live in seconds.
#[derive(Default)]
pub(super) struct Leases(Mutex<BTreeMap<u64, Lease>>);

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
        let mut leases = self.0.lock().await;
        let (now, ttl) = (clock.instant(), ttl.as_secs().max(1));
        let longest = ttl + (ttl / REUSE_PART).min(REUSE);
        if let Some(lease) = leases.get_mut(&ttl) {
            let is_long_enough = now + Duration::from_secs(ttl) < lease.expires;
            if is_long_enough && lease.writes < MAX_WRITES {
                lease.writes += 1;
                return Ok(lease.id);
            }
        }
        let id = client.grant_lease(i64::try_from(longest).unwrap_or(i64::MAX)).await?;
        if leases.len() >= MAX_KINDS {
            leases.clear();
        }
        leases.insert(ttl, Lease { id, expires: now + Duration::from_secs(longest), writes: 1 });
        Ok(id)
    }

    /// Forgets a lease that etcd does not know.
    pub(super) async fn forget(&self, id: i64) {
        self.0.lock().await.retain(|_, lease| lease.id != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::EtcdModel;

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_shared_by_writes_with_the_same_time_to_live() {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        let (etcd, leases) = (EtcdModel::new(clock.clone()), Leases::default());
        let get = async |seconds| leases.get(&etcd, &clock, Duration::from_secs(seconds)).await.unwrap();
        let events = get(3600).await;
        let addresses = get(15).await;
        assert_ne!(events, addresses);
        assert_eq!(get(3600).await, events);
        assert_ne!(get(15).await, addresses, "there is no time left over to share");
        leases.forget(events).await;
        assert_ne!(get(3600).await, events);
    }
}
