//! A fake API server made of one function, for tests.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;

use super::Client;

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Received {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }
}

/// The function's response: a status code and a body, or no response at all.
pub(crate) type Answer = Option<(u16, Value)>;

/// All requests so far.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Received>>>);

impl Log {
    pub(crate) fn all(&self) -> Vec<Received> {
        self.0.lock().clone()
    }

    /// Returns the method and target of all requests.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().iter().map(|received| format!("{} {}", received.method, received.target)).collect()
    }
}

/// Creates a client whose requests are handled by `answer`.
pub(crate) fn client(answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> (Client, Log) {
    let (log, answer) = (Log::default(), Arc::new(answer));
    let service = tower::service_fn({
        let log = log.clone();
        move |request: Request<Body>| {
            let (log, answer) = (log.clone(), answer.clone());
            async move { respond(request, &log, &*answer).await }
        }
    });
    (Client::new(kube::Client::new(service, "default")), log)
}

async fn respond(
    request: Request<Body>,
    log: &Log,
    answer: &(dyn Fn(&Received) -> Answer + Send + Sync),
) -> Result<Response<Body>, Box<dyn std::error::Error + Send + Sync>> {
    let (head, body) = request.into_parts();
    let received = Received {
        method: head.method.to_string(),
        target: head.uri.to_string(),
        headers: head.headers,
        body: body.collect().await?.to_bytes(),
    };
    log.0.lock().push(received.clone());
    let Some((code, body)) = answer(&received) else { return Err("connection reset".into()) };
    let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
    Ok::<_, Infallible>(response.expect("a valid response")).map_err(Into::into)
}

/// Responds to every write with the object that was written, under the requested name.
pub(crate) fn echo(received: &Received) -> Answer {
    Some((200, serde_json::from_slice(&received.body).unwrap_or_default()))
}
