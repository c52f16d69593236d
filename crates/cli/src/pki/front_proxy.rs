//! The CA of the certificate that the API server presents to extension API servers.
//!
//! It is generated, like the cluster's other certificates, unless the operator's files take its place. It signs nothing
//! else, so that no other certificate lets its holder name any user.

use anyhow::Context;
use jiff::Timestamp;
use setpoint_apiserver::tls::Authority;

use super::{Directory, Retired};

/// The name of the generated files, as kubeadm has it.
pub(crate) const AUTHORITY: &str = "front-proxy-ca";

impl Directory {
    /// Returns the stored CA of front proxies, or a new one.
    pub(crate) fn front_proxy_authority(&self, now: Timestamp) -> anyhow::Result<Authority> {
        let Some(pair) = self.pair(AUTHORITY) else { return Ok(Authority::named(AUTHORITY, now)?) };
        if let Some(identity) = pair.read()? {
            return Authority::from_pem(identity)
                .with_context(|| format!("cannot use {}", pair.certificate.display()));
        }
        let authority = Authority::named(AUTHORITY, now)?;
        pair.write(authority.identity())?;
        Ok(authority)
    }

    /// Replaces the CA of front proxies. The old one is kept.
    pub(super) fn renew_front_proxy_authority(&self, now: Timestamp) -> anyhow::Result<()> {
        let (path, pair) = (self.0.as_deref(), self.pair(AUTHORITY));
        let (path, pair) = path.zip(pair).context("there is no data directory")?;
        if let Some(old) = pair.read()? {
            Retired::keep(path, AUTHORITY, "crt", &old.certificate, now)?;
        }
        pair.write(Authority::named(AUTHORITY, now)?.identity())
    }

    /// Returns the CAs of front proxies to be trusted, as PEM: the current one, then those that it has replaced.
    pub(crate) fn front_proxy_authorities(
        &self,
        current: &Authority,
        now: Timestamp,
    ) -> anyhow::Result<String> {
        let mut all = current.identity().certificate.clone();
        if let Some(path) = self.0.as_deref() {
            let retired = Retired::all(path, AUTHORITY)?;
            all.extend(
                retired.into_iter().filter(|retired| retired.counts(now)).map(|retired| retired.content),
            );
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use setpoint::Clock;
    use setpoint_apiserver::tls::CertificateInfo;

    use super::super::FRONT_PROXY_CLIENT;
    use super::*;

    #[test]
    fn a_renewed_ca_signs_and_the_old_one_stays_trusted_for_a_year() {
        let now = Clock::system().now();
        let temporary = tempfile::tempdir().unwrap();
        let directory = Directory::new(Some(temporary.path().join("pki")));
        let old = directory.front_proxy_authority(now).unwrap();
        let before = directory.client(FRONT_PROXY_CLIENT, &old, now).unwrap();
        directory.renew_front_proxy_authority(now).unwrap();
        let new = directory.front_proxy_authority(now).unwrap();
        let after = directory.client(FRONT_PROXY_CLIENT, &new, now).unwrap();
        assert!(new != old && after != before);
        let signed = CertificateInfo::of_pem(&after.certificate).unwrap();
        assert!(signed.is_signed_by(&new.identity().certificate));
        let trusted = |days: i64| {
            let at = now + SignedDuration::from_hours(24 * days);
            directory.front_proxy_authorities(&new, at).unwrap()
        };
        let [old, new] = [old, new.clone()].map(|authority| authority.identity().certificate.clone());
        assert_eq!(trusted(300), format!("{new}{old}"));
        assert_eq!(trusted(400), new);
    }
}
