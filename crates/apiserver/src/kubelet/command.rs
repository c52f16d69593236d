//! The client side of exec and attach: the streams of a process in a container, over SPDY.
//!
//! The kubelet chooses one of five protocol versions. Version 3 added a stream for terminal sizes; since version 4 the
//! outcome is a `Status`.

use std::time::Duration;

use http::header::{CONNECTION, LOCATION, UPGRADE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use setpoint_spdy::{Connection, FlowControl, Headers, OpenError, Role, Settings, Stream};
use setpoint_webhook::no_body;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Bytes;

use super::log::error_text;
use super::spdy_in_websocket::is_spdy;
use super::streams::Channels;
use super::translate::{Output, STDERR, STDOUT};
use super::{AGENT, CLOSE, Kubelets};
use crate::declared::escaped;
use crate::header;
use crate::proxy::Location;
use crate::status::{Cause, Details, Status};

const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const STREAM_TYPE: &str = "streamType";
/// The versions of the protocol, the newest first.
const VERSIONS: [&str; 5] =
    ["v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
/// How long the kubelet may take to accept a stream, as in v1.34.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
const PING_PERIOD: Duration = Duration::from_secs(5);
/// How much of the process's output becomes one message.
const PIECE_BYTES: usize = 32 << 10;
/// Maximum size of the outcome.
const OUTCOME_BYTES: u64 = 64 << 10;
/// Maximum size of an incomplete terminal size.
const RESIZE_BYTES: usize = 4 << 10;

/// The process to connect to.
pub(super) struct Command<'a> {
    pub(super) kubelets: &'a Kubelets,
    pub(super) location: &'a Location,
    pub(super) channels: Channels,
}

/// How a process ended.
#[derive(Debug)]
pub(super) enum Outcome {
    Success,
    /// With an exit code other than zero.
    Exited(u8),
    /// It was not started, or its outcome is unknown.
    Failed(String),
    /// The kubelet responded with a `Status`: its code and text.
    Refused(u16, String),
}

impl From<String> for Outcome {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// The streams of a process.
struct Streams {
    error: Stream,
    stdin: Option<Stream>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    resize: Option<Stream>,
}

impl Command<'_> {
    /// Runs the process, until its output has ended and its outcome is known.
    pub(super) async fn run(
        &self,
        stdin: mpsc::Receiver<Bytes>,
        resize: mpsc::Receiver<Bytes>,
        output: &Output<'_>,
    ) -> Outcome {
        let (transport, version) = match self.dial().await {
            Ok(dialed) => dialed,
            Err(outcome) => return outcome,
        };
        // A WINDOW_UPDATE that the kubelet cannot pass on to the container runtime would lose output.
        let flow_control = FlowControl::Answered;
        let settings = Settings { ping_period: Some(PING_PERIOD), flow_control, ..Settings::default() };
        let (connection, driver) = setpoint_spdy::connect(TokioIo::new(transport), Role::Client, settings);
        let mut driver = std::pin::pin!(driver);
        let talking = async {
            let streams = self.open(&connection, version).await?;
            Ok(streams.pass(version, stdin, resize, output).await)
        };
        let mut talking = std::pin::pin!(talking);
        let talked: Result<Outcome, String> = tokio::select! {
            talked = &mut talking => talked,
            // Data received before the connection ended is still delivered.
            _ = &mut driver => return talking.await.unwrap_or_else(Outcome::Failed),
        };
        connection.close();
        let _ = tokio::time::timeout(CLOSE, driver).await;
        talked.unwrap_or_else(Outcome::Failed)
    }

    /// Connects to the kubelet. Returns the version of the protocol that it chose, counted from zero for the oldest.
    async fn dial(&self) -> Result<(Upgraded, usize), Outcome> {
        let url = self.location.url();
        let failed = |why: &str| Outcome::Failed(format!("error sending request: Post {url:?}: {why}"));
        let transport = self.kubelets.transport().map_err(|why| Outcome::Failed(why.message))?;
        let request = self.location.request(Method::POST, spdy_headers(), no_body());
        let request = request.map_err(|why| failed(&why))?;
        let upgraded = transport.upgrade(request).await;
        let mut response =
            upgraded.map_err(|why| failed(why.0.trim_start_matches("error dialing backend: ")))?;
        if response.status().is_redirection() && response.headers().contains_key(LOCATION) {
            let location = header::text(response.headers(), &LOCATION);
            let why = format!("error sending request: Post {location:?}: redirect not allowed");
            return Err(Outcome::Failed(why));
        }
        if response.status() != StatusCode::SWITCHING_PROTOCOLS || !is_spdy(response.headers()) {
            return Err(refused(&error_text(response.into_body()).await));
        }
        let chosen = header::text(response.headers(), &STREAM_PROTOCOL).to_owned();
        let chosen = if chosen.is_empty() { VERSIONS[VERSIONS.len() - 1] } else { &chosen };
        let version = VERSIONS.iter().rev().position(|version| *version == chosen);
        let version =
            version.ok_or_else(|| Outcome::Failed(format!("unknown stream protocol {chosen:?}")))?;
        let upgraded = hyper::upgrade::on(&mut response).await;
        upgraded.map(|upgraded| (upgraded, version)).map_err(|why| failed(&why.to_string()))
    }

    /// Opens the streams in v1.34's order.
    async fn open(&self, connection: &Connection, version: usize) -> Result<Streams, String> {
        let Channels { stdin, stdout, stderr, tty } = self.channels;
        let when = async |is_wanted: bool, kind: &str| match is_wanted {
            true => open(connection, kind).await.map(Some),
            false => Ok(None),
        };
        Ok(Streams {
            error: open(connection, "error").await?,
            stdin: when(stdin, "stdin").await?,
            stdout: when(stdout, "stdout").await?,
            stderr: when(stderr && !tty, "stderr").await?,
            resize: when(tty && version >= 2, "resize").await?,
        })
    }
}

fn spdy_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    headers.insert(USER_AGENT, AGENT);
    for version in VERSIONS {
        headers.append(STREAM_PROTOCOL, HeaderValue::from_static(version));
    }
    headers
}

