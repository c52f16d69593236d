//! Hooks that are functions, for tests. In a simulation they run in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use super::transport::{HookReply, HookRequest, HookTarget, Transport, Transports};

type Function = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<HookReply, String>> + Send + Sync>;

/// Hooks by URL, each a function of the request.
///
/// ```
/// use serde_json::json;
/// let hooks = setpoint_hooks::Functions::new().on("http://hooks/sync", |request| {
///     let name = &request["parent"]["metadata"]["name"];
///     json!({"status": {"greeting": format!("hello, {name}")}, "children": []})
/// });
/// ```
#[derive(Clone, Default)]
pub struct Functions {
    functions: BTreeMap<String, Function>,
}

impl Functions {
    /// No hooks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a hook that always succeeds.
    pub fn on(self, url: &str, answer: impl Fn(Value) -> Value + Send + Sync + 'static) -> Self {
        self.replying(url, move |request| {
            let answer = answer(request).to_string();
            async move { Ok(HookReply::ok(answer)) }
        })
    }

    /// Adds a hook that may take time, respond with another status, or fail.
    pub fn replying<F>(mut self, url: &str, answer: impl Fn(Value) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<HookReply, String>> + Send + 'static,
    {
        self.functions.insert(url.to_owned(), Arc::new(move |request| Box::pin(answer(request))));
        self
    }
}

impl Transports for Functions {
    fn open(&self, target: &HookTarget) -> Result<Arc<dyn Transport>, String> {
        let function = self.functions.get(&target.url).cloned();
        let function = function.ok_or_else(|| format!("url {:?}: there is no such hook", target.url))?;
        Ok(Arc::new(Called(function)))
    }
}

struct Called(Function);

impl Transport for Called {
    fn send(&self, request: HookRequest) -> BoxFuture<'static, Result<HookReply, String>> {
        match serde_json::from_slice(&request.body) {
            Ok(request) => (self.0)(request),
            Err(error) => Box::pin(std::future::ready(Err(error.to_string()))),
        }
    }
}
