//! Requests that are proxied to nodes, pods and Services, which a kubelet in this process answers for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use setpoint_apiserver::egress::EgressConfig;
use setpoint_apiserver::egress::in_process::InProcess;
use setpoint_apiserver::{Config, KubeletConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::client::Api;
use crate::fake_kubelet::{FakeKubelet, NODE, PODS, streaming, switched, switching, text};

const NODES: &str = "/api/v1/nodes";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const POD_IP: &str = "192.0.2.20";

/// Answers with the method, the target and the size of the body.
fn mirror() -> FakeKubelet {
    FakeKubelet::new(|request| async {
        let (head, body) = request.into_parts();
        let size = body.collect().await.unwrap().to_bytes().len();
        let mut answer = text(200, "text/plain", format!("{} {} {size}", head.method, head.uri));
        answer.headers_mut().insert("access-control-allow-origin", "*".parse().unwrap());
        answer.headers_mut().insert("x-own", "kept".parse().unwrap());
        answer
    })
}

async fn pod_has_address(api: &Api, ip: &str) {
    let status = json!({"status": {"podIP": ip, "podIPs": [{"ip": ip}]}});
    api.merge(&format!("{PODS}/a/status"), status).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_request_reaches_the_named_port() {
    let node = mirror();
    let api = node.start().await;
    pod_has_address(&api, POD_IP).await;
    for (path, dialed) in [
        (format!("{NODES}/n/proxy/x"), format!("{NODE}:10250")),
        (format!("{NODES}/n:9100/proxy/x"), format!("{NODE}:9100")),
        (format!("{NODES}/https:n:443/proxy/x"), format!("{NODE}:443")),
        (format!("{PODS}/a/proxy/x"), format!("{POD_IP}:80")),
        (format!("{PODS}/https:a:/proxy/x"), format!("{POD_IP}:443")),
        (format!("{PODS}/a:8080/proxy/x"), format!("{POD_IP}:8080")),
    ] {
        let answer = api.get(&path).await;
        assert_eq!((answer.code, &*answer.text), (200, "GET /x 0"), "{path}");
        assert_eq!(node.take_dialed(), [dialed], "{path}");
    }
    for (path, code) in [("none/proxy/x", 404), ("ftp:n:1/proxy/x", 400), ("a:b:c:d/proxy/x", 400)] {
        assert_eq!(api.get(&format!("{NODES}/{path}")).await.code, code, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_port_cannot_lead_to_another_host() {
    let node = mirror();
    let api = node.start().await;
    pod_has_address(&api, POD_IP).await;
    for (base, host) in [(format!("{NODES}/n"), NODE), (format!("{PODS}/a"), POD_IP)] {
        for (port, why) in [
            ("80@intranet.example", format!("lookup {host}:80@intranet.example: no such host")),
            ("80%40intranet.example", format!("lookup {host}:80@intranet.example: no such host")),
            ("http", format!("lookup {host}:http: no such host")),
            ("99999", "address 99999: invalid port".to_owned()),
        ] {
            let refused = api.get(&format!("{base}:{port}/proxy/x")).await;
            let message = format!("error trying to reach service: dial tcp: {why}");
            assert_eq!(refused.refusal(), (503, "ServiceUnavailable", &*message), "{base}:{port}");
        }
    }
    assert_eq!(node.take_dialed(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_unrequested_upgrade_is_not_forwarded() {
    let kubelet = FakeKubelet::new(|_| async {
        let mut answer = text(101, "text/plain", "");
        answer.headers_mut().insert("connection", "Upgrade".parse().unwrap());
        answer.headers_mut().insert("upgrade", "chat".parse().unwrap());
        answer
    });
    let api = kubelet.start().await;
    let refused = api.get(&format!("{NODES}/n/proxy/x")).await;
    let why = "backend tried to switch protocol \"chat\" when \"\" was requested";
    assert_eq!((refused.code, refused.refusal().2), (500, why));
}

#[tokio::test(start_paused = true)]
async fn a_request_for_another_protocol_announces_no_body() {
    let kubelet = FakeKubelet::new(|request| async { switching(request, |_| async {}) });
    let api = kubelet.start().await;
    let headers = [("connection", "upgrade"), ("upgrade", "chat"), ("content-length", "4")];
    let response = api.send(Method::POST, &format!("{NODES}/n/proxy/talk"), &headers, "body").await;
    assert_eq!(response.status(), 101);
    let head = kubelet.take_heads().remove(0);
    assert!(head.headers.get("content-length").is_none_or(|length| length == "0"), "{:?}", head.headers);
}

#[tokio::test(start_paused = true)]
async fn methods_paths_queries_and_headers_pass() {
    let kubelet = mirror();
    let api = kubelet.start().await;
    let base = format!("{NODES}/n/proxy");
    for (method, path, expected) in [
        (Method::GET, "/a/b?x=1&y=%20z&x=2", "GET /a/b?x=1&y=%20z&x=2 0"),
        (Method::GET, "/a//b/../c/", "GET /a/c/ 0"),
        (Method::GET, "/a%20b%2Fc", "GET /a%20b/c 0"),
        (Method::GET, "/", "GET / 0"),
        (Method::POST, "/", "POST / 4"),
        (Method::PUT, "/x", "PUT /x 4"),
        (Method::PATCH, "/x", "PATCH /x 4"),
        (Method::DELETE, "/x", "DELETE /x 4"),
        (Method::OPTIONS, "/x", "OPTIONS /x 4"),
    ] {
        let body = if method == Method::GET { "" } else { "body" };
        let answer = api.ask(method, &format!("{base}{path}"), &[], body).await;
        assert_eq!((answer.code, &*answer.text), (200, expected), "{path}");
    }
    assert_eq!(api.ask(Method::HEAD, &format!("{base}/x"), &[], "").await.code, 200);
    kubelet.take_heads();
    let headers = [
        ("authorization", "Bearer secret"),
        ("cookie", "a=b"),
        ("x-custom", "y"),
        ("connection", "close, x-hop"),
        ("x-hop", "1"),
        ("host", "api.example"),
        ("accept", "application/json"),
    ];
    let answer = api.send(Method::GET, &format!("{base}/a/?q"), &headers, "").await;
    assert!(!answer.headers().contains_key("access-control-allow-origin"));
    assert_eq!(
        (&answer.headers()["x-own"], &answer.headers()["cache-control"]),
        (&"kept".parse().unwrap(), &"no-cache, private".parse().unwrap())
    );
    let head = kubelet.take_heads().remove(0);
    let mut names: Vec<&str> = head.headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["accept", "cookie", "host", "x-custom", "x-forwarded-uri"]);
    assert_eq!(head.headers["x-forwarded-uri"], "/api/v1/nodes/n/proxy/a/");
    assert_eq!(head.headers["host"], "api.example");
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_path_is_sent_to_the_root() {
    let kubelet = mirror();
    let api = kubelet.start().await;
    let response = api.send(Method::GET, &format!("{NODES}/n/proxy?a=b"), &[], "").await;
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    assert_eq!((response.status().as_u16(), &*location), (301, "/api/v1/nodes/n/proxy/?a=b"));
    let posted = api.ask(Method::POST, &format!("{NODES}/n/proxy?a=b"), &[], "x").await;
    assert_eq!(posted.text, "POST /?a=b 1");
}

#[tokio::test(start_paused = true)]
async fn bodies_of_any_size_pass_while_they_arrive() {
    let (pieces, source) = mpsc::channel(1);
    let source = parking_lot::Mutex::new(Some(source));
    let kubelet = FakeKubelet::new(move |request| {
        let source = source.lock().take();
        async move {
            match source {
                Some(source) => streaming(source),
                None => {
                    let size = request.into_body().collect().await.unwrap().to_bytes().len();
                    text(200, "text/plain", size.to_string())
                }
            }
        }
    });
    let api = kubelet.start().await;
    let response = api.send(Method::GET, &format!("{NODES}/n/proxy/stream"), &[], "").await;
    let mut body = response.into_body().into_stream();
    for piece in ["one", "two"] {
        pieces.send(Ok(Bytes::from(piece))).await.unwrap();
        assert_eq!(body.next().await.unwrap(), piece);
    }
    drop(pieces);
    assert_eq!(body.next().await, None);
    let size = 5 << 20;
    let uploaded = api.ask(Method::POST, &format!("{NODES}/n/proxy/up"), &[], vec![b'x'; size]).await;
    assert_eq!(uploaded.text, size.to_string(), "the limit for objects does not apply");
}

#[tokio::test(start_paused = true)]
async fn links_and_redirects_lead_through_the_proxy() {
    let kubelet = FakeKubelet::new(|request| async move {
        match request.uri().path() {
            "/page" => text(200, "text/html; charset=utf-8", "<A HREF='/x'>l</A><img src=relative>"),
            "/text" => text(200, "text/plain", "<a href=\"/x\">"),
            path => {
                let mut response = text(302, "text/html", "<a href=\"/x\">");
                let location = format!("{}?a=b", path.trim_end_matches("/redirect"));
                let location = if location.starts_with('?') { "/elsewhere".to_owned() } else { location };
                response.headers_mut().insert("location", location.parse().unwrap());
                response
            }
        }
    });
    let api = kubelet.start().await;
    let base = format!("{NODES}/n/proxy");
    let page = api.get(&format!("{base}/page")).await;
    assert_eq!(page.text, format!("<a href=\"{base}/x\">l</A><img src=\"relative\">"));
    assert_eq!(page.content_type, "text/html; charset=utf-8");
    assert_eq!(api.get(&format!("{base}/text")).await.text, "<a href=\"/x\">");
    let redirected = api.send(Method::GET, &format!("{base}/redirect"), &[], "").await;
    assert_eq!(
        (redirected.status().as_u16(), &redirected.headers()["location"]),
        (302, &format!("{base}/elsewhere").parse().unwrap())
    );
    let body = redirected.into_body().collect().await;
    assert_eq!(body, "<a href=\"/x\">", "as in v1.34, the page of a redirect is left alone");
    let deep = api.send(Method::GET, &format!("{base}/a/redirect"), &[], "").await;
    assert_eq!(deep.headers()["location"], format!("{base}/a?a=b"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_reached_is_unavailable() {
    let kubelet = FakeKubelet::new(|_| async { panic!("the node dies") });
    let api = kubelet.start().await;
    let dead = api.get(&format!("{NODES}/n/proxy/x")).await;
    assert_eq!(dead.refusal(), (503, "ServiceUnavailable", "error trying to reach service: EOF"));
    kubelet.refuses.store(true, Ordering::SeqCst);
    let refused = api.get(&format!("{NODES}/n:80/proxy/x")).await;
    let why = format!("error trying to reach service: dial tcp {NODE}:80: connect: connection refused");
    assert_eq!(refused.refusal(), (503, "ServiceUnavailable", &*why));
    kubelet.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_response_that_breaks_off_never_looks_complete() {
    let (pieces, source) = mpsc::channel(1);
    let source = parking_lot::Mutex::new(Some(source));
    let kubelet = FakeKubelet::new(move |_| {
        let source = source.lock().take().expect("asked once");
        async { streaming(source) }
    });
    let api = kubelet.start().await;
    pieces.send(Ok(Bytes::from_static(b"half"))).await.unwrap();
    let response = api.send(Method::GET, &format!("{NODES}/n/proxy/x"), &[], "").await;
    let mut body = response.into_body();
    let first = http_body_util::BodyExt::frame(&mut body).await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "half");
    pieces.send(Err(std::io::Error::other("broken"))).await.unwrap();
    assert!(http_body_util::BodyExt::frame(&mut body).await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_ends_the_proxied_request() {
    let kubelet = FakeKubelet::new(|_| std::future::pending());
    let api = kubelet.start().await;
    for method in [Method::GET, Method::POST] {
        let path = format!("{NODES}/n/proxy/x");
        let asking = api.ask(method, &path, &[], "x");
        assert!(tokio::time::timeout(Duration::from_secs(60), asking).await.is_err());
        kubelet.closed().await;
    }
}

#[tokio::test(start_paused = true)]
async fn another_protocol_passes_and_its_query_does_not() {
    let kubelet = FakeKubelet::new(|request| async {
        switching(request, |mut io| async move {
            let mut hello = [0; 5];
            io.read_exact(&mut hello).await.unwrap();
            io.write_all(&hello).await.unwrap();
        })
    });
    let api = kubelet.start().await;
    pod_has_address(&api, POD_IP).await;
    for base in [format!("{NODES}/n/proxy"), format!("{PODS}/a:80/proxy")] {
        let headers = [("connection", "upgrade"), ("upgrade", "chat")];
        let response = api.send(Method::GET, &format!("{base}/talk?a=b"), &headers, "").await;
        assert_eq!(response.headers()["upgrade"], "chat");
        let mut io = switched(&response);
        io.write_all(b"hello").await.unwrap();
        let mut hello = String::new();
        io.read_to_string(&mut hello).await.unwrap();
        assert_eq!(hello, "hello");
        assert_eq!(kubelet.take_target(), "/talk");
        kubelet.closed().await;
    }
}

#[tokio::test(start_paused = true)]
async fn only_ordinary_addresses_are_proxied_to() {
    // Hosts that are not part of this process are looked up.
    #[derive(Clone)]
    struct Network(InProcess);
    impl setpoint_webhook::Dial for Network {
        fn dial(
            &self,
            host: String,
            port: u16,
        ) -> futures::future::BoxFuture<'static, std::io::Result<setpoint_webhook::Dialed>> {
            setpoint_webhook::Dial::dial(&self.0, host, port)
        }
    }
    let egress = EgressConfig { dial: Arc::new(Network(InProcess::default())), ..EgressConfig::default() };
    let kubelet = mirror();
    let api = kubelet.start_changed(|config| Config { egress, ..config }).await;
    for (address, code) in [
        ("127.0.0.1", 400),
        ("169.254.169.254", 400),
        ("::1", 400),
        ("0.0.0.0", 400),
        ("192.0.2.1", 503),
        ("fd00::1", 503),
    ] {
        let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
        api.merge("/api/v1/nodes/n/status", status).await.ok();
        assert_eq!(api.get(&format!("{NODES}/n/proxy/x")).await.code, code, "node {address}");
        pod_has_address(&api, address).await;
        let pod = api.get(&format!("{PODS}/a:80/proxy/x")).await;
        assert_eq!(pod.code, code, "pod {address}: {}", pod.text);
    }
}

/// A Service with a port `web`, and Endpoints with these addresses.
async fn service(api: &Api, addresses: Value) {
    let spec =
        json!({"ports": [{"name": "web", "port": 80, "targetPort": 8080}, {"name": "other", "port": 81}]});
    api.post(SERVICES, json!({"metadata": {"name": "s"}, "spec": spec})).await.created();
    let subset = json!({"addresses": addresses, "ports": [{"name": "web", "port": 8080}]});
    let endpoints = json!({"metadata": {"name": "s"}, "subsets": [subset]});
    api.post("/api/v1/namespaces/default/endpoints", endpoints).await.created();
}

#[tokio::test(start_paused = true)]
async fn a_service_is_proxied_to_a_pod_among_its_endpoints() {
    let kubelet = mirror();
    let api = kubelet.start().await;
    pod_has_address(&api, POD_IP).await;
    let address = |ip: &str, name: &str, namespace: &str| json!({"ip": ip, "targetRef": {"kind": "Pod", "name": name, "namespace": namespace}});
    let addresses = json!([
        {"ip": "192.0.2.66"},
        address("192.0.2.67", "a", "default"),
        address(POD_IP, "none", "default"),
        address("192.0.2.68", "a", "other"),
        address(POD_IP, "a", "default"),
    ]);
    service(&api, addresses).await;
    for id in ["s:web", "s:80", "https:s:web", "http:s:80"] {
        for _ in 0..4 {
            let answer = api.get(&format!("{SERVICES}/{id}/proxy/x?y")).await;
            assert_eq!((answer.code, &*answer.text), (200, "GET /x?y 0"), "{id}");
        }
    }
    assert!(kubelet.take_dialed().iter().all(|dialed| dialed == &format!("{POD_IP}:8080")));
    for (id, code, message) in [
        ("s", 503, "no endpoints available for service \"s\""),
        ("s:81", 503, "no endpoints available for service \"s:81\""),
        ("s:82", 503, "no service port 82 found for service \"s\""),
        ("none:80", 404, "services \"none\" not found"),
        ("none", 404, "services \"none\" not found"),
        ("a:b:c:d", 400, "invalid service request \"a:b:c:d\""),
    ] {
        let refused = api.get(&format!("{SERVICES}/{id}/proxy/x")).await;
        assert_eq!((refused.code, refused.refusal().2), (code, message), "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_requests_for_a_kubelet_take_the_way_to_kubelets() {
    let kubelet = mirror();
    let kubelets = KubeletConfig { dial: Some(Arc::new(kubelet.clone())), ..KubeletConfig::default() };
    let egress = EgressConfig { dial: Arc::new(InProcess::default()), ..EgressConfig::default() };
    let api = kubelet.start_changed(|config| Config { egress, kubelets, ..config }).await;
    // A pod on the host network has the address of its node.
    pod_has_address(&api, NODE).await;
    for path in [format!("{PODS}/a/log"), format!("{NODES}/n/proxy/x")] {
        assert_eq!(api.get(&path).await.code, 200, "{path}");
    }
    for path in [format!("{PODS}/https:a:10250/proxy/x"), format!("{NODES}/n:9100/proxy/x")] {
        assert_eq!(api.get(&path).await.code, 503, "{path}");
    }
    assert_eq!(kubelet.take_dialed().len(), 1, "the connection is shared");
}
