//! ReplicaSets and Deployments in a whole control plane, on a virtual clock.

mod cluster;
mod deployment;
mod replicaset;
