//! Authentication: tokens of issuers and webhooks, anonymous requests, service accounts with several issuers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::Request;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_apiserver::auth::{Anonymous, JwtConfig, OidcFlags, ServiceAccounts, TokenWebhook};
use setpoint_apiserver::patch::merge;
use setpoint_apiserver::{Authenticator, Config, TokenSigner, User};
use setpoint_clock::Clock;
use setpoint_store::MemoryStore;
use tokio_util::sync::CancellationToken;
use tokio_util::sync::DropGuard;

use crate::client::Api;
use crate::extension::{Extension, Reply, Temporary};

const ISSUER: &str = "https://ext.example/oidc";
/// 2025-01-01T00:00:00Z.
const NOW: i64 = 1_735_689_600;

fn signer() -> TokenSigner {
    TokenSigner::from_pem(&TokenSigner::generate_key().unwrap()).unwrap()
}

/// An issuer whose keys can be replaced.
fn issuer(keys: Arc<Mutex<Vec<TokenSigner>>>) -> Extension {
    Extension::new(move |path, _| match path {
        "/oidc/.well-known/openid-configuration" => {
            Reply::Json(json!({"issuer": ISSUER, "jwks_uri": format!("{ISSUER}/keys")}))
        }
        "/oidc/keys" => {
            let keys: Vec<_> = keys.lock().iter().map(TokenSigner::public_jwk).collect();
            Reply::Json(json!({ "keys": keys }))
        }
        _ => Reply::Code(404, Vec::new(), "".into()),
    })
}

/// Applies a merge patch to a document.
fn merged(document: Value, changes: &Value) -> Value {
    merge::apply(document, changes.clone()).unwrap()
}

fn issuer_config(extension: &Extension, changes: &Value) -> Value {
    let jwt = json!({
        "issuer": {"url": ISSUER, "audiences": ["aud"], "certificateAuthority": extension.authority},
        "claimMappings": {
            "username": {"claim": "sub", "prefix": "o:"},
            "groups": {"expression": "claims.?roles.orValue([])"},
        },
    });
    let jwt = merged(jwt, changes);
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [jwt]})
}

struct World {
    api: Api,
    extension: Extension,
    _stop: DropGuard,
}

impl World {
    async fn new(
        extension: Extension,
        build: impl FnOnce(Authenticator, &Extension, &Clock) -> Authenticator,
    ) -> Self {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        let authenticator = build(Authenticator::new(), &extension, &clock);
        let change =
            |config: Config| Config { authenticator, token_signer: Some(signer()), ..config.with_roles() };
        let api = Api::start_configured(Arc::new(MemoryStore::new(clock.clone())), clock, change).await;
        let stop = CancellationToken::new();
        let (server, stopped) = (api.server.clone(), stop.clone());
        tokio::spawn(async move { server.maintain(stopped).await });
        api.clock.sleep(Duration::from_millis(100)).await;
        Self { api, extension, _stop: stop.drop_guard() }
    }

    async fn trusting(extension: Extension, changes: &Value) -> Self {
        let text = issuer_config(&extension, changes).to_string();
        Self::new(extension, |authenticator, extension, clock| {
            let config = JwtConfig::parse(&text, &[]).unwrap();
            authenticator.with_jwt(&config, None, &[], extension.outbound(clock)).unwrap()
        })
        .await
    }

    async fn get(&self, path: &str, authorization: Option<&str>) -> (u16, Value) {
        self.send("GET", path, authorization, Value::Null).await
    }

