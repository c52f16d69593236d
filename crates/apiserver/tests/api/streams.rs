//! Exec, attach and port-forward, with a kubelet in this process.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use http::Method;
use serde_json::{Value, json};
use setpoint_apiserver::audit::{AuditConfig, BackendConfig, Format, Mode, Policy};
use setpoint_apiserver::{Config, Features, User};
use setpoint_spdy::{Headers, Role, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use crate::audit::Memory;
use crate::client::Api;
use crate::fake_kubelet::{
    FakeKubelet, NODE, PODS, Process, SPDY, Socket, process, relayed_process, switched, switching, text,
    websocket, websocket_headers,
};

const V5: &str = "v5.channel.k8s.io";
const EXEC: &str = "/api/v1/namespaces/default/pods/a/exec";

/// A process that repeats its input and ends with an exit code.
fn echo(code: u8) -> FakeKubelet {
    FakeKubelet::new(move |request| async move {
        process(request, move |process| async move {
            let Process { stdin: Some(mut stdin), stdout: Some(mut stdout), mut error, connection, .. } =
                process
            else {
                panic!("without stdin or stdout")
            };
            tokio::io::copy(&mut stdin, &mut stdout).await.unwrap();
            stdout.shutdown().await.unwrap();
            let cause = json!({"reason": "ExitCode", "message": code.to_string()});
            let status = match code {
                0 => json!({"metadata": {}, "status": "Success"}),
                _ => {
                    json!({"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [cause]}})
                }
            };
            error.write_all(status.to_string().as_bytes()).await.unwrap();
            error.shutdown().await.unwrap();
            drop((stdin, stdout, error));
            connection.close();
        })
    })
}

/// Reads the next message: a channel and its data.
async fn next(socket: &mut Socket) -> Option<(u8, Vec<u8>)> {
    match socket.next().await? {
        Ok(Message::Binary(data)) => Some((data[0], data[1..].to_vec())),
        Ok(Message::Close(frame)) => {
            assert_eq!(u16::from(frame.expect("it has a code").code), 1000);
            None
        }
        other => panic!("{other:?}"),
    }
}

/// Reads all messages to the end. Returns stdout, stderr and the status.
async fn rest(socket: &mut Socket) -> (String, String, Value) {
    let (mut stdout, mut stderr, mut status) = (Vec::new(), Vec::new(), Value::Null);
    while let Some((channel, data)) = next(socket).await {
        match channel {
            1 => stdout.extend(data),
            2 => stderr.extend(data),
            3 => status = serde_json::from_slice(&data).unwrap(),
            other => panic!("channel {other}"),
        }
    }
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(stdout), text(stderr), status)
}

async fn send(socket: &mut Socket, channel: u8, data: &[u8]) {
    socket.send(Message::binary([&[channel], data].concat())).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn exec_over_a_websocket_is_translated_to_spdy() {
    let kubelet = echo(0);
    let api = kubelet.start().await;
    let path =
        format!("{EXEC}?command=sh&command=-c&command=cat+x&stdin=true&stdout=true&stderr=true&container=c");
    let (mut socket, protocol) = websocket(&api, &path, "v5.channel.k8s.io, v4.channel.k8s.io").await;
    assert_eq!(protocol, V5);
    assert_eq!(next(&mut socket).await, Some((1, Vec::new())), "the connection is established");
    send(&mut socket, 0, b"hello ").await;
    send(&mut socket, 0, b"world").await;
    socket.send(Message::binary(vec![255, 0])).await.unwrap();
    let (stdout, stderr, status) = rest(&mut socket).await;
    assert_eq!(
        (&*stdout, &*stderr, status),
        ("hello world", "", json!({"metadata": {}, "status": "Success"}))
    );
    let head = kubelet.take_heads().remove(0);
    assert_eq!(head.method, Method::POST);
    let expected = "/exec/default/a/c?command=sh&command=-c&command=cat+x&error=1&input=1&output=1";
    assert_eq!(head.uri.to_string(), expected);
    assert_eq!(
        (&head.headers["upgrade"], &head.headers["host"]),
        (&"SPDY/3.1".parse().unwrap(), &format!("{NODE}:10250").parse().unwrap())
    );
    let offered: Vec<_> = head.headers.get_all("x-stream-protocol-version").iter().collect();
    let versions = [V5, "v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
    assert_eq!(offered, versions);
    kubelet.closed().await;
    let metrics = api.get("/metrics").await.text;
    assert!(metrics.contains("apiserver_stream_translator_requests_total{code=\"200\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn an_exit_code_reaches_the_client() {
    let api = echo(7).start().await;
    let (mut socket, _) = websocket(&api, &format!("{EXEC}?command=x&stdin=1&stdout=1"), V5).await;
    socket.send(Message::binary(vec![255, 0])).await.unwrap();
    let (.., status) = rest(&mut socket).await;
    let message = "command terminated with non-zero exit code: command terminated with exit code 7";
    let expected = json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "message": message,
        "details": {"causes": [{"reason": "ExitCode", "message": "7"}]},
    });
    assert_eq!(status, expected);
}

#[tokio::test(start_paused = true)]
async fn output_is_complete_even_if_the_runtime_is_gone_before_it_is_read() {
    let kubelet = FakeKubelet::new(|request| async move {
        relayed_process(request, |process| async move {
            let Process { stdout: Some(mut stdout), mut error, connection, .. } = process else {
                panic!("without stdout")
            };
            stdout.write_all(&vec![b'x'; 4 << 20]).await.unwrap();
            stdout.shutdown().await.unwrap();
            let cause = json!({"reason": "ExitCode", "message": "7"});
            let details = json!({"causes": [cause]});
            let status = json!({"status": "Failure", "reason": "NonZeroExitCode", "details": details});
            error.write_all(status.to_string().as_bytes()).await.unwrap();
            error.shutdown().await.unwrap();
            drop((stdout, error));
            connection.close();
        })
    });
    let api = kubelet.start().await;
    let (mut socket, _) = websocket(&api, &format!("{EXEC}?command=x&stdout=1"), V5).await;
    // Long enough for the process to end.
    sleep(Duration::from_secs(1)).await;
    let (stdout, _, status) = rest(&mut socket).await;
    assert_eq!((stdout.len(), &status["reason"]), (4 << 20, &json!("NonZeroExitCode")));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_of_any_length_does_not_hold_up_the_session() {
    let kubelet = FakeKubelet::new(|request| async move {
        process(request, |process| async move {
            let Process { stdout: Some(mut stdout), mut error, connection, .. } = process else {
                panic!("without stdout")
            };
            let status = json!({"status": "Failure", "message": "m".repeat(1 << 20)});
            error.write_all(status.to_string().as_bytes()).await.unwrap();
            error.shutdown().await.unwrap();
            stdout.write_all(b"done").await.unwrap();
            stdout.shutdown().await.unwrap();
            drop((stdout, error));
            connection.close();
        })
    });
    let api = kubelet.start().await;
    let (mut socket, _) = websocket(&api, &format!("{EXEC}?command=x&stdout=1"), V5).await;
    let ended = tokio::time::timeout(Duration::from_secs(10), rest(&mut socket)).await;
    let (stdout, _, status) = ended.expect("the session ends");
    assert_eq!(stdout, "done");
    let message = "Internal error occurred: error stream protocol error: the outcome is longer than 64 KiB";
    assert_eq!(status["message"], message);
}

#[tokio::test(start_paused = true)]
async fn terminal_sizes_use_their_own_stream() {
    let kubelet = FakeKubelet::new(|request| async {
        process(request, |process| async move {
            let (mut resize, mut stdout) = (process.resize.unwrap(), process.stdout.unwrap());
            assert!(process.stderr.is_none(), "a terminal has no stderr");
            let mut sizes = vec![0; 50];
            resize.read_exact(&mut sizes).await.unwrap();
            stdout.write_all(&sizes).await.unwrap();
            stdout.shutdown().await.unwrap();
        })
    });
    let api = kubelet.start().await;
    let path = "/api/v1/namespaces/default/pods/a/attach?stdin=1&stdout=1&stderr=0&tty=1";
    let (mut socket, _) = websocket(&api, path, V5).await;
    // Sizes may be cut anywhere.
    send(&mut socket, 4, br#"{"Width":80,"Height":24}{"Wi"#).await;
    send(&mut socket, 4, br#"dth":132,"Height":9}"#).await;
    let (stdout, _, status) = rest(&mut socket).await;
    assert_eq!(stdout, "{\"Width\":80,\"Height\":24}\n{\"Width\":132,\"Height\":9}\n");
    assert_eq!(status["status"], "Success");
    assert_eq!(kubelet.take_target(), "/attach/default/a/c?input=1&output=1&tty=1");
}

#[tokio::test(start_paused = true)]
async fn failures_after_the_handshake_are_sent_on_the_error_channel() {
    let path = format!("{EXEC}?command=ls&stderr=true&stdin=true");
    let url = format!("https://{NODE}:10250/exec/default/a/c?command=ls&error=1&input=1");
    let kubelet = echo(0);
    let api = kubelet.start().await;
    kubelet.refuses.store(true, Ordering::SeqCst);
    let (mut socket, _) = websocket(&api, &path, V5).await;
    assert_eq!(next(&mut socket).await, Some((2, Vec::new())), "the first channel that the client reads");
    let (.., status) = rest(&mut socket).await;
    let why =
        format!("error sending request: Post {url:?}: dial tcp {NODE}:10250: connect: connection refused");
    assert_eq!(status["message"], format!("Internal error occurred: {why}"));
    assert_eq!((&status["code"], &status["reason"]), (&json!(500), &json!("InternalError")));

    let refusing = FakeKubelet::new(|_| async { text(404, "text/plain", "container not found\n") });
    let (mut socket, _) = websocket(&refusing.start().await, &path, V5).await;
    let (.., status) = rest(&mut socket).await;
    assert_eq!(
        status["message"],
        "Internal error occurred: unable to upgrade connection: container not found"
    );

    let said = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden"});
    let text_of = said.to_string();
    let forbidding = FakeKubelet::new(move |_| {
        let said = text_of.clone();
        async { text(403, "application/json", said) }
    });
    let (mut socket, _) = websocket(&forbidding.start().await, &path, V5).await;
    assert_eq!(rest(&mut socket).await.2, said);
    forbidding.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_handshake_for_a_translated_stream_is_checked() {
    let api = echo(0).start().await;
    let path = format!("{EXEC}?command=ls&stdout=true");
    let asked = async |method: Method, leave_out: &str| {
        let headers = websocket_headers(V5);
        let headers: Vec<_> = headers.into_iter().filter(|(name, _)| *name != leave_out).collect();
        let answer = api.ask(method, &path, &headers, "").await;
        (answer.code, answer.text)
    };
    assert_eq!(asked(Method::POST, "").await, (405, "bad method".into()));
    let key = asked(Method::GET, "sec-websocket-key").await;
    assert_eq!(key, (400, "mismatch challenge/response".into()));
    let version = asked(Method::GET, "sec-websocket-version").await;
    assert_eq!(version, (400, "missing or bad WebSocket Version".into()));
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_dies_ends_the_session() {
    let kubelet = FakeKubelet::new(|request| async {
        process(request, |process| async move {
            let mut stdout = process.stdout.unwrap();
            stdout.write_all(b"half").await.unwrap();
            sleep(Duration::from_secs(1)).await;
            // The connection dies with the process: no stream is closed.
            panic!("the kubelet dies");
        })
    });
    let api = kubelet.start().await;
    let (mut socket, _) = websocket(&api, &format!("{EXEC}?command=x&stdout=1&stderr=1"), V5).await;
    let (stdout, _, status) = timeout(Duration::from_secs(60), rest(&mut socket)).await.expect("it ends");
    assert_eq!(stdout, "half");
    // As in v1.34, whose clients take the end of the error stream for success.
    assert_eq!(status["status"], "Success");
    kubelet.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_accepts_no_streams_is_given_up() {
    let hanging = FakeKubelet::new(|request| async {
        switching(request, |mut io| async move {
            tokio::io::copy(&mut io, &mut tokio::io::sink()).await.unwrap();
        })
    });
    let gone = FakeKubelet::new(|request| async { switching(request, |_| async {}) });
    let garbage = FakeKubelet::new(|request| async {
        switching(request, |mut io| async move {
            let _ = io.write_all(&[0xff; 4096]).await;
            let _ = tokio::io::copy(&mut io, &mut tokio::io::sink()).await;
        })
    });
    for kubelet in [hanging, gone, garbage] {
        let api = kubelet.start().await;
        let start = api.clock.instant();
        let (mut socket, _) = websocket(&api, &format!("{EXEC}?command=x&stdout=1"), V5).await;
        let (.., status) = rest(&mut socket).await;
        assert_eq!(status["message"], "Internal error occurred: Timeout occurred");
        assert_eq!((api.clock.instant() - start).as_secs(), 30, "as in v1.34");
        kubelet.closed().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_holds_back_the_process() {
    let written = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = written.clone();
    let kubelet = FakeKubelet::new(move |request| {
        let count = count.clone();
        async move {
            process(request, |process| async move {
                let mut stdout = process.stdout.unwrap();
                while stdout.write_all(&[b'x'; 1024]).await.is_ok() {
                    count.fetch_add(1024, Ordering::SeqCst);
                }
            })
        }
    });
    let api = kubelet.start().await;
    let (socket, _) = websocket(&api, &format!("{EXEC}?command=yes&stdout=1"), V5).await;
    sleep(Duration::from_secs(600)).await;
    let held = written.load(Ordering::SeqCst);
    assert!(held < 1 << 20, "{held} bytes are in transit");
    sleep(Duration::from_secs(600)).await;
    assert_eq!(written.load(Ordering::SeqCst), held);
    drop(socket);
    kubelet.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_disconnected_client_ends_the_kubelet_connection() {
    for closes in [true, false] {
        let kubelet = echo(0);
        let api = kubelet.start().await;
        let (mut socket, _) = websocket(&api, &format!("{EXEC}?command=cat&stdin=1&stdout=1"), V5).await;
        send(&mut socket, 0, b"x").await;
        next(&mut socket).await;
        assert_eq!(next(&mut socket).await, Some((1, b"x".to_vec())));
        assert_eq!(kubelet.open(), 1);
        if closes {
            socket.close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() })).await.unwrap();
            assert_eq!(next(&mut socket).await, None, "the server closes its side, too");
        }
        drop(socket);
        kubelet.closed().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_dies_while_its_input_is_not_read_is_noticed() {
    let kubelet = FakeKubelet::new(|request| async {
        process(request, |process| async move {
            let _process = process;
            std::future::pending().await
        })
    });
    let api = kubelet.start().await;
    let (mut socket, _) = websocket(&api, &format!("{EXEC}?command=sleep&stdin=1&stdout=1"), V5).await;
    let flooding = async {
        loop {
            send(&mut socket, 0, &[0; 32 << 10]).await;
        }
    };
    assert!(timeout(Duration::from_secs(1), flooding).await.is_err(), "it never ends");
    let died = api.clock.instant();
    drop(socket);
    kubelet.closed().await;
    assert!(api.clock.instant() - died <= Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_large_message_is_passed_on_whole() {
    let kubelet = echo(0);
    let api = kubelet.start().await;
    let (socket, _) = websocket(&api, &format!("{EXEC}?command=cat&stdin=1&stdout=1"), V5).await;
    let (mut sink, source) = futures::StreamExt::split(socket);
    let sending = async {
        sink.send(Message::binary(vec![0; 4 << 20])).await.unwrap();
        sink.send(Message::binary(vec![255, 0])).await.unwrap();
        sink
    };
    let counting = source.fold(0, |count, message| {
        let length = message.map_or(0, |message| if message.is_binary() { message.len() } else { 0 });
        std::future::ready(count + length.saturating_sub(1))
    });
    let (_, count) = tokio::join!(sending, counting);
    assert!(count >= (4 << 20) - 1, "{count} bytes were echoed");
}

#[tokio::test(start_paused = true)]
async fn an_unused_session_ends_after_four_hours() {
    let kubelet = echo(0);
    let api = kubelet.start().await;
    let start = api.clock.instant();
    let (mut socket, _) = websocket(&api, &format!("{EXEC}?command=cat&stdin=1&stdout=1"), V5).await;
    next(&mut socket).await;
    assert!(socket.next().await.is_none_or(|message| message.is_err()), "the connection is cut");
    assert_eq!((api.clock.instant() - start).as_secs(), 4 * 3600);
    kubelet.closed().await;

    let response = api.send(Method::POST, &format!("{EXEC}?command=cat&stdin=1&stdout=1"), &SPDY, "").await;
    let (start, mut raw) = (api.clock.instant(), switched(&response));
    assert_eq!(raw.read(&mut [0; 8]).await.unwrap(), 0);
    assert_eq!((api.clock.instant() - start).as_secs(), 4 * 3600);
    kubelet.closed().await;
}

#[tokio::test(start_paused = true)]
async fn protocol_violations_end_the_session() {
    let kubelet = echo(0);
    let api = kubelet.start().await;
    let path = format!("{EXEC}?command=cat&stdin=1&stdout=1");
    for message in [vec![255], vec![255, 9], vec![255, 0, 0], vec![0; (32 << 20) + 1]] {
        let (mut socket, _) = websocket(&api, &path, V5).await;
        next(&mut socket).await;
        // The server may end the connection before it has read everything.
        let _ = timeout(Duration::from_secs(5), socket.send(Message::binary(message.clone()))).await;
        let ended = async { while socket.next().await.is_some_and(|message| message.is_ok()) {} };
        timeout(Duration::from_secs(60), ended).await.unwrap_or_else(|_| panic!("{} bytes", message.len()));
        kubelet.closed().await;
    }
    // Unknown channels and empty messages are ignored.
    let (mut socket, _) = websocket(&api, &path, V5).await;
    for message in [vec![], vec![9, 1], vec![1, 1], vec![4, b'{'], vec![255, 1]] {
        socket.send(Message::binary(message)).await.unwrap();
    }
    send(&mut socket, 0, b"still here").await;
    socket.send(Message::binary(vec![255, 0])).await.unwrap();
    assert_eq!(rest(&mut socket).await.0, "still here");
}

#[tokio::test(start_paused = true)]
async fn spdy_passes_as_it_is() {
    let kubelet = echo(0);
    let api = kubelet.start().await;
    let headers = [
        SPDY[0],
        SPDY[1],
        SPDY[2],
        ("user-agent", "kubectl"),
        ("host", "api.example"),
        ("authorization", "x"),
    ];
    let response =
        api.send(Method::POST, &format!("{EXEC}?command=cat&stdin=1&stdout=1"), &headers, "").await;
    assert_eq!(response.headers()["x-stream-protocol-version"], "v4.channel.k8s.io");
    assert_eq!(response.headers()["upgrade"], "SPDY/3.1");
    let (connection, driver) = setpoint_spdy::connect(switched(&response), Role::Client, Settings::default());
    let driving = tokio::spawn(driver);
    let open = async |kind: &str| connection.open(Headers::new().with("streamType", kind)).await.unwrap();
    let (mut error, mut stdin, mut stdout) = (open("error").await, open("stdin").await, open("stdout").await);
    stdin.write_all(b"through").await.unwrap();
    stdin.shutdown().await.unwrap();
    let (mut said, mut status) = (String::new(), String::new());
    stdout.read_to_string(&mut said).await.unwrap();
    error.read_to_string(&mut status).await.unwrap();
    assert_eq!((&*said, &*status), ("through", r#"{"metadata":{},"status":"Success"}"#));
    drop((error, stdin, stdout, connection));
    driving.await.unwrap().unwrap();
    let head = kubelet.take_heads().remove(0);
    let header = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap());
    assert_eq!((header("user-agent"), header("host")), (Some("kubectl"), Some("api.example")));
    assert_eq!(
        (header("authorization"), header("x-stream-protocol-version")),
        (None, Some("v4.channel.k8s.io"))
    );
    kubelet.closed().await;
}

#[tokio::test(start_paused = true)]
async fn older_websockets_pass_as_they_are() {
    let kubelet = FakeKubelet::new(|request| async {
        switching(request, |mut io| async move {
            io.write_all(b"whatever").await.unwrap();
            let _ = io.shutdown().await;
        })
    });
    let off = Features::enabled_by(|_| false);
    let api = kubelet.start().await;
    let gated = kubelet.start_changed(|config| config.with_features(off)).await;
    for (api, method, protocol) in [
        (&api, Method::GET, "v4.channel.k8s.io"),
        (&api, Method::POST, "base64.channel.k8s.io"),
        (&api, Method::GET, "v9.channel.k8s.io"),
        (&gated, Method::GET, V5),
    ] {
        let path = format!("{EXEC}?command=cat&stdout=1");
        let response = api.send(method.clone(), &path, &websocket_headers(protocol), "").await;
        let mut received = String::new();
        switched(&response).read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "whatever");
        let head = kubelet.take_heads().remove(0);
        assert_eq!(
            (head.method, &head.headers["sec-websocket-protocol"]),
            (method, &protocol.parse().unwrap())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_upgrade_of_a_kubelet_is_forwarded() {
    let kubelet = FakeKubelet::new(|request| async move {
        match request.uri().query().unwrap_or_default() {
            query if query.contains("missing") => text(404, "text/plain", "no such container"),
            _ => text(200, "text/plain", "hello"),
        }
    });
    let api = kubelet.start().await;
    let missing = api.ask(Method::POST, &format!("{EXEC}?command=missing&stdout=1"), &SPDY, "").await;
    assert_eq!((missing.code, &*missing.text), (404, "no such container"));
    let odd = api.ask(Method::POST, &format!("{EXEC}?command=x&stdout=1"), &SPDY, "").await;
    assert_eq!(odd.refusal(), (500, "", "invalid upgrade response: status code 200"));
    assert_eq!(
        api.ask(Method::POST, &format!("{EXEC}?command=x"), &[], "").await.refusal().2,
        "Upgrade request required"
    );
    assert_eq!(
        api.ask(Method::POST, &format!("{EXEC}?dryRun=All"), &SPDY, "").await.refusal().2,
        "dryRun is not supported"
    );
    kubelet.closed().await;
}

/// A kubelet whose pods answer on every port, with what they were sent.
fn forwarding() -> FakeKubelet {
    FakeKubelet::new(|request| async {
        switching(request, |io| async move {
            let (connection, driver) = setpoint_spdy::connect(io, Role::Server, Settings::default());
            tokio::spawn(driver);
            while let Some(incoming) = connection.accept().await {
                let headers = incoming.headers();
                let mut stream = incoming.accept();
                if headers.get("streamType") == Some("data") {
                    let port = headers.get("port").unwrap().to_owned();
                    tokio::spawn(async move {
                        let mut question = String::new();
                        stream.read_to_string(&mut question).await.unwrap();
                        stream.write_all(format!("{port}: {question}").as_bytes()).await.unwrap();
                        stream.shutdown().await.unwrap();
                    });
                }
            }
        })
    })
}

/// Talks to a port through SPDY on any connection.
async fn talk(io: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static) -> String {
    let (connection, driver) = setpoint_spdy::connect(io, Role::Client, Settings::default());
    tokio::spawn(driver);
    let headers =
        |kind: &str| Headers::new().with("streamType", kind).with("port", "80").with("requestID", "0");
    let _error = connection.open(headers("error")).await.unwrap();
    let mut data = connection.open(headers("data")).await.unwrap();
    data.write_all(b"hello").await.unwrap();
    data.shutdown().await.unwrap();
    let mut answer = String::new();
    data.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(start_paused = true)]
async fn ports_are_forwarded_over_spdy_and_inside_of_a_websocket() {
    let kubelet = forwarding();
    let api = kubelet.start().await;
    let path = format!("{PODS}/a/portforward");
    let spdy = [SPDY[0], SPDY[1], ("x-stream-protocol-version", "portforward.k8s.io")];
    let response = api.send(Method::POST, &format!("{path}?ports=80,81"), &spdy, "").await;
    assert_eq!(talk(switched(&response)).await, "80: hello");
    assert_eq!(kubelet.take_target(), "/portForward/default/a?port=80%2C81");

    let (socket, protocol) = websocket(&api, &path, "SPDY/3.1+portforward.k8s.io").await;
    assert_eq!(protocol, "SPDY/3.1+portforward.k8s.io");
    let (near, far) = tokio::io::duplex(4 << 10);
    let wrapping = tokio::spawn(wrap(socket, far));
    assert_eq!(talk(near).await, "80: hello");
    wrapping.await.unwrap();
    let head = kubelet.take_heads().remove(0);
    let header = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap());
    assert_eq!((head.method.as_str(), header("upgrade")), ("POST", Some("SPDY/3.1")));
    assert_eq!(
        (header("x-stream-protocol-version"), header("sec-websocket-key")),
        (Some("portforward.k8s.io"), None)
    );
    kubelet.closed().await;
    let metrics = api.get("/metrics").await.text;
    assert!(metrics.contains("apiserver_stream_tunnel_requests_total{code=\"101\"} 1"));
}

/// Puts bytes into the messages of a WebSocket, and takes them out, until the bytes end.
async fn wrap(socket: Socket, mut bytes: tokio::io::DuplexStream) {
    let (mut sink, mut source) = socket.split();
    let mut piece = [0; 1000];
    loop {
        tokio::select! {
            count = bytes.read(&mut piece) => match count.unwrap() {
                0 => break,
                count => sink.send(Message::binary(piece[..count].to_vec())).await.unwrap(),
            },
            message = source.next() => match message {
                Some(Ok(Message::Binary(data))) => _ = bytes.write_all(&data).await,
                _ => break,
            },
        }
    }
    let _ = sink.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_for_ports_fails_as_the_kubelet_does() {
    let kubelet = FakeKubelet::new(|_| async { text(403, "text/plain", "not you") });
    let api = kubelet.start().await;
    let path = format!("{PODS}/a/portforward");
    let tunnel = websocket_headers("SPDY/3.1+portforward.k8s.io");
    let refused = api.ask(Method::GET, &path, &tunnel, "").await;
    assert_eq!((refused.code, &*refused.text), (403, "not you"));
    kubelet.refuses.store(true, Ordering::SeqCst);
    let unreachable = api.ask(Method::GET, &path, &tunnel, "").await;
    let why = format!("error dialing backend: dial tcp {NODE}:10250: connect: connection refused");
    assert_eq!(unreachable.refusal(), (500, "", &*why));
    let websocket_only = FakeKubelet::new(|request| async {
        let mut response = switching(request, |_| async {});
        response.headers_mut().insert("upgrade", "websocket".parse().unwrap());
        response
    });
    let odd = websocket_only.start().await.ask(Method::GET, &path, &tunnel, "").await;
    assert_eq!((odd.code, &*odd.text), (500, "unable to upgrade: missing upgrade headers in response\n"));
    // A text is not SPDY, and neither end survives it.
    let kubelet = forwarding();
    let (mut socket, _) = websocket(&kubelet.start().await, &path, "SPDY/3.1+portforward.k8s.io").await;
    socket.send(Message::text("hello")).await.unwrap();
    assert_eq!(next(&mut socket).await, None);
    kubelet.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_during_the_kubelet_handshake_leaks_nothing() {
    let kubelet = FakeKubelet::new(|_| std::future::pending());
    let api = kubelet.start().await;
    for (method, path, headers) in [
        (Method::POST, format!("{EXEC}?command=x&stdout=1"), SPDY.to_vec()),
        (Method::GET, format!("{EXEC}?command=x&stdout=1"), websocket_headers("v4.channel.k8s.io").to_vec()),
        (
            Method::GET,
            format!("{PODS}/a/portforward"),
            websocket_headers("SPDY/3.1+portforward.k8s.io").to_vec(),
        ),
    ] {
        let asking = api.send(method, &path, &headers, "");
        assert!(timeout(Duration::from_secs(60), asking).await.is_err(), "{path}");
        kubelet.closed().await;
    }
    let (socket, _) = websocket(&api, &format!("{EXEC}?command=x&stdout=1"), V5).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(kubelet.open(), 1);
    drop(socket);
    kubelet.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_authorized_by_its_method_and_its_subresource() {
    let kubelet = echo(0);
    let api = kubelet.start_changed(Config::with_roles).await;
    let rules = |verb: &str| json!([{"apiGroups": [""], "resources": ["pods/exec"], "verbs": [verb]}]);
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    for verb in ["get", "create"] {
        let role = json!({"metadata": {"name": verb}, "rules": rules(verb)});
        api.post(&format!("{roles}/roles"), role).await.created();
        let binding = json!({
            "metadata": {"name": verb},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": verb},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": verb}],
        });
        api.post(&format!("{roles}/rolebindings"), binding).await.created();
    }
    let path = format!("{EXEC}?command=cat&stdin=1&stdout=1");
    for (user, get, post) in [("get", 101, 403), ("create", 403, 101)] {
        let api = Api {
            server: api.server.clone(),
            store: api.store.clone(),
            clock: api.clock.clone(),
            user: User::authenticated(user, "", vec![]),
        };
        let codes = [
            api.send(Method::GET, &path, &websocket_headers(V5), "").await.status().as_u16(),
            api.send(Method::POST, &path, &SPDY, "").await.status().as_u16(),
        ];
        assert_eq!(codes, [get, post], "{user}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_is_audited_from_its_start_to_its_end() {
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, resources: [{group: \"\", resources: [pods/exec]}]}]\n";
    let log = Memory::default();
    let backend = BackendConfig {
        sink: Box::new(log.clone()),
        mode: Mode::Blocking,
        format: Format::Json,
        truncation: None,
    };
    let audit = AuditConfig { policy: Policy::parse(policy).unwrap(), backends: vec![backend] };
    let kubelet = echo(0);
    let api = kubelet.start_changed(|config| Config { audit: Some(audit), ..config }).await;
    let (mut socket, _) = websocket(&api, &format!("{EXEC}?command=cat&stdin=1&stdout=1"), V5).await;
    next(&mut socket).await;
    let stages = |log: &Memory| -> Vec<(String, i64)> {
        let events = log.events.lock().unwrap();
        events
            .iter()
            .map(|event| {
                (
                    event["stage"].as_str().unwrap().to_owned(),
                    event["responseStatus"]["code"].as_i64().unwrap_or(0),
                )
            })
            .collect()
    };
    let started = vec![("RequestReceived".to_owned(), 0), ("ResponseStarted".to_owned(), 101)];
    assert_eq!(stages(&log), started);
    socket.send(Message::binary(vec![255, 0])).await.unwrap();
    rest(&mut socket).await;
    kubelet.closed().await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(stages(&log)[2..], [("ResponseComplete".to_owned(), 101)]);
}
