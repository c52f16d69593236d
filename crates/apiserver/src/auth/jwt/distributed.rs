//! Distributed claims: groups that are not in the token but fetched from an endpoint it names.
//!
//! The endpoint returns another token, which is checked like the first: signed by its issuer, for one of the
//! audiences, not expired.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Uri;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};
use setpoint_clock::Clock;
use setpoint_token::Algorithm;
use setpoint_webhook::Client;

use super::keys::Keys;
use super::verify;

/// How many issuers of distributed claims are remembered. Trusted issuers name them, usually one or two.
const ISSUERS: usize = 16;

#[derive(Default)]
pub(super) struct Resolver {
    issuers: parking_lot::Mutex<BTreeMap<String, Arc<Keys>>>,
}

/// The endpoint of a distributed claim.
#[derive(Deserialize)]
struct Endpoint {
    #[serde(default)]
    endpoint: String,
    #[serde(default)]
    access_token: String,
}

/// The checks that a fetched token must pass.
pub(super) struct Terms<'a> {
    pub(super) client: &'a Client,
    pub(super) clock: &'a Clock,
    pub(super) audiences: &'a [String],
    pub(super) algorithms: &'a [Algorithm],
    pub(super) now: Timestamp,
}

impl Resolver {
    /// Adds the claim to the others if it is a distributed claim.
    pub(super) async fn expand(
        &self,
        claim: &str,
        claims: &mut Map<String, Value>,
        terms: &Terms<'_>,
    ) -> Result<(), String> {
        let Some(endpoint) = endpoint(claim, claims)? else { return Ok(()) };
        let failed = |why: String| format!("while getting distributed claim {claim:?}: {why}");
        let uri: Uri = endpoint.endpoint.parse().map_err(|_| failed("the endpoint is not a URL".into()))?;
        if uri.scheme_str() != Some("https") {
            return Err(failed("the endpoint must be an https URL".into()));
        }
        let bearer = Some(endpoint.access_token.as_str()).filter(|token| !token.is_empty());
        let answer = terms.client.get(&uri, bearer).await.map_err(|why| failed(why.to_string()))?;
        let token = std::str::from_utf8(&answer.body).map_err(|_| failed("the answer is no token".into()))?;
        let issuer = verify::issuer_of(token).ok_or_else(|| failed("the answer is no token".into()))?;
        let keys = self.keys(&issuer, terms).await?;
        let found = verify::verified(token, &keys, terms.audiences, terms.algorithms, terms.now).await;
        let mut found = found.map_err(|why| format!("verify distributed claim token: {why}"))?;
        let missing = || format!("jwt returned by distributed claim endpoint did not contain claim: {claim}");
        claims.insert(claim.to_owned(), found.remove(claim).ok_or_else(missing)?);
        Ok(())
    }

    async fn keys(&self, issuer: &str, terms: &Terms<'_>) -> Result<Arc<Keys>, String> {
        if let Some(keys) = self.issuers.lock().get(issuer) {
            return Ok(keys.clone());
        }
        let keys = Keys::discover(issuer, None, terms.client, terms.clock).await;
        let keys =
            Arc::new(keys.map_err(|why| format!("verifying untrusted issuer {issuer} failed: {why}"))?);
        let mut issuers = self.issuers.lock();
        if issuers.len() < ISSUERS {
            issuers.insert(issuer.to_owned(), keys.clone());
        }
        Ok(keys)
    }
}

/// Returns the claim's endpoint if the token refers to one instead of holding the claim.
fn endpoint(claim: &str, claims: &Map<String, Value>) -> Result<Option<Endpoint>, String> {
    let (None, Some(names)) = (claims.get(claim), claims.get("_claim_names")) else { return Ok(None) };
    let names: BTreeMap<String, String> = serde_json::from_value(names.clone())
        .map_err(|why| format!("oidc: error parsing distributed claim names: {why}"))?;
    let sources = claims.get("_claim_sources").ok_or("oidc: no claim sources")?;
    let mut sources: BTreeMap<String, Endpoint> = serde_json::from_value(sources.clone())
        .map_err(|why| format!("oidc: could not parse claim sources: {why}"))?;
    let Some(source) = names.get(claim) else { return Ok(None) };
    let found = sources.remove(source).ok_or_else(|| {
        format!("id token _claim_names contained a source {source} missing in _claims_sources")
    })?;
    Ok(Some(found).filter(|endpoint| !endpoint.endpoint.is_empty()))
}
