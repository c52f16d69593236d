//! The endpoints of the documents: `/openapi/v2`, `/openapi/v3` and below.

use http::header::{CACHE_CONTROL, ETAG, HeaderName, IF_NONE_MATCH, LOCATION, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::{Document, OpenApi};
use crate::body::Body;
use crate::negotiate::{self, Clause};
use crate::query::Query;
use crate::rest::respond;

/// Answers a request for the path `/openapi/SEGMENTS`.
pub(crate) fn answer(
    documents: &OpenApi,
    segments: &[&str],
    query: &Query<'_>,
    headers: &HeaderMap,
) -> Response<Body> {
    match segments {
        ["v2"] if prefers_protobuf(headers) => tagged(headers, PROTOBUF, documents.whole_in_protobuf()),
        ["v2"] => accepted(headers, || documents.whole()),
        ["v3"] => accepted(headers, || documents.index()),
        ["v3", path @ ..] => one(documents, &path.join("/"), query, headers),
        _ => empty(StatusCode::NOT_FOUND),
    }
}

/// A document whose address has its hash stays as it is forever; one of another hash has moved.
fn one(documents: &OpenApi, path: &str, query: &Query<'_>, headers: &HeaderMap) -> Response<Body> {
    let Some(address) = documents.address(path) else { return empty(StatusCode::NOT_FOUND) };
    let asked = query.get("hash").filter(|hash| !hash.is_empty());
    if asked.is_some_and(|hash| !address.ends_with(hash)) {
        let mut moved = empty(StatusCode::MOVED_PERMANENTLY);
        set(&mut moved, LOCATION, &address);
        return moved;
    }
    let Some(document) = documents.document(path) else { return empty(StatusCode::NOT_FOUND) };
    let mut response = accepted(headers, || document);
    if asked.is_some() {
        set(&mut response, CACHE_CONTROL, "public, immutable");
    }
    response
}

/// The document, if the client reads JSON and does not have it already.
fn accepted(headers: &HeaderMap, document: impl FnOnce() -> Document) -> Response<Body> {
    let wanted = negotiate::clauses(headers);
    if !wanted.is_empty() && !wanted.iter().any(|clause| clause.accepts("json")) {
        return empty(StatusCode::NOT_ACCEPTABLE);
    }
    tagged(headers, "application/json", document())
}

/// What version 2 as protobuf is called.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Whether the most wanted form that version 2 has is protobuf, by its name or an older one.
fn prefers_protobuf(headers: &HeaderMap) -> bool {
    let names =
        ["com.github.proto-openapi.spec.v2@v1.0+protobuf", "com.github.proto-openapi.spec.v2.v1.0+protobuf"];
    let wanted = negotiate::clauses(headers);
    let known =
        |clause: &&Clause<'_>| clause.accepts("json") || names.iter().any(|name| clause.accepts(name));
    wanted.iter().find(known).is_some_and(|clause| !clause.accepts("json"))
}

/// The document, unless the client has it already.
fn tagged(headers: &HeaderMap, media_type: &'static str, document: Document) -> Response<Body> {
    let Document { body, hash } = document;
    let tag = format!("\"{hash}\"");
    let known = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = match known {
        true => empty(StatusCode::NOT_MODIFIED),
        false => respond::response(StatusCode::OK, media_type, Body::full(body)),
    };
    set(&mut response, ETAG, &tag);
    set(&mut response, VARY, "Accept");
    response
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
