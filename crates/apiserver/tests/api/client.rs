//! A client for a server in the same process.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use setpoint_apiserver::admission::plugins;
use setpoint_apiserver::audit::AuditConfig;
use setpoint_apiserver::{ApiServer, Body, Config, TokenSigner, User};
use setpoint_clock::{Clock, Rng};
use setpoint_store::MemoryStore;

/// A new server, and an administrator's client.
pub(crate) struct Api {
    pub(crate) server: ApiServer,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) clock: Clock,
    pub(crate) user: User,
}

/// The response to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) content_type: String,
    pub(crate) warnings: Vec<String>,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Api {
    pub(crate) async fn start() -> Self {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        Self::start_on(Arc::new(MemoryStore::new(clock.clone())), clock).await
    }

    /// Like `start`, with RBAC.
    pub(crate) async fn start_with_roles() -> Self {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        Self::start_configured(Arc::new(MemoryStore::new(clock.clone())), clock, Config::with_roles).await
    }

    /// Like `start`, with changes to the configuration.
    pub(crate) async fn start_changed(change: impl FnOnce(Config) -> Config) -> Self {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        Self::start_configured(Arc::new(MemoryStore::new(clock.clone())), clock, change).await
    }

    /// Like `start`, with a key to sign service account tokens.
    pub(crate) async fn start_with_tokens(signer: TokenSigner) -> Self {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        let with_key = |config: Config| Config { token_signer: Some(signer), ..config.with_roles() };
        Self::start_configured(Arc::new(MemoryStore::new(clock.clone())), clock, with_key).await
    }

    /// Like `start`, with all restrictions for nodes.
    pub(crate) async fn start_with_nodes_held_back() -> Self {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        let signer = TokenSigner::from_pem(&TokenSigner::generate_key().unwrap()).unwrap();
        let held_back = |config: Config| {
            let admission = plugins(&["NodeRestriction".into()], &[]).unwrap();
            Config { token_signer: Some(signer), admission, ..config.with_roles() }
        };
        Self::start_configured(Arc::new(MemoryStore::new(clock.clone())), clock, held_back).await
    }

    /// Like `start`, with dual-stack Services.
    pub(crate) async fn start_dual_stack() -> Self {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        let dual = |config: Config| Config { service_cidr: "10.0.0.0/16,fd00::/112".into(), ..config };
        Self::start_configured(Arc::new(MemoryStore::new(clock.clone())), clock, dual).await
    }

    /// Like `start`, with an audit log and other changes to the configuration.
    pub(crate) async fn start_audited(audit: AuditConfig, change: impl FnOnce(Config) -> Config) -> Self {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        let audited = |config: Config| change(Config { audit: Some(audit), ..config });
        Self::start_configured(Arc::new(MemoryStore::new(clock.clone())), clock, audited).await
    }

    pub(crate) async fn start_on(store: Arc<MemoryStore>, clock: Clock) -> Self {
        Self::start_configured(store, clock, |config| config).await
    }

    pub(crate) async fn start_configured(
        store: Arc<MemoryStore>,
        clock: Clock,
        change: impl FnOnce(Config) -> Config,
    ) -> Self {
        let config = change(Config::new(store.clone(), clock.clone(), Rng::seeded(1)));
        let server = ApiServer::start(config).await.unwrap();
        Self { server, store, clock, user: User::authenticated("admin", "1", vec!["system:masters".into()]) }
    }

    /// Starts another server with the same store.
    pub(crate) async fn restart(self) -> Self {
        Self::start_on(self.store, self.clock).await
    }

    pub(crate) async fn restart_with_roles(self) -> Self {
        Self::start_configured(self.store, self.clock, Config::with_roles).await
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> http::Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.server.handle(self.user.clone(), request.body(body.into()).unwrap()).await
    }

    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        Answer::read(self.send(method, path, headers, body).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, &[], "").await
    }

    pub(crate) async fn get_as(&self, accept: &str, path: &str) -> Answer {
        self.ask(Method::GET, path, &[("accept", accept)], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.ask(Method::POST, path, &[], body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.ask(Method::PUT, path, &[], body.to_string()).await
    }

    pub(crate) async fn patch(&self, kind: &str, path: &str, body: Value) -> Answer {
        let media = format!("application/{kind}-patch+json");
        self.ask(Method::PATCH, path, &[("content-type", &media)], body.to_string()).await
    }

    pub(crate) async fn merge(&self, path: &str, body: Value) -> Answer {
        self.patch("merge", path, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.ask(Method::DELETE, path, &[], "").await
    }

    pub(crate) async fn delete_with(&self, path: &str, options: Value) -> Answer {
        self.ask(Method::DELETE, path, &[], options.to_string()).await
    }

    /// Creates a ConfigMap in `default` and returns it.
    pub(crate) async fn config_map(&self, name: &str, labels: Value) -> Value {
        let map = json!({"metadata": {"name": name, "labels": labels}, "data": {"k": "v"}});
        self.post("/api/v1/namespaces/default/configmaps", map).await.created()
    }

    /// Creates the service account for pods in `default`, unless it exists.
    pub(crate) async fn default_service_account(&self) {
        let account = json!({"metadata": {"name": "default"}});
        self.post("/api/v1/namespaces/default/serviceaccounts", account).await;
    }

    /// Opens a watch and reads events until it ends or `count` events have arrived.
    pub(crate) async fn watch(&self, path: &str, count: usize) -> Vec<Value> {
        self.open_watch(path).await.take(count).await
    }

    pub(crate) async fn open_watch(&self, path: &str) -> Events {
        self.open_watch_as("application/json", path).await
    }

    pub(crate) async fn open_watch_as(&self, accept: &str, path: &str) -> Events {
        let response = self.send(Method::GET, path, &[("accept", accept)], "").await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        Events { pieces: response.into_body().into_stream(), ready: Vec::new() }
    }
}

impl Answer {
    pub(crate) async fn read(response: http::Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let text = String::from_utf8_lossy(&body.collect().await).into_owned();
        let header =
            |name: &str| parts.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("").to_string();
        let warnings = parts.headers.get_all("warning").iter();
        let warnings = warnings.map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).collect();
        Self {
            code: parts.status.as_u16(),
            content_type: header("content-type"),
            warnings,
            body: serde_json::from_str(&text).unwrap_or(Value::Null),
            text,
        }
    }

    #[track_caller]
    pub(crate) fn expect(self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", self.text);
        self.body
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        self.expect(200)
    }

    #[track_caller]
    pub(crate) fn created(self) -> Value {
        self.expect(201)
    }

    /// Returns the code, reason and message of an error.
    pub(crate) fn refusal(&self) -> (u64, &str, &str) {
        let text = |field: &str| self.body[field].as_str().unwrap_or("");
        (self.body["code"].as_u64().unwrap_or(0), text("reason"), text("message"))
    }
}

/// The events of an open watch.
pub(crate) struct Events {
    pieces: futures::stream::BoxStream<'static, Bytes>,
    ready: Vec<Value>,
}

impl Events {
    /// Returns the next event, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        while self.ready.is_empty() {
            let piece = self.pieces.next().await?;
            let lines = piece.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            self.ready = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
        }
        Some(self.ready.remove(0))
    }

    pub(crate) async fn take(mut self, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        while events.len() < count {
            let Some(event) = self.next().await else { break };
            events.push(event);
        }
        events
    }
}

/// Returns `TYPE name` of each event.
pub(crate) fn summary(events: &[Value]) -> Vec<String> {
    let name = |event: &Value| event["object"]["metadata"]["name"].as_str().unwrap_or("-").to_string();
    events.iter().map(|event| format!("{} {}", event["type"].as_str().unwrap_or(""), name(event))).collect()
}

/// Returns the names of the items of a list.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}
