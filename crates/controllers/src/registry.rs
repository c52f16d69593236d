//! The list of controllers. Wiring, flags, documentation and roles are derived from it.
//!
//! To add a controller, add its entry here. Invariants:
//! - names are kube-controller-manager's, including its deprecated aliases;
//! - an unknown name is an error, never a controller that silently does not run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

pub use setpoint::Access;
use setpoint::{Context, Runnable};

use crate::certificates::Signers;
use crate::flags::Flag;
use crate::gates::FeatureGates;
use crate::node_ipam::NodeRanges;
use crate::node_lifecycle::config::NodeLifecycle;
use crate::service_account::tokens::jwt::TokenSigner;
use crate::service_load_balancer::AddressPool;

/// All controllers, in startup order.
pub const REGISTRY: &[Entry] = &[
    crate::replicaset::ENTRY,
    crate::replication_controller::ENTRY,
    crate::deployment::ENTRY,
    crate::statefulset::ENTRY,
    crate::daemonset::ENTRY,
    crate::job::ENTRY,
    crate::cronjob::ENTRY,
    crate::ttl_after_finished::ENTRY,
    crate::garbage_collector::ENTRY,
    crate::namespace::ENTRY,
    crate::pod_gc::ENTRY,
    crate::node_lifecycle::ENTRY,
    crate::service_account::ENTRY,
    crate::service_account::tokens::ENTRY,
    crate::root_ca::ENTRY,
    crate::endpoints::ENTRY,
    crate::endpoint_slice::ENTRY,
    crate::endpoint_slice_mirroring::ENTRY,
    crate::resource_quota::ENTRY,
    crate::taint_eviction::ENTRY,
    crate::disruption::ENTRY,
    crate::cluster_role_aggregation::ENTRY,
    crate::node_ttl::ENTRY,
    crate::service_cidr::ENTRY,
    crate::horizontal_pod_autoscaler::ENTRY,
    crate::pv_binder::ENTRY,
    crate::volume_protection::claims::ENTRY,
    crate::volume_protection::volumes::ENTRY,
    crate::volume_protection::classes::ENTRY,
    crate::ephemeral_volume::ENTRY,
    crate::attach_detach::ENTRY,
    crate::volume_expander::ENTRY,
    crate::certificates::signing::ENTRY,
    crate::certificates::approving::ENTRY,
    crate::certificates::cleaner::ENTRY,
    crate::service_account::legacy_tokens::ENTRY,
    crate::bootstrap::signer::ENTRY,
    crate::bootstrap::cleaner::ENTRY,
    crate::resource_claim::ENTRY,
    crate::validating_admission_policy::ENTRY,
    crate::node_ipam::ENTRY,
    crate::service_load_balancer::ENTRY,
    crate::ingress::ENTRY,
    crate::absent::NODE_ROUTE,
    crate::absent::CLOUD_NODE_LIFECYCLE,
    crate::certificates::pod_requests::ENTRY,
    crate::certificates::trust_bundles::ENTRY,
    crate::device_taint_eviction::ENTRY,
    crate::storage_version_gc::ENTRY,
    crate::storage_version_migrator::ENTRY,
    crate::selinux_warning::ENTRY,
];

/// The controllers' flags, each next to its controller.
pub(crate) const FLAGS: &[&[Flag]] = &[
    crate::deployment::FLAGS,
    crate::replicaset::FLAGS,
    crate::replication_controller::FLAGS,
    crate::statefulset::FLAGS,
    crate::daemonset::FLAGS,
    crate::job::FLAGS,
    crate::cronjob::FLAGS,
    crate::endpoints::FLAGS,
    crate::endpoint_slice::FLAGS,
    crate::endpoint_slice_mirroring::FLAGS,
    crate::horizontal_pod_autoscaler::settings::FLAGS,
    crate::resource_quota::FLAGS,
    crate::service_account::tokens::FLAGS,
    crate::ttl_after_finished::FLAGS,
    crate::validating_admission_policy::FLAGS,
    crate::namespace::FLAGS,
    crate::garbage_collector::FLAGS,
    crate::service_load_balancer::FLAGS,
    crate::pod_gc::FLAGS,
    crate::service_account::legacy_tokens::FLAGS,
    crate::node_lifecycle::config::FLAGS,
    crate::pv_binder::FLAGS,
    crate::ephemeral_volume::FLAGS,
    crate::attach_detach::FLAGS,
];

