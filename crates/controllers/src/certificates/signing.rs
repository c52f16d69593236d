//! Signs approved certificate signing requests with kube-controller-manager's signers.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use setpoint::client::{Optional, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, Clock, Context, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Rng, Runnable,
    UpdateBody,
};

use super::authority::CertificateAuthority;
use super::policy::{self, CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY_UNKNOWN};
use super::request::Request;
use super::usages::Usages;
use super::view::SigningRequest;
use super::{GROUP, REQUESTS, of_requests};
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::workload::condition::whole_seconds;

pub(crate) const ENTRY: Entry = Entry {
    name: "certificatesigningrequest-signing-controller",
    aliases: &["csrsigning"],
    on_by_default: true,
    gates: &[],
    summary: "signs approved certificate signing requests of kubelets and clients",
    watches: &[Access::watch(GROUP, REQUESTS)],
    writes: &[
        Access::to(GROUP, "certificatesigningrequests/status", &["update"]),
        Access::to(GROUP, "signers", &["sign"]),
        EVENTS,
    ],
    default_workers: 5,
    build,
};

/// The CA of each signer. A signer without a CA signs nothing.
#[derive(Clone, Debug)]
pub struct Signers {
    pub kubelet_serving: Option<CertificateAuthority>,
    pub kubelet_client: Option<CertificateAuthority>,
    pub kube_apiserver_client: Option<CertificateAuthority>,
    pub legacy_unknown: Option<CertificateAuthority>,
    /// The maximum certificate lifetime.
    pub duration: Duration,
}

/// A year.
const DURATION: Duration = Duration::from_secs(365 * 24 * 3600);
/// The minimum lifetime that can be requested: twice the backdating.
const SHORTEST: Duration = Duration::from_secs(600);

impl Default for Signers {
    fn default() -> Self {
        Self {
            kubelet_serving: None,
            kubelet_client: None,
            kube_apiserver_client: None,
            legacy_unknown: None,
            duration: DURATION,
        }
    }
}

impl Signers {
    /// Uses one CA for all signers.
    pub fn all(authority: CertificateAuthority) -> Self {
        let one = || Some(authority.clone());
        Self {
            kubelet_serving: one(),
            kubelet_client: one(),
            kube_apiserver_client: one(),
            legacy_unknown: one(),
            duration: DURATION,
        }
    }

    fn of(&self, name: &str) -> Option<&CertificateAuthority> {
        match name {
            KUBELET_SERVING => self.kubelet_serving.as_ref(),
            KUBELET_CLIENT => self.kubelet_client.as_ref(),
            CLIENT => self.kube_apiserver_client.as_ref(),
            LEGACY_UNKNOWN => self.legacy_unknown.as_ref(),
            _ => None,
        }
    }

    fn is_empty(&self) -> bool {
        [KUBELET_SERVING, KUBELET_CLIENT, CLIENT, LEGACY_UNKNOWN].iter().all(|name| self.of(name).is_none())
    }

    /// Returns the lifetime for a requested number of seconds.
    fn lifetime(&self, wanted: Option<i32>) -> Duration {
        let Some(wanted) = wanted else { return self.duration };
        Duration::from_secs(wanted.max(0) as u64).max(SHORTEST).min(self.duration)
    }
}

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    if options.signers.is_empty() {
        tracing::warn!("no certificate authority is configured: nothing is signed");
        return Vec::new();
    }
    let signing = Signing {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        rng: context.runtime.rng.fork(),
        requests: context.informers.of::<SigningRequest>().lister(),
        signers: options.signers.clone(),
    };
    of_requests(context, options, &ENTRY, "certificate", signing)
}

struct Signing {
    client: Client,
    clock: Clock,
    rng: Rng,
    requests: Lister<SigningRequest>,
    signers: Signers,
}

impl Reconciler for Signing {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(asked) = self.requests.get(key)? else { return Ok(Outcome::Settled) };
        let Some(authority) = self.signers.of(&asked.spec.signer_name).filter(|_| awaits_signature(&asked))
        else {
            return Ok(Outcome::Settled);
        };
        let request = Request::parse(&asked.request());
        let request = request.map_err(|why| failed(format!("read signing request {key}"), why))?;
        let edit = match policy::refusal(&asked.spec.signer_name, &request, &asked.spec.usages) {
            Err(why) => self.refused(&asked, why),
            Ok(()) => self.signed(&asked, authority, &request)?,
        };
        let updated =
            self.client.update(&Kind::of::<SigningRequest>(), key, Subresource::Status, &edit).await;
        updated.optional().attempting(format!("answer signing request {key}"))?;
        Ok(Outcome::Settled)
    }
}

impl Signing {
    fn signed<'a>(
        &self,
        asked: &'a Cached<SigningRequest>,
        authority: &CertificateAuthority,
        request: &Request,
    ) -> Result<UpdateBody<'a>, ReconcileError> {
        let lifetime = self.signers.lifetime(asked.spec.expiration_seconds);
        let serial = u128::from(self.rng.next_u64()) << 64 | u128::from(self.rng.next_u64());
        let certificate = Usages::of(&asked.spec.usages)
            .and_then(|usages| authority.issue(request, &usages, lifetime, self.clock.now(), serial))
            .map_err(|why| failed(format!("sign request {}", asked.key()), why))?;
        Ok(UpdateBody::of(asked.object()).set(&["status", "certificate"], &STANDARD.encode(certificate)))
    }

    fn refused<'a>(&self, asked: &'a Cached<SigningRequest>, why: String) -> UpdateBody<'a> {
        let failed = json!({
            "type": "Failed",
            "status": "True",
            "reason": "SignerValidationFailure",
            "message": why,
            "lastUpdateTime": whole_seconds(self.clock.now()),
        });
        UpdateBody::of(asked.object()).set(&["status", "conditions"], &with_condition(asked, failed))
    }
}

/// Whether the request is approved and neither signed nor failed.
fn awaits_signature(asked: &SigningRequest) -> bool {
    !asked.is_issued() && asked.has("Approved") && !asked.has("Denied") && !asked.has_true("Failed")
}

/// Returns the conditions of a request with one more.
pub(super) fn with_condition(asked: &Cached<SigningRequest>, condition: Value) -> Vec<Value> {
    let whole: Value = asked.object().decode().unwrap_or_default();
    let mut conditions = whole["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.push(condition);
    conditions
}

fn failed(attempted: String, why: String) -> ReconcileError {
    ReconcileError::Retry { attempted, source: Some(why.into()) }
}
