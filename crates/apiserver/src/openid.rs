//! OpenID discovery: lets others verify service account tokens with the issuer's public keys.

use std::collections::BTreeSet;

use http::{HeaderMap, HeaderValue, Response};
use serde_json::{Value, json};
use setpoint_token::PublicKey;

use crate::auth::ServiceAccounts;
use crate::body::Body;
use crate::codec::to_bytes;
use crate::negotiate;
use crate::server::Server;
use crate::status::Status;

const JWKS_PATH: &str = "/openid/v1/jwks";
const JWKS: &str = "application/jwk-set+json";

/// Responds to a discovery path; `None` for other paths, and on a server that signs no tokens.
pub(crate) fn respond(
    server: &Server,
    segments: &[&str],
    headers: &HeaderMap,
) -> Option<Result<Response<Body>, Status>> {
    let accounts = &server.service_accounts;
    // An issuer that is not an https URL cannot be discovered.
    if accounts.keys.is_empty() || !is_discoverable(accounts.issuer()) {
        return None;
    }
    let (subkind, content_type, document) = match segments {
        [".well-known", "openid-configuration"] => ("json", "application/json", configuration(accounts)),
        ["openid", "v1", "jwks"] => ("jwk-set+json", JWKS, key_set(accounts)),
        _ => return None,
    };
    let clauses = negotiate::clauses(headers);
    if !clauses.is_empty() && !clauses.iter().any(|clause| clause.accepts(subkind)) {
        return Some(Err(Status::no_representation(content_type)));
    }
    Some(Ok(found(&document, content_type)))
}

fn is_discoverable(issuer: &str) -> bool {
    issuer.starts_with("https://") && !issuer.contains(['?', '#'])
}

fn key_set(accounts: &ServiceAccounts) -> Value {
    json!({"keys": accounts.keys.iter().map(PublicKey::jwk).collect::<Vec<_>>()})
}

fn configuration(accounts: &ServiceAccounts) -> Value {
    let issuer = accounts.issuer();
    let below = || format!("{}{JWKS_PATH}", issuer.trim_end_matches('/'));
    let algorithms: BTreeSet<&str> = accounts.keys.iter().map(PublicKey::algorithm).collect();
    json!({
        "issuer": issuer,
        "jwks_uri": accounts.jwks_uri.clone().unwrap_or_else(below),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": algorithms,
    })
}

fn found(document: &Value, content_type: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::full(to_bytes(document)));
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    response
}
