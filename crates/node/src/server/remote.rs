//! Remote commands: exec, run and attach, before and after their connection is upgraded.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Container;
use setpoint::Cached;
use tokio::sync::{Mutex, mpsc};

use super::outcome::Outcome;
use super::request::{
    ACCEPTED_PROTOCOLS, STREAM_PROTOCOL, Wanted, chosen, is_spdy, is_websocket, proposed, values,
};
use super::route::{Answered, Body, Refusal, empty, plain};
use super::{Node, Upgrade, spdy, websocket};
use crate::log::LOOK_EVERY;
use crate::process::{ClientStreams, NOT_FOUND, Shell, base_name, is_known, not_found, run_session};
use crate::runtime::SandboxState;
use crate::shell::command as script_of;
use crate::view::PodView;

/// A pod's namespace and name, its UID if that is given, and a container.
pub(super) type Target<'a> = (&'a str, &'a str, Option<&'a str>, &'a str);

/// The versions of the protocol over SPDY, the newest first.
const VERSIONS: [&str; 4] = ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];

/// The task that runs once a client's streams are open.
pub(super) type Run = Box<dyn FnOnce(ClientStreams) -> BoxFuture<'static, Outcome> + Send>;

/// A container that a command can be run in.
pub(super) struct Prepared {
    pub(super) node: Node,
    pub(super) pod: Cached<PodView>,
    pub(super) container: Container,
    pub(super) state: Arc<Mutex<SandboxState>>,
}

impl Node {
    /// Finds a running container, and brings its files up to date.
    pub(super) async fn prepare_exec(
        &self,
        namespace: &str,
        pod: &str,
        uid: Option<&str>,
        container: &str,
    ) -> Result<Prepared, Refusal> {
        let found = self.pod(namespace, pod).ok_or_else(|| Refusal::not_found("pod does not exist"))?;
        let missing = || Refusal::internal(format!("container not found ({container:?})"));
        if uid.is_some_and(|uid| *uid != *found.meta().uid) || !runs(&found, container) {
            return Err(missing());
        }
        let entered = self.enter(&found).await.map_err(|why| Refusal::internal(shown(&why)))?;
        let container = entered.pod.container(container).cloned().ok_or_else(missing)?;
        Ok(Prepared { node: self.clone(), pod: found, container, state: entered.state })
    }

    pub(super) async fn exec_request(
        &self,
        request: &mut Request<Incoming>,
        (namespace, pod, uid, container): Target<'_>,
        query: &str,
        upgrades: &mpsc::Sender<Upgrade>,
    ) -> Answered {
        let wanted = Wanted::parse(query).map_err(Refusal::bad_request)?;
        let command = values(query, "command");
        let prepared = self.prepare_exec(namespace, pod, uid, container).await?;
        let run: Run = Box::new(move |streams| {
            async move {
                match prepared.run(&command, streams).await {
                    Ok(code) => Outcome::of(code, &command),
                    Err(why) => Outcome::Failed(format!("error executing command in container: {why}")),
                }
            }
            .boxed()
        });
        upgraded(request, wanted, run, upgrades)
    }

    /// `POST /run`: a command whose output is the response.
    pub(super) async fn run_request(
        &self,
        namespace: &str,
        pod: &str,
        uid: Option<&str>,
        container: &str,
        query: &str,
    ) -> Answered {
        let prepared = self.prepare_exec(namespace, pod, uid, container).await?;
        let text = values(query, "cmd").into_iter().next().unwrap_or_default();
        let command: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let (pieces, mut output) = mpsc::channel(8);
        let streams =
            ClientStreams { stdout: Some(pieces.clone()), stderr: Some(pieces), ..Default::default() };
        let collecting = async {
            let mut all = Vec::new();
            while let Some(piece) = output.recv().await {
                all.extend_from_slice(&piece[..piece.len().min(OUTPUT_BYTES - all.len().min(OUTPUT_BYTES))]);
            }
            all
        };
        let (code, output) = tokio::join!(prepared.run(&command, streams), collecting);
        match code {
            Ok(0) => Ok(plain(output)),
            Ok(code) => Err(Refusal::internal(format!("command '{text}' exited with {code}"))),
            Err(why) => Err(Refusal::internal(why)),
        }
    }
}

/// The most output of a command that is a response: as much as a kubelet sends.
const OUTPUT_BYTES: usize = 1 << 20;

/// Whether a container runs.
fn runs(pod: &PodView, container: &str) -> bool {
    let mut statuses = pod.status.all_containers();
    statuses.any(|status| status.name == container && status.state.running.is_some())
}

