//! Watches that never read: on HTTP/1.1, and on HTTP/2 with the largest possible windows.

use futures::{StreamExt, stream};
use http::Method;
use tokio::io::AsyncWriteExt;

use crate::frames::{OPEN, SETTINGS, WINDOW, frame};
use crate::server::{POLITE, Server, Tls};

const WATCHES: usize = 2000;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Opens a watch, every other one on HTTP/2.
async fn watch(server: &'static Server, at: usize) -> Option<Tls> {
    let (mut connection, head) = match at % 2 {
        0 => (server.connect().await.ok()?, http1_request()),
        _ => (server.connect_http2().await.ok()?, http2_request()),
    };
    connection.write_all(&head).await.ok()?;
    Some(connection)
}

fn http1_request() -> Vec<u8> {
    format!("GET {MAPS}?watch=1 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {POLITE}\r\n\r\n").into()
}

/// A request with windows of 2 GiB for the stream and the connection: only the socket holds the server back.
fn http2_request() -> Vec<u8> {
    const INITIAL_WINDOW: [u8; 6] = [0, 4, 0x7f, 0xff, 0xff, 0xff];
    let (path, token) = (format!("{MAPS}?watch=1"), format!("Bearer {POLITE}"));
    let mut headers = b"\x82\x87\x41\x01x\x04".to_vec();
    headers.push(path.len() as u8);
    headers.extend_from_slice(path.as_bytes());
    // Field 23 of the static table: authorization.
    headers.extend([0x0f, 0x08, token.len() as u8]);
    headers.extend_from_slice(token.as_bytes());
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &INITIAL_WINDOW),
        frame(WINDOW, 0, 0, &(0x7fff_ffff_u32 - 0xffff).to_be_bytes()),
        frame(OPEN, 5, 1, &headers),
    ]
    .concat()
}

/// Four megabytes of events for each watch, short and long ones: eight gigabytes if they were buffered.
pub(crate) async fn never_read(server: &'static Server) {
    let opening = stream::iter(0..WATCHES).map(|at| watch(server, at)).buffer_unordered(16);
    let open: Vec<Tls> = opening.filter_map(|opened| async { opened }).collect().await;
    assert!(open.len() >= WATCHES * 9 / 10, "only {} watches were opened", open.len());
    let before = server.resident_mib();
    make_events(server, "short", 1024, 1 << 10).await;
    make_events(server, "medium", 256, 4 << 10).await;
    make_events(server, "long", 32, 64 << 10).await;
    println!("{before} MiB with {} watches", open.len());
}

async fn make_events(server: &'static Server, name: &str, count: usize, length: usize) {
    let mut session = server.session().await;
    let data = "x".repeat(length);
    for at in 0..count {
        let map = format!("{{\"metadata\": {{\"name\": \"{name}-{at}\"}}, \"data\": {{\"a\": \"{data}\"}}}}");
        let (code, text) = session.send(Method::POST, MAPS, POLITE, map.into()).await;
        assert_eq!(code, 201, "{text}");
    }
}
