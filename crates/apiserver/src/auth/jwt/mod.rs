//! Authentication by JSON web tokens of trusted issuers.
//!
//! ```text
//!  token ─► issuer (unverified) ─► times, audience ─► signature (keys of the issuer) ─► claims ─► user ─► rules
//! ```
//!
//! Invariants:
//! - nothing in a token is trusted before its signature is verified with a key of its issuer;
//! - an issuer that is unreachable, lies or sends oversized responses only costs its own users a 401;
//! - a configuration is replaced as a whole, after discovery has succeeded for all its issuers.

mod claims;
mod config;
mod distributed;
mod issuer;
mod keys;
mod rules;
mod validate;
mod verify;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::RwLock;
use setpoint_token::Algorithm;
use tokio_util::sync::CancellationToken;

pub use self::config::{JwtConfig, OidcFlags};
use self::issuer::Issuer;
use super::config_file::ConfigError;
use super::metrics::Config;
use super::reload::{POLL_INTERVAL, Watched};
use super::union::Outbound;
use super::{Anonymous, User};

/// Retry interval of discovery, as in v1.34.
const DISCOVER_EVERY: Duration = Duration::from_secs(10);
/// How long discovery may take for all issuers in a new configuration.
const REPLACE_WITHIN: Duration = Duration::from_secs(60);

/// The issuers in effect.
pub(super) struct JwtAuthenticator {
    outbound: Outbound,
    algorithms: Vec<Algorithm>,
    /// The issuers of this server's own tokens.
    own_issuers: Vec<String>,
    current: RwLock<Arc<[Issuer]>>,
    file: Option<(parking_lot::Mutex<Watched>, Option<Anonymous>)>,
}

impl JwtAuthenticator {
    pub(super) fn new(
        config: &JwtConfig,
        file: Option<(&Path, &str)>,
        own_issuers: &[String],
        outbound: Outbound,
    ) -> Result<Self, ConfigError> {
        let current = config.build(&outbound)?;
        if let Some((_, text)) = file {
            outbound.metrics.configured(Config::Authentication, text);
        }
        let file = file.map(|(path, text)| (Watched::new(path, text).into(), config.anonymous.clone()));
        Ok(Self {
            outbound,
            algorithms: config.algorithms.clone(),
            own_issuers: own_issuers.to_vec(),
            current: RwLock::new(current),
            file,
        })
    }

    /// Authenticates a token; `None` if it is from none of the configured issuers.
    pub(super) async fn authenticate(&self, token: &str) -> Result<Option<User>, String> {
        let issuers = self.current.read().clone();
        for issuer in &*issuers {
            let start = self.outbound.clock.instant();
            let found = issuer.authenticate(token, &self.algorithms).await;
            // A token from another issuer is no evidence against this one.
            if !matches!(found, Ok(None)) {
                let duration = self.outbound.clock.instant().duration_since(start);
                self.outbound.metrics.jwt_verified(issuer.url(), found.is_ok(), duration);
            }
            if let Some(user) = found? {
                return Ok(Some(user));
            }
        }
        Ok(None)
    }

    /// Runs discovery and watches the file.
    pub(super) async fn run(&self, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            ((), ()) = async { tokio::join!(self.discover(), self.follow()) } => {}
        }
    }

    async fn discover(&self) {
        loop {
            let issuers = self.current.read().clone();
            // Concurrently, so that an issuer that hangs does not delay the others.
            let reached = issuers.iter().map(|issuer| async move { (issuer.url(), issuer.discover().await) });
            for (issuer, outcome) in join_all(reached).await {
                if let Err(why) = outcome {
                    tracing::error!(issuer, why, "cannot reach a token issuer");
                }
            }
            self.outbound.clock.sleep(DISCOVER_EVERY).await;
        }
    }

    async fn follow(&self) {
        let Some((watched, anonymous)) = &self.file else { return };
        loop {
            self.outbound.clock.sleep(POLL_INTERVAL).await;
            let changed = watched.lock().changed();
            let text = match changed {
                Ok(None) => continue,
                Ok(Some(text)) => text,
                Err(error) => {
                    tracing::error!(%error, "cannot read the authentication configuration");
                    self.note_reload(None);
                    continue;
                }
            };
            let outcome = self.reload(&text, anonymous.as_ref()).await;
            self.note_reload(outcome.is_ok().then_some(text.as_str()));
            match outcome {
                Ok(()) => watched.lock().mark_handled(text),
                Err(Reload::Invalid(why)) => {
                    tracing::error!(%why, "the new authentication configuration is invalid");
                    watched.lock().mark_handled(text);
                }
                Err(Reload::Unreachable(why)) => {
                    tracing::error!(why, "the new authentication configuration is not active yet");
                    watched.lock().retry();
                }
            }
        }
    }

    fn note_reload(&self, in_force: Option<&str>) {
        self.outbound.metrics.reloaded(Config::Authentication, in_force, self.outbound.clock.now());
    }

    /// Switches to another configuration once discovery has succeeded for all its issuers.
    async fn reload(&self, text: &str, anonymous: Option<&Anonymous>) -> Result<(), Reload> {
        let config = JwtConfig::parse(text, &self.own_issuers).map_err(Reload::Invalid)?;
        if config.anonymous.as_ref() != anonymous {
            let why = "anonymous: Forbidden: changed from initial configuration file";
            return Err(Reload::Invalid(ConfigError(why.into())));
        }
        let issuers = config.build(&self.outbound).map_err(Reload::Invalid)?;
        let reach = async {
            loop {
                let reached = join_all(issuers.iter().map(Issuer::discover)).await;
                match reached.into_iter().find_map(Result::err) {
                    None => return,
                    Some(why) => tracing::warn!(why, "cannot reach an issuer in the new configuration"),
                }
                self.outbound.clock.sleep(DISCOVER_EVERY).await;
            }
        };
        if tokio::time::timeout(REPLACE_WITHIN, reach).await.is_err() {
            return Err(Reload::Unreachable("its issuers were not reached within a minute".into()));
        }
        *self.current.write() = issuers;
        Ok(())
    }
}

/// Why a configuration did not take effect.
enum Reload {
    /// Retrying will not help.
    Invalid(ConfigError),
    Unreachable(String),
}