/// Formats an error with its source.
pub(super) fn shown(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

impl Prepared {
    /// Runs a command. An error says why it cannot be started.
    pub(super) async fn run(&self, command: &[String], streams: ClientStreams) -> Result<i32, String> {
        let Some(name) = command.first() else { return Err("you must specify at least one command".into()) };
        if !is_known(base_name(name)) {
            return Ok(refuse(name, &streams).await);
        }
        let invocation = self.state.lock().await.sandbox.invocation(&self.container, &self.node.server.clock);
        let mut invocation =
            invocation.ok_or_else(|| format!("container not found ({:?})", self.container.name))?;
        if streams.is_terminal {
            invocation.environment.entry("TERM".into()).or_insert_with(|| "xterm".into());
        }
        let script = script_of(command);
        tokio::select! {
            biased;
            // A user's command reports unknown commands, and exits.
            done = run_session(Shell::new(invocation), &script, streams, None) => Ok(done.unwrap_or(1)),
            () = self.ended() => Ok(KILLED),
        }
    }

    /// Waits for the end of the container's current run, or of its pod.
    pub(super) async fn ended(&self) {
        let run = self.run_number();
        while run.is_some() && self.run_number() == run {
            self.node.server.clock.sleep(LOOK_EVERY).await;
        }
    }
}

/// The exit code of a command that is killed with its container.
const KILLED: i32 = 128 + 9;

/// Reports an executable that does not exist, as a container runtime does.
async fn refuse(name: &str, streams: &ClientStreams) -> i32 {
    let why = match name.contains('/') {
        true => format!("stat {name}: no such file or directory"),
        false => "executable file not found in $PATH".to_owned(),
    };
    let end = if streams.is_terminal { "\r\n" } else { "\n" };
    let text = format!(
        "OCI runtime exec failed: exec failed: unable to start container process: exec: {name:?}: {why}: unknown{end}{}{end}",
        not_found()
    );
    if let Some(pieces) = streams.stderr.as_ref().or(streams.stdout.as_ref()) {
        // A disconnected client needs no message.
        _ = pieces.send(text.into()).await;
    }
    NOT_FOUND
}

/// Upgrades a connection to the protocol that the client proposes, and runs a command on it.
pub(super) fn upgraded(
    request: &mut Request<Incoming>,
    wanted: Wanted,
    run: Run,
    upgrades: &mpsc::Sender<Upgrade>,
) -> Answered {
    if is_websocket(request.headers()) {
        let (response, protocol) = websocket::accept(request.headers(), &websocket::COMMANDS)?;
        let upgrading = hyper::upgrade::on(request);
        return after(upgrading, response, upgrades, move |connection| {
            websocket::serve_command(TokioIo::new(connection), protocol, wanted, run).boxed()
        });
    }
    let (response, protocol) = match accept_spdy(request, &VERSIONS)? {
        Ok(accepted) => accepted,
        Err(refused) => return Ok(refused),
    };
    let upgrading = hyper::upgrade::on(request);
    // A client without a proposal uses the oldest.
    let version = VERSIONS.iter().rev().position(|version| Some(*version) == protocol).unwrap_or(0) + 1;
    after(upgrading, response, upgrades, move |connection| {
        spdy::serve_command(TokioIo::new(connection), version, wanted, run).boxed()
    })
}

/// The response that accepts an upgrade, and the protocol chosen from the client's proposals.
type AcceptedUpgrade<'p> = (Response<Body>, Option<&'p str>);

/// Accepts an upgrade to SPDY. The inner error is the response to a client that proposes only other protocols.
pub(super) fn accept_spdy<'p>(
    request: &Request<Incoming>,
    protocols: &[&'p str],
) -> Result<Result<AcceptedUpgrade<'p>, Response<Body>>, Refusal> {
    let headers = request.headers();
    if !is_spdy(headers) {
        return Err(Refusal::bad_request("Upgrade request required"));
    }
    let protocol = match chosen(&proposed(headers, &STREAM_PROTOCOL), protocols) {
        Ok(protocol) => protocol,
        Err(why) => {
            let mut refused = plain(why);
            *refused.status_mut() = StatusCode::FORBIDDEN;
            let accepted = protocols.iter().filter_map(|protocol| HeaderValue::from_str(protocol).ok());
            for protocol in accepted {
                refused.headers_mut().append(ACCEPTED_PROTOCOLS, protocol);
            }
            return Ok(Err(refused));
        }
    };
    let mut response = empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    if let Some(Ok(protocol)) = protocol.map(HeaderValue::from_str) {
        headers.insert(STREAM_PROTOCOL, protocol);
    }
    Ok(Ok((response, protocol)))
}

/// Runs a task on a connection once its upgrade was accepted.
pub(super) fn after(
    upgrading: OnUpgrade,
    response: Response<Body>,
    upgrades: &mpsc::Sender<Upgrade>,
    serve: impl FnOnce(Upgraded) -> BoxFuture<'static, ()> + Send + 'static,
) -> Answered {
    let task = async move {
        match upgrading.await {
            Ok(connection) => serve(connection).await,
            Err(error) => tracing::debug!(%error, "a connection was not upgraded"),
        }
    };
    let refused = |_| Refusal::bad_request("the connection is being upgraded already");
    upgrades.try_send(task.boxed()).map_err(refused)?;
    Ok(response)
}