    async fn send(&self, method: &str, path: &str, authorization: Option<&str>, body: Value) -> (u16, Value) {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let response = self.api.server.handle_unauthenticated(request.body(body).unwrap()).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await;
        (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// Returns the user that a token authenticates as.
    async fn who(&self, token: &str) -> Result<Value, u16> {
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        match self.send("POST", path, Some(&format!("Bearer {token}")), review).await {
            (201, body) => Ok(body["status"]["userInfo"].clone()),
            (code, _) => Err(code),
        }
    }
}

fn claims(changes: &Value) -> Value {
    let claims = json!({"iss": ISSUER, "aud": "aud", "sub": "ann", "exp": NOW + 3600, "roles": ["dev"]});
    merged(claims, changes)
}

#[tokio::test(start_paused = true)]
async fn a_token_of_a_trusted_issuer_names_its_user() {
    let key = signer();
    let world = World::trusting(issuer(Arc::new(Mutex::new(vec![key.clone()]))), &json!({})).await;
    let user = world.who(&key.sign(&claims(&json!({"jti": "x"}))).unwrap()).await.unwrap();
    let expected = json!({
        "username": "o:ann",
        "groups": ["dev", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": ["JTI=x"]},
    });
    assert_eq!(user, expected);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_token_is_never_anonymous() {
    let key = signer();
    let world = World::trusting(issuer(Arc::new(Mutex::new(vec![key.clone()]))), &json!({})).await;
    let good = key.sign(&claims(&json!({}))).unwrap();
    assert!(world.who(&good).await.is_ok());
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let (head, rest) = good.split_once('.').unwrap();
    let (body, signature) = rest.split_once('.').unwrap();
    let mut bad: Vec<String> = [
        json!({"aud": "other"}),
        json!({"aud": null}),
        json!({"exp": NOW - 1}),
        json!({"exp": null}),
        json!({"exp": "soon"}),
        json!({"nbf": NOW + 3600}),
        json!({"iss": "https://other.example"}),
        json!({"iss": 5}),
        json!({"sub": 5}),
        json!({"sub": null, "aud": []}),
        json!({"roles": 5}),
        json!({"roles": [5]}),
    ]
    .iter()
    .map(|changes| key.sign(&claims(changes)).unwrap())
    .collect();
    bad.extend([
        signer().sign(&claims(&json!({}))).unwrap(),
        format!("{}.{body}.", part(json!({"alg": "none"}))),
        format!("{}.{body}.{signature}", part(json!({"alg": "HS256", "kid": key.public_jwk().kid}))),
        format!("{head}.{}.{signature}", part(claims(&json!({"sub": "root"})))),
        format!("{head}.{body}."),
        format!("{head}.{body}.{signature}.x"),
        "x".repeat(1 << 20),
        format!("{head}.{}.{signature}", "W".repeat(1 << 20)),
        "..".into(),
        "a.b.c".into(),
        format!("{head}.{}.{signature}", URL_SAFE_NO_PAD.encode("[".repeat(10_000))),
    ]);
    for token in bad {
        assert_eq!(world.who(&token).await, Err(401), "{}", &token[..token.len().min(300)]);
        assert_eq!(world.get("/livez", Some(&format!("Bearer {token}"))).await.0, 401);
    }
    assert_eq!(world.get("/livez", Some("Basic YTpi")).await.0, 200, "other schemes are ignored");
    assert_eq!(world.get("/livez", None).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn rules_and_expressions_decide_about_claims() {
    let key = signer();
    let changes = json!({
        "claimMappings": {
            "username": {"claim": null, "prefix": null, "expression": "'e:' + claims.sub"},
            "groups": {"expression": "claims.?team.orValue('')"},
            "uid": {"expression": "string(claims.exp)"},
            "extra": [{"key": "acme.com/x", "valueExpression": "claims.?a__dot__b.orValue('')"}],
        },
        "claimValidationRules": [
            {"claim": "hd", "requiredValue": "acme"},
            {"expression": "claims.exp - claims.nbf <= 86400", "message": "too long"},
        ],
        "userValidationRules": [
            {"expression": "!user.username.endsWith('root')", "message": "no root"},
            {"expression": "user.extra.all(k, k.startsWith('acme.com/'))", "message": "foreign extra"},
        ],
    });
    let world = World::trusting(issuer(Arc::new(Mutex::new(vec![key.clone()]))), &changes).await;
    let token = |more: &Value| {
        let all = claims(&json!({"hd": "acme", "nbf": NOW, "team": "t", "a.b": "c"}));
        key.sign(&merged(all, more)).unwrap()
    };
    let user = world.who(&token(&json!({}))).await.unwrap();
    assert_eq!(user["username"], "e:ann");
    assert_eq!(user["groups"], json!(["t", "system:authenticated"]));
    assert_eq!(user["extra"], json!({"acme.com/x": ["c"]}));
    for refused in [
        json!({"hd": "other"}),
        json!({"hd": null}),
        json!({"nbf": NOW - 100_000}),
        json!({"nbf": null}),
        json!({"sub": "root"}),
        json!({"team": {"a": 1}}),
    ] {
        assert_eq!(world.who(&token(&refused)).await, Err(401), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_key_is_fetched_when_a_token_names_it() {
    let (first, second) = (signer(), signer());
    let keys = Arc::new(Mutex::new(vec![first.clone()]));
    let world = World::trusting(issuer(keys.clone()), &json!({})).await;
    assert!(world.who(&first.sign(&claims(&json!({}))).unwrap()).await.is_ok());
    assert!(world.who(&second.sign(&claims(&json!({}))).unwrap()).await.is_err());
    *keys.lock() = vec![second.clone()];
    assert!(world.who(&second.sign(&claims(&json!({}))).unwrap()).await.is_ok());
    world.extension.take();
    assert!(world.who(&second.sign(&claims(&json!({"sub": "bob"}))).unwrap()).await.is_ok());
    assert!(world.extension.take().is_empty(), "a cached key is not fetched again");
}

#[tokio::test(start_paused = true)]
async fn a_misbehaving_issuer_yields_401() {
    let key = signer();
    let token = key.sign(&claims(&json!({}))).unwrap();
    let discovered = || Reply::Json(json!({"issuer": ISSUER, "jwks_uri": format!("{ISSUER}/keys")}));
    let redirect = || Reply::Code(302, vec![("location", format!("{ISSUER}/elsewhere"))], "".into());
    let large = || Reply::Code(200, Vec::new(), vec![b' '; 2 << 20].into());
    let lies: [fn(&str) -> Reply; 3] = [
        |_| Reply::Json(json!({"issuer": "https://other.example", "jwks_uri": ISSUER})),
        |_| Reply::Json(json!({"issuer": ISSUER, "jwks_uri": "http://ext.example/keys"})),
        |_| Reply::Json(json!([1])),
    ];
    let mut issuers: Vec<Extension> =
        lies.into_iter().map(|reply| Extension::new(move |path, _| reply(path))).collect();
    issuers.push(Extension::new(|_, _| Reply::Hang));
    issuers.push(Extension::new(move |_, _| redirect()));
    issuers.push(Extension::new(move |_, _| large()));
    let at_keys: [fn() -> Reply; 4] = [
        || Reply::Hang,
        || Reply::Code(200, Vec::new(), vec![b'['; 2 << 20].into()),
        || {
            Reply::Json(
                json!({"keys": [1, null, {"kty": "RSA", "n": "", "e": ""}, {"kty": "EC", "crv": "P-256"}]}),
            )
        },
        || Reply::Code(500, Vec::new(), "".into()),
    ];
    issuers.extend(at_keys.into_iter().map(|reply| {
        Extension::new(move |path, _| if path == "/oidc/keys" { reply() } else { discovered() })
    }));
    for (at, extension) in issuers.into_iter().enumerate() {
        let world = World::trusting(extension, &json!({})).await;
        assert_eq!(world.who(&token).await, Err(401), "{at}");
        assert_eq!(world.get("/livez", None).await.0, 200, "{at}");
    }
}

#[tokio::test(start_paused = true)]
async fn older_flags_name_users_by_their_issuer() {
    let key = signer();
    let extension = issuer(Arc::new(Mutex::new(vec![key.clone()])));
    let flags = OidcFlags {
        issuer_url: ISSUER.into(),
        client_id: "aud".into(),
        authorities: extension.authority.clone(),
        username_claim: "sub".into(),
        groups_claim: "roles".into(),
        groups_prefix: "g:".into(),
        signing_algorithms: vec!["ES256".into()],
        required_claims: vec![("hd".into(), "acme".into())],
        ..OidcFlags::default()
    };
    let world = World::new(extension, |authenticator, extension, clock| {
        let config = JwtConfig::from_flags(&flags, &[]).unwrap();
        authenticator.with_jwt(&config, None, &[], extension.outbound(clock)).unwrap()
    })
    .await;
    let user = world.who(&key.sign(&claims(&json!({"hd": "acme"}))).unwrap()).await.unwrap();
    assert_eq!(user["username"], format!("{ISSUER}#ann"));
    assert_eq!(user["groups"], json!(["g:dev", "system:authenticated"]));
    assert_eq!(world.who(&key.sign(&claims(&json!({}))).unwrap()).await, Err(401));
}

#[tokio::test(start_paused = true)]
async fn distributed_groups_are_fetched_and_verified() {
    let (key, other) = (signer(), signer());
    let groups = key.sign(&claims(&json!({"roles": ["far"]}))).unwrap();
    let forged = other.sign(&claims(&json!({"roles": ["system:masters"]}))).unwrap();
    let keys = json!({"keys": [key.public_jwk()]});
    let extension = Extension::new(move |path, _| match path {
        "/oidc/.well-known/openid-configuration" => {
            Reply::Json(json!({"issuer": ISSUER, "jwks_uri": format!("{ISSUER}/keys")}))
        }
        "/oidc/keys" => Reply::Json(keys.clone()),
        "/groups" => Reply::Code(200, Vec::new(), groups.clone().into()),
        _ => Reply::Code(200, Vec::new(), forged.clone().into()),
    });
    let changes = json!({"claimMappings": {"groups": {"expression": null, "claim": "roles", "prefix": ""}}});
    let world = World::trusting(extension, &changes).await;
    let token = |endpoint: &str| {
        let sources = json!({"s": {"endpoint": endpoint, "access_token": "t"}});
        let more = json!({"roles": null, "_claim_names": {"roles": "s"}, "_claim_sources": sources});
        key.sign(&claims(&more)).unwrap()
    };
    let user = world.who(&token("https://ext.example/groups")).await.unwrap();
    assert_eq!(user["groups"], json!(["far", "system:authenticated"]));
    for endpoint in ["https://ext.example/forged", "http://ext.example/groups", "nonsense"] {
        assert_eq!(world.who(&token(endpoint)).await, Err(401), "{endpoint}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_replaces_the_issuers() {
    let key = signer();
    let extension = issuer(Arc::new(Mutex::new(vec![key.clone()])));
    let text = issuer_config(&extension, &json!({})).to_string();
    let file = Temporary::new(&text);
    let world = World::new(extension, |authenticator, extension, clock| {
        let config = JwtConfig::parse(&text, &[]).unwrap();
        let path = file.path();
        let file: Option<(&Path, &str)> = Some((&path, &text));
        authenticator.with_jwt(&config, file, &[], extension.outbound(clock)).unwrap()
    })
    .await;
    let token = |name: &str| key.sign(&claims(&json!({"sub": name, "exp": NOW + 86400}))).unwrap();
    assert_eq!(world.who(&token("a")).await.unwrap()["username"], "o:a");
    file.write("nonsense: [");
    world.api.clock.sleep(Duration::from_secs(61)).await;
    assert_eq!(world.who(&token("b")).await.unwrap()["username"], "o:b");
    let other = json!({"claimMappings": {"username": {"prefix": "new:"}}});
    file.write(&issuer_config(&world.extension, &other).to_string());
    world.api.clock.sleep(Duration::from_secs(61)).await;
    assert_eq!(world.who(&token("c")).await.unwrap()["username"], "new:c");
    let mut closed = issuer_config(&world.extension, &json!({}));
    closed["anonymous"] = json!({"enabled": false});
    file.write(&closed.to_string());
    world.api.clock.sleep(Duration::from_secs(61)).await;
    assert_eq!(world.get("/livez", None).await.0, 200, "the anonymous setting is read at startup only");
}

#[test]
fn a_configuration_is_refused_with_every_error() {
    let parse = |jwt: Value| {
        let text = json!({"apiVersion": "apiserver.config.k8s.io/v1beta1", "kind": "AuthenticationConfiguration", "jwt": jwt});
        JwtConfig::parse(&text.to_string(), &["https://own.example".into()]).unwrap_err().to_string()
    };
    let problems = parse(json!([
        {
            "issuer": {"url": "http://u:p@a?x#y", "audiences": ["a", "a"], "certificateAuthority": "x", "egressSelectorType": "z"},
            "claimValidationRules": [{}, {"claim": "c", "expression": "true"}, {"expression": "claims.x"}],
            "claimMappings": {
                "username": {"expression": "claims.email"},
                "groups": {"claim": "g"},
                "uid": {"claim": "a", "expression": "b"},
                "extra": [{"key": "K8s.io/X", "valueExpression": ""}, {"key": "plain", "valueExpression": "1"}],
            },
            "userValidationRules": [{}, {"expression": "user.nothing"}],
        },
        {"issuer": {"url": "https://own.example"}},
    ]));
    for expected in [
        "jwt[0].issuer.url: Invalid value: \"http://u:p@a?x#y\": URL scheme must be https",
        "jwt[0].issuer.url: Invalid value: \"http://u:p@a?x#y\": URL must not contain a username or password",
        "URL must not contain a query",
        "URL must not contain a fragment",
        "jwt[0].issuer.audiences[1]: Duplicate value: \"a\"",
        "jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny for multiple audiences",
        "jwt[0].issuer.certificateAuthority: Invalid value: \"<omitted>\"",
        "jwt[0].issuer.egressSelectorType: Invalid value: \"z\"",
        "jwt[0].claimValidationRules[0]: Required value: claim or expression is required",
        "jwt[0].claimValidationRules[1]: Invalid value: \"c\": claim and expression can't both be set",
        "jwt[0].claimValidationRules[2].expression: Invalid value: \"claims.x\": must evaluate to bool",
        "jwt[0].claimMappings.groups.prefix: Required value: prefix is required when claim is set. It can be set to an empty string to disable prefixing",
        "jwt[0].claimMappings.uid: Invalid value: \"\": claim and expression can't both be set",
        "jwt[0].claimMappings.extra[0].key: Invalid value: \"K8s.io/X\": must be lowercase",
        "jwt[0].claimMappings.extra[0].valueExpression: Required value",
        "jwt[0].claimMappings.extra[1].key: Invalid value: \"plain\": must be a domain-prefixed path (such as \"acme.io/foo\")",
        "claims.email_verified must be used in claimMappings.username.expression",
        "jwt[0].userValidationRules[0].expression: Required value",
        "jwt[0].userValidationRules[1].expression: Invalid value: \"user.nothing\": compilation failed",
        "jwt[1].issuer.url: Invalid value: \"https://own.example\": URL must not overlap with disallowed issuers: [https://own.example]",
        "jwt[1].issuer.audiences: Required value: at least one jwt[1].issuer.audiences is required",
        "jwt[1].claimMappings.username: Required value: claim or expression is required",
    ] {
        assert!(problems.contains(expected), "{expected} in {problems}");
    }
    for text in [
        "",
        "a: b",
        "apiVersion: v1\nkind: AuthenticationConfiguration",
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nunknown: 1",
    ] {
        assert!(JwtConfig::parse(text, &[]).is_err(), "{text}");
    }
    let many: Vec<Value> = (0..65).map(|_| json!({})).collect();
    assert!(parse(many.into()).contains("jwt: Too many: 65: must have at most 64 items"));
}

fn reviewed(status: Value) -> Reply {
    Reply::Json(json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status}))
}

async fn with_webhook(handler: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> World {
    let extension = Extension::new(move |_, body| handler(body));
    World::new(extension, |authenticator, extension, clock| {
        let kubeconfig = extension.kubeconfig("/authn");
        let ttl = Duration::from_secs(60);
        let webhook = TokenWebhook::new(&kubeconfig.path(), "v1", ttl, &extension.outbound(clock)).unwrap();
        let known = User::authenticated("static", "", Vec::new());
        authenticator.with_token("known", known).with_webhook(webhook)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_webhook_authenticates_tokens_unknown_to_the_server() {
    let world = with_webhook(|body| match body["spec"]["token"].as_str() {
        Some("nameless") => reviewed(json!({"authenticated": true})),
        Some("other") => reviewed(json!({"authenticated": true, "audiences": ["other"], "user": {"username": "w"}})),
        _ => reviewed(json!({"authenticated": true, "user": {"username": "w", "uid": "1", "groups": ["g"], "extra": {"k": ["v"]}}})),
    })
    .await;
    assert_eq!(world.who("known").await.unwrap()["username"], "static");
    assert!(world.extension.take().is_empty());
    let expected =
        json!({"username": "w", "uid": "1", "groups": ["g", "system:authenticated"], "extra": {"k": ["v"]}});
    assert_eq!(world.who("t").await.unwrap(), expected);
    let (path, review) = world.extension.take().remove(0);
    assert_eq!(path, "/authn");
    assert_eq!(review["spec"], json!({"token": "t", "audiences": ["https://kubernetes.default.svc"]}));
    assert_eq!(world.who("t").await.unwrap(), expected);
    world.api.clock.sleep(Duration::from_secs(59)).await;
    assert_eq!(world.who("t").await.unwrap(), expected);
    assert!(world.extension.take().is_empty(), "the result is cached");
    world.api.clock.sleep(Duration::from_secs(2 + 10)).await;
    assert_eq!(world.who("t").await.unwrap(), expected);
    assert_eq!(world.extension.take().len(), 1);
    assert_eq!(world.who("nameless").await.unwrap(), json!({"groups": ["system:authenticated"]}));
    assert_eq!(world.who("other").await, Err(401), "it is for another audience");
}

#[tokio::test(start_paused = true)]
async fn a_denying_or_failing_webhook_authenticates_no_request() {
    let replies: [fn() -> Reply; 7] = [
        || reviewed(json!({"authenticated": false, "error": "who are you"})),
        || reviewed(json!({})),
        || reviewed(json!({"authenticated": "true", "user": {"username": "w"}})),
        || Reply::Json(json!({"status": {"authenticated": true, "user": {"username": "w"}}})),
        || Reply::Code(500, Vec::new(), "x".into()),
        || Reply::Hang,
        || Reply::Code(307, vec![("location", "https://ext.example/yes".into())], "".into()),
    ];
    for (at, reply) in replies.into_iter().enumerate() {
        let world = with_webhook(move |_| reply()).await;
        assert_eq!(world.who("t").await, Err(401), "{at}");
        assert_eq!(world.get("/livez", Some("Bearer t")).await.0, 401, "{at}");
    }
    let world = with_webhook(|_| Reply::Code(500, Vec::new(), "x".into())).await;
    assert_eq!(world.who("t").await, Err(401));
    assert_eq!(world.extension.take().len(), 5, "HTTP 500 is retried");
}

#[tokio::test(start_paused = true)]
async fn anonymous_requests_are_allowed_on_configured_paths() {
    let nothing = || Extension::new(|_, _| Reply::Hang);
    let at = Anonymous::At(vec!["/livez".into()]);
    let world = World::new(nothing(), |authenticator, _, _| authenticator.with_anonymous(at)).await;
    assert_eq!(world.get("/livez", None).await.0, 200);
    for path in ["/livez/ping", "/version", "/api", "/livez/"] {
        assert_eq!(world.get(path, None).await.0, 401, "{path}");
    }
    let world =
        World::new(nothing(), |authenticator, _, _| authenticator.with_anonymous(Anonymous::Nowhere)).await;
    assert_eq!(world.get("/livez", None).await.0, 401);
}

#[tokio::test(start_paused = true)]
async fn front_proxy_headers_require_its_certificate() {
    let world = World::new(Extension::new(|_, _| Reply::Hang), |authenticator, _, _| {
        authenticator.with_front_proxy(setpoint_apiserver::auth::FrontProxy {
            username_headers: vec!["X-Remote-User".into()],
            group_headers: vec!["X-Remote-Group".into()],
            ..Default::default()
        })
    })
    .await;
    let request = Request::builder()
        .uri("/api/v1/namespaces")
        .header("x-remote-user", "root")
        .header("x-remote-group", "system:masters");
    let response = world.api.server.handle_unauthenticated(request.body(Bytes::new()).unwrap()).await;
    assert_eq!(response.status(), 403, "the sender is anonymous");
}

#[tokio::test(start_paused = true)]
async fn tokens_of_every_issuer_and_key_are_accepted_and_the_first_issues() {
    let (old, new) = (signer(), signer());
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
    let accounts = ServiceAccounts {
        issuers: vec!["https://new.example".into(), "https://old.example".into()],
        audiences: vec!["api".into()],
        keys: vec![new.public_key(), old.public_key()],
        max_expiration: Some(3600),
        ..ServiceAccounts::default()
    };
    let change = |config: Config| Config {
        service_accounts: accounts,
        token_signer: Some(new.clone()),
        ..config.with_roles()
    };
    let api = Api::start_configured(Arc::new(MemoryStore::new(clock.clone())), clock, change).await;
    api.post("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "robot"}}))
        .await
        .created();
    let request = json!({"spec": {"expirationSeconds": 7200}});
    let made = api.post("/api/v1/namespaces/default/serviceaccounts/robot/token", request).await;
    assert_eq!(made.warnings.len(), 1, "{:?}", made.warnings);
    assert_eq!(made.body["spec"]["expirationSeconds"], 3600);
    assert_eq!(made.body["spec"]["audiences"], json!(["api"]));
    let token = made.body["status"]["token"].as_str().unwrap().to_owned();
    let mut says: Value = claims_of(&token);
    assert_eq!(says["iss"], "https://new.example");
    says["iss"] = "https://old.example".into();
    for (token, expected) in [
        (token, true),
        (old.sign(&says).unwrap(), true),
        (signer().sign(&says).unwrap(), false),
        (
            {
                says["iss"] = "https://third.example".into();
                old.sign(&says).unwrap()
            },
            false,
        ),
    ] {
        let review = json!({"spec": {"token": token}});
        let answer = api.post("/apis/authentication.k8s.io/v1/tokenreviews", review).await;
        let status = &answer.body["status"];
        assert_eq!(status["authenticated"] == true, expected, "{status}");
        if expected {
            assert_eq!(status["audiences"], json!(["api"]));
        }
    }
    let keys = api.get("/openid/v1/jwks").await.body;
    assert_eq!(keys["keys"].as_array().map(Vec::len), Some(2));
    let found = api.get("/.well-known/openid-configuration").await.body;
    assert_eq!(found["issuer"], "https://new.example");
    assert_eq!(found["jwks_uri"], "https://new.example/openid/v1/jwks");
}

/// Returns a token's claims without verifying it.
fn claims_of(token: &str) -> Value {
    let claims = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_token_authenticates_while_its_secret_allows_it() {
    const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
    let extension = || Extension::new(|_, _| Reply::Code(404, Vec::new(), "".into()));
    let world = World::new(extension(), |authenticator, _, _| authenticator.with_bootstrap_tokens()).await;
    let secret = json!({
        "metadata": {"name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": "abcdef",
            "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": "system:bootstrappers:workers",
            "expiration": "2025-01-01T01:00:00Z",
        },
    });
    let token = "abcdef.0123456789abcdef";
    assert_eq!(world.who(token).await, Err(401), "there is no secret");
    world.api.post(SECRETS, secret.clone()).await.created();
    let expected = json!({
        "username": "system:bootstrap:abcdef",
        "groups": ["system:bootstrappers", "system:bootstrappers:workers", "system:authenticated"],
    });
    assert_eq!(world.who(token).await, Ok(expected));
    assert_eq!(world.who("abcdef.0123456789abcdee").await, Err(401));
    world.api.clock.sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.who(token).await, Err(401), "it has expired");

    let world = World::new(extension(), |authenticator, _, _| authenticator).await;
    world.api.post(SECRETS, secret).await.created();
    assert_eq!(world.who(token).await, Err(401), "such tokens are not enabled");
}
