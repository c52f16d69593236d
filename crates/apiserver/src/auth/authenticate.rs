//! Authenticates requests: by front proxy headers, client certificate or bearer token, or as anonymous.
//!
//! They are tried in this order, and errors accumulate: a request with an invalid credential is rejected unless
//! another of its credentials is valid.

use std::path::Path;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use tokio_util::sync::CancellationToken;

use super::User;
use super::aggregate::aggregate;
use super::config_file::ConfigError;
use super::front_proxy::FrontProxy;
use super::jwt::{JwtAuthenticator, JwtConfig};
use super::metrics::Attempt;
use super::service_account::{InvalidToken, VerifiedToken};
use super::token_cache::{Lookup, TokenCache};
use super::token_file::{TokenFile, TokenFileError};
use super::token_webhook::TokenWebhook;
use super::union::Outbound;
use crate::chain::Context;
use crate::server::{Server, Warnings};
use crate::tls::Peer;
use crate::websocket;

/// Where anonymous requests are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    #[default]
    Everywhere,
    Nowhere,
    /// At exactly these paths, not below them.
    At(Vec<String>),
}

/// Authenticates users by their credentials.
#[derive(Default)]
pub struct Authenticator {
    tokens: TokenFile,
    anonymous: Anonymous,
    front_proxy: Option<FrontProxy>,
    jwt: Option<JwtAuthenticator>,
    webhook: Option<TokenWebhook>,
    /// Whether bootstrap tokens are accepted.
    bootstraps: bool,
    cache: TokenCache,
}

/// Why a request could not be authenticated.
#[derive(Debug, PartialEq, Eq)]
pub enum AuthenticationError {
    /// It has no credentials, and may not be anonymous.
    Missing,
    /// Its credentials are invalid.
    Invalid(Vec<String>),
}

const INVALID: &str = "invalid bearer token";

impl Authenticator {
    /// Creates an authenticator that accepts no tokens, only client certificates.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the users in a token file: lines of `token,user,uid` and optionally `"group1,group2"`.
    pub fn with_token_file(mut self, csv: &str) -> Result<Self, TokenFileError> {
        self.tokens.read(csv)?;
        Ok(self)
    }

    /// Adds a user with a static token.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<String>, user: User) -> Self {
        self.tokens.add(token.into(), user);
        self
    }

    #[must_use]
    pub fn with_anonymous(self, anonymous: Anonymous) -> Self {
        Self { anonymous, ..self }
    }

    #[must_use]
    pub fn with_front_proxy(self, front_proxy: FrontProxy) -> Self {
        Self { front_proxy: Some(front_proxy), ..self }
    }

    /// Accepts bootstrap tokens stored as Secrets in `kube-system`.
    #[must_use]
    pub fn with_bootstrap_tokens(self) -> Self {
        Self { bootstraps: true, ..self }
    }

    #[must_use]
    pub fn with_webhook(self, webhook: TokenWebhook) -> Self {
        Self { webhook: Some(webhook), ..self }
    }

    /// Trusts the issuers in a configuration. If a file and its text are given, watches the file for changes; the
    /// file's setting for anonymous requests then takes effect.
    pub fn with_jwt(
        self,
        config: &JwtConfig,
        file: Option<(&Path, &str)>,
        own_issuers: &[String],
        outbound: Outbound,
    ) -> Result<Self, ConfigError> {
        let jwt = Some(JwtAuthenticator::new(config, file, own_issuers, outbound)?);
        let anonymous = config.anonymous.clone().unwrap_or(self.anonymous);
        Ok(Self { jwt, anonymous, ..self })
    }

    /// Looks up the user of a static token.
    pub fn user(&self, token: &str) -> Option<&User> {
        self.tokens.user(token)
    }

    /// Runs issuer discovery and watches the issuers' configuration until `stop`.
    pub(crate) async fn run(&self, stop: CancellationToken) {
        if let Some(jwt) = &self.jwt {
            jwt.run(stop).await;
        }
    }

    fn allows_anonymous(&self, path: &str) -> bool {
        match &self.anonymous {
            Anonymous::Everywhere => true,
            Anonymous::Nowhere => false,
            Anonymous::At(paths) => paths.iter().any(|allowed| allowed == path),
        }
    }
}

