//! The webhooks that are configured now.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use setpoint_store::{Record, Resource};

use super::Sort;
use super::config::Webhook;
use crate::admission::policy::GROUP;
use crate::auth::follow;

/// The webhooks of both sorts, as the store's newest revision has them.
#[derive(Default)]
pub(super) struct View {
    mutating: Configurations,
    validating: Configurations,
}

#[derive(Default)]
struct Configurations {
    by_name: BTreeMap<Box<str>, Vec<Arc<Webhook>>>,
    /// All of them, in the order they are called in.
    all: Arc<[Arc<Webhook>]>,
    /// Grows with every change.
    generation: u64,
}

impl View {
    pub(super) fn has_any(&self) -> bool {
        !self.mutating.all.is_empty() || !self.validating.all.is_empty()
    }

    pub(super) fn of(&self, sort: Sort) -> (u64, Arc<[Arc<Webhook>]>) {
        let configurations = match sort {
            Sort::Mutating => &self.mutating,
            Sort::Validating => &self.validating,
        };
        (configurations.generation, configurations.all.clone())
    }
}

impl follow::View for View {
    type Source = Sort;

    fn sources() -> Vec<(Sort, Resource)> {
        let resource = |plural: &str| Resource::new(format!("{GROUP}/{plural}"));
        vec![
            (Sort::Mutating, resource("mutatingwebhookconfigurations")),
            (Sort::Validating, resource("validatingwebhookconfigurations")),
        ]
    }

    fn apply(&mut self, source: Sort, record: &Record, is_there: bool) {
        let configurations = match source {
            Sort::Mutating => &mut self.mutating,
            Sort::Validating => &mut self.validating,
        };
        configurations.set(&record.key.path, is_there.then_some(&*record.value));
    }
}

impl Configurations {
    fn set(&mut self, name: &str, configuration: Option<&[u8]>) {
        match configuration {
            Some(bytes) => {
                let configuration: Value = serde_json::from_slice(bytes).unwrap_or_default();
                self.by_name.insert(name.into(), Webhook::all_of(name, &configuration));
            }
            None => _ = self.by_name.remove(name),
        }
        self.all = self.by_name.values().flatten().cloned().collect();
        self.generation += 1;
    }
}
