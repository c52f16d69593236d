//! Deletes certificate signing requests an hour after they were handled, or a day after they were created.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use setpoint::{Cached, Context, Metadata, Runnable};
use x509_parser::pem::parse_x509_pem;

use super::view::SigningRequest;
use super::{GROUP, REQUESTS};
use crate::registry::{Access, Entry, Options};
use crate::sweep::Sweep;

pub(crate) const ENTRY: Entry = Entry {
    name: "certificatesigningrequest-cleaner-controller",
    aliases: &["csrcleaner"],
    on_by_default: true,
    gates: &[],
    summary: "deletes old certificate signing requests",
    watches: &[Access::watch(GROUP, REQUESTS)],
    writes: &[Access::to(GROUP, REQUESTS, &["delete"])],
    default_workers: 1,
    build,
};

/// How often all requests are checked.
const PERIOD: Duration = Duration::from_secs(3600);
/// How long requests are kept, handled and unhandled.
const ANSWERED: SignedDuration = SignedDuration::from_hours(1);
const PENDING: SignedDuration = SignedDuration::from_hours(24);

fn build(context: &Context, _: &Options) -> Vec<Box<dyn Runnable>> {
    Sweep { queue: "certificate_cleaner", period: PERIOD, is_expired }.build(context, &ENTRY)
}

pub(super) fn is_expired(request: &Cached<SigningRequest>, now: Timestamp) -> bool {
    expired(request, request.meta(), now)
}

fn expired(request: &SigningRequest, meta: &Metadata, now: Timestamp) -> bool {
    let older = |since: Option<Timestamp>, age: SignedDuration| {
        since.is_some_and(|since| now.duration_since(since) > age)
    };
    let conditions = &request.status.conditions;
    if conditions.is_empty() {
        return older(meta.creation_timestamp, PENDING);
    }
    conditions.iter().any(|condition| match &*condition.r#type {
        "Approved" => {
            request.is_issued()
                && (older(condition.last_update_time, ANSWERED) || has_expired(&request.certificate(), now))
        }
        "Denied" | "Failed" => older(condition.last_update_time, ANSWERED),
        _ => false,
    })
}

fn has_expired(certificate: &[u8], now: Timestamp) -> bool {
    let Ok((_, block)) = parse_x509_pem(certificate) else { return false };
    let parsed = x509_parser::parse_x509_certificate(&block.contents);
    parsed.is_ok_and(|(_, parsed)| now.as_second() > parsed.validity().not_after.timestamp())
}
