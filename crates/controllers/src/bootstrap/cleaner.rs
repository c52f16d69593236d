//! Deletes expired bootstrap tokens.

use setpoint::client::{DeleteOptions, Optional};
use setpoint::handler::{Handler, enqueue_self};
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Client, Clock, Context, Event, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Runnable,
};
use setpoint_token::Left;

use super::view::{Secret, content};
use super::{is_token, is_token_secret};
use crate::registry::{Access, Entry, Options};
use crate::wiring;

pub(crate) const ENTRY: Entry = Entry {
    name: "token-cleaner-controller",
    aliases: &["tokencleaner"],
    on_by_default: false,
    gates: &[],
    summary: "deletes expired bootstrap tokens",
    watches: &[Access::watch("", "secrets")],
    writes: &[Access::to("", "secrets", &["delete"])],
    default_workers: 1,
    build,
};

fn build(context: &Context, _: &Options) -> Vec<Box<dyn Runnable>> {
    let secrets = context.informers.of::<Secret>();
    let queue = wiring::queue(context, "token_cleaner");
    let worth_a_look = |event: &Event| is_token(event) && !matches!(event, Event::Deleted { .. });
    secrets.add_handler(enqueue_self(&queue).when(worth_a_look));
    let cleaner = Cleaner {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        secrets: secrets.lister(),
    };
    vec![Box::new(wiring::part(ENTRY.name, queue, cleaner, [&secrets]))]
}

struct Cleaner {
    client: Client,
    clock: Clock,
    secrets: Lister<Secret>,
}

impl Reconciler for Cleaner {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(secret) = self.secrets.get(key)?.filter(|secret| is_token_secret(secret.object())) else {
            return Ok(Outcome::Settled);
        };
        match content(secret.object()).left(self.clock.now()) {
            Left::Forever => Ok(Outcome::Settled),
            Left::For(time) => Ok(Outcome::CheckAfter(time)),
            Left::Nothing => {
                let delete = DeleteOptions::of_uid(secret.meta().uid.to_string());
                let deleted = self.client.delete(&Kind::of::<Secret>(), key, &delete).await.optional();
                deleted.attempting(format!("delete expired token {key}"))?;
                Ok(Outcome::Settled)
            }
        }
    }
}
