//! Service account tokens: the legacy tokens stored in Secrets, and bound tokens with a limited lifetime.
//!
//! A token is valid only while the objects it refers to exist with the same uids: its account, and the Secret, pod or
//! node it is bound to.

use serde::{Deserialize, Serialize};
use setpoint_store::Record;
use setpoint_token::{PublicKey, TokenSigner};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::legacy_tokens::LegacyClaims;
use super::{User, service_account_groups, service_account_name};
use crate::facts::Facts;
use crate::metrics::TokenUse;
use crate::registry::Served;
use crate::server::Server;

/// The default issuer.
const ISSUER: &str = "https://kubernetes.default.svc";
/// The issuer of tokens stored in Secrets.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// Allowed clock skew in seconds. Tokens may still refer to objects deleted this long ago.
const LEEWAY: i64 = 60;
const EXTRA: &str = "authentication.kubernetes.io/";

/// Settings for issuing and verifying service account tokens.
#[derive(Clone, Debug)]
pub struct ServiceAccounts {
    /// The first one issues tokens; tokens of all are accepted.
    pub issuers: Vec<String>,
    /// The default audiences of tokens: this server. Defaults to the issuers.
    pub audiences: Vec<String>,
    /// Keys that verify tokens, in addition to the public half of the signing key.
    pub keys: Vec<PublicKey>,
    /// Whether to look up legacy tokens in their Secrets.
    pub lookup: bool,
    /// The URL of the keys, if not below the issuer's URL.
    pub jwks_uri: Option<String>,
    /// The maximum token lifetime that can be requested, in seconds.
    pub max_expiration: Option<i64>,
    /// Whether tokens mounted into pods are valid for a year, for programs that read them only once.
    pub extend_expiration: bool,
}

impl Default for ServiceAccounts {
    fn default() -> Self {
        Self {
            issuers: vec![ISSUER.into()],
            audiences: Vec::new(),
            keys: Vec::new(),
            lookup: true,
            jwks_uri: None,
            max_expiration: None,
            extend_expiration: true,
        }
    }
}

impl ServiceAccounts {
    /// Fills in the defaults that depend on other fields.
    pub(crate) fn settled(mut self, signer: Option<&TokenSigner>) -> Self {
        if self.audiences.is_empty() {
            self.audiences = self.issuers.clone();
        }
        // Tokens signed here are valid here.
        let own = signer.map(TokenSigner::public_key).filter(|own| !self.keys.contains(own));
        self.keys.extend(own);
        self
    }

    /// Returns the issuer of new tokens.
    pub(crate) fn issuer(&self) -> &str {
        self.issuers.first().map_or("", String::as_str)
    }
}

/// The claims of a bound token.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Claims {
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) aud: Vec<String>,
    pub(crate) exp: i64,
    pub(crate) iat: i64,
    pub(crate) iss: String,
    pub(crate) jti: String,
    #[serde(rename = "kubernetes.io")]
    pub(crate) bound: Bound,
    pub(crate) nbf: i64,
    pub(crate) sub: String,
}

/// The objects a token refers to.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Bound {
    pub(crate) namespace: String,
    pub(crate) serviceaccount: Reference,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Reference>,
    /// When the client should have read a new token. Tokens mounted into pods stay valid for longer, but are stale
    /// from then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warnafter: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Reference {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
}

#[derive(Deserialize)]
struct Issued {
    iss: String,
}

fn one_or_many<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(from)? {
        OneOrMany::One(word) => vec![word],
        OneOrMany::Many(words) => words,
    })
}

/// The token's user, and the requested audiences it is valid for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VerifiedToken {
    pub(crate) user: User,
    pub(crate) audiences: Vec<String>,
    /// A warning for the client.
    pub(crate) warning: Option<&'static str>,
    /// Annotations for the audit log.
    pub(crate) annotations: Vec<Annotation>,
}

/// The key and value of an audit annotation.
pub(crate) type Annotation = (&'static str, String);

/// Why a token is invalid, and annotations for the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InvalidToken {
    pub(crate) why: String,
    pub(crate) annotations: Vec<Annotation>,
}

impl From<String> for InvalidToken {
    fn from(why: String) -> Self {
        Self { why, annotations: Vec::new() }
    }
}

