//! The `token` subresource of service accounts.

use http::{Response, StatusCode};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Call, respond};
use crate::admission::{Operation, Review};
use crate::auth::service_account::{Bound, Claims, Reference};
use crate::body::Body;
use crate::decode;
use crate::facts::Facts;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::metadata;
use crate::options::{OptionsOf, WriteOptions};
use crate::registry::Gvr;
use crate::schema::Target;
use crate::status::{Named, Status};

const TOKEN_REQUEST: &str = "io.k8s.api.authentication.v1.TokenRequest";
const OF: Named<'static> = Named { group: "authentication.k8s.io", resource: "TokenRequest" };
const HOUR: i64 = 3600;
const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;
/// The lifetime that mounted pod tokens request. They are issued for a year, so that programs that read them only once
/// keep working.
const MOUNTED: i64 = 3607;
const YEAR: i64 = 365 * 24 * HOUR;

pub(crate) async fn create(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let options = WriteOptions::parse(call.query, OptionsOf::Create)?;
    let target =
        Target::built_in(TOKEN_REQUEST).ok_or_else(|| Status::internal("no schema of TokenRequest"))?;
    let mut request = decode::document(call, &target, options.field_validation)?;
    let name = call.name()?;
    metadata::normalize_namespace(&mut request, call.namespace)?;
    let review = Review::new(call, Operation::Create, name.to_string(), options.dry_run);
    review.mutate(&mut request, None).await?;
    check_place(call, name, &request)?;
    let account = call.record().await?;
    let account_uid = Facts::of(&account, call.served).uid.to_string();
    default(call, &mut request, name, &account_uid)?;
    check(&request)?;
    shorten(call, &mut request);
    review.check(Some(&request), None).await?;
    let bound = bound(call, name, account_uid, request.at("spec").at("boundObjectRef")).await?;
    let token = sign(call, &request, bound)?;
    let expires = call.now + SignedDuration::from_secs(request.at("spec").count("expirationSeconds"));
    let status = json!({"expirationTimestamp": metadata::seconds(expires), "token": token});
    request.set("status", status);
    Ok(respond::foreign(call, StatusCode::CREATED, request))
}

/// Checks that a name or namespace in the request matches the path.
fn check_place(call: &Call<'_>, name: &str, request: &Value) -> Result<(), Status> {
    let meta = metadata::of(request);
    let places = [("name", name), ("namespace", call.namespace.unwrap_or_default())];
    for (field, expected) in places {
        let found = meta.text(field);
        if !found.is_empty() && found != expected {
            let mut errors = Errors::default();
            let detail = format!("must match the service account {field} if specified");
            errors.invalid(&Path::root("metadata").child(field), found, detail);
            return Err(Status::invalid(OF, name, &errors));
        }
    }
    Ok(())
}

fn default(call: &Call<'_>, request: &mut Value, name: &str, uid: &str) -> Result<(), Status> {
    let meta = request.object_mut("metadata");
    let found = meta.text("uid");
    if !found.is_empty() && found != uid {
        let why = format!(
            "the UID in the token request ({found}) does not match the UID of the service account ({uid})"
        );
        if call.server.features.has("TokenRequestServiceAccountUIDValidation") {
            return Err(Status::conflict(OF, name, why));
        }
        call.context.warnings.add(format!(
            "{why} but TokenRequestServiceAccountUIDValidation is not enabled. In the future, this will return a conflict error"
        ));
        call.context.audit.annotate("authentication.k8s.io/token-request-uid-mismatch", why);
    }
    meta.set("name", name);
    meta.set("namespace", call.namespace.unwrap_or_default());
    meta.or_insert("uid", uid);
    meta.set("creationTimestamp", metadata::seconds(call.now));
    let spec = request.object_mut("spec");
    spec.or_insert("expirationSeconds", HOUR);
    if spec.list("audiences").is_empty() {
        spec.set("audiences", json!(call.server.service_accounts.audiences));
    }
    Ok(())
}

fn check(request: &Value) -> Result<(), Status> {
    let mut errors = Errors::default();
    let path = Path::root("spec");
    let path = path.child("expirationSeconds");
    let seconds = request.at("spec").count("expirationSeconds");
    if seconds < MIN_SECONDS {
        errors.invalid(&path, seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds > MAX_SECONDS {
        errors.invalid(&path, seconds, "may not specify a duration larger than 2^32 seconds");
    }
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(OF, "", &errors)) }
}

