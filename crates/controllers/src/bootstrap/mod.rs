//! Bootstrap tokens, with which new machines join the cluster.
//!
//! Owns: the signatures in the ConfigMap `cluster-info`; the deletion of expired tokens.
//! Watches: Secrets, ConfigMaps.
//! Writes: ConfigMaps (update); deletes Secrets.
//!
//! ```text
//!  view.rs      reads tokens from Secrets                             (pure)
//!  jws.rs       JWS signatures of the ConfigMap                       (pure)
//!  signer.rs    one signature per token that is enabled for signing
//!  cleaner.rs   deletes expired tokens
//! ```
//!
//! Invariants:
//! - `cluster-info` is signed by the tokens that exist now, and by no others;
//! - a token's deletion carries its uid, so a recreated token is not deleted.

pub(crate) mod cleaner;
mod jws;
pub(crate) mod signer;
#[cfg(test)]
mod tests;
mod view;

use setpoint::{Event, Object};
use view::Secret;

const NAMESPACE: &str = "kube-system";

/// Whether an event concerns a bootstrap token.
fn is_token(event: &Event) -> bool {
    is_token_secret(event.object())
}

fn is_token_secret(secret: &Object) -> bool {
    secret.key().namespace() == Some(NAMESPACE) && secret.view::<Secret>().is_ok_and(Secret::is_token)
}
