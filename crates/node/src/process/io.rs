//! The standard streams of a process.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{Machine, Stop, Terminal, UnknownCommands};
use crate::files::FileError;
use crate::log::LogWriter;

/// The streams of a process. Cheap to clone; clones share them.
#[derive(Clone)]
pub(crate) struct Io {
    pub(crate) stdin: Input,
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
    /// The terminal of the session, if it has one.
    pub(crate) terminal: Option<Arc<Terminal>>,
}

#[derive(Clone)]
pub(crate) enum Input {
    Empty,
    /// The output of another command, or a file.
    Text(Arc<Mutex<Bytes>>),
    /// The input of a client.
    Client(Arc<tokio::sync::Mutex<Incoming>>),
    /// Open, but without any input.
    Silent,
}

/// The input of a client, in pieces.
pub(crate) struct Incoming {
    pieces: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

#[derive(Clone)]
pub(crate) enum Output {
    Null,
    /// For another command.
    Buffer(Arc<Mutex<Vec<u8>>>),
    /// Appends to a file, by its normal path.
    File(Arc<str>),
    /// To a client. The channel's capacity is its back pressure.
    Client(mpsc::Sender<Bytes>),
    /// To a client's terminal.
    Terminal(mpsc::Sender<Bytes>),
    Log(LogWriter),
    Both(Arc<(Self, Self)>),
}

/// The capacity of a pipe. Its commands do not run concurrently, so this is more than in Linux.
const PIPE_BYTES: usize = 1 << 20;

/// The maximum size of a piece that is sent to a client.
const PIECE_BYTES: usize = 32 << 10;

/// The exit code of a process that writes where nothing reads.
const BROKEN_PIPE: i32 = 128 + 13;

impl Io {
    /// Streams that lead nowhere.
    pub(crate) fn null() -> Self {
        Self { stdin: Input::Empty, stdout: Output::Null, stderr: Output::Null, terminal: None }
    }

    /// Whether stdout is a terminal.
    pub(super) fn is_terminal(&self) -> bool {
        self.terminal.is_some() && self.stdout.is_terminal()
    }
}

impl Incoming {
    pub(crate) fn new(pieces: mpsc::Receiver<Bytes>) -> Self {
        Self { pieces, rest: Bytes::new() }
    }

    /// Returns the next piece. An empty one is the end of input of a terminal, after which there may be more.
    async fn piece(&mut self) -> Option<Bytes> {
        match self.rest.is_empty() {
            true => self.pieces.recv().await.filter(|piece| !piece.is_empty()),
            false => Some(std::mem::take(&mut self.rest)),
        }
    }
}

impl Input {
    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        Self::Text(Arc::new(Mutex::new(text.into())))
    }

    pub(crate) fn client(pieces: mpsc::Receiver<Bytes>) -> Self {
        Self::Client(Arc::new(tokio::sync::Mutex::new(Incoming::new(pieces))))
    }

    /// Returns the next piece. `None` at the end.
    pub(crate) async fn read(&self, machine: &Machine) -> Result<Option<Bytes>, Stop> {
        match self {
            Self::Empty => Ok(None),
            Self::Text(rest) => Ok(Some(std::mem::take(&mut *rest.lock())).filter(|rest| !rest.is_empty())),
            Self::Client(incoming) => Ok(incoming.lock().await.piece().await),
            Self::Silent => Err(machine.pace.wait_forever().await),
        }
    }

    /// Returns everything up to the end, within the size of a pipe.
    pub(crate) async fn read_all(&self, machine: &Machine) -> Result<Vec<u8>, Stop> {
        let mut all = Vec::new();
        while let Some(piece) = self.read(machine).await? {
            all.extend_from_slice(&piece);
            if all.len() > PIPE_BYTES {
                return Err(too_much(machine));
            }
        }
        Ok(all)
    }

    /// Returns the next line with its end, if it has one. `None` at the end.
    pub(crate) async fn read_line(&self, machine: &Machine) -> Result<Option<Vec<u8>>, Stop> {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            let Some(mut piece) = self.read(machine).await? else { break };
            if let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
                self.unread(piece.split_off(end + 1)).await;
            }
            line.extend_from_slice(&piece);
            if line.len() > PIPE_BYTES {
                return Err(too_much(machine));
            }
        }
        Ok(Some(line).filter(|line| !line.is_empty()))
    }

    /// Puts back excess input.
    pub(super) async fn unread(&self, rest: Bytes) {
        match self {
            Self::Text(text) => *text.lock() = rest,
            Self::Client(incoming) => incoming.lock().await.rest = rest,
            Self::Empty | Self::Silent => {}
        }
    }
}

impl Output {
    pub(crate) fn buffer() -> (Self, Arc<Mutex<Vec<u8>>>) {
        let buffer = Arc::<Mutex<Vec<u8>>>::default();
        (Self::Buffer(buffer.clone()), buffer)
    }

    fn is_terminal(&self) -> bool {
        match self {
            Self::Terminal(_) => true,
            Self::Both(both) => both.0.is_terminal(),
            _ => false,
        }
    }

    pub(crate) async fn write(&self, machine: &Machine, text: &[u8]) -> Result<(), Stop> {
        if text.is_empty() {
            return Ok(());
        }
        match self {
            Self::Null => Ok(()),
            Self::Buffer(buffer) => {
                let mut buffer = buffer.lock();
                if buffer.len() + text.len() > PIPE_BYTES {
                    return Err(too_much(machine));
                }
                buffer.extend_from_slice(text);
                Ok(())
            }
            Self::File(path) => {
                let written = machine.files.append(path, text, machine.pace.now());
                written.map_err(Stop::WriteFailed)
            }
            Self::Client(pieces) => send(pieces, text).await,
            Self::Terminal(pieces) => {
                let text = String::from_utf8_lossy(text).replace('\n', "\r\n");
                send(pieces, text.as_bytes()).await
            }
            Self::Log(log) => {
                log.write(text, machine.pace.now());
                Ok(())
            }
            Self::Both(both) => {
                Box::pin(both.0.write(machine, text)).await?;
                Box::pin(both.1.write(machine, text)).await
            }
        }
    }
}

/// Sends text to a client in pieces.
async fn send(pieces: &mpsc::Sender<Bytes>, text: &[u8]) -> Result<(), Stop> {
    for piece in text.chunks(PIECE_BYTES) {
        let sent = pieces.send(Bytes::copy_from_slice(piece)).await;
        sent.map_err(|_| Stop::Exit(BROKEN_PIPE))?;
    }
    Ok(())
}

/// More text than the simulation holds.
fn too_much(machine: &Machine) -> Stop {
    match machine.manner {
        UnknownCommands::Certain => Stop::Unknown,
        UnknownCommands::Interactive => Stop::WriteFailed(FileError::NoSpace),
    }
}
