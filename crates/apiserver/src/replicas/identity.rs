//! The identity of a server: a Lease in `kube-system`, as v1.34's `APIServerIdentity` keeps it.
//!
//! It is named after the host, so a server that restarts keeps its Lease. Leases of servers that have been gone for an
//! hour are removed.

use std::time::Duration;

use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use setpoint_clock::{Instant, Rng};
use setpoint_store::ListOptions;
use sha2::{Digest, Sha256};

use crate::json::{Json, JsonMut};
use crate::loopback::{NAME, managed_by};
use crate::registry::{Gvr, Served};
use crate::selector::name_of;
use crate::server::Server;
use crate::status::Status;
use crate::system_objects;

const NAMESPACE: &str = "kube-system";
const LABEL: &str = "apiserver.kubernetes.io/identity";
const HOSTNAME: &str = "kubernetes.io/hostname";
const DURATION: i64 = 3600;
/// How often to look for Leases of servers that are gone.
const CLEAN_EVERY: Duration = Duration::from_secs(3600);

pub(super) struct Identity {
    hostname: String,
    /// The name of the Lease.
    name: String,
    holder: String,
    cleaned: Option<Instant>,
}

impl Identity {
    pub(super) fn new(hostname: &str, rng: &Rng) -> Self {
        let name = lease_name(hostname);
        let holder = format!("{name}_{}", rng.uid());
        Self { hostname: hostname.to_owned(), name, holder, cleaned: None }
    }

    /// Renews this server's Lease, and deletes expired Leases of other servers.
    pub(super) async fn keep(&mut self, server: &Server) {
        if let Err(why) = self.renew(server).await {
            tracing::warn!(why = why.message, lease = self.name, "cannot renew the identity of this server");
        }
        let now = server.clock.instant();
        if self.cleaned.is_none_or(|at| now.saturating_duration_since(at) >= CLEAN_EVERY) {
            self.cleaned = Some(now);
            if let Err(why) = clean(server).await {
                tracing::warn!(why = why.message, "cannot remove the identities of servers that are gone");
            }
        }
    }

    async fn renew(&self, server: &Server) -> Result<(), Status> {
        let Ok(served) = server.served(&leases()) else { return Ok(()) };
        let found = server.store.get(&served.key(Some(NAMESPACE), &self.name), None).await;
        let found = found.map_err(|why| server.refusal(why))?;
        let mut lease = match &found {
            Some(record) => served.decode_bare(record)?,
            None => json!({"metadata": {"name": self.name, "namespace": NAMESPACE}}),
        };
        let labels = lease.object_mut("metadata").object_mut("labels");
        labels.set(LABEL, NAME);
        labels.set(HOSTNAME, self.hostname.as_str());
        let spec = lease.object_mut("spec");
        spec.set("holderIdentity", self.holder.as_str());
        spec.set("leaseDurationSeconds", DURATION);
        spec.set("renewTime", format!("{:.6}", server.now()));
        let (method, name) = match found {
            Some(_) => (Method::PUT, &*self.name),
            None => (Method::POST, ""),
        };
        let path = managed_by(NAME, &system_objects::path(&leases(), NAMESPACE, name));
        // The namespace is about to be created, or the state seen was outdated.
        server.loopback_request(method, &path, &lease, &[404, 409]).await.map(drop)
    }
}

/// Returns the name of the Lease of a host's server, as in v1.34.
fn lease_name(hostname: &str) -> String {
    let hash = Sha256::digest(hostname.as_bytes());
    format!("apiserver-{}", base32(&hash[..16]))
}

/// Encodes bytes in base 32, in lower case and without padding.
fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| usize::from(byte >> (7 - at % 8) & 1));
    let digit = |digit: usize| (0..5).fold(0, |value, at| value << 1 | bit(digit * 5 + at));
    (0..(bytes.len() * 8).div_ceil(5)).map(|at| char::from(ALPHABET[digit(at)])).collect()
}

async fn clean(server: &Server) -> Result<(), Status> {
    let Ok(served) = server.served(&leases()) else { return Ok(()) };
    let page = server.store.list(&served.range(Some(NAMESPACE)), ListOptions::default()).await;
    for record in page.map_err(|why| server.refusal(why))?.records {
        if has_ended(&served, &record, server.now())? {
            let path = system_objects::path(&leases(), NAMESPACE, name_of(&record));
            server.loopback_request(Method::DELETE, &path, &Value::Null, &[404, 409]).await?;
        }
    }
    Ok(())
}

fn has_ended(served: &Served, record: &setpoint_store::Record, now: Timestamp) -> Result<bool, Status> {
    let lease = served.decode_bare(record)?;
    if lease.at("metadata").at("labels").text(LABEL) != NAME {
        return Ok(false);
    }
    let spec = lease.at("spec");
    let renewed: Option<Timestamp> = spec.text("renewTime").parse().ok();
    let duration = SignedDuration::from_secs(spec.count("leaseDurationSeconds"));
    // As in v1.34, a Lease without these has ended.
    Ok(renewed
        .is_none_or(|renewed| !spec.has("leaseDurationSeconds") || now.duration_since(renewed) > duration))
}

fn leases() -> Gvr {
    Gvr::new("coordination.k8s.io", "v1", "leases")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_named_after_its_host_as_in_v1_34() {
        assert_eq!(base32(b""), "");
        assert_eq!(base32(b"f"), "my");
        assert_eq!(base32(b"foobar"), "mzxw6ytboi");
        let name = lease_name("one");
        assert_eq!(name, lease_name("one"));
        assert_ne!(name, lease_name("two"));
        assert_eq!(name.len(), "apiserver-".len() + 26);
    }
}