/// Static information about a controller.
#[derive(Clone, Copy)]
pub struct Entry {
    /// `replicaset-controller`
    pub name: &'static str,
    /// Deprecated names: `replicaset`.
    pub aliases: &'static [&'static str],
    /// Whether `*` selects it.
    pub on_by_default: bool,
    /// The feature gates it requires.
    pub gates: &'static [&'static str],
    /// A one-line description.
    pub summary: &'static str,
    /// The resources it watches.
    pub watches: &'static [Access],
    /// The resources it writes.
    pub writes: &'static [Access],
    /// The default number of workers.
    pub default_workers: usize,
    /// Builds its runnables: requests informers and adds handlers, but starts nothing.
    pub build: fn(&Context, &Options) -> Vec<Box<dyn Runnable>>,
}

/// Options of all controllers, with kube-controller-manager's defaults.
#[derive(Clone, Debug)]
pub struct Options {
    /// The feature gates.
    pub gates: FeatureGates,
    /// Workers by controller name, overriding the default.
    pub workers: BTreeMap<String, usize>,
    /// How many finished pods are kept before the oldest are deleted; 0 keeps all.
    pub terminated_pod_threshold: usize,
    /// The CA certificate (PEM) of the API server. Not published if unset.
    pub root_ca: Option<String>,
    /// The signer of service account tokens. No tokens are created if unset.
    pub token_signer: Option<TokenSigner>,
    /// Settings of the volume binder.
    pub volume_binder: crate::pv_binder::Settings,
    /// The certificate signers.
    pub signers: Signers,
    /// Settings of the node lifecycle controller.
    pub node_lifecycle: NodeLifecycle,
    /// Whether the garbage collector is enabled.
    pub garbage_collector: bool,
    /// Settings of autoscalers.
    pub autoscaler: crate::horizontal_pod_autoscaler::settings::Settings,
    /// Settings of the endpoint controllers.
    pub endpoints: crate::discovery::settings::EndpointSettings,
    /// How often namespaces kept by other finalizers are checked.
    pub namespace_sync_period: Duration,
    /// Whether volumes are force-detached from nodes that are unhealthy for too long.
    pub force_detach: bool,
    /// How often quotas are fully recounted.
    pub quota_sync_period: Duration,
    /// How long a token Secret must be unused before it is invalidated, and then before it is deleted.
    pub legacy_token_clean_up_period: Duration,
    /// The cluster CIDRs for node CIDRs. None are allocated if unset.
    pub node_ranges: Option<NodeRanges>,
    /// The addresses of load balancers and ingresses. None are assigned if unset.
    pub load_balancer_pool: Option<AddressPool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            gates: FeatureGates::default(),
            workers: BTreeMap::new(),
            terminated_pod_threshold: 12_500,
            root_ca: None,
            token_signer: None,
            volume_binder: crate::pv_binder::Settings::default(),
            signers: Signers::default(),
            node_lifecycle: NodeLifecycle::default(),
            garbage_collector: true,
            autoscaler: Default::default(),
            endpoints: Default::default(),
            namespace_sync_period: Duration::from_secs(300),
            force_detach: true,
            quota_sync_period: Duration::from_secs(300),
            legacy_token_clean_up_period: Duration::from_secs(365 * 24 * 3600),
            node_ranges: None,
            load_balancer_pool: None,
        }
    }
}

/// A `--controllers` list names an unknown controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not in the list of known controllers: {known}")]
pub struct UnknownController {
    name: String,
    known: String,
}

