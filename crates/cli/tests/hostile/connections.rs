//! Connections that send little, nothing, or nonsense.

use std::time::Duration;

use futures::{StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::{MALLORY, POLITE, Server, Tls};

/// Concurrent handshakes, limited so that the attacker does not get more of this machine than the server.
const AT_ONCE: usize = 16;

/// Opens this many connections, or as many as the server accepts.
async fn open(server: &'static Server, count: usize) -> Vec<Tls> {
    let opening = stream::iter(0..count).map(|_| server.connect()).buffer_unordered(AT_ONCE);
    opening.filter_map(|opened| async { opened.ok() }).collect().await
}

/// Sends one byte at a time. Returns how many connections the server has closed at the end.
async fn trickle(connections: Vec<Tls>, text: &'static [u8], seconds: usize) -> usize {
    let trickling = connections.into_iter().map(|mut connection| async move {
        for at in 0..seconds {
            let byte = &text[at % text.len()..=at % text.len()];
            if connection.write_all(byte).await.is_err() || connection.flush().await.is_err() {
                return true;
            }
            let mut answer = [0; 1024];
            let answer = connection.read(&mut answer);
            if let Ok(Ok(0) | Err(_)) = tokio::time::timeout(Duration::from_secs(1), answer).await {
                return true;
            }
        }
        false
    });
    futures::future::join_all(trickling).await.into_iter().filter(|closed| *closed).count()
}

/// Runs the attacks concurrently, because slow ones take a while.
pub(crate) async fn all_at_once(server: &'static Server) {
    let others = async {
        random_bytes(server).await;
        idle(server).await;
    };
    futures::join!(slow_headers(server), slow_bodies(server), others);
}

async fn slow_headers(server: &'static Server) {
    let mut connections = open(server, 300).await;
    for connection in &mut connections {
        _ = connection.write_all(b"GET /version HTTP/1.1\r\nhost: x\r\nx-slow: ").await;
    }
    let count = connections.len();
    let closed = trickle(connections, b"abcdefgh", 45).await;
    assert_eq!(closed, count, "slow headers time out");
}

/// The start of a create with a large body.
fn create(token: &str, query: &str) -> String {
    format!(
        "POST /api/v1/namespaces/default/configmaps{query} HTTP/1.1\r\nhost: x\r\n\
         authorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: 3000000\r\n\r\n"
    )
}

/// A body from a client without permission is not even read. From a client with permission, it is read until the
/// deadline.
async fn slow_bodies(server: &'static Server) {
    let mut connections = open(server, 300).await;
    let heads = [create(MALLORY, ""), create(POLITE, "?timeout=5s")];
    for (connection, head) in connections.iter_mut().zip(heads.iter().cycle()) {
        _ = connection.write_all(head.as_bytes()).await;
    }
    let count = connections.len();
    let closed = trickle(connections, b"{ ", 40).await;
    assert_eq!(closed, count, "slow bodies time out");
}

async fn idle(server: &'static Server) {
    let connections = open(server, 5000).await;
    // New clients are served in the meantime: the well-behaved client reconnects regularly.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(connections.len() >= 4000, "only {} connections were accepted", connections.len());
}

/// Generates pseudo-random bytes from a seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

async fn random_bytes(server: &'static Server) {
    let plain = stream::iter(0..200).for_each_concurrent(AT_ONCE, |seed| async move {
        let Ok(mut connection) = TcpStream::connect(server.address()).await else { return };
        _ = connection.write_all(&noise(seed, 4096)).await;
        let mut answer = [0; 16];
        let answer = connection.read(&mut answer);
        _ = tokio::time::timeout(Duration::from_secs(2), answer).await;
    });
    let encrypted = stream::iter(0..200).for_each_concurrent(AT_ONCE, |seed| async move {
        let opened = if seed % 2 == 0 { server.connect().await } else { server.connect_http2().await };
        let Ok(mut connection) = opened else { return };
        _ = connection.write_all(&noise(seed, 4096)).await;
        let mut answer = [0; 64];
        let read = tokio::time::timeout(Duration::from_secs(2), connection.read(&mut answer)).await;
        if let Ok(Ok(length)) = read {
            assert!(!answer[..length].windows(4).any(|bytes| bytes == b" 200"), "garbage is rejected");
        }
    });
    futures::join!(plain, encrypted);
}
