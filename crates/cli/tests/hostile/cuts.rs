//! A create that is cut off after each of its bytes.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::server::{POLITE, Server};

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn request(name: &str) -> Vec<u8> {
    let body =
        format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"type":"NodePort","ports":[{{"port":80}}]}}}}"#);
    format!(
        "POST {SERVICES} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {POLITE}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Sends the first bytes of a create and closes the connection, every other time without a TLS shutdown.
async fn cut(server: &'static Server, at: usize) {
    let mut connection = server.connect().await.expect("a connection");
    let whole = request(&format!("cut-{at:04}"));
    _ = connection.write_all(&whole[..at]).await;
    _ = connection.flush().await;
    if at.is_multiple_of(2) {
        _ = connection.shutdown().await;
        let mut answer = [0; 256];
        let ending = connection.read(&mut answer);
        _ = tokio::time::timeout(Duration::from_millis(20), ending).await;
    }
}

pub(crate) async fn every_byte(server: &'static Server) {
    let length = request("cut-0000").len();
    for at in 0..=length {
        cut(server, at).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (code, text) = server.session().await.get(SERVICES, POLITE).await;
    assert_eq!(code, 200, "{text}");
    let list: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let items = list["items"].as_array().expect("a list");
    let stored = items.iter().filter_map(|item| item["metadata"]["name"].as_str()?.strip_prefix("cut-"));
    let stored: Vec<usize> = stored.map(|at| at.parse().expect("a number")).collect();
    assert!(stored.iter().all(|at| *at == length), "only the complete request was executed: {stored:?}");
    let mut ports: Vec<u64> =
        items.iter().filter_map(|item| item["spec"]["ports"][0]["nodePort"].as_u64()).collect();
    let held = ports.len();
    ports.sort();
    ports.dedup();
    assert_eq!(ports.len(), held, "no port is allocated twice");
}
