//! Abuse of HTTP/2: floods, and frames that violate the protocol.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::server::Server;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// `GET https://x/version`, compressed.
const HEADERS: &[u8] = b"\x82\x87\x04\x08/version\x41\x01x";

const DATA: u8 = 0;
pub(crate) const OPEN: u8 = 1;
const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub(crate) const WINDOW: u8 = 8;
const CONTINUATION: u8 = 9;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// What to send after the preface, each on a separate connection.
fn floods() -> Vec<(&'static str, Vec<u8>)> {
    let many = |count: u32, make: &dyn Fn(u32) -> Vec<u8>| (0..count).flat_map(make).collect::<Vec<u8>>();
    let reset =
        |at: u32| [frame(OPEN, 5, 2 * at + 1, HEADERS), frame(RESET, 0, 2 * at + 1, &[0, 0, 0, 8])].concat();
    let endless =
        [frame(OPEN, 1, 1, HEADERS), many(1000, &|_| frame(CONTINUATION, 0, 1, &[b'x'; 16000]))].concat();
    // One entry in the table, then repeated references to it.
    let entry =
        [b"\x82\x87\x84\x41\x01x\x40\x01a\x7f\xa1\x1e".as_slice(), &[b'b'; 4000], &[0xbe; 12000]].concat();
    vec![
        ("resets", many(20_000, &reset)),
        ("settings", many(20_000, &|_| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]))),
        ("pings", many(20_000, &|_| frame(PING, 0, 0, &[0; 8]))),
        ("empty data", many(20_000, &|_| frame(DATA, 0, 1, &[]))),
        ("endless headers", endless),
        ("headers that grow", frame(OPEN, 5, 1, &entry)),
        ("windows that overflow", many(4, &|_| frame(WINDOW, 0, 0, &[0x7f, 0xff, 0xff, 0xff]))),
        ("data on no stream", frame(DATA, 0, 0, b"x")),
        ("an even stream", frame(OPEN, 5, 2, HEADERS)),
        ("a frame too long", [&[0xff, 0xff, 0xff, 0, 0][..], &[0; 4], &[b'x'; 60_000]].concat()),
        ("settings of a wrong size", frame(SETTINGS, 0, 0, &[1, 2, 3])),
        ("all streams at once", many(2_000, &|at| frame(OPEN, 4, 2 * at + 1, HEADERS))),
    ]
}

async fn say(server: &'static Server, what: &'static str, frames: &[u8]) {
    let mut connection = server.connect_http2().await.expect("a connection");
    _ = connection.write_all(PREFACE).await;
    let saying = async {
        let (mut reading, mut writing) = tokio::io::split(connection);
        let write = async { _ = writing.write_all(frames).await };
        let read = async {
            let mut answer = vec![0; 64 << 10];
            while matches!(reading.read(&mut answer).await, Ok(length) if length > 0) {}
        };
        futures::join!(write, read);
    };
    // A well-formed connection may stay open. A flood must be answered or cut off by then.
    if tokio::time::timeout(Duration::from_secs(5), saying).await.is_err() {
        println!("after {what} the connection is still open");
    }
}

pub(crate) async fn malformed(server: &'static Server) {
    for (what, frames) in floods() {
        say(server, what, &frames).await;
    }
}
