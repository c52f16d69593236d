//! Admission and conversion webhooks, served by the manager. Requires the feature `webhook`.
//!
//! ```text
//!  handler.rs      Defaulter, Validator, Converter: what authors write
//!  review.rs       AdmissionReview and ConversionReview, before and after decoding
//!  versions.rs     a CRD with several versions, and the conversion between them
//!  difference.rs   the JSON patch of a defaulted object
//!  configure.rs    the webhook configurations and the conversion of a CRD
//!  serve.rs        the HTTPS server: bounded bodies, connections and time
//!  certificate.rs  a CA and a serving certificate, renewed before they expire; or files
//!  keep.rs         keeps the certificates and the configurations up to date, in the leader
//! ```
//!
//! Invariants:
//! - [`Webhooks::respond`] needs no socket and no certificate, so a test calls the same code as the API server.
//! - Fields that a handler's type does not know survive defaulting.
//! - A panic or a timeout of a handler fails one review, not the server.

mod certificate;
mod configure;
mod difference;
mod handler;
mod keep;
mod review;
mod serve;
#[cfg(test)]
mod tests;
mod versions;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;

pub use certificate::Certificates;
pub use configure::Endpoint;
pub use handler::{
    AdmissionRequest, Allowed, Conversion, Converter, Defaulter, Denied, Operation, Validator,
};
pub use serve::WebhookServer;
pub use versions::Versions;

use crate::{Kind, View};
use review::BadReview;

/// A set of admission and conversion webhooks. Cheap to clone.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use setpoint::webhook::{Denied, Webhooks};
/// let webhooks = Webhooks::new("greeter")
///     .default(|map: &mut ConfigMap| {
///         map.data.get_or_insert_default().entry("colour".into()).or_insert("red".into());
///     })
///     .validate(|map: &ConfigMap| match map.data.as_ref().and_then(|data| data.get("colour")) {
///         Some(colour) if colour == "pink" => Err(Denied::invalid("data.colour", "pink is not a colour")),
///         _ => Ok(()),
///     });
/// let review = serde_json::json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
///     "uid": "1", "operation": "CREATE", "object": {"metadata": {"name": "a"}, "data": {"colour": "pink"}}}});
/// let (code, body) = webhooks.respond("/validate/core/v1/configmaps", review.to_string().as_bytes()).await;
/// let review: serde_json::Value = serde_json::from_slice(&body).unwrap();
/// assert_eq!((code, &review["response"]["allowed"]), (200, &false.into()));
/// assert_eq!(review["response"]["status"]["message"], "data.colour: pink is not a colour");
/// # });
/// ```
#[derive(Clone)]
pub struct Webhooks {
    name: &'static str,
    routes: Vec<Route>,
}

/// A webhook and the path it is posted to.
#[derive(Clone)]
struct Route {
    purpose: Purpose,
    kind: Kind,
    operations: &'static [Operation],
    answer: Answer,
    /// Its number among the webhooks of the same purpose and kind, from 1.
    nth: usize,
}

/// The purpose of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Mutate,
    Validate,
    Convert,
}

/// Responds to a review.
type Answer = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<Value, BadReview>> + Send + Sync>;

impl Webhooks {
    /// Creates an empty set. `name` is the name of the webhook configurations, and a label of the metrics.
    pub fn new(name: &'static str) -> Self {
        Self { name, routes: Vec::new() }
    }

    /// Returns the name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Sets defaults in objects that are created or updated. The defaulter is a `Fn(&mut K)` or a [`Defaulter`].
    pub fn default<K: View + Serialize>(self, defaulter: impl Defaulter<K>) -> Self {
        let defaulter = Arc::new(defaulter);
        let answer = move |review| review::mutate(review, defaulter.clone()).boxed();
        self.with(Purpose::Mutate, K::kind(), &Operation::WRITES, Arc::new(answer))
    }

    /// Checks objects before they are stored. The validator is a `Fn(&K) -> Result<(), Denied>` or a [`Validator`].
    pub fn validate<K: View, V: Validator<K>>(self, validator: V) -> Self {
        let validator = Arc::new(validator);
        let answer = move |review| review::validate(review, validator.clone()).boxed();
        self.with(Purpose::Validate, K::kind(), V::OPERATIONS, Arc::new(answer))
    }

    /// Converts objects of a kind between its versions. The converter is a [`Conversion`], or a
    /// `Fn(Value, &str) -> Result<Value, String>` that gets the object and the desired `apiVersion`.
    pub fn convert<K: View>(self, converter: impl Converter) -> Self {
        self.convert_kind(&K::kind(), converter)
    }

    /// Converts objects of a kind that is only known at run time.
    pub fn convert_kind(self, kind: &Kind, converter: impl Converter) -> Self {
        let converter = Arc::new(converter);
        let answer = move |review| {
            let converter = converter.clone();
            async move { review::convert(review, &*converter) }.boxed()
        };
        self.with(Purpose::Convert, kind.clone(), &[], Arc::new(answer))
    }

    fn with(
        mut self,
        purpose: Purpose,
        kind: Kind,
        operations: &'static [Operation],
        answer: Answer,
    ) -> Self {
        let is_alike = |route: &Route| route.purpose == purpose && route.kind == kind;
        if purpose == Purpose::Convert {
            // A kind has one converter.
            self.routes.retain(|route| !is_alike(route));
        }
        let nth = self.routes.iter().filter(|route| is_alike(route)).count() + 1;
        self.routes.push(Route { purpose, kind, operations, answer, nth });
        self
    }

    /// Returns the paths that reviews are posted to.
    pub fn paths(&self) -> Vec<String> {
        self.routes.iter().map(Route::path).collect()
    }

    /// Responds to a review that was posted to a path: an HTTP status code and a JSON body.
    pub async fn respond(&self, path: &str, body: &[u8]) -> (u16, Bytes) {
        let Some(route) = self.routes.iter().find(|route| route.path() == path) else {
            return (404, Bytes::from(format!("there is no webhook at {path}\n")));
        };
        let review = match serde_json::from_slice(body) {
            Ok(review) => review,
            Err(error) => return (400, Bytes::from(format!("expected a review: {error}\n"))),
        };
        let answering = AssertUnwindSafe(async { (route.answer)(review).await }).catch_unwind();
        match answering.await {
            Ok(Ok(review)) => (200, review.to_string().into()),
            Ok(Err(BadReview(why))) => (400, Bytes::from(why + "\n")),
            Err(_) => (500, Bytes::from_static(b"the webhook panicked\n")),
        }
    }
}

impl Route {
    /// `/validate/GROUP/VERSION/PLURAL`, and `/convert/GROUP/PLURAL` for all versions. A second webhook of a kind ends in
    /// `/2`.
    fn path(&self) -> String {
        let group = if self.kind.group().is_empty() { "core" } else { self.kind.group() };
        let (version, plural) = (self.kind.version(), self.kind.plural());
        let number = if self.nth > 1 { format!("/{}", self.nth) } else { String::new() };
        match self.purpose {
            Purpose::Mutate => format!("/mutate/{group}/{version}/{plural}{number}"),
            Purpose::Validate => format!("/validate/{group}/{version}/{plural}{number}"),
            Purpose::Convert => format!("/convert/{group}/{plural}"),
        }
    }
}