/// The permissions any controller needs to record events.
pub const EVENTS: Access = Access::EVENTS;

impl Options {
    /// Returns a controller's number of workers, at least one.
    pub fn workers(&self, entry: &Entry) -> usize {
        self.workers.get(entry.name).copied().unwrap_or(entry.default_workers).max(1)
    }
}

impl Entry {
    /// Returns the first required feature gate that is disabled, or `None` if the controller may run.
    pub fn closed_gate(&self, gates: &FeatureGates) -> Option<&'static str> {
        self.gates.iter().find(|gate| !gates.on(gate)).copied()
    }

    /// Builds its runnables, if the required feature gates are enabled.
    pub fn parts(&self, context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
        match self.closed_gate(&options.gates) {
            Some(_) => Vec::new(),
            None => (self.build)(context, options),
        }
    }

    fn is_named(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.name).finish()
    }
}

/// Returns the controllers that a `--controllers` list selects.
pub fn selected<S: AsRef<str>>(list: &[S]) -> Result<Vec<&'static Entry>, UnknownController> {
    select(REGISTRY, list)
}

/// `*` selects all that are on by default, `foo` selects foo, `-foo` disables it, `-*` alone selects nothing. The first
/// mention of a controller wins; without `*` only named ones run.
fn select<'a, S: AsRef<str>>(registry: &'a [Entry], list: &[S]) -> Result<Vec<&'a Entry>, UnknownController> {
    let words: Vec<(bool, &str)> = list.iter().map(|word| choice(word.as_ref())).collect();
    for (_, name) in &words {
        if *name != "*" && !registry.iter().any(|entry| entry.is_named(name)) {
            return Err(UnknownController::new(registry, name));
        }
    }
    Ok(registry.iter().filter(|entry| is_selected(entry, &words)).collect())
}

/// Parses a list item: whether it enables or disables a controller, and which.
fn choice(word: &str) -> (bool, &str) {
    match word.strip_prefix('-') {
        Some(name) => (false, name),
        None => (true, word),
    }
}

fn is_selected(entry: &Entry, words: &[(bool, &str)]) -> bool {
    let named = words.iter().find(|(_, name)| entry.is_named(name)).map(|(wanted, _)| *wanted);
    named.unwrap_or_else(|| entry.on_by_default && words.contains(&(true, "*")))
}

