//! ServiceAccount tokens: fills Secrets of type `kubernetes.io/service-account-token`.
//!
//! Owns: the data and two annotations of these Secrets.
//! Watches: Secrets, ServiceAccounts.
//! Writes: updates and deletes these Secrets; removes a deleted one from its service account.
//!
//! ```text
//!  view.rs       typed views of Secrets and accounts
//!  plan.rs       what a Secret lacks                             (pure)
//!  jwt.rs        claims, signed
//!  reconcile.rs  fills, deletes or dereferences
//! ```
//!
//! Invariants:
//! - a token Secret whose account does not exist is deleted, but only after an uncached read of the account;
//! - existing data is kept: a token is generated only if there is none.

pub(crate) mod jwt;
mod plan;
mod reconcile;
#[cfg(test)]
mod tests;
pub(super) mod view;

use std::sync::Arc;

use setpoint::{Cached, Context, Event, Key, Kind, Lister, Object, Runnable};

use self::reconcile::{Token, Tokens};
use self::view::{Secret, ServiceAccount};
use crate::flags::Flag;
use crate::registry::{Access, Entry, Options};
use crate::wiring;

pub(crate) const ENTRY: Entry = Entry {
    name: "serviceaccount-token-controller",
    aliases: &["serviceaccount-token"],
    on_by_default: true,
    gates: &[],
    summary: "fills service account token Secrets",
    watches: &[Access::watch("", "secrets"), Access::watch("", "serviceaccounts")],
    writes: &[
        Access::to("", "secrets", &["update", "delete"]),
        Access::to("", "serviceaccounts", &["get", "update"]),
    ],
    default_workers: 5,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[Flag::workers("concurrent-serviceaccount-token-syncs", &ENTRY, "5")];

/// How often a Secret is retried before it waits for a change.
const RETRIES: u32 = 10;

/// Index of token Secrets by account.
const BY_ACCOUNT: &str = "service-account";

/// Without a key no tokens can be signed.
fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let Some(signer) = options.token_signer.clone() else { return Vec::new() };
    let secrets = context.informers.of::<Secret>();
    let accounts = context.informers.of::<ServiceAccount>();
    secrets.add_index(BY_ACCOUNT, Arc::new(index));
    let queue = wiring::queue(context, "serviceaccount_tokens_service");
    let wake = queue.clone();
    secrets.add_handler(move |event: &Event| {
        token(event.object()).into_iter().for_each(|token| wake.add(token))
    });
    let (wake, tokens) = (queue.clone(), secrets.lister());
    accounts.add_handler(move |event: &Event| {
        if let Event::Deleted { last, .. } = event {
            tokens_of(&tokens, last.key()).into_iter().for_each(|token| wake.add(token));
        }
    });
    let reconciler = Tokens {
        client: context.client.clone(),
        secret_kind: Kind::of::<Secret>(),
        account_kind: Kind::of::<ServiceAccount>(),
        secrets: secrets.lister(),
        accounts: accounts.lister(),
        signer,
        root_ca: options.root_ca.clone(),
    };
    let controller =
        wiring::controller(&ENTRY, options, queue, reconciler, [&secrets, &accounts]).max_retries(RETRIES);
    vec![Box::new(controller)]
}

fn index(secret: &Object) -> Vec<String> {
    token(secret).map(|token| token.account.to_string()).into_iter().collect()
}

/// Returns the work item of a Secret, if it is a token Secret.
fn token(secret: &Object) -> Option<Token> {
    let view = secret.view::<Secret>().ok()?;
    let account = view.account()?;
    Some(Token {
        secret: secret.key().clone(),
        uid: secret.meta().uid.clone(),
        account: secret.key().sibling(account),
        account_uid: view.account_uid().map(Into::into),
    })
}

fn tokens_of(secrets: &Lister<Secret>, account: &Key) -> Vec<Token> {
    let found = secrets.indexed(BY_ACCOUNT, &account.to_string()).unwrap_or_default();
    found.iter().map(Cached::object).filter_map(token).collect()
}
