//! One replica's membership: it joins, renews, takes shards, hands them over, and leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use setpoint_clock::Instant;
use tokio_util::sync::CancellationToken;

use super::Shards;
use super::directory::{Directory, Listing};
use super::ring::{Plan, View, member_of, plan};
use crate::client::ClientError;
use crate::config::ShardBy;
use crate::health::Check;
use crate::leader::{
    ElectionConfig, ExitReason, Fence, InvalidElectionConfig, LeaderElectionRecord, Observed,
};
use crate::metrics::Metrics;
use crate::{Client, Object, Runtime};

/// How keys are split over replicas.
///
/// ```
/// use setpoint::{config::ShardBy, leader::ElectionConfig, shard::ShardingOptions};
/// let options = ShardingOptions {
///     election: ElectionConfig::new("kube-system", "my-operator", "pod-a"),
///     shards: 64,
///     by: ShardBy::Namespace,
/// };
/// assert_eq!(options.shards, 64);
/// ```
#[derive(Clone, Debug)]
pub struct ShardingOptions {
    /// The controller's name, this replica's identity, and the timing of its membership.
    pub election: ElectionConfig,
    /// The number of shards. Use several per replica, so that they can be spread evenly.
    pub shards: u32,
    /// How keys are assigned to shards.
    pub by: ShardBy,
}

/// One replica of a sharded controller.
///
/// ```no_run
/// # async fn example(client: setpoint::Client, runtime: setpoint::Runtime, options: setpoint::shard::ShardingOptions,
/// #     stop: tokio_util::sync::CancellationToken) -> Result<(), setpoint::leader::InvalidElectionConfig> {
/// use setpoint::{leader::Fence, shard::Sharding};
/// let fence = Fence::closed(&runtime.clock);
/// let sharding = Sharding::new(&client, &runtime, options, &fence)?;
/// let shards = sharding.shards().clone(); // for `Sharded` reconcilers
/// sharding.run(stop, async |stop| stop.cancelled().await).await;
/// # Ok(()) }
/// ```
pub struct Sharding {
    options: ShardingOptions,
    /// The replica's name, from its Lease.
    member: String,
    directory: Directory,
    runtime: Runtime,
    shards: Shards,
    membership: Option<Membership>,
    observed: BTreeMap<String, Observed>,
    /// Since when owners in the map have had no membership.
    missing: BTreeMap<String, Instant>,
    ready: Vec<Check>,
    metrics: Option<Metrics>,
    /// The membership lapsed since ownership was last updated.
    lapsed: bool,
}

/// A membership that has been written.
struct Membership {
    /// This replica's name in the map, until it has to rejoin.
    incarnation: String,
    lease: Object,
    record: LeaderElectionRecord,
}

impl Sharding {
    /// Creates a replica that has not joined yet. `fence` guards everything that its membership allows.
    pub fn new(
        client: &Client,
        runtime: &Runtime,
        options: ShardingOptions,
        fence: &Fence,
    ) -> Result<Self, InvalidElectionConfig> {
        let ElectionConfig { namespace, name, identity, .. } = &options.election;
        options.election.validate()?;
        fence.close();
        let client = client.clone().add_user_agent("sharding").with_timeout(options.election.call_timeout());
        Ok(Self {
            member: lease_name(identity),
            directory: Directory::new(client, namespace, name),
            runtime: runtime.clone(),
            shards: Shards::new(Some((options.shards.max(1), options.by)), fence.clone()),
            membership: None,
            observed: BTreeMap::new(),
            missing: BTreeMap::new(),
            ready: Vec::new(),
            metrics: None,
            lapsed: true,
            options,
        })
    }

