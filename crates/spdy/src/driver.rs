//! Moves bytes between a connection's state and its transport.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::Sleep;

use crate::connection::Shared;
use crate::error::Error;
use crate::frame::{Decoder, Event, StreamId};
use crate::slot::register;
use crate::zlib::Deflate;

/// How much is read at once.
const READ_BYTES: usize = 16 << 10;
/// Rounds of reading and writing before yielding to other tasks.
const ROUNDS: usize = 32;
/// How long streams may take to read data that the peer sent before it disconnected.
const DRAIN: Duration = Duration::from_secs(5);

/// The future that runs a connection: it ends with the connection. Dropping it closes the connection immediately.
pub struct Driver<Io> {
    shared: Arc<Shared>,
    io: Io,
    decoder: Decoder,
    deflate: Deflate,
    input: BytesMut,
    output: BytesMut,
    is_unflushed: bool,
    /// Why nothing more can be written, and until when received data is still handled.
    write_error: Option<(io::Error, Timer)>,
    /// Data that its stream had no room for.
    held: Option<(StreamId, Bytes, bool)>,
    idle: Option<Timer>,
    ping: Option<Timer>,
}

/// A timer that can be started again.
struct Timer {
    period: Duration,
    sleep: Pin<Box<Sleep>>,
}

impl Timer {
    fn new(period: Duration) -> Self {
        Self { period, sleep: Box::pin(tokio::time::sleep(period)) }
    }

    fn restart(&mut self) {
        let deadline = tokio::time::sleep(self.period).deadline();
        self.sleep.as_mut().reset(deadline);
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.sleep.as_mut().poll(context)
    }
}

/// The result of a driver step.
enum Step {
    /// Something was moved: there may be more.
    Moved,
    /// Nothing can be moved until something else happens.
    Stuck,
    /// The peer closed the connection.
    Ended,
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Driver<Io> {
    pub(crate) fn new(shared: Arc<Shared>, io: Io) -> Self {
        let settings = shared.state.lock().settings;
        Self {
            shared,
            io,
            decoder: Decoder::default(),
            deflate: Deflate::default(),
            input: BytesMut::new(),
            output: BytesMut::new(),
            is_unflushed: false,
            write_error: None,
            held: None,
            idle: settings.idle_timeout.map(Timer::new),
            ping: settings.ping_period.map(Timer::new),
        }
    }

    fn poll_run(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        register(&mut self.shared.state.lock().driver, context);
        for _ in 0..ROUNDS {
            let (written, read) = (self.write(context), self.read(context)?);
            if matches!(read, Step::Ended) {
                return Poll::Ready(self.write_error.take().map_or(Ok(()), |(error, _)| Err(error.into())));
            }
            if self.shared.state.lock().is_done() && self.output.is_empty() {
                // Whether or not the peer still listens.
                _ = ready!(Pin::new(&mut self.io).poll_shutdown(context));
                return Poll::Ready(Ok(()));
            }
            if let (Step::Stuck, Step::Stuck) = (written, read) {
                if let Some(error) = self.given_up(context) {
                    return Poll::Ready(Err(error.into()));
                }
                // The GOAWAY frame still has to be written.
                if self.shared.state.lock().has_control() && self.output.is_empty() {
                    continue;
                }
                return self.poll_timers(context);
            }
            self.idle.iter_mut().for_each(Timer::restart);
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// The error of a peer that no longer reads, once its last data was read or timed out.
    fn given_up(&mut self, context: &mut Context<'_>) -> Option<io::Error> {
        let (_, drain) = self.write_error.as_mut()?;
        if self.held.is_some() && drain.poll(context).is_pending() {
            return None;
        }
        self.write_error.take().map(|(error, _)| error)
    }

    fn poll_timers(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.idle.as_mut().is_some_and(|idle| idle.poll(context).is_ready()) {
            return Poll::Ready(Err(Error::Idle));
        }
        while let Some(ping) = &mut self.ping
            && ping.poll(context).is_ready()
        {
            ping.restart();
            // Wakes this driver, which then writes it.
            self.shared.state.lock().send_ping();
        }
        Poll::Pending
    }

    /// Writes as much as possible. After a failure, the connection ends once all received data has been handled.
    fn write(&mut self, context: &mut Context<'_>) -> Step {
        if self.write_error.is_some() {
            self.shared.state.lock().drop_output();
            return Step::Stuck;
        }
        self.try_write(context).unwrap_or_else(|error| {
            self.write_error = Some((error, Timer::new(DRAIN)));
            self.output.clear();
            self.shared.state.lock().drop_output();
            Step::Moved
        })
    }

    fn try_write(&mut self, context: &mut Context<'_>) -> io::Result<Step> {
        let mut step = Step::Stuck;
        loop {
            if self.output.is_empty() {
                self.shared.state.lock().encode(&mut self.deflate, &mut self.output);
            }
            if self.output.is_empty() {
                if self.is_unflushed
                    && let Poll::Ready(flushed) = Pin::new(&mut self.io).poll_flush(context)
                {
                    flushed?;
                    self.is_unflushed = false;
                }
                return Ok(step);
            }
            match Pin::new(&mut self.io).poll_write(context, &self.output) {
                Poll::Pending => return Ok(step),
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => self.output.advance(written?),
            }
            self.is_unflushed = true;
            step = Step::Moved;
        }
    }

    /// Reads once, unless what was read before still waits to be handled.
    fn read(&mut self, context: &mut Context<'_>) -> Result<Step, Error> {
        let (step, is_handled) = self.handle_input()?;
        if !is_handled {
            return Ok(step);
        }
        self.input.reserve(READ_BYTES);
        match pin!(self.io.read_buf(&mut self.input)).poll(context) {
            Poll::Pending => Ok(step),
            Poll::Ready(read) => Ok(if read? == 0 { Step::Ended } else { Step::Moved }),
        }
    }

    /// Handles the frames that have been received. Returns whether there were any, and whether all were handled.
    fn handle_input(&mut self) -> Result<(Step, bool), Error> {
        let mut state = self.shared.state.lock();
        let mut step = Step::Stuck;
        loop {
            if state.is_congested() {
                return Ok((step, false));
            }
            if let Some((stream, data, is_last)) = self.held.take() {
                if !state.receive_data(stream, &data, is_last) {
                    self.held = Some((stream, data, is_last));
                    return Ok((step, false));
                }
                step = Step::Moved;
            }
            match self.decoder.next(&mut self.input)? {
                None => return Ok((step, true)),
                Some(Event::Control(frame)) => state.receive(frame),
                Some(Event::Data { stream, data, is_last }) => self.held = Some((stream, data, is_last)),
            }
            step = Step::Moved;
        }
    }

    /// Sends an error to a peer that violated the protocol, if this is possible without waiting.
    fn complain(&mut self, context: &mut Context<'_>) {
        let goodbye = self.shared.state.lock().goodbye_for_violation();
        goodbye.encode(&mut self.deflate, &mut self.output);
        if let Poll::Ready(Ok(_)) = Pin::new(&mut self.io).poll_write(context, &self.output) {
            _ = Pin::new(&mut self.io).poll_flush(context);
        }
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Future for Driver<Io> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let outcome = ready!(self.poll_run(context));
        if let Err(Error::Protocol(_)) = outcome {
            self.complain(context);
        }
        self.shared.end();
        Poll::Ready(outcome)
    }
}

impl<Io> Drop for Driver<Io> {
    fn drop(&mut self) {
        self.shared.end();
    }
}
