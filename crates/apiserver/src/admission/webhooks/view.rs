//! The currently configured webhooks.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use setpoint_store::{Record, Resource};

use super::WebhookType;
use super::config::Webhook;
use crate::admission::policy::GROUP;
use crate::auth::store_view;

/// The webhooks of both types, at the store's newest revision.
#[derive(Default)]
pub(super) struct View {
    mutating: Configurations,
    validating: Configurations,
}

#[derive(Default)]
struct Configurations {
    by_name: BTreeMap<Box<str>, Vec<Arc<Webhook>>>,
    /// All webhooks, in call order.
    all: Arc<[Arc<Webhook>]>,
    /// Increases with every change.
    generation: u64,
}

impl View {
    pub(super) fn has_any(&self) -> bool {
        !self.mutating.all.is_empty() || !self.validating.all.is_empty()
    }

    pub(super) fn of(&self, sort: WebhookType) -> (u64, Arc<[Arc<Webhook>]>) {
        let configurations = match sort {
            WebhookType::Mutating => &self.mutating,
            WebhookType::Validating => &self.validating,
        };
        (configurations.generation, configurations.all.clone())
    }
}

impl store_view::View for View {
    type Source = WebhookType;

    fn sources() -> Vec<(WebhookType, Resource)> {
        let resource = |plural: &str| Resource::new(format!("{GROUP}/{plural}"));
        vec![
            (WebhookType::Mutating, resource("mutatingwebhookconfigurations")),
            (WebhookType::Validating, resource("validatingwebhookconfigurations")),
        ]
    }

    fn apply(&mut self, source: WebhookType, record: &Record, is_there: bool) {
        let configurations = match source {
            WebhookType::Mutating => &mut self.mutating,
            WebhookType::Validating => &mut self.validating,
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
