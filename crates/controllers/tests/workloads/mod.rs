//! ReplicaSets and Deployments in a whole control plane, on a virtual clock.

mod deployment;
mod replicaset;
mod town;
