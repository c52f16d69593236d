//! Leader election with Leases: one of several replicas is active at a time.
//!
//! ```text
//!  Standby ──(no lease, released, or not renewed for its duration)──► Leading ──(stop)──► Released
//!     ▲                                                                  │
//!     └── tries again every retry period, jittered                       └─(renew deadline)─► Lost
//! ```
//!
//! The algorithm and the record are client-go's, so replicas of both can compete for the same lease. Two things are
//! stricter: the renew deadline counts from the last successful renewal, and after it the [`Fence`] rejects new writes.
//! The fence cannot recall a write in flight. It also cannot see time that the process's monotonic clock does not
//! count: on Linux, that clock stops while a machine is suspended, so after a resume an old leader may write for the
//! rest of its term. Writes carry preconditions, which catch what the fence does not.
//!
//! Invariants, as long as the monotonic clocks of all replicas run at about the same rate:
//! - Between the last renewal of one holder and the takeover by another lies the lease duration. It is longer than the
//!   renew deadline, after which the old holder starts no more writes.
//! - A lease is released only after everything it guards has ended.

mod config;
mod decide;
mod fence;
mod lease;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::Value;
use setpoint_clock::Instant;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use config::{ElectionConfig, InvalidElectionConfig, host_name};
pub use fence::Fence;
pub use lease::LeaderElectionRecord;

pub(crate) use decide::Observed;
pub(crate) use lease::{kind as lease_kind, record_of};

use decide::{Step, step};
use lease::Lease;

use crate::client::ClientError;
use crate::health::Check;
use crate::metrics::Metrics;
use crate::{Client, EventType, Recorder, Runtime};

/// How much longer than its lease a leader may fail to renew before it is considered stuck, as in client-go.
const TOLERATED: Duration = Duration::from_secs(20);

/// A candidate for leadership.
///
/// ```no_run
/// # async fn example(client: setpoint::Client, runtime: setpoint::Runtime, stop: tokio_util::sync::CancellationToken)
/// # -> Result<(), setpoint::leader::InvalidElectionConfig> {
/// use setpoint::leader::{ElectionConfig, ExitReason, LeaderElection};
/// let config = ElectionConfig::new("kube-system", "my-operator", "pod-a");
/// let election = LeaderElection::new(&client, &runtime, config)?;
/// let fence = election.fence().clone();
/// let ended = election.run(stop, async |stop| {
///     let client = client.with_fence(&fence); // refuses writes once the lease is lost
///     // ... work until `stop` is cancelled, then finish work in progress
/// #   drop(client); stop.cancelled().await;
/// }).await;
/// if ended == ExitReason::Lost {
///     std::process::exit(1); // restart as a standby
/// }
/// # Ok(()) }
/// ```
pub struct LeaderElection {
    config: ElectionConfig,
    lease: Lease,
    runtime: Runtime,
    fence: Fence,
    observed: Option<Observed>,
    leader: watch::Sender<Leadership>,
    metrics: Option<Metrics>,
    recorder: Option<Recorder>,
}

/// The current leader, as last seen.
///
/// ```
/// let vacant = setpoint::leader::Leadership::default();
/// assert!(vacant.holder.is_empty() && !vacant.is_ours);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    /// The identity of the leader. Empty if it is unknown.
    pub holder: String,
    /// Whether this process is the leader.
    pub is_ours: bool,
    /// When the lease was last seen renewed, by this process's clock.
    renewed: Option<Instant>,
}

/// How an election ended for this process.
///
/// ```
/// use setpoint::leader::ExitReason;
/// assert_ne!(ExitReason::Stopped, ExitReason::Lost);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// It was stopped, or its work ended. The lease is released if it was held.
    Stopped,
    /// The lease could not be renewed in time, and the work was dropped.
    Lost,
}

/// The result of an attempt to get or keep the lease.
enum AttemptResult {
    Held,
    Elsewhere,
    Failed,
}

impl LeaderElection {
    /// Creates a candidate. Rejects durations that could lead to two leaders.
    pub fn new(
        client: &Client,
        runtime: &Runtime,
        config: ElectionConfig,
    ) -> Result<Self, InvalidElectionConfig> {
        config.validate()?;
        let client = client.clone().add_user_agent("leader-election").with_timeout(config.call_timeout());
        Ok(Self {
            lease: Lease::new(client, &config.namespace, &config.name),
            fence: Fence::closed(&runtime.clock),
            runtime: runtime.clone(),
            observed: None,
            leader: watch::Sender::default(),
            metrics: None,
            recorder: None,
            config,
        })
    }

