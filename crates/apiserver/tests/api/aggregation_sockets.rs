//! Forwarded requests over the network: upgrades, and bodies that never end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::extension_server::{
    Aggregated, Answered, Front, GIZMOS, head, ok, pieces, reply, resources, whole,
};

async fn start(
    raw: impl Fn(Request<Incoming>) -> futures::future::BoxFuture<'static, Answered> + Send + Sync + 'static,
) -> (Aggregated, Front) {
    let aggregated = Aggregated::start_changed(|_, _| ok(&resources()), Aggregated::with_token).await;
    *aggregated.extension.raw.lock() = Some(Arc::new(raw));
    aggregated.register().await;
    let front = aggregated.serve().await;
    (aggregated, front)
}

/// Switches to a protocol in which every byte is returned, until `bye!`.
fn echoing(mut request: Request<Incoming>) -> futures::future::BoxFuture<'static, Answered> {
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut connection = TokioIo::new(upgrade.await.unwrap());
        connection.write_all(b"hello").await.unwrap();
        let mut buffer = vec![0; 4096];
        loop {
            match connection.read(&mut buffer).await {
                Ok(read) if read > 0 && !buffer[..read].ends_with(b"bye!") => {
                    connection.write_all(&buffer[..read]).await.unwrap();
                    // TLS keeps what a full connection does not take.
                    connection.flush().await.unwrap();
                }
                _ => return,
            }
        }
    });
    let mut response = Response::new(whole(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for name in ["upgrade", "connection", "x-stream-protocol-version"] {
        let value = request.headers()[name].clone();
        response.headers_mut().insert(name, value);
    }
    std::future::ready(Ok(response)).boxed()
}

const UPGRADE: &str = "connection: Upgrade\r\nupgrade: SPDY/3.1\r\nx-stream-protocol-version: v4\r\n\
                       x-remote-user: forged\r\n";

#[tokio::test]
async fn an_upgraded_connection_is_copied_in_both_directions_until_either_side_ends_it() {
    let (aggregated, front) = start(echoing).await;
    // Reading its documents may keep one connection for later.
    let open = aggregated.extension.connections().max(1);
    for ends_there in [true, false] {
        let mut stream = front.send(&format!("POST {GIZMOS}/g/raw"), UPGRADE).await;
        let response = head(&mut stream).await;
        assert!(response.starts_with("HTTP/1.1 101 "), "{response}");
        for header in ["upgrade: SPDY/3.1", "connection: Upgrade", "x-stream-protocol-version: v4"] {
            assert!(response.contains(header), "{response}");
        }
        let mut hello = [0; 5];
        stream.read_exact(&mut hello).await.unwrap();
        assert_eq!(&hello, b"hello");
        let (mut reading, mut writing) = tokio::io::split(stream);
        let sent: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
        let sending = async {
            writing.write_all(&sent).await.unwrap();
            writing.flush().await.unwrap();
            writing
        };
        let mut echoed = vec![0; sent.len()];
        let (writing, read) = tokio::join!(sending, reading.read_exact(&mut echoed));
        read.unwrap();
        assert!(echoed == sent);
        let mut stream = reading.unsplit(writing);
        if ends_there {
            stream.write_all(b"bye!").await.unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.unwrap();
            assert!(rest.is_empty(), "a clean end is not an error");
        }
        drop(stream);
        aggregated.until_open(open).await;
    }
}

#[tokio::test]
async fn an_upgrade_that_is_not_granted_is_answered_as_it_is_or_refused() {
    let (_aggregated, front) = start(|request| {
        assert_eq!(request.headers()["x-remote-user"], "bob");
        let code = match request.uri().path() {
            path if path.contains("denied") => 403,
            _ => 200,
        };
        std::future::ready(Ok(reply(code, &json!({"code": code})))).boxed()
    })
    .await;
    for (name, expected, body) in
        [("denied", "403", "{\"code\":403}"), ("fine", "503", "invalid upgrade response: status code 200\n")]
    {
        let mut stream = front.send(&format!("GET {GIZMOS}/{name}/raw"), UPGRADE).await;
        let response = head(&mut stream).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {expected} ")), "{response}");
        let mut found = vec![0; body.len()];
        stream.read_exact(&mut found).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&found), body);
    }
}

#[tokio::test]
async fn an_unrequested_protocol_switch_is_rejected() {
    let (_aggregated, front) = start(|_| {
        let mut response = Response::new(whole(""));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert("upgrade", "other".parse().unwrap());
        response.headers_mut().insert("connection", "Upgrade".parse().unwrap());
        std::future::ready(Ok(response)).boxed()
    })
    .await;
    let mut stream = front.send(&format!("GET {GIZMOS}/g/raw"), "").await;
    let response = head(&mut stream).await;
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
}

#[tokio::test]
async fn a_request_body_is_sent_on_as_it_arrives_and_no_faster_than_it_is_taken() {
    let seen = Arc::<AtomicUsize>::default();
    let counting = seen.clone();
    let (_aggregated, front) = start(move |request| {
        let counting = counting.clone();
        async move {
            let mut body = request.into_body();
            let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
            counting.store(first.len(), Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut total = first.len();
            while let Some(Ok(frame)) = body.frame().await {
                total += frame.into_data().unwrap_or_default().len();
            }
            Ok(reply(200, &json!({"total": total})))
        }
        .boxed()
    })
    .await;
    let mut stream = front.send(&format!("POST {GIZMOS}/g/raw"), "transfer-encoding: chunked\r\n").await;
    stream.write_all(b"5\r\nhello\r\n").await.unwrap();
    while seen.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(seen.load(Ordering::SeqCst), 5, "the beginning arrives before the end is sent");
    // Far more than a request to this server itself may have, and than any buffer on the way holds.
    let piece = vec![b'x'; 64 << 10];
    let mut sent = 5;
    let mut stalled = false;
    for _ in 0..512 {
        let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
        chunk.extend_from_slice(&piece);
        chunk.extend_from_slice(b"\r\n");
        let writing = async {
            stream.write_all(&chunk).await.unwrap();
            stream.flush().await.unwrap();
        };
        let mut writing = std::pin::pin!(writing);
        if tokio::time::timeout(Duration::from_millis(200), writing.as_mut()).await.is_err() {
            stalled = true;
            writing.await;
        }
        sent += piece.len();
    }
    assert!(stalled, "the client waits while the extension server does");
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    let response = head(&mut stream).await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    let mut body = vec![0; format!("{{\"total\":{sent}}}").len()];
    stream.read_exact(&mut body).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&body), format!("{{\"total\":{sent}}}"));
}

#[tokio::test]
async fn a_truncated_response_is_visible_to_the_client() {
    let (_aggregated, front) = start(|_| {
        let first = stream::iter([Ok(Bytes::from_static(b"part"))]);
        let then = stream::once(async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Err(io::Error::other("reset"))
        });
        std::future::ready(Ok(Response::new(pieces(first.chain(then))))).boxed()
    })
    .await;
    let mut stream = front.send(&format!("GET {GIZMOS}/g/raw"), "").await;
    assert!(head(&mut stream).await.starts_with("HTTP/1.1 200 "));
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    let text = String::from_utf8_lossy(&rest);
    assert!(text.contains("part") && !text.ends_with("0\r\n\r\n"), "{text}");
}
