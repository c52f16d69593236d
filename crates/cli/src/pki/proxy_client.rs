//! A client certificate that the API server presents to kubelets or to extension API servers.
//!
//! It is read from the operator's files, or generated and kept like the cluster's other certificates. A changed file
//! takes effect for new connections; one that cannot be used is reported once and changes nothing.

use std::time::Duration;

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use setpoint::Clock;
use setpoint_apiserver::aggregation::ProxyIdentity;
use setpoint_apiserver::tls::{Authority, CertificateInfo, Identity, certified};
use tokio_util::sync::CancellationToken;

use super::{Directory, Pair, is_fresh, read_if_exists};

/// How often the files are read, and how often a generated certificate is checked for its age.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
const FULL_CHECK_INTERVAL: SignedDuration = SignedDuration::from_hours(1);

/// A generated certificate: the name of its files, its user and its groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Generated {
    pub(crate) file: &'static str,
    pub(crate) user: &'static str,
    groups: &'static [&'static str],
}

/// Presented to extension API servers. The names are kubeadm's.
pub(crate) const FRONT_PROXY_CLIENT: Generated =
    Generated { file: "front-proxy-client", user: "front-proxy-client", groups: &[] };

/// Presented to kubelets, with the subject that the Kubernetes documentation names. Kubelets ask this server whether the
/// user may use their API, so it needs permissions.
pub(crate) const KUBELET_CLIENT: Generated = Generated {
    file: "apiserver-kubelet-client",
    user: "kube-apiserver-kubelet-client",
    groups: &["system:masters"],
};

/// Where the certificate comes from.
pub(crate) enum Source {
    /// The operator's files.
    Files(Pair),
    /// Signed by a generated CA, kept in a directory.
    Generated { directory: Directory, authority: Authority, certificate: Generated },
    /// There is none.
    None,
}

impl Generated {
    pub(super) fn issue(self, authority: &Authority, now: Timestamp) -> anyhow::Result<Identity> {
        Ok(authority.client_certificate(self.user, self.groups, now)?)
    }
}

impl Directory {
    /// Returns the stored client certificate, or a new one if it is about to expire.
    pub(super) fn client(
        &self,
        certificate: Generated,
        authority: &Authority,
        now: Timestamp,
    ) -> anyhow::Result<Identity> {
        let signer = &authority.identity().certificate;
        let will_do = |found: &CertificateInfo| is_fresh(found, now) && found.is_signed_by(signer);
        self.stored_or_new(certificate.file, will_do, || certificate.issue(authority, now))
    }
}

impl Source {
    fn read(&self, current: Option<&Identity>, now: Timestamp) -> anyhow::Result<Option<Identity>> {
        let identity = match self {
            Self::None => return Ok(None),
            Self::Files(pair) => pair
                .read()?
                .with_context(|| format!("{} or its key does not exist", pair.certificate.display()))?,
            Self::Generated { directory, authority, certificate } => match current {
                // Without a directory nothing else remembers it.
                Some(current)
                    if directory.pair(certificate.file).is_none() && is_still_fresh(current, now) =>
                {
                    current.clone()
                }
                _ => directory.client(*certificate, authority, now)?,
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
            Self::Generated { directory, certificate, .. } => (directory.pair(certificate.file), true),
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
            let certificate = FRONT_PROXY_CLIENT;
            let source = Source::Generated { directory: directory.clone(), authority, certificate };
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
