//! Almost valid input: documents in every encoding, patches, selectors, managed fields, expressions, paths, queries,
//! continue tokens, signed tokens and certificates, mutated at random. The server responds to each with a Status or a
//! success, continues serving, and loses nothing.
//!
//! Every run is the same for the same seed. `SETPOINT_FUZZ_RUNS` and `SETPOINT_FUZZ_SEED` turn it into a long search
//! (`make fuzz`).

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::Method;
use serde_json::{Value, json};
use setpoint_apiserver::TokenSigner;
use setpoint_apiserver::tls::{Authority, user_of};
use setpoint_clock::Rng;

use crate::client::{Answer, Api};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// What to mutate, and how and where to send it.
struct Target {
    name: &'static str,
    method: Method,
    media: &'static str,
    path: &'static str,
    seeds: &'static [&'static str],
}

const TARGETS: [Target; 8] = [
    Target {
        name: "JSON",
        method: Method::POST,
        media: "application/json",
        path: PODS,
        seeds: &[
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"1500m"}},"ports":[{"containerPort":80}]}]}}"#,
            r#"{"metadata":{"generateName":"p-","creationTimestamp":null},"spec":{"terminationGracePeriodSeconds":-1e3,"tolerations":[{"operator":"Exists"}]}}"#,
        ],
    },
    Target {
        name: "YAML",
        method: Method::POST,
        media: "application/yaml",
        path: MAPS,
        seeds: &[
            "apiVersion: v1\nkind: ConfigMap\nmetadata: &m\n  name: c\n  labels: {a: b}\ndata:\n  key: |\n    text\n  other: >-\n    folded\n",
            "metadata: {name: d}\ndata: {a: \"\\u00e9\", b: 'it''s', c: !!str 1}\n---\nmore: 1\n",
        ],
    },
    Target {
        name: "JSON patch",
        method: Method::PATCH,
        media: "application/json-patch+json",
        path: "/api/v1/namespaces/default/configmaps/kept?dryRun=All",
        seeds: &[
            r#"[{"op":"test","path":"/data/k","value":"v"},{"op":"add","path":"/data/new","value":"1"},{"op":"remove","path":"/data/k"}]"#,
            r#"[{"op":"copy","from":"/data/k","path":"/data/a~1b"},{"op":"move","from":"/data/a~1b","path":"/metadata/labels/x"}]"#,
        ],
    },
    Target {
        name: "merge patch",
        method: Method::PATCH,
        media: "application/merge-patch+json",
        path: "/api/v1/namespaces/default/configmaps/kept?dryRun=All",
        seeds: &[r#"{"data":{"k":null,"new":"1"},"metadata":{"labels":{"a":"b"},"finalizers":["x.io/y"]}}"#],
    },
    Target {
        name: "strategic merge patch",
        method: Method::PATCH,
        media: "application/strategic-merge-patch+json",
        path: "/api/v1/namespaces/default/pods/kept?dryRun=All",
        seeds: &[
            r#"{"spec":{"containers":[{"name":"c","image":"j"},{"$patch":"delete","name":"d"}],"$setElementOrder/containers":[{"name":"c"}]}}"#,
            r#"{"metadata":{"$retainKeys":["name"],"$deleteFromPrimitiveList/finalizers":["a"],"labels":{"$patch":"replace","a":"b"}}}"#,
        ],
    },
    Target {
        name: "apply",
        method: Method::PATCH,
        media: "application/apply-patch+yaml",
        path: "/api/v1/namespaces/default/pods/kept?fieldManager=fuzz&force=true&dryRun=All",
        seeds: &[
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","env":[{"name":"E","value":"1"}]}]}}"#,
        ],
    },
    Target {
        name: "managed fields",
        method: Method::PUT,
        media: "application/json",
        path: "/api/v1/namespaces/default/configmaps/kept?dryRun=All",
        seeds: &[
            r#"{"metadata":{"name":"kept","managedFields":[{"manager":"m","operation":"Apply","apiVersion":"v1","time":"2025-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:k":{}},"f:metadata":{"f:finalizers":{"v:\"a\"":{}},"f:ownerReferences":{"k:{\"uid\":\"u\"}":{}}}}}]},"data":{"k":"v"}}"#,
        ],
    },
    Target {
        name: "delete options",
        method: Method::DELETE,
        media: "application/json",
        path: "/api/v1/namespaces/default/configmaps/none",
        seeds: &[
            r#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Orphan","preconditions":{"uid":"u"}}"#,
        ],
    },
];

