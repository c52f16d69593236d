use super::*;
use crate::kinds::check as checking;

fn pem() -> String {
    let key = rcgen::KeyPair::generate().expect("a key can be made");
    let request = rcgen::CertificateParams::new(vec![]).and_then(|params| params.serialize_request(&key));
    STANDARD.encode(request.and_then(|request| request.pem()).expect("a request can be made"))
}

fn request(change: impl FnOnce(&mut Value)) -> Value {
    let mut request =
        json!({"spec": {"request": pem(), "signerName": "example.com/s", "usages": ["client auth"]}});
    change(request.object_mut("spec"));
    request
}

fn with_status(request: &Value, status: Value) -> Value {
    let mut request = request.clone();
    request.set("status", status);
    request
}

#[test]
fn a_request_is_signed_and_has_usages() {
    checking::create(&SigningRequest, request(|_| ()), &[]);
    checking::create(
        &SigningRequest,
        request(|spec| {
            spec.set("request", STANDARD.encode("x"));
            spec.set("usages", json!(["client auth", "X", "client auth"]));
            spec.set("expirationSeconds", 599);
        }),
        &[
            "Invalid spec.request",
            "NotSupported spec.usages[1]",
            "Duplicate spec.usages[2]",
            "Invalid spec.expirationSeconds",
        ],
    );
    checking::create(&SigningRequest, request(|spec| _ = spec.unset("usages")), &["Required spec.usages"]);
}

#[test]
fn a_signer_is_a_domain_and_a_name() {
    for (signer, expected) in [
        ("", "Required spec.signerName"),
        ("kubernetes.io/legacy-unknown", "Invalid spec.signerName"),
        ("example.com", "Invalid spec.signerName"),
        ("example/s", "Invalid spec.signerName"),
        ("example.com/S", "Invalid spec.signerName"),
    ] {
        checking::create(&SigningRequest, request(|spec| spec.set("signerName", signer)), &[expected]);
    }
}

#[test]
fn a_tampered_request_is_detected() {
    let mut text = STANDARD.decode(pem()).expect("just encoded");
    let at = text.len() / 2;
    text[at] = if text[at] == b'A' { b'B' } else { b'A' };
    assert!(super::pem::problem_of_request(&text).is_some());
}

#[test]
fn the_server_records_the_requester() {
    let mut asked = json!({"spec": {"username": "root", "extra": {"a": ["b"]}}});
    let user = User::authenticated("me", "1", vec!["g".into()]);
    SigningRequest.stamp(&mut asked, None, &user, Timestamp::UNIX_EPOCH);
    assert_eq!(asked["spec"], json!({"username": "me", "uid": "1", "groups": ["g", "system:authenticated"]}));
}

#[test]
fn each_endpoint_writes_its_own_part() {
    let old = request(|_| ());
    let approved = with_status(&old, json!({"conditions": [{"type": "Approved", "status": "True"}]}));
    let issued = with_status(&old, json!({"certificate": "eA=="}));
    let errors = |part, new: &Value, old: &Value| {
        checking::shown(&SigningRequest.validate_subresource_update(part, new, old))
    };
    assert!(errors(Subresource::Approval, &approved, &old).is_empty());
    assert_eq!(errors(Subresource::Status, &approved, &old), ["Forbidden status.conditions"]);
    assert_eq!(errors(Subresource::Approval, &old, &approved), ["Forbidden status.conditions"]);
    assert_eq!(errors(Subresource::Status, &issued, &old), ["Invalid status.certificate"]);
    assert_eq!(
        errors(Subresource::Approval, &issued, &old),
        ["Invalid status.certificate", "Forbidden status.certificate"]
    );
    let both = with_status(
        &old,
        json!({"conditions": [{"type": "Denied", "status": "True"}, {"type": "Approved", "status": "False"}]}),
    );
    assert_eq!(
        errors(Subresource::Approval, &both, &old),
        ["NotSupported status.conditions[1].status", "Invalid status.conditions"]
    );
}

#[test]
fn new_conditions_get_a_transition_time() {
    let old = json!({"status": {"conditions": [
        {"type": "A", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
    let mut new =
        json!({"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]}});
    date_conditions(&mut new, &old, Timestamp::UNIX_EPOCH);
    let now = "1970-01-01T00:00:00Z";
    assert_eq!(
        new["status"]["conditions"],
        json!([
            {"type": "A", "status": "True", "lastUpdateTime": now, "lastTransitionTime": "2020-01-01T00:00:00Z"},
            {"type": "B", "status": "True", "lastUpdateTime": now, "lastTransitionTime": now},
        ])
    );
}

#[test]
fn the_condition_summarizes_the_checks() {
    for (status, shown) in [
        (json!({}), "Pending"),
        (json!({"conditions": [{"type": "Approved"}], "certificate": "eA=="}), "Approved,Issued"),
        (json!({"conditions": [{"type": "Denied"}, {"type": "Failed"}]}), "Denied,Failed"),
    ] {
        assert_eq!(condition(&json!({ "status": status })), shown);
    }
}
