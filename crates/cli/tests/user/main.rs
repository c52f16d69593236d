//! Tests of the real binary from a user's perspective: real time, real TLS, a real kubectl.

mod applications;
mod audit;
mod binary;
mod charts;
mod clients;
mod clusters;
mod deploy;
mod documented;
mod encryption;
mod etcd;
mod hooks;
mod kube_rs;
mod kubectl;
mod kubelets;
mod lifecycle;
mod operators;
mod playbooks;
mod projects;
mod streams;
mod why;
