//! The flags of the API server that `setpoint up` runs, by kube-apiserver's names for them.

pub(crate) mod limits;
