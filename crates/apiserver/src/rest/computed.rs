//! Virtual objects: read-only, computed on request and not stored.

use http::{Response, StatusCode};
use serde_json::Value;

use super::{Call, list, respond};
use crate::body::Body;
use crate::json::Json;
use crate::kind::Verb;
use crate::metadata;
use crate::options::ListOptions;
use crate::status::{Named, Status};
use crate::transform;

pub(crate) fn respond(call: &Call<'_>, verb: Verb, objects: Vec<Value>) -> Result<Response<Body>, Status> {
    match verb {
        Verb::Get => get(call, objects),
        _ => list(call, objects),
    }
}

fn name(object: &Value) -> &str {
    metadata::of(object).text("name")
}

fn get(call: &Call<'_>, objects: Vec<Value>) -> Result<Response<Body>, Status> {
    let wanted = call.name()?;
    let mut objects = objects.into_iter();
    let Some(mut object) = objects.find(|object| name(object) == wanted) else {
        let of = Named { group: &call.served.kind.group, resource: &call.served.kind.singular };
        return Err(Status::not_found(of, wanted));
    };
    call.served.name_kind(&mut object);
    respond::object(call, StatusCode::OK, object)
}

fn list(call: &Call<'_>, mut objects: Vec<Value>) -> Result<Response<Body>, Status> {
    let options = ListOptions::parse(call.query, call.namespace, false)?;
    let choice = list::choose(call, &options)?;
    let is_named = |object: &Value| choice.fields.exact_name().is_none_or(|wanted| wanted == name(object));
    let is_labelled = |object: &Value| {
        let labels = metadata::of(object).at("labels");
        choice.labels.matches_labels(|key| labels.get(key).and_then(Value::as_str))
    };
    objects.retain(|object| is_labelled(object) && is_named(object));
    for object in &mut objects {
        call.served.name_kind(object);
    }
    list::shaped(call, transform::list_metadata("", None, None), objects)
}
