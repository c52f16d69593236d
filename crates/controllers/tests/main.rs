//! Controllers on a whole control plane, and their pages. One binary: each would link all of it again.

mod collect;
mod pages;
mod workloads;
