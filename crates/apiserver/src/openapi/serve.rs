//! The endpoints of the documents: `/openapi/v2`, `/openapi/v3` and below.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, ETAG, HeaderName, IF_NONE_MATCH, LOCATION, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::{Document, Form, OpenApi};
use crate::body::Body;
use crate::header;
use crate::negotiate::{self, Clause};
use crate::query::Query;
use crate::rest::respond;
use crate::route::not_found_page;

/// Responds to a request for `/openapi/PATH`, whatever its method.
pub(crate) async fn respond(
    documents: &OpenApi,
    path: &str,
    query: &Query<'_>,
    headers: &HeaderMap,
) -> Response<Body> {
    match (path, path.strip_prefix("v3/")) {
        ("v2", _) => {
            whole(headers, documents.hash_of_whole(), async |form| documents.whole(form).await).await
        }
        ("v3", _) => index(documents.index().body),
        (_, Some(path)) => match documents.address(path) {
            Some(address) => one(&address, query, headers, || documents.document(path)),
            None => empty(StatusCode::NOT_FOUND),
        },
        _ => not_found_page(),
    }
}

/// Responds with the index of version 3. v1.34 does not declare it as JSON, so Go serves it as text.
pub(crate) fn index(body: Bytes) -> Response<Body> {
    respond::response(StatusCode::OK, "text/plain; charset=utf-8", Body::full(body))
}

/// Responds with version 2, which is not built for a client that already has it.
pub(crate) async fn whole(
    headers: &HeaderMap,
    hash: String,
    make: impl AsyncFnOnce(Form) -> Document,
) -> Response<Body> {
    if !prefers_protobuf(headers) && !accepts_json(headers) {
        return empty(StatusCode::NOT_ACCEPTABLE);
    }
    if is_known(headers, &hash) {
        return tagged(headers, "application/json", Document { body: Bytes::new(), hash });
    }
    match prefers_protobuf(headers) {
        true => tagged(headers, PROTOBUF, make(Form::Protobuf).await),
        false => tagged(headers, "application/json", make(Form::Json).await),
    }
}

/// Responds with one document. With the right hash in its URL it is immutable; another hash redirects.
pub(crate) fn one(
    address: &str,
    query: &Query<'_>,
    headers: &HeaderMap,
    document: impl FnOnce() -> Option<Document>,
) -> Response<Body> {
    let asked = query.get("hash").filter(|hash| !hash.is_empty());
    if asked.is_some_and(|hash| !address.ends_with(hash)) {
        let mut moved = empty(StatusCode::MOVED_PERMANENTLY);
        set(&mut moved, LOCATION, address);
        return moved;
    }
    let Some(document) = document() else { return empty(StatusCode::NOT_FOUND) };
    let mut response = accepted(headers, || document);
    if asked.is_some() {
        set(&mut response, CACHE_CONTROL, "public, immutable");
    }
    response
}

/// Responds with the document, if the client accepts JSON and does not already have it.
fn accepted(headers: &HeaderMap, document: impl FnOnce() -> Document) -> Response<Body> {
    if !accepts_json(headers) {
        return empty(StatusCode::NOT_ACCEPTABLE);
    }
    tagged(headers, "application/json", document())
}

fn accepts_json(headers: &HeaderMap) -> bool {
    let wanted = negotiate::clauses(headers);
    wanted.is_empty() || wanted.iter().any(|clause| clause.accepts("json"))
}

/// The media type of version 2 as protobuf.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Whether the most preferred form of version 2 is protobuf, under its current or an older name.
fn prefers_protobuf(headers: &HeaderMap) -> bool {
    let names =
        ["com.github.proto-openapi.spec.v2@v1.0+protobuf", "com.github.proto-openapi.spec.v2.v1.0+protobuf"];
    let wanted = negotiate::clauses(headers);
    let known =
        |clause: &&Clause<'_>| clause.accepts("json") || names.iter().any(|name| clause.accepts(name));
    wanted.iter().find(known).is_some_and(|clause| !clause.accepts("json"))
}

/// Responds with the document, unless the client already has it.
fn tagged(headers: &HeaderMap, media_type: &'static str, document: Document) -> Response<Body> {
    let Document { body, hash } = document;
    let tag = format!("\"{hash}\"");
    let mut response = match is_known(headers, &hash) {
        true => empty(StatusCode::NOT_MODIFIED),
        false => respond::response(StatusCode::OK, media_type, Body::full(body)),
    };
    set(&mut response, ETAG, &tag);
    set(&mut response, VARY, "Accept");
    response
}

fn is_known(headers: &HeaderMap, hash: &str) -> bool {
    let mut tags = header::text(headers, &IF_NONE_MATCH).split(',').map(str::trim);
    tags.any(|tag| {
        let tag = tag.strip_prefix("W/").unwrap_or(tag);
        tag == "*" || tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')) == Some(hash)
    })
}

fn empty(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    response
}

fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
