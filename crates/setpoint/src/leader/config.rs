//! Leader election settings.

use std::time::Duration;

use setpoint_clock::Rng;

/// Waits between attempts are extended by up to this multiple of the retry period, as in client-go.
const JITTER: f64 = 1.2;

/// The lease to compete for, this process's identity, and the timing.
///
/// ```
/// use std::time::Duration;
/// use setpoint::leader::ElectionConfig;
/// let config = ElectionConfig::new("kube-system", "my-operator", "pod-a");
/// assert_eq!(config.lease_duration, Duration::from_secs(15));
/// let wrong = ElectionConfig { renew_deadline: Duration::from_secs(15), ..config };
/// assert_eq!(wrong.validate().unwrap_err().to_string(),
///     "leaderElection.leaseDuration: must be greater than renewDeadline (15s), not 15s");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionConfig {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// The identity of this process. Must differ between replicas.
    pub identity: String,
    /// How long standbys wait before they take over a lease that is not renewed (default 15 s).
    pub lease_duration: Duration,
    /// How long a leader keeps working after its last successful renewal (default 10 s).
    pub renew_deadline: Duration,
    /// The delay between two attempts (default 2 s).
    pub retry_period: Duration,
    /// Whether to release the lease on exit instead of letting it expire (default true).
    pub release_on_exit: bool,
}

/// Invalid leader election settings.
///
/// ```
/// let error = setpoint::leader::ElectionConfig::new("kube-system", "x", "").validate().unwrap_err();
/// assert_eq!(error.to_string(), "leaderElection.identity: must not be empty");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leaderElection.{key}: {expected}")]
pub struct InvalidElectionConfig {
    /// The invalid key.
    pub key: &'static str,
    /// The expected value.
    pub expected: String,
}

impl ElectionConfig {
    /// Creates settings with the durations of Kubernetes' own components: 15 s, 10 s, 2 s.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_exit: true,
        }
    }

    /// Generates an identity for this process: its hostname and a random suffix.
    ///
    /// ```
    /// let identity = setpoint::leader::ElectionConfig::own_identity(&setpoint::Rng::seeded(1));
    /// assert!(identity.contains('_'));
    /// ```
    pub fn own_identity(rng: &Rng) -> String {
        format!("{}_{}", host_name(), rng.uid())
    }

    /// Rejects settings that could lead to two leaders, or none.
    pub fn validate(&self) -> Result<(), InvalidElectionConfig> {
        let wrong = |key, expected: String| Err(InvalidElectionConfig { key, expected });
        for (key, value) in [
            ("resourceNamespace", &self.namespace),
            ("resourceName", &self.name),
            ("identity", &self.identity),
        ] {
            if value.is_empty() {
                return wrong(key, "must not be empty".into());
            }
        }
        if self.lease_duration.subsec_nanos() != 0 {
            return wrong("leaseDuration", format!("must be whole seconds, not {:?}", self.lease_duration));
        }
        if self.retry_period.is_zero() {
            return wrong("retryPeriod", "must be greater than zero".into());
        }
        if self.renew_deadline <= self.retry_period.mul_f64(JITTER) {
            let least = self.retry_period.mul_f64(JITTER);
            let expected =
                format!("must be greater than retryPeriod*1.2 ({least:?}), not {:?}", self.renew_deadline);
            return wrong("renewDeadline", expected);
        }
        if self.lease_duration <= self.renew_deadline {
            let (deadline, duration) = (self.renew_deadline, self.lease_duration);
            let expected = format!("must be greater than renewDeadline ({deadline:?}), not {duration:?}");
            return wrong("leaseDuration", expected);
        }
        Ok(())
    }

    /// Returns the lease duration as it is stored in the Lease.
    pub(crate) fn lease_seconds(&self) -> u32 {
        u32::try_from(self.lease_duration.as_secs()).unwrap_or(u32::MAX)
    }

    /// Returns the timeout for one request. A leader gets at least two attempts before its deadline.
    pub(crate) fn call_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1))
    }

    /// Returns the wait between two attempts of a standby: 1 to 2.2 retry periods, so that many standbys do not retry
    /// together.
    pub(crate) fn jittered(&self, rng: &Rng) -> Duration {
        self.retry_period.mul_f64(1.0 + JITTER * rng.fraction())
    }
}

/// Returns the name of this host, as Go's `os.Hostname` does; `localhost` if it is unknown.
pub fn host_name() -> String {
    let of_system = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = of_system.or_else(|| std::env::var("HOSTNAME").ok());
    host.as_deref().map_or("localhost", str::trim).to_owned()
}
