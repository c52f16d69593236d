//! The extensions of a test: webhooks, converters and API servers as functions, and servers on this machine. Their calls
//! are counted and subject to faults.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use serde_json::Value;
use setpoint::webhook::Webhooks;
use setpoint_cluster::Lost;
use setpoint_cluster::webhooks::{self, HttpBody, InProcess, ResponseBody};

use crate::faults::{Callee, Faults};

/// Adds an extension to a network.
type Serve = Arc<dyn Fn(&InProcess, &Faults) + Send + Sync>;

/// The extensions of a test.
#[derive(Clone, Default)]
pub(crate) struct Extensions {
    all: Vec<Serve>,
    /// Whether there are API servers among them.
    pub(crate) aggregates: bool,
}

impl Extensions {
    /// Adds all of them to a network.
    pub(crate) fn serve(&self, network: &InProcess, faults: &Faults) {
        self.all.iter().for_each(|serve| serve(network, faults));
    }

    pub(crate) fn add_webhook(
        &mut self,
        host: &str,
        path: &str,
        answer: impl Fn(Value) -> Value + Send + Sync + 'static,
    ) {
        self.add_handler(Callee::Webhook, host, path, answer);
    }

    pub(crate) fn add_converter(
        &mut self,
        host: &str,
        path: &str,
        convert: impl Fn(Value, &str) -> Result<Value, String> + Send + Sync + 'static,
    ) {
        self.add_handler(Callee::Converter, host, path, move |review| webhooks::convert(&review, &convert));
    }

    /// Adds webhooks as a manager would serve them.
    pub(crate) fn add_webhooks(&mut self, host: &str, webhooks: &Webhooks) {
        for path in webhooks.paths() {
            let callee = if path.starts_with("/convert/") { Callee::Converter } else { Callee::Webhook };
            let (host, webhooks) = (host.to_owned(), webhooks.clone());
            self.all.push(Arc::new(move |network, faults| {
                let (webhooks, faults, to) = (webhooks.clone(), faults.clone(), path.clone());
                network.handle_with(&host, &path, move |posted| {
                    let (webhooks, faults, to) = (webhooks.clone(), faults.clone(), to.clone());
                    async move {
                        match faults.on_reply(callee).await {
                            Some(lost) => in_place(lost),
                            None => Some(reviewed(&webhooks, &to, &posted).await),
                        }
                    }
                });
            }));
        }
    }

    pub(crate) fn add_api_server<F, B>(
        &mut self,
        host: &str,
        answer: impl Fn(Request<Bytes>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Response<B>> + Send + 'static,
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.aggregates = true;
        self.add_server(Callee::ApiServer, host, move |request| {
            let answering = answer(request);
            async move { Some(webhooks::boxed(answering.await)) }
        });
    }

    pub(crate) fn add_local_server(&mut self, host: &str, origin: Uri) {
        self.add_server(Callee::Webhook, host, move |request| {
            let forwarding = webhooks::forward(origin.clone(), request);
            async move { Some(webhooks::boxed(forwarding.await)) }
        });
    }

    fn add_handler(
        &mut self,
        callee: Callee,
        host: &str,
        path: &str,
        answer: impl Fn(Value) -> Value + Send + Sync + 'static,
    ) {
        let (host, path, answer) = (host.to_owned(), path.to_owned(), Arc::new(answer));
        self.all.push(Arc::new(move |network, faults| {
            let (answer, faults) = (answer.clone(), faults.clone());
            network.handle_with(&host, &path, move |posted| {
                let (answer, faults) = (answer.clone(), faults.clone());
                async move {
                    match faults.on_reply(callee).await {
                        Some(lost) => in_place(lost),
                        None => Some(webhooks::json_response(200, &answer(posted))),
                    }
                }
            });
        }));
    }

    fn add_server<F>(
        &mut self,
        callee: Callee,
        host: &str,
        answer: impl Fn(Request<Bytes>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Option<Response<ResponseBody>>> + Send + 'static,
    {
        let (host, answer) = (host.to_owned(), Arc::new(answer));
        self.all.push(Arc::new(move |network, faults| {
            let (answer, faults) = (answer.clone(), faults.clone());
            network.serve_with(&host, move |request| {
                let (answer, faults) = (answer.clone(), faults.clone());
                async move {
                    match faults.on_reply(callee).await {
                        Some(lost) => in_place(lost).map(webhooks::boxed),
                        None => answer(request).await,
                    }
                }
            });
        }));
    }
}

async fn reviewed(webhooks: &Webhooks, path: &str, posted: &Value) -> Response<Full<Bytes>> {
    let (code, body) = webhooks.respond(path, posted.to_string().as_bytes()).await;
    let mut response = webhooks::json_response(code, &Value::Null);
    *response.body_mut() = Full::new(body);
    response
}

/// Returns the replacement for a lost response; `None` closes the connection.
fn in_place(lost: Lost) -> Option<Response<Full<Bytes>>> {
    match lost {
        Lost::Dropped => None,
        Lost::Failed(code) => Some(webhooks::json_response(code, &Value::Null)),
    }
}