    /// Exposes the number of owned shards and of members as metrics.
    pub fn with_metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
    }

    /// Joins only once this check passes, for example once caches have synced, so that no shard is assigned to a
    /// replica that cannot process it.
    pub fn join_when(&mut self, ready: Check) {
        self.ready.push(ready);
    }

    /// Returns the shards of this replica. The set changes over time.
    pub fn shards(&self) -> &Shards {
        &self.shards
    }

    /// Joins and runs `work` until `stop` is cancelled, then hands over all shards and leaves.
    ///
    /// A replica that loses its membership continues and rejoins. Its work on the shards it had is dropped.
    pub async fn run<F: Future<Output = ()>>(
        mut self,
        stop: CancellationToken,
        work: impl FnOnce(CancellationToken) -> F,
    ) -> ExitReason {
        let work = work(stop.clone());
        tokio::select! {
            biased;
            () = work => {}
            () = self.participate(&stop) => {}
        }
        self.leave().await;
        ExitReason::Stopped
    }

    async fn participate(&mut self, stop: &CancellationToken) {
        while let Some(unready) = self.ready.iter().find_map(|check| check().err()) {
            tracing::debug!(unready, "joining when ready");
            self.runtime.clock.sleep(self.options.election.retry_period / 4).await;
        }
        loop {
            let again = match self.round(stop.is_cancelled()).await {
                Ok(again) => again,
                Err(error) => {
                    tracing::warn!(%error, member = self.member, "cannot update the shard membership");
                    false
                }
            };
            if again {
                continue;
            }
            let (shards, pause) = (self.shards.clone(), self.options.election.retry_period);
            tokio::select! {
                biased;
                () = self.runtime.clock.sleep(pause) => {}
                () = shards.drained() => {}
            }
        }
    }

    /// Renews the membership, lists the Leases and acts on them. Returns `true` if another round makes sense
    /// immediately. A replica that is leaving only renews: it finishes its work and takes no new shards.
    async fn round(&mut self, leaving: bool) -> Result<bool, ClientError> {
        self.lapsed |= !self.shards.fence().holds();
        self.renew().await?;
        if leaving {
            return Ok(false);
        }
        let shards = self.options.shards.max(1);
        let listing = self.directory.list(shards).await?;
        self.observe(&listing);
        if self.release_expired(&listing).await? {
            return Ok(true);
        }
        let Some(me) = self.membership.as_ref().map(|membership| membership.incarnation.clone()) else {
            return Ok(false);
        };
        let Plan { owners, drain } = self.plan(&me, &listing);
        self.shards.drain(&drain);
        let handed_on = owners.iter().zip(&listing.owners).any(|(next, now)| *now == me && next != now);
        if owners != listing.owners {
            if handed_on {
                // Give up ownership before writing the new owner.
                self.own(&me, &owners, &listing.owners, false);
            }
            self.directory.write_map(&listing, &owners).await?;
            self.count_changes(&listing.owners, &owners);
        }
        self.own(&me, &owners, &owners, self.lapsed);
        self.lapsed = false;
        self.show(&listing);
        Ok(!drain.is_empty() && drain.iter().any(|shard| self.shards.is_drained(*shard)))
    }

    /// Owns the shards that both maps assign to this replica.
    fn own(&self, me: &str, one: &[String], other: &[String], rejoined: bool) {
        let both = one.iter().zip(other).enumerate();
        let owned: BTreeSet<u32> = both
            .filter(|(_, (one, other))| *one == me && *other == me)
            .map(|(shard, _)| shard as u32)
            .collect();
        self.shards.own(owned, rejoined);
    }

    /// Renews the membership, or rejoins under a new name if it was taken away.
    async fn renew(&mut self) -> Result<(), ClientError> {
        let sent = self.runtime.clock.instant();
        let Some(membership) = &mut self.membership else { return self.join(sent).await };
        let record =
            LeaderElectionRecord { renew_time: Some(self.runtime.clock.now()), ..membership.record.clone() };
        let written = self.directory.write_member(&self.member, Some(&membership.lease), &record).await;
        match written {
            Ok(lease) => {
                (membership.lease, membership.record) = (lease, record);
                self.shards.fence().hold_until(sent + self.options.election.renew_deadline);
                Ok(())
            }
            // Changed or removed by another replica, or by an own renewal whose response was lost.
            Err(error) if error.is_conflict() || error.is_not_found() => self.verify_membership(sent).await,
            Err(error) => Err(error),
        }
    }

    /// Checks whether the membership is still this replica's. If not, rejoins.
    async fn verify_membership(&mut self, sent: Instant) -> Result<(), ClientError> {
        let listing = self.directory.list(self.options.shards.max(1)).await?;
        let found = listing.members.get(&self.member);
        if let (Some(membership), Some((lease, record))) = (&mut self.membership, found)
            && record.holder_identity == membership.incarnation
        {
            membership.lease = lease.clone();
            return Err(ClientError::Transport("the membership changed while it was renewed".into()));
        }
        tracing::warn!(member = self.member, "lost its membership, joining again");
        self.shards.fence().close();
        self.shards.own(BTreeSet::new(), false);
        self.membership = None;
        self.join(sent).await
    }

    async fn join(&mut self, sent: Instant) -> Result<(), ClientError> {
        let listing = self.directory.list(self.options.shards.max(1)).await?;
        let before = listing.members.get(&self.member);
        let now = Some(self.runtime.clock.now());
        let incarnation = format!("{}/{}", self.member, self.runtime.rng.suffix(8));
        let record = LeaderElectionRecord {
            holder_identity: incarnation.clone(),
            lease_duration_seconds: self.options.election.lease_seconds(),
            acquire_time: now,
            renew_time: now,
            lease_transitions: before.map_or(0, |(_, record)| record.lease_transitions + 1),
        };
        let lease =
            self.directory.write_member(&self.member, before.map(|(lease, _)| lease), &record).await?;
        tracing::info!(incarnation, "joined");
        self.membership = Some(Membership { incarnation, lease, record });
        self.shards.fence().hold_until(sent + self.options.election.renew_deadline);
        Ok(())
    }

    /// Records when memberships changed, and since when owners have had none.
    fn observe(&mut self, listing: &Listing) {
        let now = self.runtime.clock.instant();
        self.observed.retain(|member, _| listing.members.contains_key(member));
        for (member, (_, record)) in &listing.members {
            let before = self.observed.remove(member);
            self.observed.insert(member.clone(), Observed::seen(before, record.clone(), now));
        }
        let absent = |owner: &&String| !owner.is_empty() && !listing.members.contains_key(member_of(owner));
        let absent: BTreeSet<&String> = listing.owners.iter().filter(absent).collect();
        self.missing.retain(|owner, _| absent.contains(owner));
        for owner in absent {
            self.missing.entry(owner.clone()).or_insert(now);
        }
    }

    /// Releases memberships that were not renewed within their lease, and removes released ones that own nothing.
    /// Returns `true` if there were any to release.
    async fn release_expired(&self, listing: &Listing) -> Result<bool, ClientError> {
        let now = self.runtime.clock.instant();
        let mut dismissed = false;
        for (member, (lease, record)) in &listing.members {
            let valid = self.observed.get(member).is_some_and(|observed| observed.is_valid(now));
            if *member == self.member || valid {
                continue;
            }
            if record.holder_identity.is_empty() {
                if !listing.owners.iter().any(|owner| member_of(owner) == member) {
                    self.directory.remove_member(lease).await?;
                }
                continue;
            }
            tracing::info!(member, "removed a member that did not renew its lease");
            let released = LeaderElectionRecord { holder_identity: String::new(), ..record.clone() };
            self.directory.write_member(member, Some(lease), &released).await?;
            dismissed = true;
        }
        Ok(dismissed)
    }

    fn plan(&self, me: &str, listing: &Listing) -> Plan {
        let now = self.runtime.clock.instant();
        let valid =
            |member: &&String| self.observed.get(*member).is_some_and(|observed| observed.is_valid(now));
        let holders = listing.members.iter().filter(|(member, _)| valid(member));
        let mut live: Vec<String> = holders.map(|(_, (_, record))| record.holder_identity.clone()).collect();
        if !live.iter().any(|one| one == me) {
            live.push(me.to_owned());
        }
        let patience = self.options.election.lease_duration;
        let gone = |owner: &str| match listing.members.get(member_of(owner)) {
            // Released, or rejoined under another name: ignore the old incarnation.
            Some((_, record)) => record.holder_identity != owner,
            None => self.missing.get(owner).is_some_and(|since| now >= *since + patience),
        };
        let drained = |shard: u32| self.shards.is_drained(shard);
        plan(&View { me, live: &live, owners: &listing.owners, gone: &gone, drained: &drained })
    }

    /// Hands over the owned shards and gives up the membership. Best effort: shards that are not handed over are taken
    /// later.
    async fn leave(&mut self) {
        let Some(membership) = self.membership.take() else { return };
        self.shards.own(BTreeSet::new(), false);
        self.shards.fence().close();
        if let Err(error) = self.hand_over_all(&membership).await {
            tracing::warn!(%error, member = self.member, "cannot leave gracefully: other members have to wait for the lease to expire");
        }
    }

    async fn hand_over_all(&mut self, membership: &Membership) -> Result<(), ClientError> {
        let listing = self.directory.list(self.options.shards.max(1)).await?;
        let now = self.runtime.clock.instant();
        let others = listing.members.iter().filter(|(member, _)| {
            **member != self.member && self.observed.get(*member).is_some_and(|seen| seen.is_valid(now))
        });
        let live: Vec<String> = others.map(|(_, (_, record))| record.holder_identity.clone()).collect();
        let names: Vec<&str> = live.iter().map(|one| member_of(one)).collect();
        let desired = super::ring::assign(&names, listing.owners.len() as u32);
        let heir = |name: Option<&str>| live.iter().find(|one| Some(member_of(one)) == name).cloned();
        let owners: Vec<String> = listing
            .owners
            .iter()
            .zip(desired)
            .map(|(owner, desired)| match *owner == membership.incarnation {
                true => heir(desired).unwrap_or_default(),
                false => owner.clone(),
            })
            .collect();
        if owners != listing.owners {
            self.directory.write_map(&listing, &owners).await?;
        }
        match listing.members.get(&self.member) {
            Some((lease, _)) => self.directory.remove_member(lease).await,
            None => Ok(()),
        }
    }

    fn count_changes(&self, before: &[String], after: &[String]) {
        let changed = before.iter().zip(after).filter(|(before, after)| before != after).count();
        if let Some(metrics) = &self.metrics {
            metrics.count("setpoint_shard_handovers", "Parts that changed their owner.", &[], changed as u64);
        }
    }

    fn show(&self, listing: &Listing) {
        let Some(metrics) = &self.metrics else { return };
        let owned = self.shards.owned().len();
        metrics.set_gauge("setpoint_shards_owned", "Parts that this replica works on.", &[], owned as f64);
        let members = listing.members.len();
        metrics.set_gauge("setpoint_shard_members", "Replicas that share the work.", &[], members as f64);
    }
}

/// Converts an identity to part of a Lease name: lowercase letters, digits and hyphens.
fn lease_name(identity: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    identity.chars().map(plain).collect::<String>().trim_matches('-').to_owned()
}

/// Returns a check that the readiness check `name` passes, which a replica can wait for before it joins.
pub(crate) fn when_ready(health: &crate::health::Health, name: String) -> Check {
    let health = health.clone();
    Arc::new(move || match health.readyz().only(&name) {
        Some(report) if !report.ok => Err(format!("{name} is not ready")),
        _ => Ok(()),
    })
}
