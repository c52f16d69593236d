//! ResourceClaimTemplates.

use super::RESOURCE;
use crate::kind::Kind;
use crate::kinds::entry;
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind { ..entry(&RESOURCE, "ResourceClaimTemplate", "resourceclaimtemplates", ResourceClaimTemplate) }
}

struct ResourceClaimTemplate;

impl Strategy for ResourceClaimTemplate {
    fn counts_generations(&self) -> bool {
        false
    }
}
