//! Reviews: decodes the request, calls the handler, encodes the response.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::difference;
use super::handler::{AdmissionRequest, Allowed, Converter, Defaulter, Denied, Operation, Validator};
use crate::{Key, null_is_empty};

/// A malformed review.
#[derive(Debug)]
pub(super) struct BadReview(pub(super) String);

/// The request of an AdmissionReview.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    operation: Operation,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
    #[serde(default)]
    dry_run: Option<bool>,
    #[serde(default, deserialize_with = "null_is_empty")]
    user_info: User,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    #[serde(deserialize_with = "null_is_empty")]
    groups: Vec<String>,
}

impl Request {
    fn of(mut review: Value, kind: &str) -> Result<Self, BadReview> {
        if review["kind"] != kind {
            return Err(BadReview(format!("kind: expected {kind}, not {}", review["kind"])));
        }
        serde_json::from_value(review["request"].take())
            .map_err(|error| BadReview(format!("request: {error}")))
    }

    fn admission(&self) -> AdmissionRequest {
        let namespace = Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let object = if self.object.is_null() { &self.old_object } else { &self.object };
        let generated = || object["metadata"]["name"].as_str().unwrap_or_default();
        let name = if self.name.is_empty() { generated() } else { &self.name };
        AdmissionRequest {
            operation: self.operation,
            key: Key::in_namespace(namespace, name),
            user: self.user_info.username.clone(),
            groups: self.user_info.groups.clone(),
            dry_run: self.dry_run.unwrap_or_default(),
        }
    }

    fn respond(&self, result: Result<Allowed, Denied>) -> Value {
        let mut response = match result {
            Ok(Allowed { warnings }) if warnings.is_empty() => json!({"allowed": true}),
            Ok(Allowed { warnings }) => json!({"allowed": true, "warnings": warnings}),
            Err(denied) => json!({"allowed": false, "status": status(&denied)}),
        };
        response["uid"] = self.uid.as_str().into();
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }
}

fn status(Denied { code, message, field }: &Denied) -> Value {
    let reason = match code {
        400 => "BadRequest",
        403 => "Forbidden",
        422 => "Invalid",
        _ => "",
    };
    let mut status = json!({"code": code, "message": message, "reason": reason});
    if !field.is_empty() {
        let cause = json!({"field": field, "message": message, "reason": "FieldValueInvalid"});
        status["details"] = json!({"causes": [cause]});
    }
    status
}

/// Decodes an object of a review. `null` is none.
fn decode<K: DeserializeOwned>(object: &Value) -> Result<Option<K>, Denied> {
    Option::deserialize(object).map_err(|error| Denied {
        code: 400,
        message: format!("cannot decode the object: {error}"),
        field: String::new(),
    })
}

pub(super) async fn validate<K: DeserializeOwned + Send + Sync>(
    review: Value,
    validator: Arc<impl Validator<K>>,
) -> Result<Value, BadReview> {
    let request = Request::of(review, "AdmissionReview")?;
    let admission = request.admission();
    let checked = async {
        let new = decode::<K>(&request.object)?;
        let old = match decode::<K>(&request.old_object) {
            // Otherwise an object stored by an older version could not be repaired.
            Err(_) if new.is_some() => None,
            old => old?,
        };
        validator.validate(new.as_ref(), old.as_ref(), &admission).await
    };
    let checked = checked.await;
    Ok(request.respond(checked))
}

pub(super) async fn mutate<K: DeserializeOwned + Serialize + Send>(
    review: Value,
    defaulter: Arc<impl Defaulter<K>>,
) -> Result<Value, BadReview> {
    let request = Request::of(review, "AdmissionReview")?;
    let admission = request.admission();
    let defaulted = async {
        let Some(mut object) = decode::<K>(&request.object)? else { return Ok(Vec::new()) };
        let before = encode(&object)?;
        defaulter.default(&mut object, &admission).await?;
        Ok(difference::patch(&request.object, &before, &encode(&object)?))
    };
    let (result, operations) = match defaulted.await {
        Ok(operations) => (Ok(Allowed::default()), operations),
        Err(denied) => (Err(denied), Vec::new()),
    };
    let mut review = request.respond(result);
    if !operations.is_empty() {
        review["response"]["patchType"] = "JSONPatch".into();
        review["response"]["patch"] =
            difference::base64(Value::from(operations).to_string().as_bytes()).into();
    }
    Ok(review)
}

fn encode(object: &impl Serialize) -> Result<Value, Denied> {
    serde_json::to_value(object).map_err(|error| Denied {
        code: 500,
        message: format!("cannot encode the object: {error}"),
        field: String::new(),
    })
}

pub(super) fn convert(mut review: Value, converter: &impl Converter) -> Result<Value, BadReview> {
    if review["kind"] != "ConversionReview" {
        return Err(BadReview(format!("kind: expected ConversionReview, not {}", review["kind"])));
    }
    let mut request = review["request"].take();
    let to = request["desiredAPIVersion"].as_str().unwrap_or_default().to_owned();
    let Value::Array(objects) = request["objects"].take() else {
        return Err(BadReview("request.objects: expected a list".into()));
    };
    let converted: Result<Vec<Value>, String> =
        objects.into_iter().map(|object| convert_one(object, &to, converter)).collect();
    let mut response = match converted {
        Ok(objects) => json!({"convertedObjects": objects, "result": {"status": "Success"}}),
        Err(why) => json!({"convertedObjects": [], "result": {"status": "Failure", "message": why}}),
    };
    response["uid"] = request["uid"].take();
    Ok(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}))
}

/// Converts an object. Of its metadata, only labels and annotations may change.
fn convert_one(object: Value, to: &str, converter: &impl Converter) -> Result<Value, String> {
    let (kind, mut metadata) = (object["kind"].clone(), object["metadata"].clone());
    let name = metadata["name"].as_str().unwrap_or_default().to_owned();
    let mut converted = converter.convert(object, to).map_err(|why| format!("{name}: {why}"))?;
    if !converted.is_object() {
        return Err(format!("{name}: the converter did not return an object"));
    }
    // If a converter returns metadata, its labels and annotations are used.
    if converted["metadata"].is_object() && metadata.is_object() {
        for field in ["labels", "annotations"] {
            metadata[field] = converted["metadata"][field].take();
        }
    }
    converted["metadata"] = without_nulls(metadata);
    (converted["apiVersion"], converted["kind"]) = (to.into(), kind);
    Ok(converted)
}

/// Removes fields that are not set.
fn without_nulls(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    object
}
