//! Runs a command for a client, with or without a terminal.
//!
//! A terminal behaves like a Linux pseudo-terminal in canonical mode: it echoes, collects lines, and turns Ctrl-C into
//! an interrupt and Ctrl-D into the end of input. Escape sequences are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use super::builtins::PARSED_BYTE;
use super::{Done, Input, Io, Machine, Output, Shell, Stop};
use crate::shell::{List, SyntaxError, parse};

/// The streams that a client has opened.
#[derive(Default)]
pub(crate) struct ClientStreams {
    pub(crate) stdin: Option<mpsc::Receiver<Bytes>>,
    pub(crate) stdout: Option<mpsc::Sender<Bytes>>,
    pub(crate) stderr: Option<mpsc::Sender<Bytes>>,
    pub(crate) is_terminal: bool,
}

/// The terminal of a session.
#[derive(Debug, Default)]
pub(crate) struct Terminal {
    interrupts: Notify,
    /// How many interactive shells run inside each other. The innermost handles interrupts.
    shells: AtomicUsize,
}

/// The maximum number of unread lines of a terminal. Further input waits.
const LINES: usize = 16;

/// The maximum length of a terminal line, as in Linux. The rest is dropped.
const MAX_LINE: usize = 4096;

/// The maximum length of a multi-line script from stdin.
const MAX_SCRIPT: usize = 256 << 10;

/// The exit code of an interrupted command.
const INTERRUPTED: i32 = 128 + 2;

