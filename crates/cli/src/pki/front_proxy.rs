//! The certificate that the API server shows to extension API servers, and the CA that signs it.
//!
//! Without files of the operator's, both are generated, like the cluster's other certificates. The CA signs nothing else,
//! so that no other certificate lets its holder name any user. A changed file takes effect for new connections; one that
//! cannot be used is reported once and changes nothing.

use std::time::Duration;

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use setpoint::Clock;
use setpoint_apiserver::aggregation::ProxyIdentity;
use setpoint_apiserver::tls::{Authority, CertificateInfo, Identity, certified};
use tokio_util::sync::CancellationToken;

use super::{Directory, Pair, Retired, is_fresh, read_if_exists};

/// The names of the generated files, as kubeadm has them.
pub(crate) const AUTHORITY: &str = "front-proxy-ca";
pub(crate) const CLIENT: &str = "front-proxy-client";

/// How often the files are read, and how often a generated certificate is checked for its age.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
const FULL_CHECK_INTERVAL: SignedDuration = SignedDuration::from_hours(1);

/// Where the certificate comes from.
pub(crate) enum Source {
    /// `--proxy-client-cert-file` and `--proxy-client-key-file`.
    Files(Pair),
    /// Signed by the generated CA, kept in a directory.
    Generated { directory: Directory, authority: Authority },
    /// There is none.
    None,
}

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

    /// Returns the stored certificate, or a new one if it is about to expire.
    pub(super) fn front_proxy_client(
        &self,
        authority: &Authority,
        now: Timestamp,
    ) -> anyhow::Result<Identity> {
        let certificate = &authority.identity().certificate;
        let will_do = |found: &CertificateInfo| is_fresh(found, now) && found.is_signed_by(certificate);
        self.stored_or_new(CLIENT, will_do, || Ok(authority.client_certificate(CLIENT, &[], now)?))
    }
}

impl Source {
    fn read(&self, current: Option<&Identity>, now: Timestamp) -> anyhow::Result<Option<Identity>> {
        let identity = match self {
            Self::None => return Ok(None),
            Self::Files(pair) => pair
                .read()?
                .with_context(|| format!("{} or its key does not exist", pair.certificate.display()))?,
            Self::Generated { directory, authority } => match current {
                // Without a directory nothing else remembers it.
                Some(current) if directory.pair(CLIENT).is_none() && is_still_fresh(current, now) => {
                    current.clone()
                }
                _ => directory.front_proxy_client(authority, now)?,
            },
        };
        certified(&identity.certificate, &identity.key).context("cannot use the client certificate")?;
        Ok(Some(identity))
    }

    /// Whether to load the certificate again: its files have changed, or a generated one may be about to expire.
    fn is_due(&self, current: Option<&Identity>, since: Timestamp, now: Timestamp) -> bool {
        let (pair, is_generated) = match self {
            Self::None => return false,
            Self::Files(pair) => (Some(pair.clone()), false),
            Self::Generated { directory, .. } => (directory.pair(CLIENT), true),
        };
        let has_changed = |pair: Pair| {
            let found = [read_if_exists(&pair.certificate), read_if_exists(&pair.key)]
                .map(|text| text.ok().flatten());
            current
                .is_none_or(|current| found != [Some(current.certificate.clone()), Some(current.key.clone())])
        };
        (is_generated && now.duration_since(since) >= FULL_CHECK_INTERVAL) || pair.is_some_and(has_changed)
    }
}

fn is_still_fresh(identity: &Identity, now: Timestamp) -> bool {
    CertificateInfo::of_pem(&identity.certificate).is_ok_and(|found| is_fresh(&found, now))
}

/// The certificate in use.
pub(crate) struct ProxyClient {
    source: Source,
    /// Who sees it, for logs.
    audience: &'static str,
    clock: Clock,
    current: Option<Identity>,
    checked: Timestamp,
    identity: ProxyIdentity,
}

impl ProxyClient {
    /// Loads the certificate, which must be usable.
    pub(crate) fn start(source: Source, audience: &'static str, clock: &Clock) -> anyhow::Result<Self> {
        let now = clock.now();
        let current = source.read(None, now)?;
        let identity = match &current {
            Some(current) => ProxyIdentity::new(current.certificate.clone(), current.key.clone()),
            None => ProxyIdentity::default(),
        };
        Ok(Self { source, audience, clock: clock.clone(), current, checked: now, identity })
    }