    /// Exposes the metric `leader_election_master_status`.
    pub fn with_metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.clone());
        self.show(false);
        self
    }

    /// Records an event when this process becomes the leader, and when it stops leading.
    pub fn with_recorder(mut self, recorder: Recorder) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Uses an existing fence, which writers already have.
    pub fn with_fence(self, fence: &Fence) -> Self {
        fence.close();
        Self { fence: fence.clone(), ..self }
    }

    /// Returns the fence, which is closed unless this process leads. Give it to every client whose writes the lease
    /// guards.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Subscribes to changes of leadership.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leader.subscribe()
    }

    /// Returns a health check that fails if this process holds the lease and has long failed to renew it without
    /// ending.
    pub fn check(&self) -> Check {
        let (leader, clock) = (self.leader.subscribe(), self.runtime.clock.clone());
        let (name, patience) = (self.config.name.clone(), self.config.lease_duration + TOLERATED);
        std::sync::Arc::new(move || {
            let leader = leader.borrow();
            let overdue = leader.renewed.is_some_and(|renewed| clock.instant() > renewed + patience);
            match leader.is_ours && overdue {
                true => Err(format!("failed election to renew leadership on lease {name}")),
                false => Ok(()),
            }
        })
    }

    /// Waits for the lease, then runs `lead` as long as the lease is kept.
    ///
    /// On `stop`, the token passed to `lead` is cancelled, and once `lead` has ended, the lease is released. If the
    /// lease is lost, the fence closes and `lead` is dropped.
    pub async fn run<F: Future<Output = ()>>(
        mut self,
        stop: CancellationToken,
        lead: impl FnOnce(CancellationToken) -> F,
    ) -> ExitReason {
        if !self.acquire(&stop).await {
            return ExitReason::Stopped;
        }
        self.became("became leader");
        let fence = self.fence.clone();
        let leading = fence.guard(lead(stop.clone()));
        let kept = tokio::select! {
            biased;
            () = self.renew() => false,
            done = leading => done.is_some(),
        };
        if kept && self.config.release_on_exit {
            self.release().await;
        }
        self.fence.close();
        self.show(false);
        self.became("stopped leading");
        if kept { ExitReason::Stopped } else { ExitReason::Lost }
    }

    /// Retries until the lease is held. Returns `false` if stopped first.
    async fn acquire(&mut self, stop: &CancellationToken) -> bool {
        tracing::info!(lease = %self.lease.key(), "attempting to acquire leader lease");
        loop {
            let tried = tokio::select! {
                biased;
                () = stop.cancelled() => return false,
                tried = self.try_hold() => tried,
            };
            if matches!(tried, AttemptResult::Held) {
                tracing::info!(lease = %self.lease.key(), "successfully acquired lease");
                self.show(true);
                return true;
            }
            let pause = self.config.jittered(&self.runtime.rng);
            tokio::select! {
                biased;
                () = stop.cancelled() => return false,
                () = self.runtime.clock.sleep(pause) => {}
            }
        }
    }

    /// Renews until that fails for the renew deadline, or another process holds the lease.
    async fn renew(&mut self) {
        loop {
            self.runtime.clock.sleep(self.config.retry_period).await;
            let fence = self.fence.clone();
            match fence.guard(self.try_hold()).await {
                Some(AttemptResult::Held | AttemptResult::Failed) => {}
                Some(AttemptResult::Elsewhere) | None => break,
            }
        }
        tracing::error!(lease = %self.lease.key(), "failed to renew lease");
        self.fence.close();
    }

    /// Attempts once to get or keep the lease. A leader first writes based on what it saw last, without reading again.
    async fn try_hold(&mut self) -> AttemptResult {
        let now = self.runtime.clock.instant();
        let mine = step(&self.config.identity, self.observed.as_ref(), now) == Step::Keep;
        if mine && self.observed.as_ref().is_some_and(|observed| observed.is_valid(now)) {
            match self.write(&Step::Keep).await {
                Ok(()) => return AttemptResult::Held,
                Err(error) => tracing::info!(%error, "cannot renew the lease: reading it again"),
            }
        }
        self.slow_path().await.unwrap_or_else(|error| {
            tracing::warn!(%error, lease = %self.lease.key(), "cannot read or write the lease");
            AttemptResult::Failed
        })
    }

    async fn slow_path(&mut self) -> Result<AttemptResult, ClientError> {
        let record = self.lease.get().await?;
        let now = self.runtime.clock.instant();
        let before = self.observed.take();
        self.observed = record.map(|record| Observed::seen(before, record, now));
        self.report();
        let step = step(&self.config.identity, self.observed.as_ref(), now);
        if step == Step::Leave {
            return Ok(AttemptResult::Elsewhere);
        }
        if step == Step::Keep {
            self.count_slow_path();
        }
        self.write(&step).await?;
        Ok(AttemptResult::Held)
    }

    /// Writes the record with this process as holder. The lease is held from when the write was sent.
    async fn write(&mut self, step: &Step) -> Result<(), ClientError> {
        let sent = self.runtime.clock.instant();
        let record = self.own_record(step);
        match step {
            Step::Create => self.lease.create(&record, &Value::Null).await?,
            _ => self.lease.update(&record).await?,
        }
        self.observed = Some(Observed { record, at: self.runtime.clock.instant() });
        self.fence.hold_until(sent + self.config.renew_deadline);
        self.report();
        Ok(())
    }

    fn own_record(&self, step: &Step) -> LeaderElectionRecord {
        let now = Some(self.runtime.clock.now());
        let before = self.observed.as_ref().map(|observed| &observed.record);
        let transitions = before.map_or(0, |record| record.lease_transitions);
        let kept = before.filter(|_| *step == Step::Keep);
        LeaderElectionRecord {
            holder_identity: self.config.identity.clone(),
            lease_duration_seconds: self.config.lease_seconds(),
            acquire_time: kept.map_or(now, |record| record.acquire_time),
            renew_time: now,
            lease_transitions: if *step == Step::Take { transitions + 1 } else { transitions },
        }
    }

    /// Releases the lease, so that others need not wait for it to expire.
    async fn release(&mut self) {
        let now = Some(self.runtime.clock.now());
        let transitions = self.observed.as_ref().map_or(0, |observed| observed.record.lease_transitions);
        let record = LeaderElectionRecord {
            lease_duration_seconds: 1,
            acquire_time: now,
            renew_time: now,
            lease_transitions: transitions,
            ..LeaderElectionRecord::default()
        };
        if let Err(error) = self.lease.update(&record).await {
            tracing::warn!(%error, lease = %self.lease.key(), "cannot release the lease, it will expire");
        }
    }

    /// Notifies subscribers of the current leader.
    fn report(&self) {
        let observed = self.observed.as_ref();
        let holder = observed.map(|observed| observed.record.holder_identity.clone()).unwrap_or_default();
        let leadership = Leadership {
            is_ours: holder == self.config.identity,
            renewed: observed.map(|observed| observed.at),
            holder,
        };
        if self.leader.borrow().holder != leadership.holder {
            tracing::info!(leader = leadership.holder, "new leader elected");
        }
        self.leader.send_replace(leadership);
    }

    fn became(&self, what: &str) {
        if let (Some(recorder), Some(lease)) = (&self.recorder, self.lease.reference()) {
            let message = format!("{} {what}", self.config.identity);
            recorder.event_about(lease, EventType::Normal, "LeaderElection", message, Default::default());
        }
    }

    fn show(&self, leads: bool) {
        if let Some(metrics) = &self.metrics {
            let help = "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, \
                1 indicates master. 'name' is the string used to identify the lease. Please make sure to group \
                by name.";
            let name = "leader_election_master_status";
            metrics.set_gauge(name, help, &[("name", &self.config.name)], f64::from(u8::from(leads)));
        }
    }

    fn count_slow_path(&self) {
        if let Some(metrics) = &self.metrics {
            let help = "Total number of slow path exercised in renewing leader leases. 'name' is the string \
                used to identify the lease. Please make sure to group by name.";
            metrics.count("leader_election_slowpath", help, &[("name", &self.config.name)], 1);
        }
    }
}
