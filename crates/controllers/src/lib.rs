//! The built-in controllers, one folder each.
//!
//! ```text
//!  registry.rs   the list of controllers: names, what each watches and writes, how it is built
//!  flags.rs      command line flags
//!  gates.rs      feature gates
//!  metrics.rs    gauges computed on scrape
//!  wiring.rs     the queue and loop that most controllers have
//!  accounts.rs   the service account of each controller
//!  absent.rs     controllers that are known by name but do not run
//!  workload/     shared by controllers with replicas
//!  replicaset/   a number of pods of one template; the reference example, read it first
//!  replication_controller/  the same, for ReplicationControllers
//!  deployment/   rollouts from one template to the next
//!  statefulset/  pods with stable names and claims
//!  daemonset/    one pod on every eligible node
//!  job/          pods that run to completion, each counted once
//!  cronjob/      Jobs on a schedule
//!  ttl_after_finished/  TTL cleanup of finished Jobs
//!  garbage_collector/  deletes dependents with their owners
//!  namespace/    deletes a namespace with its contents
//!  pod_gc/       deletes pods that nothing else would delete
//!  node_lifecycle/  node health, and taints for unhealthy nodes
//!  taint_eviction/  evicts pods from nodes with taints they do not tolerate
//!  device_taint_eviction/  evicts pods that use devices with taints they do not tolerate
//!  disruption/   how many pods of a PodDisruptionBudget may be evicted
//!  service_account/, root_ca/  default service account, tokens and CA of every namespace
//!  certificates/ approves, signs and cleans up certificate signing requests
//!  bootstrap/    tokens with which machines join the cluster
//!  discovery/    shared by the endpoint controllers
//!  endpoints/, endpoint_slice/, endpoint_slice_mirroring/  the endpoints of Services
//!  resource_claim/ claims for the devices of pods
//!  resource_quota/ usage of quotas
//!  cluster_role_aggregation/, node_ttl/, service_cidr/  one small task each
//!  horizontal_pod_autoscaler/  scales workloads by metrics
//!  pv_binder/    binds claims to volumes, reclaims released volumes
//!  volume_protection/  protects claims, volumes and attribute classes that are in use
//!  selinux_warning/  warns about conflicting SELinux labels of a volume
//!  ephemeral_volume/  claims that live as long as their pods
//!  attach_detach/  attaches volumes to the nodes of their pods
//!  volume_expander/  delegates volume expansion
//!  validating_admission_policy/  type-checks policies
//!  node_ipam/    pod CIDRs of nodes
//!  service_load_balancer/, ingress/  external addresses, for local use
//!  storage_version_gc/, storage_version_migrator/  storage versions of objects
//!  prefix.rs     IP address ranges
//!  sweep.rs      periodic cleanup
//!  served.rs     cached discovery of served resources
//! ```
//!
//! All controllers have the same structure: `observe` reads caches, `plan` decides (pure), `reconcile` applies the
//! plan, `status` computes the status (pure). Invariants:
//! - controllers use a client and listers, never the store, the API server or a socket;
//! - a plan is a function of what was observed and `now`: no await, no clock, no randomness;
//! - every update and delete carries a resource version or a uid;
//! - a settled cluster causes no writes.

mod absent;
mod accounts;
mod attach_detach;
mod bootstrap;
mod certificates;
mod cluster_role_aggregation;
mod cronjob;
mod daemonset;
mod deployment;
mod device_taint_eviction;
mod discovery;
mod disruption;
mod endpoint_slice;
mod endpoint_slice_mirroring;
mod endpoints;
mod ephemeral_volume;
pub mod flags;
mod garbage_collector;
pub mod gates;
mod horizontal_pod_autoscaler;
mod ingress;
mod job;
mod metrics;
mod namespace;
mod node_ipam;
mod node_lifecycle;
mod node_ttl;
mod pod_gc;
mod prefix;
mod pv_binder;
pub mod registry;
mod replicaset;
mod replication_controller;
mod resource_claim;
mod resource_quota;
mod root_ca;
mod selinux_warning;
mod served;
mod service_account;
mod service_cidr;
mod service_load_balancer;
mod statefulset;
mod storage_version_gc;
mod storage_version_migrator;
mod sweep;
mod taint_eviction;
mod ttl_after_finished;
mod validating_admission_policy;
mod volume_expander;
mod volume_protection;
mod wiring;
mod workload;

pub use absent::why_absent;
pub use certificates::{BadAuthority, CertificateAuthority, Signers};
pub use gates::FeatureGates;
pub use ingress::CONTROLLER as INGRESS_CONTROLLER;
pub use node_ipam::{BadRanges, MaskSizes, NodeRanges};
pub use node_lifecycle::config::NodeLifecycle;
pub use pv_binder::Settings as VolumeBinderSettings;
pub use registry::{Access, Entry, Options, REGISTRY, UnknownController, selected};
pub use service_account::tokens::jwt::{BadKey, TokenSigner};
pub use service_load_balancer::AddressPool;
