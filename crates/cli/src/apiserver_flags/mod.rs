//! Flags of the API server, named as kube-apiserver names them: one file per area.

pub(crate) mod encryption;
