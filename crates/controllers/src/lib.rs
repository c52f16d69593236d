//! The built-in controllers, one folder each.
//!
//! ```text
//!  registry.rs   the one list: names, what each watches and writes, how it is built
//!  flags.rs      what can be set on the command line
//!  gates.rs      which features are on
//!  metrics.rs    gauges that are counted when they are scraped
//!  wiring.rs     the queue and the loop that most of them have
//!  accounts.rs   in whose name each acts
//!  absent.rs     those that are known by name and do not run
//!  workload/     what controllers that keep replicas share
//!  replicaset/   as many pods of a template as are wanted: the exemplar, read it first
//!  replication_controller/  the same, for its elder
//!  deployment/   from one template to the next, within bounds
//!  statefulset/  pods that keep their names and their claims
//!  daemonset/    one pod on every node that fits
//!  job/          pods that run to their end, each counted once
//!  cronjob/      Jobs, started when they are due
//!  ttl_after_finished/  Jobs that go a while after they have ended
//!  garbage_collector/  dependents go with their owners
//!  namespace/    a deleted namespace goes with all that is in it
//!  pod_gc/       pods that nobody else removes
//!  node_lifecycle/  whether nodes are there, and what that means for their pods
//!  taint_eviction/  pods leave nodes whose taints they do not tolerate
//!  device_taint_eviction/  pods leave devices whose taints they do not tolerate
//!  disruption/   how many pods of a budget may be evicted
//!  service_account/, root_ca/  what every namespace has
//!  certificates/ requests for certificates are approved, signed and removed
//!  bootstrap/    tokens by which machines join the cluster
//!  discovery/    what the controllers of endpoints share
//!  endpoints/, endpoint_slice/, endpoint_slice_mirroring/  where a service's pods are
//!  resource_claim/ devices that pods ask for
//!  resource_quota/ how much of what a quota limits is in use
//!  cluster_role_aggregation/, node_ttl/, service_cidr/  one small thing each
//!  horizontal_pod_autoscaler/  as many replicas as metrics call for
//!  pv_binder/    claims get volumes, and released volumes are reclaimed
//!  volume_protection/  what is in use of claims, volumes and attribute classes does not go
//!  selinux_warning/  pods that want a volume labelled differently are told
//!  ephemeral_volume/  claims that live as long as their pods
//!  attach_detach/  volumes are where their pods are
//!  volume_expander/  who makes volumes larger
//!  validating_admission_policy/  where policies do not fit what they are about
//!  node_ipam/    ranges of addresses for the pods of each node
//!  service_load_balancer/, ingress/  addresses from outside, for local use
//!  storage_version_gc/, storage_version_migrator/  in which version objects are stored
//!  prefix.rs     ranges of addresses
//!  sweep.rs      what has served its time goes, all at once
//!  served.rs     what the API server serves, asked for now and then
//! ```
//!
//! A controller's room has one shape: `observe` reads caches, `plan` decides (pure), `reconcile`
//! carries the plan out, `status` says how things stand (pure). What always holds:
//! - controllers know a client and listers; never the store, never the API server, never a socket;
//! - a plan is a function of what was observed and `now`: no await, no clock, no randomness;
//! - every update and delete carries a resource version or a uid;
//! - a settled world makes no writes.

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
