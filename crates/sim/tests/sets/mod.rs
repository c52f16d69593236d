//! Workloads beyond ReplicaSets and Deployments, disturbed in every way there is: the world ends the same.

mod cronjob;
mod daemonset;
mod devices;
mod job;
mod metrics;
mod place;
mod regressions;
mod replication_controller;
mod scheduling;
mod statefulset;
mod storm;
