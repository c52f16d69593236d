//! Attaching to a container: to its input and output if it waits for input, otherwise to its log.

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::Request;
use hyper::body::Incoming;
use setpoint::{Clock, Key};
use tokio::sync::mpsc;

use super::outcome::Outcome;
use super::remote::{Prepared, Run, Target, upgraded};
use super::request::Wanted;
use super::route::{Answered, Refusal};
use super::{Node, Upgrade};
use crate::log::{LOOK_AFTER, LOOK_EVERY, LogStream};
use crate::process::{ClientStreams, Shell, run_session};
use crate::runtime::{Ending, script, spans};

impl Node {
    pub(super) async fn attach_request(
        &self,
        request: &mut Request<Incoming>,
        (namespace, pod, uid, container): Target<'_>,
        query: &str,
        upgrades: &mpsc::Sender<Upgrade>,
    ) -> Answered {
        let mut wanted = Wanted::parse(query).map_err(Refusal::bad_request)?;
        let prepared = self.prepare_exec(namespace, pod, uid, container).await.map_err(|refusal| {
            // A kubelet has a different message for attach.
            match refusal.clone().text().starts_with("container not found") {
                true => {
                    Refusal::internal(format!("container {container} not found in pod {pod}_{namespace}"))
                }
                false => refusal,
            }
        })?;
        // Whether there is a terminal depends on the container, not on the client.
        wanted.tty = prepared.container.tty == Some(true);
        let run: Run = Box::new(move |streams| async move { prepared.attach(streams).await }.boxed());
        upgraded(request, wanted, run, upgrades)
    }
}

impl Prepared {
    async fn attach(self, streams: ClientStreams) -> Outcome {
        let waits = self.container.stdin == Some(true) && streams.stdin.is_some();
        match self.run_number().filter(|_| waits) {
            Some((number, _)) => self.talk(number, streams).await,
            None => self.watch(streams).await,
        }
    }

    fn key(&self) -> Key {
        self.pod.key().clone()
    }

    /// Returns the number and the start of the container's current run.
    pub(super) fn run_number(&self) -> Option<(u32, jiff::Timestamp)> {
        let current = self.node.server.pods.get(&self.key()).ok().flatten()?;
        let status = current.status.all_containers().find(|status| status.name == self.container.name)?;
        let span = spans(status).0.filter(|span| span.until.is_none())?;
        (current.meta().uid == self.pod.meta().uid).then_some((span.number, span.since))
    }

    /// Runs the container's program with the client's streams. The container ends with it.
    async fn talk(self, number: u32, mut streams: ClientStreams) -> Outcome {
        let mut session = Session {
            prepared: &self,
            number,
            is_open: true,
            ends_with_client: self.container.stdin_once == Some(true),
        };
        let (invocation, log) = {
            let state = self.state.lock().await;
            state.sandbox.note_change();
            let invocation = state.sandbox.invocation(&self.container, &self.node.server.clock);
            (invocation, state.sandbox.outputs(&self.container.name))
        };
        let Some(invocation) = invocation else { return Outcome::Success };
        let Some(program) = script(&self.container, &invocation.environment) else { return Outcome::Success };
        // The end of input of a disconnected client does not end a container that others may attach to.
        let (input, read) = mpsc::channel(1);
        let client = streams.stdin.replace(read);
        let is_kept_open = !session.ends_with_client;
        let passing = async move {
            if let Some(mut client) = client {
                while let Some(piece) = client.recv().await {
                    if input.send(piece).await.is_err() {
                        break;
                    }
                }
            }
            if is_kept_open {
                std::future::pending::<()>().await;
            }
            drop(input);
            std::future::pending::<()>().await;
        };
        let running = run_session(Shell::new(invocation), &program, streams, log);
        let code = tokio::select! {
            biased;
            done = running => done.unwrap_or(1),
            () = passing => 0,
            // The container has already ended.
            () = self.ended() => 0,
        };
        session.end(code);
        Outcome::Success
    }

    /// Streams the container's output until it ends.
    async fn watch(self, streams: ClientStreams) -> Outcome {
        let clock = self.node.server.clock.clone();
        let Some((number, _)) = self.run_number() else { return Outcome::Success };
        let mut next = self.printed(u64::MAX).await.1;
        loop {
            let runs = self.run_number().is_some_and(|(current, _)| current == number);
            let (lines, after) = self.printed(next).await;
            next = after;
            for (stream, text) in lines {
                let output = match stream {
                    LogStream::Stdout => &streams.stdout,
                    LogStream::Stderr if streams.is_terminal => &streams.stdout,
                    LogStream::Stderr => &streams.stderr,
                };
                if let Some(output) = output
                    && output.send(text).await.is_err()
                {
                    return Outcome::Success;
                }
            }
            if !runs {
                return Outcome::Success;
            }
            self.wait(&clock).await;
        }
    }

    /// Returns the lines of the log from a number on, and the number of the next one.
    async fn printed(&self, from: u64) -> (Vec<(LogStream, Bytes)>, u64) {
        let now = self.node.server.clock.now();
        let mut state = self.state.lock().await;
        if let Ok(Some(current)) = self.node.server.pods.get(&self.key()) {
            state.sandbox.advance(current.status.all_containers(), now).await;
        }
        let Some(log) = state.sandbox.log(&self.container.name, false) else { return (Vec::new(), from) };
        let (lines, next) = log.lines_from(from);
        (lines.map(|line| (line.stream, Bytes::copy_from_slice(&line.text))).collect(), next)
    }

    async fn wait(&self, clock: &Clock) {
        let now = clock.now();
        let next = self.state.lock().await.sandbox.next_line(&self.container.name, now);
        let until = next.and_then(|next| Duration::try_from(next.duration_since(now)).ok());
        let wait = until.map_or(LOOK_EVERY, |until| until.min(LOOK_EVERY));
        clock.sleep(wait.max(LOOK_AFTER)).await;
    }
}

/// A client that is attached to the input of a container.
struct Session<'a> {
    prepared: &'a Prepared,
    number: u32,
    is_open: bool,
    /// Whether the container's input ends with this client.
    ends_with_client: bool,
}

impl Session<'_> {
    /// Records that the container's program has ended.
    fn end(&mut self, code: i32) {
        self.is_open = false;
        let Some((number, since)) = self.prepared.run_number().filter(|(number, _)| *number == self.number)
        else {
            return;
        };
        let server = &self.prepared.node.server;
        let after = Duration::try_from(server.clock.now().duration_since(since)).unwrap_or_default();
        let ending = Ending { after, code, message: Box::default() };
        server.fates.end(&self.prepared.pod.meta().uid, &self.prepared.container.name, number, ending);
        server.queue.add(self.prepared.key());
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if self.is_open && self.ends_with_client {
            self.end(0);
        }
    }
}
