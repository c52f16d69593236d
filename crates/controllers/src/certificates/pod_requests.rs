//! PodCertificateRequest cleanup: deletes requests that are no longer useful.
//!
//! Owns: the deletion of PodCertificateRequests.
//! Watches: PodCertificateRequests.
//! Writes: deletes them.
//!
//! Invariants: a request is deleted between fifteen and twenty minutes after its creation, handled or not.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use setpoint::{Cached, Context, Runnable};

use super::GROUP;
use crate::registry::{Access, Entry, Options};
use crate::sweep::Sweep;

pub(crate) const ENTRY: Entry = Entry {
    name: "podcertificaterequest-cleaner-controller",
    aliases: &[],
    on_by_default: true,
    gates: &["PodCertificateRequest"],
    summary: "deletes old PodCertificateRequests",
    watches: &[Access::watch(GROUP, "podcertificaterequests")],
    writes: &[Access::to(GROUP, "podcertificaterequests", &["delete"])],
    default_workers: 1,
    build,
};

const PERIOD: Duration = Duration::from_secs(5 * 60);
/// How old requests get. Legitimate requests are answered faster.
const PATIENCE: SignedDuration = SignedDuration::from_mins(15);

/// A PodCertificateRequest. Only its age matters.
#[derive(Clone, Debug, Default, Deserialize)]
struct PodRequest {}

setpoint::view!(PodRequest of k8s_openapi::api::certificates::v1alpha1::PodCertificateRequest);

fn build(context: &Context, _: &Options) -> Vec<Box<dyn Runnable>> {
    Sweep { queue: "pod_certificate_cleaner", period: PERIOD, is_expired }.build(context, &ENTRY)
}

fn is_expired(request: &Cached<PodRequest>, now: Timestamp) -> bool {
    request.meta().creation_timestamp.is_some_and(|made| now.duration_since(made) >= PATIENCE)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workload::fixtures::{at, cached};

    #[test]
    fn a_request_expires_after_fifteen_minutes() {
        let request =
            cached(json!({"metadata": {"name": "r", "namespace": "ns", "creationTimestamp": at(0)}}));
        for (now, expected) in [(0, false), (899, false), (900, true)] {
            assert_eq!(is_expired(&request, at(now)), expected, "{now}");
        }
    }
}
