//! Workloads other than ReplicaSets and Deployments with every possible fault: the result is always the same.

mod cronjob;
mod daemonset;
mod devices;
mod job;
mod metrics;
mod regressions;
mod replication_controller;
mod scenarios;
mod scheduling;
mod statefulset;
mod storm;
