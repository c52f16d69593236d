//! Responses in place of the API server's.

use http::{Response, StatusCode, header::CONTENT_TYPE};
use kube::client::Body;
use serde_json::{Value, json};

pub(crate) fn object(code: StatusCode, object: &Value) -> Response<Body> {
    let mut reply = Response::new(Body::from(object.to_string().into_bytes()));
    *reply.status_mut() = code;
    reply.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    reply
}

pub(crate) fn success() -> Response<Body> {
    object(
        StatusCode::OK,
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}),
    )
}

pub(crate) fn failure(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": reason, "message": message, "code": code.as_u16(),
    });
    object(code, &status)
}

pub(crate) fn not_found(what: &str) -> Response<Body> {
    failure(StatusCode::NOT_FOUND, "NotFound", &format!("{what} not found"))
}

pub(crate) fn already_exists(what: &str) -> Response<Body> {
    failure(StatusCode::CONFLICT, "AlreadyExists", &format!("{what} already exists"))
}

pub(crate) fn conflict(what: &str, why: &str) -> Response<Body> {
    let message = format!("Operation cannot be fulfilled on {what}: {why}");
    failure(StatusCode::CONFLICT, "Conflict", &message)
}

pub(crate) fn bad_request(message: &str) -> Response<Body> {
    failure(StatusCode::BAD_REQUEST, "BadRequest", message)
}

pub(crate) fn refused(message: &str) -> Response<Body> {
    failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
}
