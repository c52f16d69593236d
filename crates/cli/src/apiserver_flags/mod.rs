//! Flags of the API server, under kube-apiserver's names.

pub(crate) mod apis;
pub(crate) mod authentication;
pub(crate) mod authorization;
