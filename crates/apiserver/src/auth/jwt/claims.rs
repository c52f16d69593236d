//! Maps claims to a user.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use setpoint_cel::{Program, Variables};

use super::config::{ClaimRule, IssuerConfig, Mapping};
use super::rules;
use crate::auth::User;

const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// An issuer's compiled claim mappings and rules.
pub(super) struct Mapper {
    username: Source,
    groups: Source,
    uid: Source,
    extra: Vec<(String, Program)>,
    required: Vec<(String, String)>,
    claim_rules: Vec<Rule>,
    user_rules: Vec<Rule>,
}

enum Source {
    Nothing,
    Claim { name: String, prefix: String },
    Expression(Program),
}

struct Rule {
    expression: String,
    message: String,
    program: Program,
}

impl Source {
    fn new(mapping: &Mapping) -> Result<Self, String> {
        Ok(match (mapping.claim.as_str(), mapping.expression.as_str()) {
            ("", "") => Self::Nothing,
            ("", expression) => Self::Expression(rules::about_claims(expression)?),
            (name, _) => {
                Self::Claim { name: name.into(), prefix: mapping.prefix.clone().unwrap_or_default() }
            }
        })
    }
}

impl Rule {
    fn check(&self, variables: &Variables) -> Result<(), String> {
        rules::check(&self.program, variables, (&self.expression, &self.message))
    }
}

