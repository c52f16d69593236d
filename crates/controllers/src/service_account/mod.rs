//! ServiceAccount: creates the service account `default` in every active namespace.
//!
//! Owns: the existence of the service account `default` in each namespace.
//! Watches: Namespaces, ServiceAccounts.
//! Writes: creates service accounts.
//!
//! Invariants:
//! - nothing is created in a namespace that is not active;
//! - an existing service account is never changed.

pub(crate) mod legacy_tokens;
pub(crate) mod tokens;

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use setpoint::reconcile::ErrorContext;
use setpoint::{Client, Context, Event, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Runnable};

use crate::namespace::view::Namespace;
use crate::registry::{Access, Entry, Options};
use crate::wiring;

pub(crate) const ENTRY: Entry = Entry {
    name: "serviceaccount-controller",
    aliases: &["serviceaccount"],
    on_by_default: true,
    gates: &[],
    summary: "creates the default service account of every namespace",
    watches: &[Access::watch("", "namespaces"), Access::watch("", "serviceaccounts")],
    writes: &[Access::to("", "serviceaccounts", &["create"])],
    default_workers: 1,
    build,
};

const DEFAULT: &str = "default";

/// How soon to check a created account again: if it is deleted before the cache has shown it, no event reports that.
const RECHECK_AFTER: Duration = Duration::from_secs(60);

/// A ServiceAccount. Only its existence matters.
#[derive(Deserialize)]
struct ServiceAccount {}

setpoint::view!(ServiceAccount of k8s_openapi::api::core::v1::ServiceAccount);

struct ServiceAccounts {
    client: Client,
    kind: Kind,
    namespaces: Lister<Namespace>,
    accounts: Lister<ServiceAccount>,
}

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let namespaces = context.informers.of::<Namespace>();
    let accounts = context.informers.of::<ServiceAccount>();
    let queue = wiring::queue(context, "serviceaccount");
    let changed = queue.clone();
    namespaces.add_handler(move |event: &Event| match event {
        Event::Deleted { .. } => {}
        event => changed.add(event.object().key().clone()),
    });
    let touched = queue.clone();
    accounts.add_handler(move |event: &Event| {
        if let Event::Deleted { last, .. } = event
            && let Some(namespace) = last.key().namespace()
        {
            touched.add(Key::cluster(namespace));
        }
    });
    let reconciler = ServiceAccounts {
        client: context.client.clone(),
        kind: Kind::of::<ServiceAccount>(),
        namespaces: namespaces.lister(),
        accounts: accounts.lister(),
    };
    let controller = wiring::controller(&ENTRY, options, queue, reconciler, [&namespaces, &accounts]);
    vec![Box::new(controller)]
}

impl Reconciler for ServiceAccounts {
    type Key = Key;

    /// The key is that of a namespace.
    async fn reconcile(&self, namespace: &Key) -> Result<Outcome, ReconcileError> {
        let account = Key::namespaced(namespace.name(), DEFAULT);
        let active = self.namespaces.get(namespace)?.is_some_and(|namespace| namespace.is_active());
        if active && self.accounts.get(&account)?.is_none() {
            self.create(&account).await?;
            return Ok(Outcome::CheckAfter(RECHECK_AFTER));
        }
        Ok(Outcome::Settled)
    }
}

impl ServiceAccounts {
    async fn create(&self, account: &Key) -> Result<(), ReconcileError> {
        let metadata = json!({"name": account.name(), "namespace": account.namespace()});
        let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
        match self.client.create(&self.kind, account.namespace(), &body).await {
            Err(error) if error.is_already_exists() || error.has_cause("NamespaceTerminating") => Ok(()),
            created => created.map(drop).attempting(format!("create service account {account}")),
        }
    }
}