impl UnknownController {
    fn new(registry: &[Entry], name: &str) -> Self {
        let known: Vec<_> = registry.iter().map(|entry| entry.name).collect();
        Self { name: name.into(), known: known.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const fn entry(name: &'static str, aliases: &'static [&'static str], on_by_default: bool) -> Entry {
        Entry {
            name,
            aliases,
            on_by_default,
            gates: &[],
            summary: "",
            watches: &[],
            writes: &[],
            default_workers: 1,
            build: |_, _| Vec::new(),
        }
    }

    const SOME: &[Entry] = &[
        entry("red-controller", &["red"], true),
        entry("green-controller", &["green", "grass"], true),
        entry("off-controller", &["off"], false),
    ];

    #[track_caller]
    fn check(list: &[&str], expected: &[&str]) {
        let names: Vec<_> = select(SOME, list).unwrap().iter().map(|entry| entry.name).collect();
        assert_eq!(names, expected, "selected by {list:?}");
    }

    #[test]
    fn a_list_selects_as_kube_controller_manager_does() {
        check(&["*"], &["red-controller", "green-controller"]);
        check(&[], &[]);
        check(&["-*"], &[]);
        check(&["red-controller"], &["red-controller"]);
        check(&["grass"], &["green-controller"]);
        check(&["*", "off"], &["red-controller", "green-controller", "off-controller"]);
        check(&["*", "-red"], &["green-controller"]);
        check(&["-red", "*"], &["green-controller"]);
        check(&["-red", "red", "*"], &["green-controller"]);
        check(&["red", "-red"], &["red-controller"]);
        check(&["-off", "*"], &["red-controller", "green-controller"]);
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_known_ones() {
        for list in [["*", "blue"], ["*", "-blue"]] {
            let error = select(SOME, &list).unwrap_err().to_string();
            let expected = "\"blue\" is not in the list of known controllers: \
                            red-controller, green-controller, off-controller";
            assert_eq!(error, expected);
        }
    }

    /// The controller names of kube-controller-manager v1.34, each with its deprecated aliases.
    const NAMES: &str = "
        serviceaccount-token-controller serviceaccount-token
        endpoints-controller endpoint
        endpointslice-controller endpointslice
        endpointslice-mirroring-controller endpointslicemirroring
        replicationcontroller-controller replicationcontroller
        pod-garbage-collector-controller podgc
        resourcequota-controller resourcequota
        namespace-controller namespace
        serviceaccount-controller serviceaccount
        garbage-collector-controller garbagecollector
        daemonset-controller daemonset
        job-controller job
        deployment-controller deployment
        replicaset-controller replicaset
        horizontal-pod-autoscaler-controller horizontalpodautoscaling
        disruption-controller disruption
        statefulset-controller statefulset
        cronjob-controller cronjob
        certificatesigningrequest-signing-controller csrsigning
        certificatesigningrequest-approving-controller csrapproving
        certificatesigningrequest-cleaner-controller csrcleaner
        podcertificaterequest-cleaner-controller
        ttl-controller ttl
        bootstrap-signer-controller bootstrapsigner
        token-cleaner-controller tokencleaner
        node-ipam-controller nodeipam
        node-lifecycle-controller nodelifecycle
        taint-eviction-controller
        device-taint-eviction-controller
        persistentvolume-binder-controller persistentvolume-binder
        persistentvolume-attach-detach-controller attachdetach
        persistentvolume-expander-controller persistentvolume-expander
        clusterrole-aggregation-controller clusterrole-aggregation
        persistentvolumeclaim-protection-controller pvc-protection
        persistentvolume-protection-controller pv-protection
        ttl-after-finished-controller ttl-after-finished
        root-ca-certificate-publisher-controller root-ca-cert-publisher
        kube-apiserver-serving-clustertrustbundle-publisher-controller
        ephemeral-volume-controller ephemeral-volume
        storageversion-garbage-collector-controller storage-version-gc
        resourceclaim-controller resource-claim-controller
        legacy-serviceaccount-token-cleaner-controller legacy-service-account-token-cleaner
        validatingadmissionpolicy-status-controller
        volumeattributesclass-protection-controller
        service-cidr-controller
        storage-version-migrator-controller svm
        selinux-warning-controller
        service-lb-controller service
        node-route-controller route
        cloud-node-lifecycle-controller cloud-node-lifecycle";

    #[test]
    fn every_name_of_v1_34_is_known_with_its_older_ones() {
        for line in NAMES.lines().map(str::trim).filter(|line| !line.is_empty()) {
            for name in line.split(' ') {
                let found = selected(&[name]).unwrap_or_else(|error| panic!("{error}"));
                let expected = line.split(' ').next();
                assert_eq!(found.iter().map(|entry| Some(entry.name)).collect::<Vec<_>>(), [expected]);
            }
        }
    }

    #[test]
    fn no_two_controllers_share_a_name() {
        let mut seen = BTreeSet::new();
        for entry in REGISTRY {
            for name in entry.aliases.iter().chain([&entry.name]) {
                assert!(seen.insert(*name), "{name} is used twice");
            }
        }
    }

    #[test]
    fn workers_are_the_entrys_unless_set_and_never_none() {
        let options = Options { workers: [("red-controller".to_owned(), 0)].into(), ..Options::default() };
        assert_eq!((options.workers(&SOME[0]), options.workers(&SOME[1])), (1, 1));
        let options = Options { workers: [("red-controller".to_owned(), 7)].into(), ..Options::default() };
        assert_eq!(options.workers(&SOME[0]), 7);
    }
}
