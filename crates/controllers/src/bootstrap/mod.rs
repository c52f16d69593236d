//! Bootstrap tokens: by which machines that are not known yet join the cluster.
//!
//! Owns: the signatures in the config map `cluster-info`, the end of tokens that have expired.
//! Watches: Secrets, ConfigMaps.
//! Writes: ConfigMaps (update), deletes Secrets.
//!
//! ```text
//!  view.rs      tokens as their secrets tell of them                          (pure)
//!  jws.rs       signatures by which a token's holder knows the config map     (pure)
//!  signer.rs    one signature for every token that may sign
//!  cleaner.rs   expired tokens go
//! ```
//!
//! What always holds:
//! - a config map is signed by the tokens that are there now, and by no others;
//! - a token is removed only if it is the very one that was looked at.

pub(crate) mod cleaner;
mod jws;
pub(crate) mod signer;
#[cfg(test)]
mod tests;
mod view;

use setpoint::{Event, Object};
use view::Secret;

const NAMESPACE: &str = "kube-system";

/// Whether an event is about a bootstrap token.
fn is_token(event: &Event) -> bool {
    is_token_secret(event.object())
}

fn is_token_secret(secret: &Object) -> bool {
    secret.key().namespace() == Some(NAMESPACE) && secret.view::<Secret>().is_ok_and(Secret::is_token)
}