/// Converts a kubelet's response to a refused upgrade.
fn refused(text: &str) -> Outcome {
    let status = serde_json::from_str::<serde_json::Value>(text).ok();
    match status.filter(|status| status["kind"] == "Status" && status["apiVersion"] == "v1") {
        Some(status) => {
            let code = status["code"].as_u64().and_then(|code| code.try_into().ok());
            Outcome::Refused(code.unwrap_or(0), text.trim().to_owned())
        }
        None => Outcome::Failed(format!("unable to upgrade connection: {}", text.trim())),
    }
}

/// Opens a stream. As in v1.34, the end of the connection is only noticed after the timeout.
async fn open(connection: &Connection, kind: &str) -> Result<Stream, String> {
    let opening = async {
        match connection.open(Headers::new().with(STREAM_TYPE, kind)).await {
            Err(OpenError::Closed) => std::future::pending().await,
            opened => opened,
        }
    };
    match tokio::time::timeout(OPEN_TIMEOUT, opening).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(OpenError::Refused)) => Err("Stream reset".into()),
        Ok(Err(why)) => Err(why.to_string()),
        Err(_) => Err("Timeout occurred".into()),
    }
}

impl Streams {
    async fn pass(
        self,
        version: usize,
        stdin: mpsc::Receiver<Bytes>,
        resize: mpsc::Receiver<Bytes>,
        output: &Output<'_>,
    ) -> Outcome {
        let Self { mut error, stdin: to_stdin, mut stdout, mut stderr, resize: to_resize } = self;
        // Streams are kept until all have ended. Dropping one sends a reset, which a kubelet may be unable to pass on to
        // the container runtime, and then it drops what the others have not sent yet.
        let ending = async {
            let stdout = copy_out(stdout.as_mut(), STDOUT, output);
            let stderr = copy_out(stderr.as_mut(), STDERR, output);
            let ((), (), message) = futures::future::join3(stdout, stderr, read_outcome(&mut error)).await;
            outcome(&message, version)
        };
        tokio::select! {
            outcome = ending => outcome,
            never = copy_in(to_stdin, stdin) => never,
            never = copy_sizes(to_resize, resize) => never,
        }
    }
}

/// Copies a stream to a channel. A truncated stream counts as ended, as in v1.34.
async fn copy_out(stream: Option<&mut Stream>, channel: u8, output: &Output<'_>) {
    let Some(stream) = stream else { return };
    let mut piece = vec![0; PIECE_BYTES];
    let mut is_heard = true;
    while let Ok(count @ 1..) = stream.read(&mut piece).await {
        // A disconnected client ends the session elsewhere.
        is_heard = is_heard && output.send(channel, &piece[..count]).await.is_ok();
    }
}

