//! Simulated nodes: Node objects that stay Ready, and pods that run on them.
//!
//! ```text
//!  fleet.rs      Node objects and heartbeat leases of all nodes, from one task
//!  agent.rs      reconciles bound pods: one key at a time, no task per pod or node
//!  offer.rs      pure: extended resources of nodes
//!  outage.rs     nodes that are made to fail
//!  pressure.rs   pure: nodes that are made to have pressure
//!  view.rs       typed view of pods
//!  behaviour.rs  the behavior of pods, set by annotations
//!  images.rs     pure: images that cannot be pulled
//!  shell/        pure: parses shell scripts
//!  process/      runs scripts and commands
//!  files/        simulated file systems
//!  log/          logs of containers
//!  runtime/      what containers do, print and hold in their files
//!  server/       the kubelet API
//!  admission.rs  pure: whether the node accepts a pod that was not scheduled
//!  resize.rs     pure: in-place resize of containers
//!  sources.rs    pure: what must exist before a pod starts
//!  sub_path.rs   pure: subPathExpr of volume mounts
//!  lifecycle.rs  pure: the state of a pod and its next step
//!  container.rs  pure: the same for one container: exits, restarts, backoff
//!  probes.rs     pure: when probes fail
//!  status.rs     pure: the status a kubelet would write
//!  pod_events.rs      pure: the events a kubelet would record
//!  address.rs    pod addresses
//!  usage.rs      pure: resource usage of pods and nodes for the metrics API
//! ```
//!
//! Owns: its own Node objects and their leases, the status of pods bound to them, and the final deletion of those pods.
//! Invariants:
//! - a pod's whole life is a function of its object and the time, so a restarted agent continues where the last one
//!   stopped;
//! - a settled pod costs nothing: the next step is a timer in the work queue, not a loop.

mod address;
mod admission;
mod agent;
mod behaviour;
mod container;
mod files;
mod fleet;
mod images;
mod lifecycle;
mod log;
mod offer;
mod outage;
mod pod_events;
mod pressure;
mod probes;
mod process;
mod resize;
mod runtime;
mod server;
mod shell;
mod sources;
mod status;
mod sub_path;
mod usage;
mod view;

pub use agent::{FleetOptions, runnables};
pub use behaviour::annotation;
pub use server::{ByteStream, ExecError, Executed, Kubelets, Lost, NodeConnection};
pub use usage::{Measured, Usage, measure_node, measure_pod};