impl Server {
    /// Authenticates a request. Removes the headers used for authentication, so that handlers do not see them.
    pub(crate) async fn sender(
        &self,
        peer: &Peer,
        path: &str,
        headers: &mut HeaderMap,
        context: &Context,
    ) -> Result<User, AuthenticationError> {
        let start = self.clock.instant();
        let sender = self.authenticate_sender(peer, path, headers, context).await;
        let attempt = match &sender {
            Ok(user) => Attempt::Success { user: &user.name },
            Err(AuthenticationError::Missing) => Attempt::Failure,
            Err(AuthenticationError::Invalid(errors)) => {
                tracing::debug!(?errors, "a request is not authenticated");
                Attempt::Error
            }
        };
        self.auth_metrics.authenticated(attempt, self.clock.instant().duration_since(start));
        headers.remove(AUTHORIZATION);
        FrontProxy::standard().clear(headers);
        if let Some(front_proxy) = &self.authenticator.front_proxy {
            front_proxy.clear(headers);
        }
        sender
    }

    async fn authenticate_sender(
        &self,
        peer: &Peer,
        path: &str,
        headers: &mut HeaderMap,
        context: &Context,
    ) -> Result<User, AuthenticationError> {
        let in_protocols = websocket::take_token(headers);
        let mut errors: Vec<String> = Vec::new();
        if let Some(end) = peer.client_end() {
            self.auth_metrics.certificate_shown(end, self.now());
        }
        match peer.authenticate(self.authenticator.front_proxy.as_ref(), headers) {
            Ok(Some(user)) => return Ok(user),
            Ok(None) => {}
            Err(why) => errors.extend(why),
        }
        let bearer = bearer_token(headers, &context.warnings);
        let in_protocols = in_protocols.unwrap_or_else(|why| {
            errors.push(why.to_owned());
            None
        });
        for token in [bearer, in_protocols].into_iter().flatten() {
            match Box::pin(self.user_of_token(&token, &self.service_accounts.audiences)).await {
                Ok(known) => {
                    context.warnings.add(known.warning.unwrap_or_default());
                    for (key, value) in known.annotations {
                        context.audit.annotate(key, value);
                    }
                    return Ok(known.user);
                }
                Err(refusals) => {
                    for refused in refusals {
                        errors.push(refused.why);
                        for (key, value) in refused.annotations {
                            context.audit.annotate(key, value);
                        }
                    }
                }
            }
        }
        match errors.is_empty() {
            false => Err(AuthenticationError::Invalid(errors)),
            true if self.authenticator.allows_anonymous(path) => Ok(User::anonymous()),
            true => Err(AuthenticationError::Missing),
        }
    }

    /// Finds the token's user and the audiences it is valid for, or collects the errors of all authenticators.
    async fn user_of_token(&self, token: &str, audiences: &[String]) -> Lookup {
        // Boxed: the futures of issuers and webhooks are large, and most requests need neither.
        let look_up = Box::pin(self.look_up_token(token, audiences));
        let (clock, metrics) = (&self.clock, &self.auth_metrics);
        let found = self.authenticator.cache.get(token, audiences, clock, metrics, look_up).await;
        found.map_err(|errors| if errors.is_empty() { vec![INVALID.into()] } else { errors })
    }

