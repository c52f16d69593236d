//! Certificates: requests for them are approved, signed, and removed when they have served.
//!
//! Owns: the condition `Approved` of kubelets' requests, the certificates of the cluster's own signers.
//! Watches: CertificateSigningRequests.
//! Writes: their approval and their status (update), SubjectAccessReviews (create), and deletes them.
//!
//! ```text
//!  view.rs       requests as they are read
//!  request.rs    what was sent: subject, names, key                           (pure)
//!  policy.rs     which requests each signer signs                             (pure)
//!  usages.rs     what a certificate may be used for                           (pure)
//!  der.rs        how certificates are encoded                                 (pure)
//!  authority.rs  what signs
//!  signing.rs    the four signers of kube-controller-manager
//!  approving.rs  kubelets that may have a client certificate get it
//!  cleaner.rs    requests that nobody needs any more go
//!  pod_requests.rs   so do those of pods
//!  trust_bundles.rs  the API server's authority is published
//! ```
//!
//! What always holds:
//! - nothing is signed that is not approved, or whose sender does not hold the key;
//! - a certificate lasts no longer than its authority, and is never an authority itself;
//! - an issued certificate is not issued again.

pub(crate) mod approving;
mod authority;
pub(crate) mod cleaner;
mod der;
pub(crate) mod pod_requests;
mod policy;
mod request;
pub(crate) mod signing;
#[cfg(test)]
mod tests;
pub(crate) mod trust_bundles;
mod usages;
mod view;

use std::sync::Arc;
use std::time::Duration;

use setpoint::backoff::Backoff;
use setpoint::queue::RateLimiter;
use setpoint::queue::limiter::{MaxOf, Overall, PerKey};
use setpoint::{Context, Key, Queue, Reconciler, Runnable, handler};

pub use authority::{BadAuthority, CertificateAuthority};
pub use signing::Signers;

use crate::registry::{Entry, Options};
use crate::wiring;
use view::SigningRequest;

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";

/// A controller that looks at one request at a time.
fn of_requests<R: Reconciler<Key = Key>>(
    context: &Context,
    options: &Options,
    entry: &Entry,
    queue: &'static str,
    reconciler: R,
) -> Vec<Box<dyn Runnable>> {
    let requests = context.informers.of::<SigningRequest>();
    let queue = Queue::with_rate_limiter(queue, &context.runtime, limiter(context));
    requests.add_handler(handler::enqueue_self(&queue));
    let controller = wiring::controller(entry, options, queue, reconciler, [&requests]);
    vec![Box::new(controller)]
}

/// Somebody has to act before a failed request fares better: it is tried less eagerly than others.
fn limiter(context: &Context) -> Arc<dyn RateLimiter<Key>> {
    let per_key = PerKey::new(Backoff::doubling(Duration::from_millis(200), Duration::from_secs(1000)));
    let overall = Overall::new(context.runtime.clock.clone(), 10.0, 100);
    Arc::new(MaxOf::new(vec![Arc::new(per_key), Arc::new(overall)]))
}
