//! A cache of recently authenticated tokens.
//!
//! Invariants:
//! - tokens are stored as digests, keyed with a secret that only this process has;
//! - concurrent requests with the same token share one lookup;
//! - failures are never cached.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use setpoint_clock::Clock;
use tokio::sync::watch;

use super::expiring::{Digest, Expiring};
use super::metrics::AuthMetrics;
use super::service_account::{InvalidToken, VerifiedToken};

/// How long to cache a token, as in v1.34.
const TTL: Duration = Duration::from_secs(10);
/// Cache capacity, as in v1.34: twice what 5,000 nodes and 10,000 namespaces use. At about 600 bytes each, 20 MB.
const TOKENS: usize = 32 * 1024;
/// Maximum duration of a lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(30);

/// The result of a lookup: a user, or why there is none.
pub(super) type Lookup = Result<VerifiedToken, Vec<InvalidToken>>;

pub(super) struct TokenCache {
    digests: TokenDigest,
    known: Expiring<VerifiedToken>,
    flights: Mutex<BTreeMap<Digest, watch::Receiver<Option<Lookup>>>>,
}

/// Computes digests of tokens.
pub(super) struct TokenDigest(hmac::Key);

impl Default for TokenDigest {
    fn default() -> Self {
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).expect("the system supplies randomness");
        Self(hmac::Key::new(hmac::HMAC_SHA256, &secret))
    }
}

impl TokenDigest {
    /// Computes the digest of a token for these audiences. Length prefixes separate the parts.
    pub(super) fn of(&self, token: &str, audiences: &[String]) -> Digest {
        let mut context = hmac::Context::with_key(&self.0);
        let mut add = |bytes: &[u8]| {
            context.update(&(bytes.len() as u64).to_be_bytes());
            context.update(bytes);
        };
        add(token.as_bytes());
        audiences.iter().for_each(|audience| add(audience.as_bytes()));
        let mut digest = [0; 32];
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }
}

impl Default for TokenCache {
    fn default() -> Self {
        Self { digests: TokenDigest::default(), known: Expiring::new(TOKENS), flights: Mutex::default() }
    }
}

/// Unregisters a lookup when it finishes or its request is dropped; in the latter case a waiting request takes over.
struct Flight<'a> {
    cache: &'a TokenCache,
    key: Digest,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.cache.flights.lock().remove(&self.key);
    }
}

impl TokenCache {
    /// Returns the cached result, or that of `look_up`.
    pub(super) async fn get(
        &self,
        token: &str,
        audiences: &[String],
        clock: &Clock,
        metrics: &Arc<AuthMetrics>,
        look_up: impl Future<Output = Lookup>,
    ) -> Lookup {
        let start = clock.instant();
        let key = self.digests.of(token, audiences);
        if let Some(known) = self.known.get(&key, start) {
            metrics.record_cache_lookup(true, clock.instant().duration_since(start));
            return Ok(known);
        }
        let found = self.share(key, clock, metrics, look_up).await;
        metrics.record_cache_lookup(false, clock.instant().duration_since(start));
        found
    }

    async fn share(
        &self,
        key: Digest,
        clock: &Clock,
        metrics: &Arc<AuthMetrics>,
        look_up: impl Future<Output = Lookup>,
    ) -> Lookup {
        let sender = loop {
            let (sender, receiver) = watch::channel(None);
            let flying = match self.flights.lock().entry(key) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.get().clone(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert(receiver);
                    break sender;
                }
            };
            if let Some(found) = shared(flying).await {
                return found;
            }
        };
        let _flight = Flight { cache: self, key };
        let _fetching = metrics.fetching();
        let found = tokio::time::timeout(LOOKUP_TIMEOUT, look_up).await;
        let found = found.unwrap_or_else(|_| Err(vec!["context deadline exceeded".into()]));
        metrics.fetched(!matches!(&found, Err(errors) if !errors.is_empty()));
        if let Ok(known) = &found {
            self.known.set(key, known.clone(), clock.instant(), TTL);
        }
        sender.send_replace(Some(found.clone()));
        found
    }
}

/// Waits for another request's lookup; `None` if that request was dropped first.
async fn shared(mut flying: watch::Receiver<Option<Lookup>>) -> Option<Lookup> {
    let found = flying.wait_for(Option::is_some).await;
    found.ok().and_then(|found| found.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::User;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn known() -> VerifiedToken {
        VerifiedToken {
            user: User::default(),
            audiences: vec!["a".into()],
            warning: None,
            annotations: Vec::new(),
        }
    }

    struct World {
        cache: TokenCache,
        clock: Clock,
        metrics: Arc<AuthMetrics>,
        lookups: AtomicUsize,
    }

    impl World {
        fn new() -> Self {
            let clock = Clock::simulated(jiff::Timestamp::UNIX_EPOCH);
            Self {
                cache: TokenCache::default(),
                clock,
                metrics: Arc::default(),
                lookups: AtomicUsize::new(0),
            }
        }

        async fn get(&self, token: &str, found: Lookup) -> Lookup {
            let look_up = async {
                self.lookups.fetch_add(1, Ordering::Relaxed);
                self.clock.sleep(Duration::from_secs(1)).await;
                found
            };
            self.cache.get(token, &["a".into()], &self.clock, &self.metrics, look_up).await
        }

        fn lookups(&self) -> usize {
            self.lookups.load(Ordering::Relaxed)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_cached_for_ten_seconds() {
        let world = World::new();
        assert!(world.get("t", Ok(known())).await.is_ok());
        assert!(world.get("t", Err(Vec::new())).await.is_ok());
        assert_eq!(world.lookups(), 1);
        world.clock.sleep(TTL).await;
        assert!(world.get("t", Err(Vec::new())).await.is_err(), "entries expire");
        assert!(world.get("t", Ok(known())).await.is_ok(), "failures are not cached");
        assert_eq!(world.lookups(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_at_the_same_time_share_a_lookup() {
        let world = World::new();
        let failed = || Err(vec!["no".into()]);
        let both = tokio::join!(world.get("t", failed()), world.get("t", Ok(known())));
        assert_eq!((both.0, both.1), (failed(), failed()));
        assert_eq!(world.lookups(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_lookup_is_continued_by_another_request() {
        let world = World::new();
        let first = tokio::time::timeout(Duration::from_millis(10), world.get("t", Err(Vec::new())));
        let (first, second) = tokio::join!(first, world.get("t", Ok(known())));
        assert!(first.is_err() && second.is_ok());
        assert_eq!(world.lookups(), 2);
    }

    #[test]
    fn digests_distinguish_tokens_and_audiences() {
        let digests = TokenDigest::default();
        let of = |token: &str, audiences: &[&str]| {
            digests.of(token, &audiences.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of("a", &["b"]), of("a", &["b"]));
        assert_ne!(of("a", &["b"]), of("ab", &[]));
        assert_ne!(of("a", &["b", "c"]), of("a", &["bc"]));
        assert_ne!(
            of("a", &["b"]),
            TokenDigest::default().of("a", &["b".into()]),
            "each process has its own key"
        );
    }
}