const SELECTORS: &[&str] =
    &["a=b,c!=d", "a in (b, c),!d", "a notin (x),e", "a>1,b<2", "metadata.name=kept,metadata.namespace!=x"];

const RULES: &[&str] = &[
    "self.size >= 0 && self.names.all(n, n.matches('^[a-z]+$'))",
    "has(self.size) ? self.size in [1, 2, 3] : self.names.exists_one(n, n == \"x\" || n.startsWith('y'))",
    "size(self.names.map(n, n + '!').filter(n, n.size() < 10u)) == 3 - -1",
];

/// Words that have a meaning somewhere.
const WORDS: &[&str] = &[
    "null",
    "true",
    "{}",
    "[]",
    "\"\"",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "'",
    "\\",
    "-",
    "$patch",
    "f:",
    "k:{",
    "v:",
    "e9",
    "9223372036854775808",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "2147483648",
    "0x",
    "~1",
    "~",
    "/",
    "/-",
    "&a",
    "*a",
    "!!binary",
    "|",
    ">",
    "%00",
    "\u{0}",
    "\u{feff}",
    "\u{1f600}",
    " in ",
    "(",
    ")",
    "!",
    "==",
    "&&",
    "?",
    "self",
    "all(",
    "\n",
    "\t",
    "..",
    "1e400",
];

/// Applies a few random mutations to a seed.
fn bent(seeds: &[&str], rng: &Rng) -> Vec<u8> {
    let seeds: Vec<&[u8]> = seeds.iter().map(|seed| seed.as_bytes()).collect();
    bent_bytes(&seeds, rng)
}

