//! How others verify the tokens of service accounts: the issuer, and its public key.

use http::{HeaderMap, HeaderValue, Response};
use serde_json::{Value, json};

use crate::auth::service_account::ISSUER;
use crate::body::Body;
use crate::codec::to_bytes;
use crate::negotiate;
use crate::server::Server;
use crate::status::Status;

const JWKS_PATH: &str = "/openid/v1/jwks";
const JWKS: &str = "application/jwk-set+json";

/// What is at a path of this, if anything is: nothing, on a server that signs no tokens.
pub(crate) fn answer(
    server: &Server,
    segments: &[&str],
    headers: &HeaderMap,
) -> Option<Result<Response<Body>, Status>> {
    let signer = server.token_signer.as_ref()?;
    let (subkind, content_type, document) = match segments {
        [".well-known", "openid-configuration"] => ("json", "application/json", configuration()),
        ["openid", "v1", "jwks"] => ("jwk-set+json", JWKS, json!({"keys": signer.public_jwks()})),
        _ => return None,
    };
    let clauses = negotiate::clauses(headers);
    if !clauses.is_empty() && !clauses.iter().any(|clause| clause.accepts(subkind)) {
        return Some(Err(Status::no_representation(content_type)));
    }
    Some(Ok(found(&document, content_type)))
}

fn configuration() -> Value {
    json!({
        "issuer": ISSUER,
        "jwks_uri": format!("{ISSUER}{JWKS_PATH}"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256", "RS256"],
    })
}

fn found(document: &Value, content_type: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::full(to_bytes(document)));
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    response
}
