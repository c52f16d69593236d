//! Fills a token Secret, deletes it with its account, or removes a deleted one from its account.

use std::fmt;
use std::time::Duration;

use serde_json::Value;
use setpoint::client::{DeleteOptions, Optional, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, ClientError, Key, Kind, Lister, Object, Outcome, ReconcileError, Reconciler, UpdateBody,
};

use super::jwt::{Claims, TokenSigner};
use super::plan::{CA, MissingData, NAMESPACE, TOKEN, encode, missing_data};
use super::view::{ACCOUNT_NAME, ACCOUNT_UID, Content, Secret, ServiceAccount};

/// How often an update of an account is attempted on conflict.
const ATTEMPTS: usize = 6;

/// How soon to check a Secret again whose account is not in the cache yet.
const RECHECK_AFTER: Duration = Duration::from_secs(60);

pub(super) struct Tokens {
    pub(super) client: Client,
    pub(super) secret_kind: Kind,
    pub(super) account_kind: Kind,
    pub(super) secrets: Lister<Secret>,
    pub(super) accounts: Lister<ServiceAccount>,
    pub(super) signer: TokenSigner,
    pub(super) root_ca: Option<String>,
}

/// A Secret, and its account, which is unknown once the Secret is gone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Token {
    pub(super) secret: Key,
    pub(super) uid: Box<str>,
    pub(super) account: Key,
    /// Unknown until the Secret is filled.
    pub(super) account_uid: Option<Box<str>>,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.secret, self.account.name())
    }
}

impl Token {
    fn is_for(&self, account: &Object) -> bool {
        self.account_uid.as_ref().is_none_or(|uid| *uid == account.meta().uid)
    }
}

impl Reconciler for Tokens {
    type Key = Token;

    async fn reconcile(&self, token: &Token) -> Result<Outcome, ReconcileError> {
        let secret = self.secrets.get(&token.secret)?.filter(|secret| secret.meta().uid == token.uid);
        let cached = self.accounts.get(&token.account)?.filter(|account| token.is_for(account.object()));
        match (secret, cached) {
            (None, None) => {}
            (None, Some(_)) => {
                self.unlink(token).await.attempting(format!("remove {token} from its service account"))?
            }
            (Some(secret), cached) => {
                let unseen = cached.is_none();
                let account = match cached {
                    Some(account) => Some(account.object().clone()),
                    None => self
                        .get_account(token)
                        .await
                        .attempting(format!("get the service account of {token}"))?,
                };
                match account {
                    Some(account) => {
                        self.fill(&secret, &account).await?;
                        // If the account is deleted before the cache has shown it, no event reports that.
                        if unseen {
                            return Ok(Outcome::CheckAfter(RECHECK_AFTER));
                        }
                    }
                    None => self.delete(token).await.attempting(format!("delete {token}"))?,
                }
            }
        }
        Ok(Outcome::Settled)
    }
}

impl Tokens {
    /// Reads the account past the cache.
    async fn get_account(&self, token: &Token) -> Result<Option<Object>, ClientError> {
        let account = self.client.get(&self.account_kind, &token.account).await.optional()?;
        Ok(account.filter(|account| token.is_for(account)))
    }

    async fn delete(&self, token: &Token) -> Result<(), ClientError> {
        match self.client.delete(&self.secret_kind, &token.secret, &DeleteOptions::of_uid(&*token.uid)).await
        {
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            deleted => deleted,
        }
    }

    async fn fill(&self, secret: &Cached<Secret>, account: &Object) -> Result<(), ReconcileError> {
        let content: Content = secret.object().decode()?;
        let namespace = secret.key().namespace().unwrap_or_default();
        let missing_data = missing_data(&content, namespace, self.root_ca.as_deref());
        if missing_data.nothing() {
            return Ok(());
        }
        let body = self.filled(secret.object(), account, missing_data)?;
        match self.client.update(&self.secret_kind, secret.key(), Subresource::None, &body).await {
            // The conflicting write wakes this controller again.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            updated => updated.map(drop).attempting(format!("fill secret {}", secret.key())),
        }
    }

    fn filled<'a>(
        &self,
        secret: &'a Object,
        account: &Object,
        missing_data: MissingData,
    ) -> Result<UpdateBody<'a>, ReconcileError> {
        let (account, account_uid) = (account.key().name(), &*account.meta().uid);
        let mut edit = UpdateBody::of(secret)
            .set(&["metadata", "annotations", ACCOUNT_NAME], &account)
            .set(&["metadata", "annotations", ACCOUNT_UID], &account_uid);
        if let Some(ca) = missing_data.ca {
            edit = edit.set(&["data", CA], &ca);
        }
        if let Some(namespace) = missing_data.namespace {
            edit = edit.set(&["data", NAMESPACE], &namespace);
        }
        if missing_data.token {
            let (namespace, name) = (secret.key().namespace().unwrap_or_default(), secret.key().name());
            let claims = Claims::new(namespace, name, account, account_uid);
            let token = self.signer.sign(&claims).map_err(|error| ReconcileError::Retry {
                attempted: format!("sign a token for {}", secret.key()),
                source: Some(Box::new(error)),
            })?;
            edit = edit.set(&["data", TOKEN], &encode(&token));
        }
        Ok(edit)
    }

    /// Removes a deleted Secret from its account's list.
    async fn unlink(&self, token: &Token) -> Result<(), ClientError> {
        for attempt in 1.. {
            let Some(account) = self.get_account(token).await? else { return Ok(()) };
            let Some(body) = without(&account, token.secret.name()) else { return Ok(()) };
            let updated =
                self.client.update(&self.account_kind, &token.account, Subresource::None, &body).await;
            match updated.optional() {
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => {}
                done => return done.map(drop),
            }
        }
        Ok(())
    }
}

/// Returns the account without this Secret in its list. `None` if it is not listed.
fn without<'a>(account: &'a Object, secret: &str) -> Option<UpdateBody<'a>> {
    let listed = account.view::<ServiceAccount>().ok()?.secrets.as_ref()?;
    let is_it = |listed: &&Value| listed.get("name").and_then(Value::as_str) == Some(secret);
    let left: Vec<&Value> = listed.iter().filter(|listed| !is_it(listed)).collect();
    (left.len() < listed.len()).then(|| UpdateBody::of(account).set(&["secrets"], &left))
}
