//! Users by JSON web tokens of trusted issuers.
//!
//! ```text
//!  token ─► issuer (unverified) ─► times, audience ─► signature (keys of the issuer) ─► claims ─► user ─► rules
//! ```
//!
//! What always holds:
//! - nothing of a token is believed before its signature is verified with a key of its issuer;
//! - an issuer that cannot be reached, lies or answers too much costs its own users a 401, and nobody else anything;
//! - a configuration is replaced as a whole, once every issuer of the new one has been reached.

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
use super::reload::{LOOK_EVERY, Watched};
use super::union::Outbound;
use super::{Anonymous, User};

/// How often an issuer that has not been reached is tried again, as in v1.34.
const DISCOVER_EVERY: Duration = Duration::from_secs(10);
/// How long the issuers of a new configuration have to be reached.
const REPLACE_WITHIN: Duration = Duration::from_secs(60);

/// The issuers in force.
pub(super) struct JwtAuthenticator {
    outbound: Outbound,
    algorithms: Vec<Algorithm>,
    /// Issuers that sign for this server itself.
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

    /// The user of a token: none if no issuer of this configuration issued it.
    pub(super) async fn authenticate(&self, token: &str) -> Result<Option<User>, String> {
        let issuers = self.current.read().clone();
        for issuer in &*issuers {
            let start = self.outbound.clock.instant();
            let found = issuer.authenticate(token, &self.algorithms).await;
            // Another issuer's token says nothing about this one.
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

    /// Reaches the issuers, and follows the file.
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
            // All at once: one that hangs does not hold up the others.
            let reached = issuers.iter().map(|issuer| async move { (issuer.url(), issuer.discover().await) });
            for (issuer, outcome) in join_all(reached).await {
                if let Err(why) = outcome {
                    tracing::error!(issuer, why, "cannot reach an issuer of tokens");
                }
            }
            self.outbound.clock.sleep(DISCOVER_EVERY).await;
        }
    }

    async fn follow(&self) {
        let Some((watched, anonymous)) = &self.file else { return };
        loop {
            self.outbound.clock.sleep(LOOK_EVERY).await;
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
                Ok(()) => watched.lock().settle(text),
                Err(Reload::Invalid(why)) => {
                    tracing::error!(%why, "the new authentication configuration is invalid");
                    watched.lock().settle(text);
                }
                Err(Reload::Unreachable(why)) => {
                    tracing::error!(why, "the new authentication configuration is not in force yet");
                    watched.lock().retry();
                }
            }
        }
    }

    fn note_reload(&self, in_force: Option<&str>) {
        self.outbound.metrics.reloaded(Config::Authentication, in_force, self.outbound.clock.now());
    }

    /// Puts another configuration in force, once all its issuers have been reached.
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
                    Some(why) => tracing::warn!(why, "an issuer of the new configuration is out of reach"),
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

/// Why a configuration is not in force.
enum Reload {
    /// It never will be.
    Invalid(ConfigError),
    Unreachable(String),
}
