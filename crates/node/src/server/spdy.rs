//! Remote commands over SPDY: a stream for each of stdin, stdout, stderr, the outcome and the size of the terminal.

use std::time::Duration;

use bytes::Bytes;
use setpoint_spdy::{Connection, Role, Settings, Stream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf};
use tokio::sync::mpsc;

use super::remote::Run;
use super::request::Wanted;
use crate::process::ClientStreams;

/// How long a client may take to open its streams, as with a kubelet.
const CREATION_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a connection may be idle, as with a kubelet.
pub(super) const IDLE: Duration = Duration::from_secs(4 * 3600);

/// The timeout for closing a connection.
pub(super) const CLOSE: Duration = Duration::from_secs(5);

/// How much is read from a stream at once, and how many such pieces wait for each other: 128 KiB for each stream.
const PIECE_BYTES: usize = 16 << 10;
pub(super) const PIECES: usize = 8;

const STREAM_TYPE: &str = "streamType";

/// The streams of a command. The protocol is older than version 2 if it has none for the outcome's end.
#[derive(Default)]
struct Streams {
    error: Option<Stream>,
    stdin: Option<Stream>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    resize: Option<Stream>,
}

/// Returns the settings of a connection.
pub(super) fn settings() -> Settings {
    Settings { idle_timeout: Some(IDLE), ..Settings::default() }
}

/// The maximum number of streams of a command: five, and some that are refused.
const COMMAND_STREAMS: usize = 8;

/// Serves a command on an upgraded connection, until it ends or the client is gone.
pub(super) async fn serve_command(
    io: impl AsyncRead + AsyncWrite + Unpin,
    version: usize,
    wanted: Wanted,
    run: Run,
) {
    let settings = Settings { streams: COMMAND_STREAMS, ..settings() };
    let (connection, driver) = setpoint_spdy::connect(io, Role::Server, settings);
    let mut driver = std::pin::pin!(driver);
    let serving = async {
        let accepted = tokio::time::timeout(CREATION_TIMEOUT, Streams::accept(&connection, version, wanted));
        match accepted.await {
            Ok(Some(streams)) => tokio::select! {
                biased;
                () = streams.run(version, wanted, run) => {}
                () = refuse_others(&connection) => {}
            },
            Ok(None) => {}
            Err(_) => tracing::debug!("timed out waiting for client to create streams"),
        }
    };
    tokio::select! {
        biased;
        () = serving => {}
        // The client has disconnected, which ends the command.
        _ = &mut driver => return,
    }
    connection.close();
    _ = tokio::time::timeout(CLOSE, driver).await;
}

/// Refuses the streams that a client opens after those of its command.
async fn refuse_others(connection: &Connection) {
    while let Some(incoming) = connection.accept().await {
        incoming.refuse();
    }
    std::future::pending().await
}

impl Streams {
    /// Waits for the streams that the client wants. `None` if the connection ends before.
    async fn accept(connection: &Connection, version: usize, wanted: Wanted) -> Option<Self> {
        let Wanted { stdin, stdout, stderr, tty } = wanted;
        let expected = [true, stdin, stdout, stderr, tty && version >= 3];
        let expected = expected.into_iter().filter(|is_expected| *is_expected).count();
        let (mut streams, mut count) = (Self::default(), 0);
        while count < expected {
            let incoming = connection.accept().await?;
            let kind = incoming.headers().get(STREAM_TYPE).unwrap_or_default().to_owned();
            let place = match kind.as_str() {
                "error" => &mut streams.error,
                "stdin" => &mut streams.stdin,
                "stdout" => &mut streams.stdout,
                "stderr" => &mut streams.stderr,
                "resize" if version >= 3 => &mut streams.resize,
                _ => {
                    incoming.refuse();
                    continue;
                }
            };
            if place.is_some() {
                incoming.refuse();
                continue;
            }
            *place = Some(incoming.accept());
            count += 1;
        }
        Some(streams)
    }

    async fn run(self, version: usize, wanted: Wanted, run: Run) {
        let Self { error, stdin, stdout, stderr, resize } = self;
        let (input, read) = mpsc::channel(PIECES);
        let ((out, printed), (err, complained)) = (mpsc::channel(PIECES), mpsc::channel(PIECES));
        let streams = ClientStreams {
            stdin: stdin.is_some().then_some(read),
            stdout: stdout.is_some().then_some(out),
            stderr: stderr.is_some().then_some(err),
            is_terminal: wanted.tty,
        };
        let reading = async {
            tokio::join!(receive(stdin, input), ignore(resize));
            std::future::pending::<()>().await;
        };
        let running = async {
            let (outcome, (), ()) =
                tokio::join!(run(streams), send(stdout, printed), send(stderr, complained));
            outcome
        };
        let outcome = tokio::select! {
            biased;
            outcome = running => outcome,
            () = reading => return,
        };
        let Some(mut error) = error else { return };
        let encoded = outcome.encode(version >= 4);
        // A disconnected client needs no outcome.
        if error.write_all(encoded.as_bytes()).await.is_ok() {
            _ = error.shutdown().await;
        }
    }
}

