//! `AuthenticationConfiguration`, and the older, less expressive `--oidc-*` flags.

use std::sync::Arc;

use serde::Deserialize;
use setpoint_token::Algorithm;

use super::issuer::Issuer;
use super::validate;
use crate::auth::Anonymous;
use crate::auth::config_file::{self, ConfigError};
use crate::auth::union::Outbound;
use crate::field::Errors;

/// The trusted issuers and their rules.
#[derive(Debug)]
pub struct JwtConfig {
    pub(super) issuers: Vec<IssuerConfig>,
    pub(super) algorithms: Vec<Algorithm>,
    /// The file's setting for anonymous requests.
    pub anonymous: Option<Anonymous>,
}

/// The `--oidc-*` flags.
#[derive(Clone, Debug, Default)]
pub struct OidcFlags {
    pub issuer_url: String,
    pub client_id: String,
    /// The issuer's CA certificates, as PEM.
    pub authorities: String,
    pub username_claim: String,
    pub username_prefix: String,
    pub groups_claim: String,
    pub groups_prefix: String,
    pub signing_algorithms: Vec<String>,
    pub required_claims: Vec<(String, String)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawConfig {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    jwt: Vec<IssuerConfig>,
    anonymous: Option<RawAnonymous>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawAnonymous {
    pub(super) enabled: bool,
    pub(super) conditions: Vec<AnonymousCondition>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AnonymousCondition {
    pub(super) path: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct IssuerConfig {
    pub(super) issuer: RawIssuer,
    pub(super) claim_validation_rules: Vec<ClaimRule>,
    pub(super) claim_mappings: Mappings,
    pub(super) user_validation_rules: Vec<UserRule>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawIssuer {
    pub(super) url: String,
    #[serde(rename = "discoveryURL")]
    pub(super) discovery_url: String,
    pub(super) certificate_authority: String,
    pub(super) audiences: Vec<String>,
    pub(super) audience_match_policy: String,
    pub(super) egress_selector_type: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ClaimRule {
    pub(super) claim: String,
    pub(super) required_value: String,
    pub(super) expression: String,
    pub(super) message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Mappings {
    pub(super) username: Mapping,
    pub(super) groups: Mapping,
    pub(super) uid: Mapping,
    pub(super) extra: Vec<ExtraMapping>,
}

/// A claim with a prefix, or a CEL expression.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Mapping {
    pub(super) claim: String,
    pub(super) prefix: Option<String>,
    pub(super) expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ExtraMapping {
    pub(super) key: String,
    pub(super) value_expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct UserRule {
    pub(super) expression: String,
    pub(super) message: String,
}

impl JwtConfig {
    /// Parses a configuration file. It must not list the server's own issuers.
    pub fn parse(text: &str, own_issuers: &[String]) -> Result<Self, ConfigError> {
        let written: RawConfig = config_file::read(text, "AuthenticationConfiguration")?;
        let mut errors = Errors::default();
        validate::all(&written.jwt, own_issuers, &mut errors);
        validate::anonymous(written.anonymous.as_ref(), &mut errors);
        config_file::refuse(&errors)
            .map_err(|why| ConfigError(format!("invalid authentication configuration: {why}")))?;
        let anonymous = written.anonymous.map(RawAnonymous::build);
        Ok(Self { issuers: written.jwt, algorithms: Algorithm::ALL.to_vec(), anonymous })
    }

    pub fn from_flags(flags: &OidcFlags, own_issuers: &[String]) -> Result<Self, ConfigError> {
        if flags.issuer_url.is_empty() || flags.client_id.is_empty() {
            return Err(ConfigError(
                "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"
                    .into(),
            ));
        }
        let algorithms = flags.signing_algorithms.iter().map(|name| {
            match Algorithm::parse(name) {
            Some(Algorithm::Es512) => Err(ConfigError(
                "--oidc-signing-algs: ES512 is not supported, as this server has no P-521: use ES256 or ES384"
                    .into(),
            )),
            Some(algorithm) => Ok(algorithm),
            None => Err(ConfigError(format!("oidc: unsupported signing alg: {name:?}"))),
        }
        });
        let algorithms = algorithms.collect::<Result<Vec<_>, _>>()?;
        let issuer = flags.issuer();
        let mut errors = Errors::default();
        validate::all(std::slice::from_ref(&issuer), own_issuers, &mut errors);
        config_file::refuse(&errors)
            .map_err(|why| ConfigError(format!("invalid authentication configuration: {why}")))?;
        Ok(Self { issuers: vec![issuer], algorithms, anonymous: None })
    }

    pub(super) fn build(&self, outbound: &Outbound) -> Result<Arc<[Issuer]>, ConfigError> {
        self.issuers.iter().map(|config| Issuer::new(config, outbound)).collect()
    }
}

impl RawAnonymous {
    fn build(self) -> Anonymous {
        match self.enabled {
            false => Anonymous::Nowhere,
            true if self.conditions.is_empty() => Anonymous::Everywhere,
            true => Anonymous::At(self.conditions.into_iter().map(|condition| condition.path).collect()),
        }
    }
}

impl OidcFlags {
    fn issuer(&self) -> IssuerConfig {
        // Claims other than the e-mail address are unique only within the issuer.
        let prefix = match self.username_prefix.as_str() {
            "" if self.username_claim != "email" => format!("{}#", self.issuer_url),
            "-" => String::new(),
            prefix => prefix.to_owned(),
        };
        let groups = match self.groups_claim.as_str() {
            "" => Mapping::default(),
            claim => Mapping {
                claim: claim.into(),
                prefix: Some(self.groups_prefix.clone()),
                ..Mapping::default()
            },
        };
        let rules = self.required_claims.iter().map(|(claim, value)| ClaimRule {
            claim: claim.clone(),
            required_value: value.clone(),
            ..ClaimRule::default()
        });
        let username =
            Mapping { claim: self.username_claim.clone(), prefix: Some(prefix), ..Mapping::default() };
        IssuerConfig {
            issuer: RawIssuer {
                url: self.issuer_url.clone(),
                audiences: vec![self.client_id.clone()],
                certificate_authority: self.authorities.clone(),
                ..RawIssuer::default()
            },
            claim_validation_rules: rules.collect(),
            claim_mappings: Mappings { username, groups, ..Mappings::default() },
            user_validation_rules: Vec::new(),
        }
    }
}
