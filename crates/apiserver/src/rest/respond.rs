//! Responses in the form the client asked for.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};
use setpoint_store::Record;

use super::{Call, Outcome};
use crate::body::Body;
use crate::codec::{document_bytes, to_bytes};
use crate::json::{Json, JsonMut};
use crate::negotiate::{Encoding, Output, Shape};
use crate::protobuf;
use crate::schema::encode;
use crate::status::Status;
use crate::transform;

/// Builds a response with the given body.
pub(crate) fn response(code: StatusCode, media_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Responds with a document in the encoding the client asked for.
pub(crate) fn document(code: StatusCode, output: Output, document: &Value) -> Response<Body> {
    let bytes = match output.encoding {
        Encoding::Protobuf => match protobuf::document(document) {
            Ok(bytes) => bytes,
            Err(status) => return refusal(&status, output.encoding),
        },
        text => encoded(text, document),
    };
    response(code, output.encoding.media_type(), Body::full(bytes))
}

/// Encodes a document.
pub(crate) fn encoded(encoding: Encoding, document: &Value) -> Bytes {
    match encoding {
        Encoding::Json { pretty: true } => pretty(document),
        Encoding::Yaml => yaml(document),
        Encoding::Json { pretty: false } | Encoding::Protobuf => document_bytes(document),
    }
}

/// Responds with an error status in the encoding that the client accepts.
pub(crate) fn refusal(status: &Status, encoding: Encoding) -> Response<Body> {
    let mut response = status.clone().into_response();
    let body = match encoding {
        _ if status.is_page() => return response,
        Encoding::Json { .. } => return response,
        Encoding::Yaml => yaml(&serde_json::to_value(status).unwrap_or_default()),
        Encoding::Protobuf => protobuf::status(status),
    };
    *response.body_mut() = Body::full(body);
    let media_type = HeaderValue::from_static(encoding.media_type());
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

fn pretty(document: &Value) -> Bytes {
    let mut text = encode::indented(&document_bytes(document));
    text.push(b'\n');
    text.into()
}

fn yaml(document: &Value) -> Bytes {
    serde_saphyr::to_string(document).map_or_else(|_| to_bytes(document), Into::into)
}

/// Responds with a stored object. In its plain form this is a copy of the store's own bytes.
pub(crate) async fn record(
    call: &Call<'_>,
    code: StatusCode,
    record: &Arc<Record>,
) -> Result<Response<Body>, Status> {
    let record = &*call.shown(record).await?;
    if call.output.is_plain() {
        let bytes = call.served.bytes(record)?;
        call.context.audit.response_bytes(&bytes);
        return Ok(response(code, call.output.encoding.media_type(), Body::full(bytes)));
    }
    object(call, code, call.served.decode(record)?)
}

/// Responds with an object of the requested kind.
pub(crate) fn object(call: &Call<'_>, code: StatusCode, object: Value) -> Result<Response<Body>, Status> {
    let shaped = match call.output.shape {
        Shape::Object => object,
        Shape::Table => {
            let options = transform::TableOptions::parse(call.query)?;
            let list =
                transform::list_metadata(crate::metadata::of(&object).text("resourceVersion"), None, None);
            transform::table(call.served, call.output, &options, list, vec![object], call.now)
        }
        Shape::PartialMetadata => transform::partial(call.served, call.output, object),
        Shape::PartialMetadataList => {
            let message = "you requested PartialObjectMetadataList, but the requested object is not a list";
            return Err(Status::not_acceptable(format!("{message} ({})", call.served.kind.go_type())));
        }
    };
    call.context.audit.response_object(&shaped);
    Ok(document(code, call.output, &shaped))
}

/// Responds with an object of an unregistered kind (Scale, Binding), which has no table.
pub(crate) fn foreign(call: &Call<'_>, code: StatusCode, object: Value) -> Response<Body> {
    let shaped = match call.output.shape {
        Shape::PartialMetadata => transform::partial(call.served, call.output, object),
        _ => object,
    };
    call.context.audit.response_object(&shaped);
    document(code, call.output, &shaped)
}

pub(crate) async fn outcome(
    call: &Call<'_>,
    code: StatusCode,
    outcome: Outcome,
) -> Result<Response<Body>, Status> {
    match outcome {
        Outcome::Stored(stored) => record(call, code, &stored).await,
        Outcome::Unstored(value) => object(call, code, value),
    }
}

/// Responds with a status after a successful request.
pub(crate) fn status(call: &Call<'_>, code: StatusCode, status: &Status) -> Response<Body> {
    call.context.audit.status(status);
    if let Encoding::Json { pretty: false } = call.output.encoding {
        return response(code, "application/json", Body::full(status.to_bytes()));
    }
    let document_of = serde_json::to_value(status).unwrap_or_else(|_| json!({}));
    let mut shown = document_of;
    shown.or_insert("kind", "Status");
    document(code, call.output, &shown)
}