/// Passes a client's input to a command, including its end.
async fn receive(stream: Option<Stream>, pieces: mpsc::Sender<Bytes>) {
    let Some(stream) = stream else { return };
    let (mut stream, _keeps_open) = tokio::io::split(stream);
    while let Some(piece) = read_piece(&mut stream).await {
        if pieces.send(piece).await.is_err() {
            // The command no longer reads. Further input is dropped, so that the client is not blocked.
            while read_piece(&mut stream).await.is_some() {}
            break;
        }
    }
    drop(pieces);
    // The stream stays open until the command has ended: its end would be a reset.
    std::future::pending::<()>().await;
}

async fn read_piece(stream: &mut ReadHalf<Stream>) -> Option<Bytes> {
    let mut piece = vec![0; PIECE_BYTES];
    let length = stream.read(&mut piece).await.ok().filter(|length| *length > 0)?;
    piece.truncate(length);
    Some(piece.into())
}

/// Sends the output of a command, including its end.
async fn send(stream: Option<Stream>, mut pieces: mpsc::Receiver<Bytes>) {
    let Some(mut stream) = stream else { return };
    while let Some(piece) = pieces.recv().await {
        if stream.write_all(&piece).await.is_err() {
            return;
        }
    }
    _ = stream.shutdown().await;
}

/// Reads the sizes of the terminal. A simulated one has none.
async fn ignore(stream: Option<Stream>) {
    let Some(mut stream) = stream else { return };
    let mut dropped = [0; 256];
    while stream.read(&mut dropped).await.is_ok_and(|length| length > 0) {}
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use setpoint_spdy::Headers;
    use tokio::io::DuplexStream;
    use tokio::task::JoinHandle;

    use super::super::outcome::Outcome;
    use super::*;

    /// A client of a command that echoes its input and exits with 3.
    struct Client {
        connection: Connection,
        _driver: JoinHandle<()>,
        server: JoinHandle<()>,
    }

    fn echo(mut streams: ClientStreams) -> futures::future::BoxFuture<'static, Outcome> {
        async move {
            let (mut stdin, stdout) =
                (streams.stdin.take().expect("stdin"), streams.stdout.take().expect("stdout"));
            while let Some(piece) = stdin.recv().await {
                if stdout.send(piece).await.is_err() {
                    break;
                }
            }
            Outcome::of(3, &["cat".to_owned()])
        }
        .boxed()
    }

    fn start(version: usize, wanted: Wanted) -> Client {
        let (ours, theirs): (DuplexStream, DuplexStream) = tokio::io::duplex(1024);
        let server = tokio::spawn(serve_command(theirs, version, wanted, Box::new(echo)));
        let (connection, driver) = setpoint_spdy::connect(ours, Role::Client, Settings::default());
        let driver = tokio::spawn(async move { drop(driver.await) });
        Client { connection, _driver: driver, server }
    }

    async fn open(connection: &Connection, kind: &str) -> Stream {
        connection.open(Headers::new().with(STREAM_TYPE, kind)).await.expect("a stream")
    }

    const WANTED: Wanted = Wanted { stdin: true, stdout: true, stderr: false, tty: false };

    #[tokio::test(start_paused = true)]
    async fn a_command_gets_its_streams_and_reports_its_outcome() {
        let client = start(4, WANTED);
        let mut error = open(&client.connection, "error").await;
        let refused = client.connection.open(Headers::new().with(STREAM_TYPE, "pigeon")).await;
        assert!(refused.is_err(), "it has no meaning");
        let mut stdin = open(&client.connection, "stdin").await;
        let mut stdout = open(&client.connection, "stdout").await;
        for _ in 0..20 {
            let more = client.connection.open(Headers::new().with(STREAM_TYPE, "stdout")).await;
            assert!(more.is_err(), "it has all its streams");
        }
        let text = vec![b'x'; 200_000];
        let writing = async {
            stdin.write_all(&text).await.expect("it reads");
            stdin.shutdown().await.expect("it reads");
        };
        let (mut seen, mut outcome) = (Vec::new(), String::new());
        let (_, read) = tokio::join!(writing, stdout.read_to_end(&mut seen));
        read.expect("it ends");
        assert_eq!(seen, text);
        error.read_to_string(&mut outcome).await.expect("it ends");
        assert!(
            outcome.contains(r#""reason":"ExitCode""#) && outcome.contains(r#""message":"3""#),
            "{outcome}"
        );
        drop((stdin, stdout, error, client.connection));
        client.server.await.expect("it ends with its client");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_opens_no_streams_or_goes_away_is_not_waited_for() {
        let idle = start(4, WANTED);
        let _error = open(&idle.connection, "error").await;
        idle.server.await.expect("it gives up");
        let client = start(1, WANTED);
        let streams = (open(&client.connection, "error").await, open(&client.connection, "stdin").await);
        let stdout = open(&client.connection, "stdout").await;
        client._driver.abort();
        drop((streams, stdout));
        client.server.await.expect("it ends with its client");
    }
}