    async fn look_up_token(&self, token: &str, audiences: &[String]) -> Lookup {
        let Authenticator { tokens, jwt, webhook, bootstraps, .. } = &self.authenticator;
        let implicit = &self.service_accounts.audiences;
        // Tokens without audiences are meant for this server.
        let own: Vec<String> = implicit.iter().filter(|one| audiences.contains(one)).cloned().collect();
        let of_server = |user: User| VerifiedToken {
            user: user.known(),
            audiences: own.clone(),
            warning: None,
            annotations: Vec::new(),
        };
        if let Some(user) = tokens.user(token).filter(|_| !own.is_empty()) {
            return Ok(of_server(user.clone()));
        }
        let mut errors: Vec<InvalidToken> = Vec::new();
        match Box::pin(self.service_account(token, audiences)).await {
            Ok(Some(known)) => return Ok(known),
            Ok(None) => {}
            Err(why) => errors.push(why),
        }
        if *bootstraps
            && !own.is_empty()
            && let Some(user) = self.bootstrap_user(token).await
        {
            return Ok(of_server(user));
        }
        if let Some(jwt) = jwt.as_ref().filter(|_| !own.is_empty()) {
            match Box::pin(jwt.authenticate(token)).await {
                Ok(Some(user)) => return Ok(of_server(user)),
                Ok(None) => {}
                Err(why) => errors.push(why.into()),
            }
        }
        if let Some(webhook) = webhook {
            match Box::pin(webhook.authenticate(token, audiences, implicit)).await {
                Ok(Some(known)) => return Ok(known),
                Ok(None) => {}
                Err(why) => errors.push(why.into()),
            }
        }
        Err(errors)
    }

    /// Answers a TokenReview. Like v1.34, treats the token as a request's bearer token.
    pub(crate) async fn review_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<VerifiedToken, InvalidToken> {
        let header = format!("Bearer {token}");
        let Some(token) = split_bearer(header.trim()).filter(|token| !token.is_empty()) else {
            return match self.authenticator.anonymous {
                Anonymous::Everywhere => Ok(VerifiedToken {
                    user: User::anonymous(),
                    audiences: audiences.to_vec(),
                    warning: None,
                    annotations: Vec::new(),
                }),
                _ => Err(InvalidToken::default()),
            };
        };
        Box::pin(self.user_of_token(token, audiences)).await.map_err(|refusals| {
            // v1.34 first tries its loopback token, which fails with this error.
            let mut all = vec![INVALID.to_owned()];
            let mut annotations = Vec::new();
            for refused in refusals {
                all.push(refused.why);
                annotations.extend(refused.annotations);
            }
            InvalidToken { why: aggregate(&all).unwrap_or_default(), annotations }
        })
    }
}

/// Returns the second word of a header if the first is `Bearer`. It is empty if two spaces follow `Bearer`.
fn split_bearer(header: &str) -> Option<&str> {
    let mut words = header.splitn(3, ' ');
    let scheme = words.next()?;
    let token = words.next()?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

/// Returns the request's bearer token. An Authorization header with another scheme is ignored.
fn bearer_token(headers: &HeaderMap, warnings: &Warnings) -> Option<String> {
    let header = String::from_utf8_lossy(headers.get(AUTHORIZATION)?.as_bytes()).into_owned();
    let header = header.trim();
    let token = split_bearer(header)?;
    if token.is_empty() && header.splitn(3, ' ').count() == 3 {
        warnings.add(
            "the provided Authorization header contains extra space before the bearer token, and is ignored",
        );
    }
    Some(token.to_owned()).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_the_word_after_bearer() {
        let headers = |value: &str| HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
        for (value, token) in [
            ("Bearer a", Some("a")),
            ("bearer a ", Some("a")),
            ("Bearer a b", Some("a")),
            ("Bearer  a", None),
            ("Basic a", None),
            ("Bearer", None),
            ("", None),
        ] {
            assert_eq!(bearer_token(&headers(value), &Warnings::default()).as_deref(), token, "{value}");
        }
        let unreadable = http::HeaderValue::from_bytes(b"Bearer \xff").unwrap();
        assert!(
            bearer_token(&HeaderMap::from_iter([(AUTHORIZATION, unreadable)]), &Warnings::default())
                .is_some()
        );
    }

    #[test]
    fn a_token_that_is_not_utf8_is_still_a_token() {
        let value = http::HeaderValue::from_bytes(b"Bearer \xff").unwrap();
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        assert!(
            bearer_token(&headers, &Warnings::default()).is_some(),
            "it is not treated as a missing token"
        );
    }
}