fn bent_bytes(seeds: &[&[u8]], rng: &Rng) -> Vec<u8> {
    let pick = |from: &[&[u8]]| from[rng.below(from.len() as u64) as usize].to_vec();
    let words: Vec<&[u8]> = WORDS.iter().map(|word| word.as_bytes()).collect();
    let mut text = pick(seeds);
    for _ in 0..=rng.below(4) {
        let at = rng.below(text.len() as u64 + 1) as usize;
        let end = (at + rng.below(12) as usize).min(text.len());
        let replacement = match rng.below(5) {
            0 => Vec::new(),
            1 => vec![rng.below(256) as u8],
            2 => text[at..end].repeat(1 + rng.below(8) as usize),
            3 => pick(seeds),
            _ => pick(&words),
        };
        let end = if rng.below(2) == 0 { at } else { end };
        text.splice(at..end, replacement);
    }
    text
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn runs() -> u64 {
    number("SETPOINT_FUZZ_RUNS", 400)
}

fn rng() -> Rng {
    Rng::seeded(number("SETPOINT_FUZZ_SEED", 1))
}

/// Starts a server with some objects.
async fn start() -> Api {
    let api = Api::start().await;
    api.default_service_account().await;
    api.config_map("kept", json!({})).await;
    let containers = json!([{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]);
    api.post(PODS, json!({"metadata": {"name": "kept"}, "spec": {"containers": containers}})).await.created();
    api
}

/// Checks for a success or a Status. v1.34 has some that blame the server (500).
fn check(name: &str, input: &[u8], answer: &Answer) {
    let is_refusal = answer.code >= 400 && answer.body["kind"] == "Status";
    let input = String::from_utf8_lossy(input);
    assert!(answer.code < 300 || is_refusal, "{name}: {} {} for {input:?}", answer.code, answer.text);
}

#[tokio::test(start_paused = true)]
async fn malformed_bodies_get_a_response_and_lose_nothing() {
    let (api, rng) = (start().await, rng());
    let kept = |answer: Value| answer["metadata"]["resourceVersion"].clone();
    let before = kept(api.get(&format!("{MAPS}/kept")).await.ok());
    for target in TARGETS {
        for _ in 0..runs() {
            let body = bent(target.seeds, &rng);
            let headers = [("content-type", target.media)];
            let answer = api.ask(target.method.clone(), target.path, &headers, body.clone()).await;
            check(target.name, &body, &answer);
        }
    }
    assert_eq!(kept(api.get(&format!("{MAPS}/kept")).await.ok()), before, "a dry run writes nothing");
    for path in [MAPS, PODS] {
        api.get(path).await.ok();
    }
}

#[tokio::test(start_paused = true)]
async fn malformed_selectors_get_a_response() {
    let (api, rng) = (start().await, rng());
    for _ in 0..runs() {
        let bent = bent(SELECTORS, &rng);
        let escaped: String = bent.iter().map(|byte| format!("%{byte:02X}")).collect();
        for parameter in ["labelSelector", "fieldSelector"] {
            let answer = api.get(&format!("{MAPS}?{parameter}={escaped}")).await;
            check(parameter, &bent, &answer);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn malformed_rules_get_a_response() {
    let (api, rng) = (start().await, rng());
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
    for _ in 0..runs() {
        let rule = bent(RULES, &rng);
        let spec = json!({"type": "object", "x-kubernetes-validations": [{"rule": String::from_utf8_lossy(&rule)}],
            "properties": {"size": {"type": "integer"}, "names": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 9}}}});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
        let definition = json!({"metadata": {"name": "things.example.com"}, "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
        check("rule", &rule, &api.post(definitions, definition).await);
    }
}

/// Returns an existing object in protobuf.
async fn in_protobuf(api: &Api, path: &str) -> Vec<u8> {
    let accept = [("accept", PROTOBUF)];
    api.send(Method::GET, path, &accept, "").await.into_body().collect().await.to_vec()
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[tokio::test(start_paused = true)]
async fn malformed_protobuf_gets_a_response() {
    let (api, rng) = (start().await, rng());
    let seeds = [
        (PODS, in_protobuf(&api, &format!("{PODS}/kept")).await),
        (MAPS, in_protobuf(&api, &format!("{MAPS}/kept")).await),
        ("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", in_protobuf(&api, FLOWS).await),
    ];
    for (path, seed) in &seeds {
        for _ in 0..runs() {
            let body = bent_bytes(&[seed], &rng);
            let headers = [("content-type", PROTOBUF)];
            let dry = format!("{path}?dryRun=All");
            check("protobuf", &body, &api.ask(Method::POST, &dry, &headers, body.clone()).await);
        }
    }
}

const FLOWS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/exempt";

const TOKENS: &[&str] = &[
    r#"{"v":"meta.k8s.io/v1","rv":5,"start":"kept\u0000"}"#,
    r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"default/kept","before":1}"#,
    r#"{"v":"v2","rv":9223372036854775807,"start":"../x"}"#,
];

#[tokio::test(start_paused = true)]
async fn malformed_continue_tokens_get_a_response() {
    let (api, rng) = (start().await, rng());
    for _ in 0..runs() {
        let token = bent(TOKENS, &rng);
        let encoded = URL_SAFE_NO_PAD.encode(&token);
        let limit = rng.below(3);
        let answer = api.get(&format!("{MAPS}?limit={limit}&continue={encoded}")).await;
        check("continue token", &token, &answer);
    }
}

const QUERIES: &[&str] = &[
    "watch=1&timeoutSeconds=1&resourceVersion=5&allowWatchBookmarks=true",
    "watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    "limit=1&resourceVersion=0&resourceVersionMatch=Exact",
    "labelSelector=a%3Db&fieldSelector=metadata.name%3Da&pretty=1&timeout=5s",
    "tailLines=1&sinceSeconds=2&limitBytes=3&sinceTime=2025-01-01T00:00:00Z&container=c",
];

const PATHS: &[&str] = &[
    "/api/v1/namespaces/default/configmaps/kept",
    "/api/v1/watch/namespaces/default/configmaps",
    "/api/v1/namespaces/default/pods/kept/log",
    "/apis/apps/v1/namespaces/default/deployments/none/scale",
    "/api/v1/nodes/n:80/proxy/a/b",
    "/openapi/v3/apis/apps/v1",
    "/livez/etcd",
];

/// Builds a URI, escaping characters that are not allowed.
fn address(path: &[u8], query: &[u8]) -> String {
    let escaped = |bytes: &[u8], kept: &[u8]| -> String {
        let letter = |byte: &u8| match byte.is_ascii_alphanumeric() || kept.contains(byte) {
            true => char::from(*byte).to_string(),
            false => format!("%{byte:02X}"),
        };
        bytes.iter().map(letter).collect()
    };
    format!("/{}?{}", escaped(path, b"/.%:-_~"), escaped(query, b"=&%+.;-_"))
}

#[tokio::test(start_paused = true)]
async fn malformed_addresses_get_a_response() {
    let (api, rng) = (start().await, rng());
    for _ in 0..runs() {
        let address = address(&bent(PATHS, &rng), &bent(QUERIES, &rng));
        let method = [Method::GET, Method::POST, Method::HEAD, Method::DELETE][rng.below(4) as usize].clone();
        let answer = api.ask(method, &format!("{address}&dryRun=All&timeoutSeconds=1"), &[], "").await;
        assert!((200..600).contains(&answer.code), "{address}: {}", answer.code);
    }
    api.get(&format!("{MAPS}/kept")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn tampered_tokens_are_rejected() {
    let signer = TokenSigner::from_pem(&TokenSigner::generate_key().unwrap()).unwrap();
    let (api, rng) = (Api::start_with_tokens(signer).await, rng());
    api.default_service_account().await;
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let made = api.post(path, json!({"spec": {"audiences": []}})).await.created();
    let token = made["status"]["token"].as_str().unwrap();
    let parts: Vec<Vec<u8>> = token.split('.').map(|part| URL_SAFE_NO_PAD.decode(part).unwrap()).collect();
    let review = async |token: &str| {
        let review = json!({"spec": {"token": token}});
        let answer = api.post("/apis/authentication.k8s.io/v1/tokenreviews", review).await;
        check("token", token.as_bytes(), &answer);
        answer.body["status"]["authenticated"] == true
    };
    assert!(review(token).await);
    for _ in 0..runs() / 4 {
        // Mutate either the text of the token, or one of its decoded parts.
        let at = rng.below(4);
        let bent = match at {
            3 => String::from_utf8_lossy(&bent_bytes(&[token.as_bytes()], &rng)).into_owned(),
            at => {
                let mut parts = parts.clone();
                let part = &mut parts[at as usize];
                *part = bent_bytes(&[part], &rng);
                parts.iter().map(|part| URL_SAFE_NO_PAD.encode(part)).collect::<Vec<_>>().join(".")
            }
        };
        // Two texts can encode the same bytes. Other bytes are never validly signed.
        let is_known = review(&bent).await;
        assert!(at == 3 || bent == token || !is_known, "{bent}");
    }
}

#[test]
fn malformed_certificates_are_read_or_rejected() {
    let authority = Authority::generate("2025-01-01T00:00:00Z".parse().unwrap()).unwrap();
    let now = "2025-01-01T00:00:00Z".parse().unwrap();
    let identity = authority.client_certificate("jane", &["dev", "ops"], now).unwrap();
    let lines = identity.certificate.lines().filter(|line| !line.starts_with("-----"));
    let der = STANDARD.decode(lines.collect::<String>()).unwrap();
    let rng = rng();
    assert_eq!(user_of(&der.clone().into()).unwrap().name, "jane");
    for _ in 0..runs() {
        let user = user_of(&bent_bytes(&[&der], &rng).into());
        assert!(user.is_none_or(|user| !user.name.is_empty()));
    }
}
