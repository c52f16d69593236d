//! APIServices: who answers for a version of a group.

use serde_json::Value;

use super::API_REGISTRATION;
use crate::json::JsonMut;
use crate::kind::{Kind, Scope, Subresource};
use crate::kinds::entry;
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        categories: vec!["api-extensions".into()],
        subresources: vec![Subresource::Status],
        ..entry(&API_REGISTRATION, "APIService", "apiservices", APIService)
    }
}

struct APIService;

impl Strategy for APIService {
    fn prepare_for_create(&self, object: &mut Value) {
        object.unset("status");
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        new.restore("status", old);
    }

    fn counts_generations(&self) -> bool {
        false
    }

    fn unconditional_update(&self) -> bool {
        false
    }
}
