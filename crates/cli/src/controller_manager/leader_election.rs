//! Leader election flags.

use std::time::Duration;

use clap::{ArgAction, Args};
use setpoint::Rng;
use setpoint::leader::ElectionConfig;
use setpoint_controllers::flags::duration;

#[derive(Debug, Args)]
#[command(next_help_heading = "Leader election")]
pub(crate) struct LeaderElectionFlags {
    /// Run the controllers only while holding the leader election lease.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true,
        action = ArgAction::Set, value_name = "BOOL")]
    pub(crate) leader_elect: bool,
    #[command(flatten)]
    times: ElectionTimes,
    /// Kind of the lock object; only leases are supported.
    #[arg(long, default_value = "leases", value_name = "KIND", value_parser = ["leases"])]
    leader_elect_resource_lock: String,
    /// Name of the lease.
    #[arg(long, default_value = "kube-controller-manager", value_name = "NAME")]
    leader_elect_resource_name: String,
    /// Namespace of the lease.
    #[arg(long, default_value = "kube-system", value_name = "NAMESPACE")]
    leader_elect_resource_namespace: String,
}

/// The times of a leader election, with client-go's defaults.
#[derive(Debug, Args)]
pub(crate) struct ElectionTimes {
    /// How long standbys wait before taking over a lease that is not renewed.
    #[arg(long, default_value = "15s", value_name = "DURATION", value_parser = duration)]
    pub(crate) leader_elect_lease_duration: Duration,
    /// How long the leader keeps trying to renew its lease before it gives up.
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    pub(crate) leader_elect_renew_deadline: Duration,
    /// Time between attempts to acquire or renew the lease.
    #[arg(long, default_value = "2s", value_name = "DURATION", value_parser = duration)]
    pub(crate) leader_elect_retry_period: Duration,
}

impl LeaderElectionFlags {
    /// Returns the leader election settings, if it is enabled.
    pub(crate) fn election(&self, rng: &Rng) -> Option<ElectionConfig> {
        let identity = ElectionConfig::own_identity(rng);
        let (namespace, name) = (&self.leader_elect_resource_namespace, &self.leader_elect_resource_name);
        self.leader_elect.then(|| ElectionConfig {
            lease_duration: self.times.leader_elect_lease_duration,
            renew_deadline: self.times.leader_elect_renew_deadline,
            retry_period: self.times.leader_elect_retry_period,
            ..ElectionConfig::new(namespace, name, identity)
        })
    }
}