/// Caps the requested lifetime at the server's maximum.
fn shorten(call: &Call<'_>, request: &mut Value) {
    let asked = request.at("spec").count("expirationSeconds");
    let most = call.server.service_accounts.max_expiration.filter(|most| asked > *most);
    if let Some(most) = most {
        let warning = format!("requested expiration of {asked} seconds shortened to {most} seconds");
        call.context.warnings.add(warning);
        request.object_mut("spec").set("expirationSeconds", most);
    }
}

/// Builds the claims about the account and the object the token is bound to.
async fn bound(call: &Call<'_>, account: &str, uid: String, wanted: &Value) -> Result<Bound, Status> {
    let serviceaccount = Reference { name: account.into(), uid };
    let namespace = call.namespace.unwrap_or_default().to_owned();
    let mut bound = Bound { namespace, serviceaccount, ..Bound::default() };
    if wanted.is_null() {
        return Ok(bound);
    }
    let plural = match (wanted.text("apiVersion"), wanted.text("kind")) {
        ("v1", "Pod") => "pods",
        ("v1", "Node") => "nodes",
        ("v1", "Secret") => "secrets",
        (version, kind) => {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Status::bad_request(why));
        }
    };
    let object = find(call, plural, wanted.text("name")).await?;
    let found = Reference { name: wanted.text("name").into(), uid: metadata::of(&object).text("uid").into() };
    if plural == "pods" && object.at("spec").text("serviceAccountName") != account {
        let why = format!(
            "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
        );
        return Err(Status::bad_request(why));
    }
    check_uid(wanted, &found)?;
    match plural {
        "pods" => {
            bound.node = node_of(call, &object).await;
            bound.pod = Some(found);
        }
        "nodes" => bound.node = Some(found),
        _ => bound.secret = Some(found),
    }
    Ok(bound)
}

fn check_uid(wanted: &Value, found: &Reference) -> Result<(), Status> {
    match wanted.text("uid") {
        "" => Ok(()),
        uid if uid == found.uid => Ok(()),
        uid => {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might \
                 have been deleted and then recreated"
            );
            let of = Named { group: "", resource: wanted.text("kind") };
            Err(Status::conflict(of, &found.name, why))
        }
    }
}

/// Returns the pod's node; without a uid if the node does not exist.
async fn node_of(call: &Call<'_>, pod: &Value) -> Option<Reference> {
    let name = Some(pod.at("spec").text("nodeName")).filter(|name| !name.is_empty())?;
    let node = find(call, "nodes", name).await.ok();
    let uid = node.map(|node| metadata::of(&node).text("uid").to_owned()).unwrap_or_default();
    Some(Reference { name: name.into(), uid })
}

async fn find(call: &Call<'_>, plural: &str, name: &str) -> Result<Value, Status> {
    let served = call.server.served(&Gvr::new("", "v1", plural))?;
    let key = served.key(call.namespace, name);
    let found = call.server.store.get(&key, None).await.map_err(|why| call.server.refusal(why))?;
    served.decode_bare(&*found.ok_or_else(|| Status::not_found(served.named(), name))?)
}

fn sign(call: &Call<'_>, request: &Value, bound: Bound) -> Result<String, Status> {
    let Some(signer) = &call.server.token_signer else {
        return Err(Status::unavailable("this server has no key to sign tokens of service accounts with"));
    };
    let spec = request.at("spec");
    let audiences = spec.list("audiences").iter().filter_map(Value::as_str).map(Into::into);
    let audiences: Vec<String> = audiences.collect();
    let asked = spec.count("expirationSeconds");
    let accounts = &call.server.service_accounts;
    let is_for_server = audiences.iter().all(|audience| accounts.audiences.contains(audience));
    let is_mounted = accounts.extend_expiration && bound.pod.is_some() && asked == MOUNTED && is_for_server;
    let now = call.now.as_second();
    let bound = Bound { warnafter: is_mounted.then_some(now + asked), ..bound };
    let claims = Claims {
        aud: audiences,
        exp: now + if is_mounted { YEAR } else { asked },
        iat: now,
        iss: accounts.issuer().into(),
        jti: call.server.rng.uid().to_string(),
        sub: crate::auth::service_account_name(&bound.namespace, &bound.serviceaccount.name),
        bound,
        nbf: now,
    };
    let credential = format!("JTI={}", claims.jti);
    call.context.audit.annotate("authentication.kubernetes.io/issued-credential-id", credential);
    signer.sign(&claims).map_err(|why| Status::internal(format_args!("failed to generate token: {why}")))
}
