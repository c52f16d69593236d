//! Stuck situations: each is made for real in a simulated cluster, and the cause that is named first is checked.

mod bounds;
mod extensions;
mod networking;
mod permissions;
mod pods;
mod recorded;
mod scheduling;
mod situation;
mod storage;
mod symptoms;
mod terminating;
mod workloads;
