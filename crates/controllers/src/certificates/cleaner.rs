//! Requests that have been answered for an hour, or that nobody has answered for a day, go.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use setpoint::client::{Delete, Optional};
use setpoint::{
    Cached, Client, Clock, Context, Controller, Key, Kind, Lister, Metadata, Outcome, Queue, ReconcileError,
    Reconciler, Runnable,
};
use x509_parser::pem::parse_x509_pem;

use super::view::SigningRequest;
use super::{GROUP, REQUESTS};
use crate::registry::{Access, Entry, Options};

pub(crate) const ENTRY: Entry = Entry {
    name: "certificatesigningrequest-cleaner-controller",
    aliases: &["csrcleaner"],
    on_by_default: true,
    summary: "removes requests for certificates that nobody needs any more",
    watches: &[Access::watch(GROUP, REQUESTS)],
    writes: &[Access::to(GROUP, REQUESTS, &["delete"])],
    default_workers: 1,
    build,
};

const PERIOD: Duration = Duration::from_secs(3600);
/// How long a request stays once it is answered, and how long it waits for an answer.
const ANSWERED: SignedDuration = SignedDuration::from_hours(1);
const PENDING: SignedDuration = SignedDuration::from_hours(24);

fn build(context: &Context, _: &Options) -> Vec<Box<dyn Runnable>> {
    let requests = context.informers.of::<SigningRequest>();
    let queue = Queue::new("certificate_cleaner", &context.runtime);
    queue.add(Key::cluster("requests"));
    let cleaner = Cleaner {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        requests: requests.lister(),
    };
    vec![Box::new(Controller::new(ENTRY.name, queue, cleaner).persistent().waits_for(&requests))]
}

struct Cleaner {
    client: Client,
    clock: Clock,
    requests: Lister<SigningRequest>,
}

impl Reconciler for Cleaner {
    type Key = Key;

    /// All requests are one key: they are looked at every hour.
    async fn reconcile(&self, _: &Key) -> Result<Outcome, ReconcileError> {
        let now = self.clock.now();
        for request in self.requests.list(None)?.iter().filter(|request| has_served(request, now)) {
            self.remove(request).await;
        }
        Ok(Outcome::CheckAfter(PERIOD))
    }
}

impl Cleaner {
    async fn remove(&self, request: &Cached<SigningRequest>) {
        let delete = Delete::of_uid(request.meta().uid.to_string());
        let kind = Kind::of::<SigningRequest>();
        // The next look tries again.
        if let Err(error) = self.client.delete(&kind, request.key(), &delete).await.optional() {
            tracing::warn!(request = %request.key(), %error, "cannot remove a signing request");
        }
    }
}

pub(super) fn has_served(request: &Cached<SigningRequest>, now: Timestamp) -> bool {
    served(request, request.meta(), now)
}

fn served(request: &SigningRequest, meta: &Metadata, now: Timestamp) -> bool {
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
