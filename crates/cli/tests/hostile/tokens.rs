//! Ten thousand invalid bearer tokens.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;

use crate::server::{ADMIN, Server, Session};

const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const EACH: usize = 1000;

fn encoded(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

/// Returns a valid service account token.
async fn real_token(session: &mut Session) -> String {
    let account = r#"{"metadata": {"name": "default"}}"#;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    session.send(Method::POST, accounts, ADMIN, account.into()).await;
    let request = r#"{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}"#;
    let (code, text) =
        session.send(Method::POST, &format!("{accounts}/default/token"), ADMIN, request.into()).await;
    assert_eq!(code, 201, "{text}");
    let answer: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    answer["status"]["token"].as_str().expect("a token").to_owned()
}

/// Returns an invalid token of each kind, different for every number.
fn crafted_from(real: &str, at: usize) -> Vec<String> {
    let parts: Vec<&str> = real.split('.').collect();
    let [header, claims, signature] = parts[..] else { panic!("a token has three parts") };
    let admin = encoded(&format!(
        r#"{{"iss": "https://kubernetes.default.svc.cluster.local", "sub": "system:serviceaccount:kube-system:admin",
            "aud": ["https://kubernetes.default.svc.cluster.local"], "exp": {}}}"#,
        9_000_000_000_u64 + at as u64
    ));
    let flipped = |text: &str| {
        let mut bytes = text.as_bytes().to_vec();
        let place = at % bytes.len();
        bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
        String::from_utf8_lossy(&bytes).into_owned()
    };
    vec![
        format!("{}.{admin}.", encoded(r#"{"alg":"none"}"#)),
        format!("{header}.{admin}.{signature}"),
        format!("{header}.{claims}.{}", &signature[..at % signature.len()]),
        // The last character of a signature may contain unused bits, so flip another one.
        format!("{header}.{}.{signature}", flipped(claims)),
        format!("{}.{claims}.{signature}", encoded(&format!(r#"{{"alg":"HS256","kid":"../{at}"}}"#))),
        format!("{header}.{claims}.{signature}.{at}"),
        format!("{}..{}", ".".repeat(at % 300), at),
        format!("{}{at}", "a".repeat(at * 7 % 6000)),
        format!("{}.{}.{}", encoded(&"[".repeat(at)), encoded(&"{\"a\":".repeat(at)), at),
        format!("{}.{}.x", encoded(r#"{"alg":"RS256"}"#), encoded(&format!(r#"{{"exp": -{at}e{at}}}"#))),
    ]
}

pub(crate) async fn crafted(server: &'static Server) {
    let mut session = server.session().await;
    let real = real_token(&mut session).await;
    // The valid token authenticates, but does not grant access to secrets.
    assert_eq!(session.get(SECRETS, &real).await.0, 403);
    for at in 0..EACH {
        for token in crafted_from(&real, at) {
            let (code, text) = session.get(SECRETS, &token).await;
            assert!(matches!(code, 401 | 429), "{code} for {token}: {text}");
        }
    }
}
