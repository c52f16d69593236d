//! The flags of the API server, under kube-apiserver's names: a file for each part of it.

pub(crate) mod apis;
pub(crate) mod audit;
pub(crate) mod authentication;
pub(crate) mod authorization;
pub(crate) mod encryption;
pub(crate) mod limits;
pub(crate) mod serving;
