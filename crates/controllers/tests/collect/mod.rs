//! Controllers that clean up, and controllers that set up namespaces, in a whole control plane on a virtual clock.

mod cluster;
mod faults;
mod garbage;
mod namespace;
mod pod_gc;
mod service_account;