impl From<&str> for InvalidToken {
    fn from(why: &str) -> Self {
        why.to_owned().into()
    }
}

/// Why an object that a token refers to no longer exists.
pub(super) enum BoundObjectError {
    Missing,
    /// Another object has its name, with this uid.
    Replaced(String),
    Deleted,
}

impl Server {
    /// Authenticates a service account token: `None` if it is not one, an error if it is one but invalid.
    pub(crate) async fn service_account(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Option<VerifiedToken>, InvalidToken> {
        if self.service_accounts.keys.is_empty() {
            return Ok(None);
        }
        let Some(Issued { iss }) = setpoint_token::unverified(token) else { return Ok(None) };
        let mut annotations = Vec::new();
        let known = match iss.as_str() {
            LEGACY_ISSUER => self.legacy_account(token, audiences, &mut annotations).await,
            issuer if self.service_accounts.issuers.iter().any(|own| own == issuer) => {
                self.bound_account(token, audiences, &mut annotations).await
            }
            _ => return Ok(None),
        };
        match known {
            Ok(known) => Ok(Some(VerifiedToken { annotations, ..known })),
            Err(why) => Err(InvalidToken { why, annotations }),
        }
    }

    /// Records the use of a legacy token, and returns its audiences: it names none, so it is meant for this server.
    fn note_legacy(&self, subject: &str, annotations: &mut Vec<Annotation>) -> &[String] {
        annotations.push(("authentication.k8s.io/legacy-token", subject.to_owned()));
        self.measured.tokens.count(TokenUse::Legacy);
        &self.service_accounts.audiences
    }

    async fn legacy_account(
        &self,
        token: &str,
        audiences: &[String],
        annotations: &mut Vec<Annotation>,
    ) -> Result<VerifiedToken, String> {
        let claims: LegacyClaims =
            setpoint_token::verify(&self.service_accounts.keys, token).ok_or("invalid signature")?;
        let audiences = meant_for(self.note_legacy(&claims.sub, annotations), audiences)?;
        let (user, warning) = self.legacy_user(token, &claims, annotations).await?;
        Ok(VerifiedToken { user, audiences, warning, annotations: Vec::new() })
    }

    async fn bound_account(
        &self,
        token: &str,
        audiences: &[String],
        annotations: &mut Vec<Annotation>,
    ) -> Result<VerifiedToken, String> {
        let claims: Claims =
            setpoint_token::verify(&self.service_accounts.keys, token).ok_or("invalid signature")?;
        let meant = match claims.aud.is_empty() {
            true => self.note_legacy(&claims.sub, annotations),
            false => claims.aud.as_slice(),
        };
        let audiences = meant_for(meant, audiences)?;
        check_times(&claims, self.now().as_second())?;
        let user = self.bound_user(&claims).await?;
        annotations.extend(self.staleness(&claims));
        Ok(VerifiedToken { user, audiences, warning: None, annotations: Vec::new() })
    }

    /// Returns the audit annotation for a token that the client should have refreshed.
    fn staleness(&self, claims: &Claims) -> Option<Annotation> {
        let warn_after = claims.bound.warnafter.filter(|seconds| *seconds != 0)?;
        let now = self.now();
        let is_stale = jiff::Timestamp::from_second(warn_after).is_ok_and(|warn_after| now > warn_after);
        self.measured.tokens.count(if is_stale { TokenUse::Stale } else { TokenUse::Valid });
        let seconds = now.as_second().saturating_sub(warn_after);
        let text = format!("subject: {}, seconds after warning threshold: {seconds}", claims.sub);
        is_stale.then_some(("authentication.k8s.io/stale-token", text))
    }

    async fn bound_user(&self, claims: &Claims) -> Result<User, String> {
        let Bound { namespace, serviceaccount: account, pod, secret, node, .. } = &claims.bound;
        let own = Some(namespace.as_str());
        let found = self.check(("serviceaccounts", own), &account.name, &account.uid, LEEWAY).await;
        found.map_err(|gone| match gone {
            BoundObjectError::Missing => format!("serviceaccounts {:?} not found", account.name),
            BoundObjectError::Replaced(uid) => {
                format!("service account UID ({uid}) does not match claim ({})", account.uid)
            }
            BoundObjectError::Deleted => {
                format!("service account {namespace}/{} has been deleted", account.name)
            }
        })?;
        let mut user = user(namespace, &account.name, &account.uid);
        if let Some(secret) = secret {
            self.check_bound(("secrets", own), "secret", secret).await?;
        }
        if let Some(pod) = pod {
            self.check_bound(("pods", own), "pod", pod).await?;
            add_extra(&mut user, "pod-name", &pod.name);
            add_extra(&mut user, "pod-uid", &pod.uid);
        } else if let Some(node) = node {
            self.check_bound(("nodes", None), "node", node).await?;
        }
        if let Some(node) = node {
            add_extra(&mut user, "node-name", &node.name);
            add_extra(&mut user, "node-uid", &node.uid);
        }
        if !claims.jti.is_empty() {
            add_extra(&mut user, "credential-id", &format!("JTI={}", claims.jti));
        }
        Ok(user)
    }

    /// Checks an object that a token is bound to.
    async fn check_bound(
        &self,
        of: (&str, Option<&str>),
        kind: &str,
        bound: &Reference,
    ) -> Result<(), String> {
        let found = self.check(of, &bound.name, &bound.uid, LEEWAY).await;
        found.map(drop).map_err(|gone| match gone {
            BoundObjectError::Missing | BoundObjectError::Deleted => {
                "service account token has been invalidated".to_owned()
            }
            BoundObjectError::Replaced(uid) => {
                format!("{kind} UID ({uid}) does not match service account {kind} ref claim ({})", bound.uid)
            }
        })
    }

    /// Returns an object if it exists with this uid and was not deleted more than `leeway` seconds ago.
    pub(super) async fn check(
        &self,
        (plural, namespace): (&str, Option<&str>),
        name: &str,
        uid: &str,
        leeway: i64,
    ) -> Result<StoredObject, BoundObjectError> {
        let (served, record) =
            self.look_up(plural, namespace, name).await.ok_or(BoundObjectError::Missing)?;
        let facts = Facts::of(&record, &served);
        if *facts.uid != *uid {
            return Err(BoundObjectError::Replaced(facts.uid.to_string()));
        }
        let deleted = facts.deletion_timestamp.map(jiff::Timestamp::as_second);
        match deleted.is_some_and(|deleted| deleted < self.now().as_second() - leeway) {
            true => Err(BoundObjectError::Deleted),
            false => Ok((served, record)),
        }
    }

    /// Looks up an object of the core group.
    pub(super) async fn look_up(
        &self,
        plural: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<StoredObject> {
        let served = self.registry.snapshot().resource("", "v1", plural)?.clone();
        let record = self.store.get(&served.key(namespace, name), None).await.ok()??;
        Some((served, record))
    }
}

/// A stored object and its kind.
pub(super) type StoredObject = (Arc<Served>, Arc<Record>);

pub(super) fn user(namespace: &str, name: &str, uid: &str) -> User {
    User::authenticated(service_account_name(namespace, name), uid, service_account_groups(namespace))
}

fn add_extra(user: &mut User, key: &str, value: &str) {
    if !value.is_empty() {
        let extra: &mut BTreeMap<_, _> = &mut user.extra;
        extra.insert(format!("{EXTRA}{key}"), vec![value.to_owned()]);
    }
}

/// Returns the wanted audiences that the token is for; fails if there are none.
fn meant_for(token: &[String], wanted: &[String]) -> Result<Vec<String>, String> {
    let both: Vec<String> = token.iter().filter(|audience| wanted.contains(audience)).cloned().collect();
    match both.is_empty() {
        true => Err(format!("token audiences {token:?} is invalid for the target audiences {wanted:?}")),
        false => Ok(both),
    }
}

fn check_times(claims: &Claims, now: i64) -> Result<(), String> {
    let problem = match claims {
        _ if now + LEEWAY < claims.nbf => "service account token is not valid yet",
        _ if now - LEEWAY > claims.exp => "service account token has expired",
        _ if now + LEEWAY < claims.iat => "service account token is issued in the future",
        _ => return Ok(()),
    };
    Err(problem.into())
}
