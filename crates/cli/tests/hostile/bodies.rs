//! Bodies that are too large, too deep, or expand when decoded.

use bytes::Bytes;
use http::Method;

use crate::server::{POLITE, Server};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn nested(open: &str, close: &str, depth: usize) -> String {
    format!("{}{}", open.repeat(depth), close.repeat(depth))
}

/// Ten levels of ten aliases each.
fn alias_bomb() -> String {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: bomb}}\n{text}")
}

/// A protobuf envelope around bytes that declare more data than they contain.
fn protobuf(inside: &[u8]) -> Vec<u8> {
    [b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12".as_slice(), inside].concat()
}

fn bodies() -> Vec<(&'static str, Bytes)> {
    const JSON: &str = "application/json";
    const YAML: &str = "application/yaml";
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let text = |media: &'static str, body: String| (media, Bytes::from(body));
    let deep_message = (0..200_000).fold(Vec::new(), |mut all, _| {
        all.extend([0x0a, 0xff, 0xff, 0xff, 0x7f]);
        all
    });
    vec![
        text(JSON, "x".repeat(4 << 20)),
        text(
            JSON,
            format!("{{\"metadata\":{{\"name\":\"a\"}},\"data\":{{\"a\":\"{}\"}}}}", "x".repeat(2 << 20)),
        ),
        text(JSON, nested("[", "]", 500_000)),
        text(JSON, nested("{\"a\":", "}", 300_000)),
        text(JSON, format!("{{\"metadata\":{{\"name\":\"a\"}},\"data\":{}", nested("{\"a\":", "", 400_000))),
        text(YAML, alias_bomb()),
        text(YAML, nested("[", "]", 500_000)),
        text(YAML, nested("{a: ", "}", 300_000)),
        text(YAML, "- ".repeat(1_000_000)),
        (PROTOBUF, protobuf(&[0xff; 1 << 20]).into()),
        (PROTOBUF, protobuf(&deep_message).into()),
        (PROTOBUF, protobuf(b"\xff\xff\xff\xff\x0f").into()),
    ]
}

/// A list whose objects take a hundred times as much memory when decoded: 70 MB.
fn many_objects() -> Bytes {
    let objects = vec![r#"{"":0}"#; 100_000].join(",");
    format!("{{\"metadata\":{{\"name\":\"a\"}},\"data\":[{objects}]}}").into()
}

/// Sends them all at once: 1.7 GB if they were decoded concurrently.
async fn many_at_once(server: &'static Server) {
    let body = many_objects();
    let sending = (0..24).map(|_| async {
        let mut session = server.session().await;
        let (code, text) = session.send(Method::POST, MAPS, POLITE, body.clone()).await;
        assert!((400..500).contains(&code), "{code}: {text:.200}");
    });
    futures::future::join_all(sending).await;
}

pub(crate) async fn blow_up(server: &'static Server) {
    many_at_once(server).await;
    for (media_type, body) in bodies() {
        for method in [Method::POST, Method::PUT] {
            let path = if method == Method::PUT { format!("{MAPS}/a") } else { MAPS.to_owned() };
            let mut session = server.session().await;
            // The server may close the connection while a body that is too large is still being sent.
            let answer = session.send_as(method, &path, POLITE, media_type, body.clone()).await;
            if let Some((code, text)) = answer {
                assert!((400..500).contains(&code), "{media_type}: {code}: {:.200}", text);
            }
        }
    }
}