/// Runs a script for a client. Its stdout and stderr are also written to `log`.
pub(crate) async fn run_session(
    mut shell: Shell,
    script: &List,
    streams: ClientStreams,
    log: Option<(Output, Output)>,
) -> Done {
    let ClientStreams { stdin, stdout, stderr, is_terminal } = streams;
    let client = |pieces: Option<mpsc::Sender<Bytes>>| match pieces {
        Some(pieces) if is_terminal => Output::Terminal(pieces),
        Some(pieces) => Output::Client(pieces),
        None => Output::Null,
    };
    let stdout = client(stdout);
    // A terminal has one stream for both.
    let stderr = if is_terminal { stdout.clone() } else { client(stderr) };
    let echo = stdout.clone();
    let (stdout, stderr) = match log {
        Some((log, error_log)) => (both(stdout, log), both(stderr, error_log)),
        None => (stdout, stderr),
    };
    let terminal = is_terminal.then(Arc::<Terminal>::default);
    let (lines, read_lines) = mpsc::channel(LINES);
    let (stdin, raw) = match (stdin, is_terminal) {
        (Some(raw), true) => (Input::client(read_lines), Some(raw)),
        (Some(pieces), false) => (Input::client(pieces), None),
        (None, _) => (Input::Empty, None),
    };
    let io = Io { stdin, stdout, stderr, terminal: terminal.clone() };
    let machine = shell.machine.clone();
    let pumping = async {
        if let (Some(raw), Some(terminal)) = (raw, &terminal) {
            terminal.pump(raw, lines, &echo, &machine).await;
        }
        std::future::pending::<()>().await;
    };
    let interrupted = async {
        match &terminal {
            Some(terminal) => terminal.interrupted(0).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        done = shell.run(script, &io) => done,
        () = interrupted => Ok(INTERRUPTED),
        () = pumping => Ok(0),
    }
}

fn both(first: Output, second: Output) -> Output {
    Output::Both(Arc::new((first, second)))
}

impl Terminal {
    /// Collects a client's input into lines, and echoes it. Ends when the client closes its input.
    async fn pump(
        &self,
        mut raw: mpsc::Receiver<Bytes>,
        lines: mpsc::Sender<Bytes>,
        echo: &Output,
        machine: &Machine,
    ) {
        let mut line = Line::default();
        while let Some(piece) = raw.recv().await {
            for byte in piece {
                let shown = match line.typed(byte) {
                    Typed::Nothing => continue,
                    Typed::Shown(shown) => shown,
                    Typed::Line(text) => {
                        if echo.write(machine, b"\n").await.is_err() || lines.send(text.into()).await.is_err()
                        {
                            return;
                        }
                        continue;
                    }
                    Typed::Interrupt => {
                        self.interrupts.notify_waiters();
                        b"^C\n".to_vec()
                    }
                };
                if echo.write(machine, &shown).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Waits for an interrupt while there are this many shells.
    async fn interrupted(&self, shells: usize) {
        loop {
            self.interrupts.notified().await;
            if self.shells.load(Ordering::Relaxed) == shells {
                return;
            }
        }
    }
}

/// A shell that handles the interrupts of a terminal, until another one does or it ends.
struct Foreground<'t> {
    terminal: &'t Terminal,
    level: usize,
}

impl<'t> Foreground<'t> {
    fn take(terminal: &'t Terminal) -> Self {
        Self { terminal, level: terminal.shells.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    async fn interrupted(&self) {
        self.terminal.interrupted(self.level).await;
    }
}

impl Drop for Foreground<'_> {
    fn drop(&mut self) {
        self.terminal.shells.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A line that is being typed.
#[derive(Default)]
struct Line {
    text: Vec<u8>,
    /// How much of an escape sequence has been typed.
    escape: usize,
}

enum Typed {
    Nothing,
    Shown(Vec<u8>),
    /// A complete line. Empty at the end of input.
    Line(Vec<u8>),
    Interrupt,
}

impl Line {
    fn typed(&mut self, byte: u8) -> Typed {
        if self.escape > 0 {
            // ESC [ parameters letter
            let goes_on = self.escape == 1 && matches!(byte, b'[' | b'O')
                || self.escape > 1 && !byte.is_ascii_alphabetic() && byte != b'~';
            self.escape = if goes_on { self.escape + 1 } else { 0 };
            return Typed::Nothing;
        }
        match byte {
            b'\r' | b'\n' => {
                self.text.push(b'\n');
                Typed::Line(std::mem::take(&mut self.text))
            }
            3 => {
                self.text.clear();
                Typed::Interrupt
            }
            // The end of input counts only at the start of a line.
            4 if self.text.is_empty() => Typed::Line(Vec::new()),
            8 | 127 => {
                let text = String::from_utf8_lossy(&self.text).into_owned();
                let Some(last) = text.chars().next_back() else { return Typed::Nothing };
                self.text = text.as_bytes()[..text.len() - last.len_utf8()].to_vec();
                Typed::Shown(b"\x08 \x08".to_vec())
            }
            27 => {
                self.escape = 1;
                Typed::Nothing
            }
            b'\t' | 32.. if self.text.len() < MAX_LINE => {
                self.text.push(byte);
                Typed::Shown(vec![byte])
            }
            _ => Typed::Nothing,
        }
    }
}

impl Shell {
    /// Runs the script on stdin, line by line.
    pub(super) async fn interpret(&mut self, io: &Io) -> Done {
        match (&io.terminal, &io.stdin) {
            (Some(terminal), Input::Client(_)) => self.interact(&Foreground::take(terminal), io).await,
            _ => self.interpret_lines(io).await,
        }
    }

    /// Whether the next line may complete a script. Each line of a compound command is parsed again with the lines before
    /// it, which counts as work.
    async fn is_incomplete(&mut self, text: &str) -> Result<bool, Stop> {
        self.machine.owe(text.len() * PARSED_BYTE);
        self.pay().await?;
        Ok(text.len() < MAX_SCRIPT && parse(text) == Err(SyntaxError::Incomplete))
    }

    async fn interpret_lines(&mut self, io: &Io) -> Done {
        let (mut text, mut code) = (String::new(), 0);
        while let Some(line) = io.stdin.read_line(&self.machine).await? {
            text.push_str(&String::from_utf8_lossy(&line));
            if self.is_incomplete(&text).await? {
                continue;
            }
            code = self.evaluate(&std::mem::take(&mut text), io).await?;
        }
        if text.is_empty() { Ok(code) } else { self.evaluate(&text, io).await }
    }

    /// Prompts for commands until the end of input.
    async fn interact(&mut self, foreground: &Foreground<'_>, io: &Io) -> Done {
        let mut text = String::new();
        loop {
            let prompt = if text.is_empty() { format!("{} # ", self.directory) } else { "> ".to_owned() };
            self.print(io, prompt).await?;
            let line = tokio::select! {
                biased;
                () = foreground.interrupted() => {
                    text.clear();
                    continue;
                }
                line = io.stdin.read_line(&self.machine) => line?,
            };
            let Some(line) = line else { return Ok(self.status) };
            text.push_str(&String::from_utf8_lossy(&line));
            if self.is_incomplete(&text).await? {
                continue;
            }
            self.status = self.interruptible(&std::mem::take(&mut text), foreground, io).await?;
        }
    }

    async fn interruptible(&mut self, text: &str, foreground: &Foreground<'_>, io: &Io) -> Done {
        let before = self.depth();
        let done = tokio::select! {
            biased;
            () = foreground.interrupted() => {
                self.return_to(before);
                return Ok(INTERRUPTED);
            }
            done = self.evaluate(text, io) => done,
        };
        match done {
            Err(Stop::Return(code)) => Ok(code),
            Err(Stop::Break(_) | Stop::Continue(_)) => Ok(0),
            done => done,
        }
    }
}
