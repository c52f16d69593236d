//! The Common Expression Language, as Kubernetes v1.34 has it.

pub mod duration;