/// Copies stdin, and closes it when either side does. Never ends.
async fn copy_in<Never>(stream: Option<Stream>, mut from: mpsc::Receiver<Bytes>) -> Never {
    if let Some(stream) = stream {
        let (ended, mut to) = tokio::io::split(stream);
        tokio::select! {
            () = forward(&mut from, &mut to) => {}
            () = drained(ended) => {}
        }
        let _ = to.shutdown().await;
        // The stream is kept until the session ends, like the others.
        std::future::pending::<()>().await;
    }
    std::future::pending().await
}

async fn forward(from: &mut mpsc::Receiver<Bytes>, to: &mut WriteHalf<Stream>) {
    while let Some(data) = from.recv().await {
        if to.write_all(&data).await.is_err() {
            return;
        }
    }
}

/// Waits for the kubelet to close its side of stdin.
async fn drained(mut stream: ReadHalf<Stream>) {
    let mut nothing = [0; 64];
    while let Ok(1..) = stream.read(&mut nothing).await {}
}

/// The size of a terminal.
#[derive(Deserialize, Serialize)]
struct Size {
    #[serde(rename = "Width", alias = "width", default)]
    width: u16,
    #[serde(rename = "Height", alias = "height", default)]
    height: u16,
}

/// Copies terminal sizes individually. Never ends.
async fn copy_sizes<Never>(stream: Option<Stream>, mut from: mpsc::Receiver<Bytes>) -> Never {
    if let Some(mut stream) = stream {
        let mut text = Vec::new();
        while let Some(data) = from.recv().await {
            text.extend_from_slice(&data);
            let Some((sizes, read)) = sizes(&text) else { break };
            text.drain(..read);
            if text.len() > RESIZE_BYTES || stream.write_all(&sizes).await.is_err() {
                break;
            }
        }
        // The stream stays open: its end would end the session at the kubelet.
        from.close();
        std::future::pending::<()>().await;
    }
    std::future::pending().await
}

/// Reads the sizes in a text. Returns them as the kubelet expects them, and how much of the text was read; `None` if the
/// text is something else.
fn sizes(text: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut found = serde_json::Deserializer::from_slice(text).into_iter::<Size>();
    let (mut sizes, mut read) = (Vec::new(), 0);
    while let Some(size) = found.next() {
        match size {
            Ok(size) => {
                serde_json::to_writer(&mut sizes, &size).ok()?;
                sizes.push(b'\n');
                read = found.byte_offset();
            }
            Err(error) if error.is_eof() => break,
            Err(_) => return None,
        }
    }
    Some((sizes, read))
}

async fn read_outcome(stream: &mut Stream) -> Vec<u8> {
    let mut message = Vec::new();
    // A truncated stream counts as ended.
    let _ = (&mut *stream).take(OUTCOME_BYTES + 1).read_to_end(&mut message).await;
    // Unread data would block the other streams.
    let _ = tokio::io::copy(stream, &mut tokio::io::sink()).await;
    message
}

