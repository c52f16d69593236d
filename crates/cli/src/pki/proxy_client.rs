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

/// A generated certificate: the name of its files, its user, and who signs it. The user is in no group, and has only the
/// rights that it is given by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Generated {
    pub(crate) file: &'static str,
    pub(crate) user: &'static str,
    signer: Signer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signer {
    Cluster,
    FrontProxies,
}

/// Presented to extension API servers. The names are kubeadm's.
pub(crate) const FRONT_PROXY_CLIENT: Generated =
    Generated { file: "front-proxy-client", user: "front-proxy-client", signer: Signer::FrontProxies };

/// Presented to kubelets. The names are kubeadm's. Kubelets ask this server whether the user may use their API, so it is
/// bound to the role for that: [`crate::kubelet_access`].
pub(crate) const KUBELET_CLIENT: Generated = Generated {
    file: "apiserver-kubelet-client",
    user: "kube-apiserver-kubelet-client",
    signer: Signer::Cluster,
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
    /// Creates a certificate. If the cluster CA was renewed, it includes the chain to the previous ones, for kubelets that
    /// trust only those.
    pub(super) fn issue(
        self,
        directory: &Directory,
        authority: &Authority,
        now: Timestamp,
    ) -> anyhow::Result<Identity> {
        let mut made = authority.client_certificate(self.user, &[], now)?;
        if self.signer == Signer::Cluster {
            made.certificate.extend(directory.chain_to_retired(now)?);
        }
        Ok(made)
    }

    fn subject(self) -> String {
        format!("CN={}", self.user)
    }

    /// Returns the CA that signs now. A renewed cluster CA takes over at once. The CA of front proxies that the server
    /// started with is what extension API servers trust, so it signs until the server is restarted.
    fn authority(self, directory: &Directory, at_start: &Authority) -> anyhow::Result<Authority> {
        let stored = match self.signer {
            Signer::Cluster => directory.authority()?,
            Signer::FrontProxies => None,
        };
        Ok(stored.unwrap_or_else(|| at_start.clone()))
    }
}

impl Directory {
    /// Returns the stored client certificate, or a new one if it is about to expire, or was made for another subject.
    pub(super) fn client(
        &self,
        certificate: Generated,
        authority: &Authority,
        now: Timestamp,
    ) -> anyhow::Result<Identity> {
        let signer = &authority.identity().certificate;
        let will_do = |found: &CertificateInfo| {
            is_fresh(found, now) && found.is_signed_by(signer) && found.subject == certificate.subject()
        };
        self.stored_or_new(certificate.file, will_do, || certificate.issue(self, authority, now))
    }
}

