//! CertificateSigningRequests.

use serde_json::Value;

use super::CERTIFICATES;
use crate::json::JsonMut;
use crate::kind::{Kind, Scope, Subresource};
use crate::kinds::entry;
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        short_names: vec!["csr".into()],
        subresources: vec![Subresource::Approval, Subresource::Status],
        ..entry(
            &CERTIFICATES,
            "CertificateSigningRequest",
            "certificatesigningrequests",
            CertificateSigningRequest,
        )
    }
}

struct CertificateSigningRequest;

impl Strategy for CertificateSigningRequest {
    fn prepare_for_create(&self, object: &mut Value) {
        object.unset("status");
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        new.restore("status", old);
    }

    fn counts_generations(&self) -> bool {
        false
    }
}
