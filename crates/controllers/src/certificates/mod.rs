//! Certificates: approves, signs and cleans up certificate signing requests.
//!
//! Owns: the condition `Approved` of kubelet requests; the certificates of kube-controller-manager's signers.
//! Watches: CertificateSigningRequests.
//! Writes: their approval and status (update), SubjectAccessReviews (create); deletes requests.
//!
//! ```text
//!  view.rs           typed CertificateSigningRequests
//!  request.rs        parses the PKCS #10 request                              (pure)
//!  policy.rs         which requests each signer accepts                       (pure)
//!  usages.rs         key usages                                               (pure)
//!  der.rs            DER encoding                                             (pure)
//!  authority.rs      the CA
//!  signing.rs        the four signers of kube-controller-manager
//!  approving.rs      approves client certificates of kubelets
//!  cleaner.rs        deletes old requests
//!  pod_requests.rs   deletes old PodCertificateRequests
//!  trust_bundles.rs  publishes the CA of the API server
//! ```
//!
//! Invariants:
//! - a request is only signed if it is approved and the requester holds its key;
//! - a certificate does not outlive its CA, and is never a CA itself;
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
use setpoint::queue::limiter::{Bucket, MaxOf, PerKeyBackoff};
use setpoint::{Context, Key, Queue, Reconciler, Runnable, handler};

pub use authority::{BadAuthority, CertificateAuthority};
pub use signing::Signers;

use crate::registry::{Entry, Options};
use crate::wiring;
use view::SigningRequest;

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";

/// Builds a controller that reconciles CertificateSigningRequests.
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

/// A slower rate limiter than the default: a failed request usually needs someone to act first.
fn limiter(context: &Context) -> Arc<dyn RateLimiter<Key>> {
    let per_key =
        PerKeyBackoff::new(Backoff::doubling(Duration::from_millis(200), Duration::from_secs(1000)));
    let overall = Bucket::new(context.runtime.clock.clone(), 10.0, 100);
    Arc::new(MaxOf::new(vec![Arc::new(per_key), Arc::new(overall)]))
}