/// The parts of a `Status` that describe how a process ended.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Ended {
    status: String,
    message: String,
    reason: String,
    details: Option<EndedDetails>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EndedDetails {
    causes: Vec<EndedCause>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EndedCause {
    reason: String,
    message: String,
}

/// Decodes the outcome from the kubelet. Empty means success.
fn outcome(message: &[u8], version: usize) -> Outcome {
    if message.is_empty() {
        return Outcome::Success;
    }
    if message.len() as u64 > OUTCOME_BYTES {
        let limit = OUTCOME_BYTES >> 10;
        return Outcome::Failed(format!(
            "error stream protocol error: the outcome is longer than {limit} KiB"
        ));
    }
    let text = String::from_utf8_lossy(message);
    if version < 3 {
        return Outcome::Failed(format!("error executing remote command: {text}"));
    }
    let ended: Ended = match serde_json::from_slice(message) {
        Ok(ended) => ended,
        Err(why) => return Outcome::Failed(format!("error stream protocol error: {why} in {text:?}")),
    };
    match (&*ended.status, &*ended.reason) {
        ("Success", _) => Outcome::Success,
        ("Failure", "NonZeroExitCode") => exit_code(ended.details),
        ("Failure", _) => Outcome::Failed(ended.message),
        _ => Outcome::Failed("error stream protocol error: unknown error".into()),
    }
}

fn exit_code(details: Option<EndedDetails>) -> Outcome {
    let Some(details) = details else {
        return Outcome::Failed("error stream protocol error: details must be set".into());
    };
    let Some(cause) = details.causes.iter().find(|cause| cause.reason == "ExitCode") else {
        return Outcome::Failed("error stream protocol error: no ExitCode cause given".into());
    };
    match cause.message.parse() {
        Ok(code) => Outcome::Exited(code),
        Err(_) => {
            let why = format!("error stream protocol error: invalid exit code value {:?}", cause.message);
            Outcome::Failed(why)
        }
    }
}

impl Outcome {
    /// The code for metrics: an exit code is not an error of this server.
    pub(super) fn code(&self) -> u16 {
        match self {
            Self::Success | Self::Exited(_) => 200,
            Self::Failed(_) => 500,
            Self::Refused(code, _) => *code,
        }
    }

    /// The `Status` for the client, as v1.34 writes it.
    pub(super) fn status(&self) -> String {
        let status = match self {
            Self::Success => Status::success(0),
            Self::Exited(code) => exited(*code),
            Self::Failed(why) => Status::internal(why),
            Self::Refused(_, text) => return text.clone(),
        };
        escaped(&String::from_utf8_lossy(&status.without_kind().to_bytes()))
    }
}

fn exited(code: u8) -> Status {
    let message =
        format!("command terminated with non-zero exit code: command terminated with exit code {code}");
    let cause = Cause { reason: "ExitCode".into(), message: code.to_string(), ..Cause::default() };
    let mut status = Status::success(0);
    status.status = "Failure".into();
    status.message = message;
    status.reason = "NonZeroExitCode".into();
    status.details = Some(Details { causes: vec![cause], ..Details::default() });
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_written_as_v1_34_does() {
        let check = |message: &str, version: usize, expected: &str| {
            assert_eq!(outcome(message.as_bytes(), version).status(), expected, "{message}");
        };
        check("", 4, r#"{"metadata":{},"status":"Success"}"#);
        check(r#"{"metadata":{},"status":"Success"}"#, 3, r#"{"metadata":{},"status":"Success"}"#);
        check(
            r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"2"}]}}"#,
            4,
            r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: command terminated with exit code 2","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"2"}]}}"#,
        );
        check(
            r#"{"status":"Failure","message":"a<b"}"#,
            4,
            r#"{"metadata":{},"status":"Failure","message":"Internal error occurred: a\u003cb","reason":"InternalError","details":{"causes":[{"message":"a\u003cb"}]},"code":500}"#,
        );
        let failed = |message: &str, version| match outcome(message.as_bytes(), version) {
            Outcome::Failed(why) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(failed("boom", 2), "error executing remote command: boom");
        assert_eq!(failed("{}", 3), "error stream protocol error: unknown error");
        assert!(failed("boom", 3).starts_with("error stream protocol error: "));
        let no_code = r#"{"status":"Failure","reason":"NonZeroExitCode","details":{}}"#;
        assert_eq!(failed(no_code, 3), "error stream protocol error: no ExitCode cause given");
        let huge = r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"256"}]}}"#;
        assert_eq!(failed(huge, 3), r#"error stream protocol error: invalid exit code value "256""#);
    }

    #[test]
    fn a_refusal_that_is_a_status_is_passed_on() {
        let status = r#"{"apiVersion":"v1","kind":"Status","status":"Failure","code":403}"#;
        assert_eq!(refused(status).code(), 403);
        let Outcome::Failed(why) = refused("container not found\n") else { panic!() };
        assert_eq!(why, "unable to upgrade connection: container not found");
    }

    #[test]
    fn sizes_are_read_one_by_one() {
        let check = |text: &str, expected: Option<(&str, usize)>| {
            let read = sizes(text.as_bytes());
            let read = read.as_ref().map(|(sizes, read)| (std::str::from_utf8(sizes).unwrap(), *read));
            assert_eq!(read, expected, "{text}");
        };
        check("", Some(("", 0)));
        check(r#"{"Width":80,"Height":24}"#, Some(("{\"Width\":80,\"Height\":24}\n", 24)));
        check(r#"{"Width":80}{"Hei"#, Some(("{\"Width\":80,\"Height\":0}\n", 12)));
        check(r#"{"Width":-1}"#, None);
        check("x", None);
    }
}
