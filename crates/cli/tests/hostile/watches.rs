//! Watches that never read.

use futures::{StreamExt, stream};
use http::Method;
use tokio::io::AsyncWriteExt;

use crate::server::{POLITE, Server, Tls};

const WATCHES: usize = 2000;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn watch(server: &'static Server) -> Option<Tls> {
    let head = format!("GET {MAPS}?watch=1 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {POLITE}\r\n\r\n");
    let mut connection = server.connect().await.ok()?;
    connection.write_all(head.as_bytes()).await.ok()?;
    Some(connection)
}

/// Four megabytes of events for each: eight gigabytes, if they were kept.
pub(crate) async fn never_read(server: &'static Server) {
    let opening = stream::iter(0..WATCHES).map(|_| watch(server)).buffer_unordered(16);
    let open: Vec<Tls> = opening.filter_map(|opened| async { opened }).collect().await;
    assert!(open.len() >= WATCHES * 9 / 10, "only {} watches were opened", open.len());
    let mut session = server.session().await;
    let data = "x".repeat(4 << 10);
    for at in 0..1024 {
        let map = format!("{{\"metadata\": {{\"name\": \"large-{at}\"}}, \"data\": {{\"a\": \"{data}\"}}}}");
        let (code, text) = session.send(Method::POST, MAPS, POLITE, map.into()).await;
        assert_eq!(code, 201, "{text}");
    }
}
