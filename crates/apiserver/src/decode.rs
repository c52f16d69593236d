//! Decodes request bodies.

use serde_json::Value;

use crate::negotiate::{self, Input};
use crate::rest::Call;
use crate::schema::{FieldValidation, Format, Target, decode, syntax, yaml};
use crate::status::Status;

/// Decodes the object in a request's body, of the served kind, with its defaults.
pub(crate) fn object(call: &Call<'_>, validation: FieldValidation) -> Result<Value, Status> {
    let mut object = decoded(call, &call.served.target, validation)?;
    call.served.kind.strategy.default(&mut object);
    call.context.audit.request_object(&object);
    Ok(object)
}

/// Decodes the document in a request's body, of the expected kind.
pub(crate) fn document(
    call: &Call<'_>,
    target: &Target,
    validation: FieldValidation,
) -> Result<Value, Status> {
    let document = decoded(call, target, validation)?;
    call.context.audit.request_object(&document);
    Ok(document)
}

fn decoded(call: &Call<'_>, target: &Target, validation: FieldValidation) -> Result<Value, Status> {
    let format = match negotiate::input(call.headers)? {
        Input::Json => Format::Json,
        Input::Yaml => Format::Yaml,
        Input::Protobuf => Format::Protobuf,
    };
    let decoded = decode::decode(target, format, call.body, validation);
    let decoded = decoded.map_err(|failure| Status::bad_request(failure.message))?;
    if validation == FieldValidation::Warn {
        for warning in decoded.warnings {
            yaml::warnings(&warning).for_each(|line| call.context.warnings.add(line));
        }
    }
    Ok(decoded.object)
}

/// Decodes the `DeleteOptions` in the body of a deletion.
pub(crate) fn delete_options(call: &Call<'_>) -> Result<Value, Status> {
    let mut target =
        Target::built_in(DELETE_OPTIONS).ok_or_else(|| Status::internal("no schema of DeleteOptions"))?;
    if negotiate::input(call.headers)? == Input::Json {
        let stated = stated(call.body).map_err(Status::unknown)?;
        if stated.api_version == "meta.k8s.io/v1" {
            (target.group, target.version) = ("meta.k8s.io".into(), "v1".into());
        }
    }
    // Invalid options are not the object's fault, so v1.34 gives no reason.
    let options = decoded(call, &target, FieldValidation::Ignore).map_err(|status| match status.code {
        400 => Status::unknown(status.message),
        _ => status,
    })?;
    call.context.audit.request_options(&options);
    Ok(options)
}

/// The kind and version that a body states.
#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeclaredType {
    api_version: String,
    kind: String,
}

/// Returns the version that a JSON body states.
pub(crate) fn stated_version(body: &[u8]) -> String {
    serde_json::from_slice::<DeclaredType>(body).unwrap_or_default().api_version
}

/// Returns the kind and version that a body states, if they can be those of options: options may be in their own group
/// or in any other.
fn stated(body: &[u8]) -> Result<DeclaredType, String> {
    syntax::check(body).map_err(|why| format!("couldn't get version/kind; json parse error: {why}"))?;
    let stated: DeclaredType = serde_json::from_slice(body).unwrap_or_default();
    match stated.kind.as_str() {
        "" | "DeleteOptions" => Ok(stated),
        kind => Err(format!(
            "no kind {kind:?} is registered for version {:?} in scheme \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\"",
            stated.api_version
        )),
    }
}

const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