    pub(crate) fn identity(&self) -> ProxyIdentity {
        self.identity.clone()
    }

    /// Reloads the certificate until `stop` is cancelled.
    pub(crate) async fn follow(mut self, stop: CancellationToken) {
        let mut reported = String::new();
        while stop.run_until_cancelled(tokio::time::sleep(POLL_INTERVAL)).await.is_some() {
            match self.check() {
                Ok(()) => reported.clear(),
                Err(error) => {
                    let text = format!("{error:#}");
                    if text != reported {
                        let audience = self.audience;
                        tracing::error!(error = text, audience, "keeping the current client certificate");
                        reported = text;
                    }
                }
            }
        }
    }

    fn check(&mut self) -> anyhow::Result<()> {
        let now = self.clock.now();
        if !self.source.is_due(self.current.as_ref(), self.checked, now) {
            return Ok(());
        }
        self.checked = now;
        let new = self.source.read(self.current.as_ref(), now)?;
        if let Some(new) = new.filter(|new| self.current.as_ref() != Some(new)) {
            self.identity.replace(new.certificate.clone(), new.key.clone());
            tracing::info!(audience = self.audience, "reloaded a client certificate");
            self.current = Some(new);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_certificate_is_kept_and_renewed_before_it_expires() {
        let now = Clock::system().now();
        let temporary = tempfile::tempdir().unwrap();
        for directory in [Directory::new(None), Directory::new(Some(temporary.path().join("pki")))] {
            let authority = directory.front_proxy_authority(now).unwrap();
            let source = Source::Generated { directory: directory.clone(), authority };
            let first = source.read(None, now).unwrap().unwrap();
            let inspected = CertificateInfo::of_pem(&first.certificate).unwrap();
            assert_eq!(
                (&*inspected.subject, &*inspected.issuer),
                ("CN=front-proxy-client", "CN=front-proxy-ca")
            );
            let later = |days: i64| {
                let at = now + SignedDuration::from_hours(24 * days);
                source.read(Some(&first), at).unwrap().unwrap()
            };
            assert_eq!(later(300), first);
            assert_ne!(later(350), first);
        }
        let directory = Directory::new(Some(temporary.path().join("pki")));
        let again = directory.front_proxy_authority(now).unwrap();
        assert_eq!(directory.front_proxy_authority(now).unwrap(), again, "the CA is kept");
    }

    #[test]
    fn a_renewed_ca_signs_and_the_old_one_stays_trusted_for_a_year() {
        let now = Clock::system().now();
        let temporary = tempfile::tempdir().unwrap();
        let directory = Directory::new(Some(temporary.path().join("pki")));
        let old = directory.front_proxy_authority(now).unwrap();
        let before = directory.front_proxy_client(&old, now).unwrap();
        directory.renew_front_proxy_authority(now).unwrap();
        let new = directory.front_proxy_authority(now).unwrap();
        let after = directory.front_proxy_client(&new, now).unwrap();
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

    #[test]
    fn a_changed_file_is_used_and_a_broken_one_is_not() {
        let clock = Clock::system();
        let temporary = tempfile::tempdir().unwrap();
        let pair = Pair::in_directory(temporary.path(), "proxy");
        assert!(
            ProxyClient::start(Source::Files(pair.clone()), "tests", &clock).is_err(),
            "there are no files"
        );
        let authority = Authority::generate(clock.now()).unwrap();
        let make = |user: &str| authority.client_certificate(user, &[], clock.now()).unwrap();
        pair.write(&make("one")).unwrap();
        let mut client = ProxyClient::start(Source::Files(pair.clone()), "tests", &clock).unwrap();
        let second = make("two");
        pair.write(&second).unwrap();
        client.check().unwrap();
        assert_eq!(client.current, Some(second.clone()));
        std::fs::write(&pair.certificate, "broken").unwrap();
        assert!(client.check().is_err());
        assert_eq!(client.current, Some(second));
    }
}