impl Source {
    fn read(&self, current: Option<&Identity>, now: Timestamp) -> anyhow::Result<Option<Identity>> {
        let identity = match self {
            Self::None => return Ok(None),
            Self::Files(pair) => pair
                .read()?
                .with_context(|| format!("{} or its key does not exist", pair.certificate.display()))?,
            Self::Generated { directory, authority, certificate } => {
                let authority = certificate.authority(directory, authority)?;
                let stored = directory.pair(certificate.file);
                // What nothing else remembers, and what belongs to a CA that signs after a restart, is not replaced.
                let is_kept = match &stored {
                    None => true,
                    Some(pair) => is_of_other_authority(pair, &authority, now),
                };
                match current.filter(|current| is_kept && is_still_fresh(current, now)) {
                    Some(current) => current.clone(),
                    None => directory.client(*certificate, &authority, now)?,
                }
            }
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

/// Whether a stored certificate is valid, but signed by another CA.
fn is_of_other_authority(pair: &Pair, authority: &Authority, now: Timestamp) -> bool {
    let stored = pair.read().ok().flatten().filter(|stored| is_still_fresh(stored, now));
    let found = stored.and_then(|stored| CertificateInfo::of_pem(&stored.certificate).ok());
    found.is_some_and(|found| !found.is_signed_by(&authority.identity().certificate))
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
    use super::super::{Renewal, renew};
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

    /// The running server's view of a directory, and its CAs.
    fn running(directory: &Directory, certificate: Generated) -> (Source, Identity) {
        let now = Clock::system().now();
        let cluster = directory.authority_or_new(now).unwrap();
        let authority = match certificate.signer {
            Signer::Cluster => cluster,
            Signer::FrontProxies => directory.front_proxy_authority(now).unwrap(),
        };
        let source = Source::Generated { directory: directory.clone(), authority, certificate };
        let first = source.read(None, now).unwrap().unwrap();
        (source, first)
    }

    fn stored(directory: &Directory, certificate: Generated) -> Identity {
        directory.pair(certificate.file).unwrap().read().unwrap().unwrap()
    }

    #[test]
    fn a_certificate_of_a_renewed_ca_is_used_and_has_the_chain_to_the_old_one() {
        let now = Clock::system().now();
        let temporary = tempfile::tempdir().unwrap();
        let directory = Directory::new(Some(temporary.path().join("pki")));
        let (source, first) = running(&directory, KUBELET_CLIENT);
        let old = directory.authority().unwrap().unwrap();
        let what = Renewal { authority: true, ..Renewal::default() };
        renew(&directory, what, now).unwrap();
        let renewed = stored(&directory, KUBELET_CLIENT);
        assert_ne!(renewed, first, "it is renewed with the CA");
        assert_eq!(source.read(Some(&first), now).unwrap().as_ref(), Some(&renewed));
        assert_eq!(stored(&directory, KUBELET_CLIENT), renewed, "a running server does not replace it");
        let new = directory.authority().unwrap().unwrap();
        let chain = renewed.certificate.split_inclusive("-----END CERTIFICATE-----\n");
        let chain: Vec<_> = chain.map(|pem| CertificateInfo::of_pem(pem).unwrap()).collect();
        let [leaf, cross] = &*chain else { panic!("{} certificates", chain.len()) };
        assert!(leaf.is_signed_by(&new.identity().certificate));
        assert!(leaf.is_signed_by(&pem_of(&renewed, 1)) && cross.is_signed_by(&old.identity().certificate));
    }

    fn pem_of(identity: &Identity, nth: usize) -> String {
        let mut pems = identity.certificate.split_inclusive("-----END CERTIFICATE-----\n");
        pems.nth(nth).unwrap().to_owned()
    }

    #[test]
    fn a_certificate_of_a_renewed_ca_of_front_proxies_waits_for_a_restart() {
        let now = Clock::system().now();
        let temporary = tempfile::tempdir().unwrap();
        let directory = Directory::new(Some(temporary.path().join("pki")));
        let (source, first) = running(&directory, FRONT_PROXY_CLIENT);
        let what = Renewal { front_proxy_ca: true, front_proxy_client: true, ..Renewal::default() };
        renew(&directory, what, now).unwrap();
        let renewed = stored(&directory, FRONT_PROXY_CLIENT);
        assert_eq!(source.read(Some(&first), now).unwrap(), Some(first));
        assert_eq!(stored(&directory, FRONT_PROXY_CLIENT), renewed, "a running server does not replace it");
        assert_eq!(running(&directory, FRONT_PROXY_CLIENT).1, renewed);
    }

    #[test]
    fn a_certificate_with_more_rights_than_needed_is_replaced() {
        let now = Clock::system().now();
        let temporary = tempfile::tempdir().unwrap();
        let directory = Directory::new(Some(temporary.path().join("pki")));
        let authority = directory.authority_or_new(now).unwrap();
        let before = authority.client_certificate(KUBELET_CLIENT.user, &["system:masters"], now).unwrap();
        directory.pair(KUBELET_CLIENT.file).unwrap().write(&before).unwrap();
        let (_, now_used) = running(&directory, KUBELET_CLIENT);
        let subject = CertificateInfo::of_pem(&now_used.certificate).unwrap().subject;
        assert_eq!(subject, "CN=kube-apiserver-kubelet-client");
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