impl Mapper {
    pub(super) fn new(config: &IssuerConfig) -> Result<Self, String> {
        let mappings = &config.claim_mappings;
        let by_claim = |rule: &&ClaimRule| !rule.claim.is_empty();
        let rule = |expression: &str, message: &str, program| Rule {
            expression: expression.into(),
            message: message.into(),
            program,
        };
        let extra = mappings
            .extra
            .iter()
            .map(|extra| Ok::<_, String>((extra.key.clone(), rules::about_claims(&extra.value_expression)?)));
        let claim_rules =
            config.claim_validation_rules.iter().filter(|rule| !by_claim(rule)).map(|written| {
                let program = rules::about_claims(&written.expression)?;
                Ok::<_, String>(rule(&written.expression, &written.message, program))
            });
        let user_rules = config.user_validation_rules.iter().map(|written| {
            let program = rules::about_user(&written.expression)?;
            Ok::<_, String>(rule(&written.expression, &written.message, program))
        });
        let required = config.claim_validation_rules.iter().filter(by_claim);
        Ok(Self {
            username: Source::new(&mappings.username)?,
            groups: Source::new(&mappings.groups)?,
            uid: Source::new(&mappings.uid)?,
            extra: extra.collect::<Result<_, _>>()?,
            required: required.map(|rule| (rule.claim.clone(), rule.required_value.clone())).collect(),
            claim_rules: claim_rules.collect::<Result<_, _>>()?,
            user_rules: user_rules.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the claim that groups are taken from, if configured.
    pub(super) fn groups_claim(&self) -> Option<&str> {
        match &self.groups {
            Source::Claim { name, .. } => Some(name),
            _ => None,
        }
    }

    /// Maps claims to a user and checks all rules.
    pub(super) fn user(&self, claims: &Map<String, Value>) -> Result<User, String> {
        let variables = rules::claims_variables(&Value::Object(claims.clone()));
        let user = User {
            name: self.username(claims, &variables)?,
            groups: self.groups(claims, &variables)?,
            uid: self.uid(claims, &variables)?,
            extra: self.extra(claims, &variables)?,
        };
        self.check_required(claims)?;
        for rule in &self.claim_rules {
            rule.check(&variables)
                .map_err(|why| format!("oidc: error evaluating claim validation expression: {why}"))?;
        }
        let variables = rules::user_variables(&user);
        for rule in &self.user_rules {
            rule.check(&variables)
                .map_err(|why| format!("oidc: error evaluating user info validation rule: {why}"))?;
        }
        Ok(user)
    }

    fn username(&self, claims: &Map<String, Value>, variables: &Variables) -> Result<String, String> {
        match &self.username {
            Source::Expression(program) => {
                let failed = |why| format!("oidc: error evaluating username claim expression: {why}");
                let value = rules::evaluate(program, variables).map_err(failed)?;
                let name = rules::text(value, "username").map_err(failed)?;
                match name.is_empty() {
                    true => Err("oidc: empty username via CEL expression is not allowed".into()),
                    false => Ok(name),
                }
            }
            Source::Claim { name, prefix } => {
                let value = text(claims, name)
                    .map_err(|why| format!("oidc: parse username claims {name:?}: {why}"))?;
                if name == "email" {
                    check_email(claims)?;
                }
                Ok(format!("{prefix}{value}"))
            }
            Source::Nothing => Err("oidc: no username mapping".into()),
        }
    }

    fn groups(&self, claims: &Map<String, Value>, variables: &Variables) -> Result<Vec<String>, String> {
        match &self.groups {
            Source::Nothing => Ok(Vec::new()),
            Source::Claim { name, prefix } => {
                let Some(value) = claims.get(name) else { return Ok(Vec::new()) };
                let groups = one_or_many(value).ok_or_else(|| {
                    format!("oidc: parse groups claim {name:?}: expected a string or a list of strings")
                })?;
                Ok(groups.into_iter().map(|group| format!("{prefix}{group}")).collect())
            }
            Source::Expression(program) => {
                let groups =
                    rules::evaluate(program, variables).and_then(|value| rules::texts(program, value));
                groups.map_err(|why| format!("oidc: error evaluating group claim expression: {why}"))
            }
        }
    }

    fn uid(&self, claims: &Map<String, Value>, variables: &Variables) -> Result<String, String> {
        match &self.uid {
            Source::Nothing => Ok(String::new()),
            Source::Claim { name, .. } => {
                let uid = text(claims, name).map_err(|why| format!("oidc: parse uid claim {name:?}: {why}"));
                uid.map(str::to_owned)
            }
            Source::Expression(program) => {
                let uid = rules::evaluate(program, variables).and_then(|value| rules::text(value, "uid"));
                uid.map_err(|why| format!("oidc: error evaluating uid claim expression: {why}"))
            }
        }
    }

    fn extra(
        &self,
        claims: &Map<String, Value>,
        variables: &Variables,
    ) -> Result<BTreeMap<String, Vec<String>>, String> {
        let mut extra = BTreeMap::new();
        if let Some(Value::String(id)) = claims.get("jti").filter(|id| id.as_str() != Some("")) {
            extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        for (key, program) in &self.extra {
            let values =
                rules::evaluate(program, variables)
                    .and_then(|value| rules::texts(program, value))
                    .map_err(|why| format!("oidc: error evaluating extra claim expression: {key}: {why}"))?;
            if !values.is_empty() {
                extra.insert(key.clone(), values);
            }
        }
        Ok(extra)
    }

    fn check_required(&self, claims: &Map<String, Value>) -> Result<(), String> {
        for (claim, wanted) in &self.required {
            if !claims.contains_key(claim) {
                return Err(format!("oidc: required claim {claim} not present in ID token"));
            }
            let found = text(claims, claim).map_err(|why| format!("oidc: parse claim {claim}: {why}"))?;
            if found != *wanted {
                return Err(format!(
                    "oidc: required claim {claim} value does not match. Got = {found}, want = {wanted}"
                ));
            }
        }
        Ok(())
    }
}

/// Accepts the e-mail address unless the issuer says that it is unverified.
fn check_email(claims: &Map<String, Value>) -> Result<(), String> {
    match claims.get("email_verified") {
        None | Some(Value::Bool(true)) => Ok(()),
        Some(Value::Bool(false) | Value::Null) => Err("oidc: email not verified".into()),
        Some(_) => Err("oidc: parse 'email_verified' claim: expected a boolean".into()),
    }
}

/// Returns a claim as a string. Like Go, reads null as an empty string.
fn text<'c>(claims: &'c Map<String, Value>, name: &str) -> Result<&'c str, String> {
    match claims.get(name) {
        None => Err("claim not present".into()),
        Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err("expected a string".into()),
    }
}

fn one_or_many(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::String(one) => Some(vec![one]),
        Value::Array(several) => several.iter().map(Value::as_str).collect(),
        _ => None,
    }
}
