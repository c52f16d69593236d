//! Simulated nodes: Node objects that stay Ready, and pods that live their lives on them.
//!
//! ```text
//!  fleet.rs      Node objects and heartbeat leases, for all nodes from one task
//!  agent.rs      the reconciler of bound pods: one key at a time, no task per pod or node
//!  offer.rs      pure: what nodes offer beyond what they have by themselves
//!  outage.rs     nodes that are made to fail
//!  pressure.rs   pure: nodes that are made to be short of something
//!  view.rs       what is read of pods
//!  behaviour.rs  what a pod's annotations ask of its node
//!  program.rs    pure: what a container's command does, where that can be told
//!  shell.rs      pure: the scripts that commands are
//!  admission.rs  pure: whether the node takes a pod that nobody scheduled
//!  resize.rs     pure: whether containers get what they ask for later on
//!  sources.rs    pure: what has to be there before a pod starts
//!  sub_path.rs   pure: where in volumes mounts lead
//!  lifecycle.rs  pure: where a pod stands and what is next
//!  container.rs  pure: the same for one container: exits, restarts, back-off
//!  probes.rs     pure: when its probes find that it is not well
//!  status.rs     pure: the status a kubelet would write for that
//!  pod_events.rs      pure: the events a kubelet would write about that
//!  address.rs    pod addresses
//!  usage.rs      pure: what pods and nodes use, as the metrics API shows it
//! ```
//!
//! Owns: its own Node objects and their leases, the status of pods bound to them, and the final removal
//! of those pods. What always holds:
//! - a pod's whole life follows from its object and the time, so a restarted agent carries on where the
//!   last one stopped;
//! - a settled pod costs nothing: the next step is a timer in the work queue, not a loop.

mod address;
mod admission;
mod agent;
mod behaviour;
mod container;
mod fleet;
mod lifecycle;
mod offer;
mod outage;
mod pod_events;
mod pressure;
mod probes;
mod program;
mod resize;
mod shell;
mod sources;
mod status;
mod sub_path;
mod usage;
mod view;

pub use agent::{FleetOptions, runnables};
pub use behaviour::annotation;
pub use usage::{Measured, Usage, measure_node, measure_pod};
