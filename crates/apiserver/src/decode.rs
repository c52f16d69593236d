//! Request bodies into objects.

use serde_json::Value;

use crate::json::Json;
use crate::negotiate::{self, Input};
use crate::options::FieldValidation;
use crate::registry::Served;
use crate::rest::Call;
use crate::status::Status;

/// The object in the body of a request, of the served kind, with its defaults.
pub(crate) fn object(call: &Call<'_>, validation: FieldValidation) -> Result<Value, Status> {
    let input = negotiate::input(call.headers)?;
    let mut object = parse(call.body, input, &call.served.kind.kind)?;
    check_kind(&object, call.served)?;
    let _ = validation;
    call.served.name_kind(&mut object);
    call.served.kind.strategy.default(&mut object);
    Ok(object)
}

/// The document in the body of a request, of any kind.
pub(crate) fn document(call: &Call<'_>, kind: &str) -> Result<Value, Status> {
    parse(call.body, negotiate::input(call.headers)?, kind)
}

fn parse(body: &[u8], input: Input, kind: &str) -> Result<Value, Status> {
    let parsed = match input {
        Input::Json => serde_json::from_slice(body).map_err(|why| format!("couldn't get version/kind; json parse error: {why}")),
        Input::Yaml => serde_saphyr::from_slice(body).map_err(|why| format!("error parsing YAML: {why}")),
        Input::Protobuf => Err("protobuf is not accepted here: send application/json or application/yaml".to_string()),
    };
    parsed.map_err(|why| {
        let message = format!("the object provided is unrecognized (must be of type {kind}): {why} ({})", summary(body));
        Status::bad_request(message)
    })
}

/// The beginning of a body, for messages.
fn summary(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    let more = if body.len() > SHOWN { " ..." } else { "" };
    let shown = &body[..body.len().min(SHOWN)];
    match body.first() {
        None => "<empty>".into(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(shown)),
        Some(_) => format!("{}{more}", shown.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}

fn check_kind(object: &Value, served: &Served) -> Result<(), Status> {
    let expected = &served.kind;
    let kind = Some(object.text("kind")).filter(|kind| !kind.is_empty()).unwrap_or(&expected.kind);
    let own_version = expected.api_version();
    let api_version = Some(object.text("apiVersion")).filter(|text| !text.is_empty()).unwrap_or(&own_version);
    if kind == expected.kind && api_version == own_version {
        return Ok(());
    }
    let version = api_version.rsplit('/').next().unwrap_or(api_version);
    Err(Status::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {}: no kind {kind:?} is registered for version \
         {api_version:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        expected.kind
    )))
}

/// The `DeleteOptions` in the body of a deletion.
pub(crate) fn delete_options(call: &Call<'_>) -> Result<Value, Status> {
    let document = document(call, "DeleteOptions").map_err(|status| Status::unknown(status.message))?;
    let kind = document.text("kind");
    if !matches!(kind, "" | "DeleteOptions") {
        return Err(Status::unknown("decoded object cannot be converted to DeleteOptions"));
    }
    Ok(document)
}
