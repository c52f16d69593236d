//! The server's certificates and trusted CAs, loaded from files and reloaded when these change.
//!
//! The files are read every few seconds. There are only a few, of some kilobytes each, so that takes some ten
//! microseconds. Changes take effect immediately. Invalid files are reported once and change nothing. Certificates
//! signed by the cluster CA are renewed before they expire.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;
use setpoint::Clock;
use setpoint_apiserver::tls::{
    Authority, CertificateInfo, ClientTrust, Identity, LOOPBACK_NAME, NamedCertificate, Protocol,
    ServerIdentity, ServerTls, certificates, certified,
};
use tokio_util::sync::CancellationToken;

use super::{Directory, Pair, read_if_exists, server_certificate};

/// How often the files are read. v1.34 is notified of changes, and also checks once a minute.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How often everything is checked even if no file has changed, because certificates expire.
const FULL_CHECK_INTERVAL: SignedDuration = SignedDuration::from_hours(1);

/// A certificate for some server names: `--tls-sni-cert-key`.
#[derive(Clone, Debug)]
pub(crate) struct NamedFiles {
    pub(crate) pair: Pair,
    pub(crate) names: Vec<String>,
}

/// The files that the TLS configuration is loaded from.
#[derive(Clone, Debug)]
pub(crate) struct ServedFiles {
    /// The default serving certificate. `None`: one signed by the cluster CA.
    pub(crate) certificate: Option<Pair>,
    pub(crate) named: Vec<NamedFiles>,
    /// Trusted client CAs in addition to the cluster CA.
    pub(crate) client_authorities: Option<PathBuf>,
    /// The directories of the CA and of a certificate signed by it.
    pub(crate) pki: Directory,
    pub(crate) own_certificates: Directory,
    /// The addresses for a certificate signed by the cluster CA.
    pub(crate) addresses: Vec<IpAddr>,
    /// Whether client certificates may contain user UIDs.
    pub(crate) reads_uid: bool,
    /// The CAs of front proxies, as PEM.
    pub(crate) front_proxies: Option<String>,
}

/// The contents of the files.
#[derive(Clone, PartialEq, Eq)]
struct Content {
    certificate: Identity,
    named: Vec<Identity>,
    /// A certificate signed by the cluster CA, if another one is the default.
    own: Option<Identity>,
    authorities: Vec<String>,
}

/// The current TLS configuration, and what it was built from.
pub(crate) struct Served {
    files: ServedFiles,
    clock: Clock,
    /// The current CA, which signs if none is stored.
    authority: Authority,
    own: Option<Identity>,
    content: Content,
    tls: ServerTls,
    /// The trusted client CAs, for others to read.
    trusted: Arc<RwLock<String>>,
    /// The files as last read, and when.
    seen: (Files, Timestamp),
}

/// The contents of files. `None` if a file cannot be read.
type Files = Vec<(PathBuf, Option<Vec<u8>>)>;

impl Served {
    /// Loads the files, all of which must be valid.
    pub(crate) fn start(
        files: ServedFiles,
        protocol: Protocol,
        authority: &Authority,
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        let (mut own, authority) = (None, authority.clone());
        let seen = (files.bytes(), clock.now());
        let content = files.read(&authority, &mut own, clock.now())?;
        let tls = ServerTls::presenting(protocol, &files.server_identity(&content)?)?;
        let trusted = Arc::new(RwLock::new(content.authorities.concat()));
        Ok(Self { files, clock: clock.clone(), authority, own, content, tls, trusted, seen })
    }

    /// Returns the trusted client CAs as PEM, kept up to date.
    pub(crate) fn client_authorities(&self) -> Arc<RwLock<String>> {
        self.trusted.clone()
    }

    pub(crate) fn tls(&self) -> &ServerTls {
        &self.tls
    }

    /// Reloads the files until `stop` is cancelled.
    pub(crate) async fn follow(mut self, stop: CancellationToken) {
        let mut reported = String::new();
        while stop.run_until_cancelled(tokio::time::sleep(POLL_INTERVAL)).await.is_some() {
            match self.check() {
                Ok(true) => reported.clear(),
                Ok(false) => {}
                Err(error) => {
                    let text = format!("{error:#}");
                    if text != reported {
                        tracing::error!(
                            error = text,
                            "cannot reload the certificates; keeping the current ones"
                        );
                        reported = text;
                    }
                }
            }
        }
    }

    /// Applies changes since the last call. Returns whether there was anything to check.
    fn check(&mut self) -> anyhow::Result<bool> {
        let (bytes, now) = (self.files.bytes(), self.clock.now());
        if bytes == self.seen.0 && now.duration_since(self.seen.1) < FULL_CHECK_INTERVAL {
            return Ok(false);
        }
        self.seen = (bytes, now);
        if let Some(authority) = self.files.pki.authority()? {
            self.authority = authority;
        }
        let content = self.files.read(&self.authority, &mut self.own, now)?;
        if content == self.content {
            return Ok(true);
        }
        self.tls.replace(&self.files.server_identity(&content)?)?;
        if let Ok(found) = CertificateInfo::of_pem(&content.certificate.certificate) {
            tracing::info!(subject = found.subject, expires = %found.not_after, "reloaded the certificates");
        }
        *self.trusted.write() = content.authorities.concat();
        self.content = content;
        Ok(true)
    }
}

impl ServedFiles {
    fn bytes(&self) -> Files {
        let pairs = self.certificate.iter().chain(self.named.iter().map(|named| &named.pair));
        let mut paths: Vec<PathBuf> =
            pairs.flat_map(|pair| [pair.certificate.clone(), pair.key.clone()]).collect();
        paths.extend(self.client_authorities.clone());
        paths.extend(self.pki.files());
        paths.extend(
            self.own_certificates.pair("apiserver").into_iter().flat_map(|pair| [pair.certificate, pair.key]),
        );
        paths
            .into_iter()
            .map(|path| {
                let bytes = std::fs::read(&path).ok();
                (path, bytes)
            })
            .collect()
    }

    /// `own` caches the certificate signed by the cluster CA if none is stored.
    fn read(
        &self,
        authority: &Authority,
        own: &mut Option<Identity>,
        now: Timestamp,
    ) -> anyhow::Result<Content> {
        let of_authority = self.own_certificate(authority, own, now)?;
        let (certificate, own) = match &self.certificate {
            Some(pair) => (read_pair(pair)?, Some(of_authority)),
            None => (of_authority, None),
        };
        let named = self.named.iter().map(|named| read_pair(&named.pair)).collect::<anyhow::Result<_>>()?;
        let mut authorities = vec![authority.identity().certificate.clone()];
        authorities.extend(self.pki.retired("ca", now)?.into_iter().map(|retired| retired.content));
        if let Some(path) = &self.client_authorities {
            let missing = || format!("--client-ca-file: {} does not exist", path.display());
            authorities.push(read_if_exists(path)?.with_context(missing)?);
        }
        Ok(Content { certificate, named, own, authorities })
    }

    fn own_certificate(
        &self,
        authority: &Authority,
        own: &mut Option<Identity>,
        now: Timestamp,
    ) -> anyhow::Result<Identity> {
        if let Some(identity) = own.as_ref()
            && CertificateInfo::of_pem(&identity.certificate).is_ok_and(|found| super::is_fresh(&found, now))
        {
            return Ok(identity.clone());
        }
        let made = server_certificate(&self.own_certificates, &self.pki, authority, &self.addresses, now)?;
        if self.own_certificates.pair("apiserver").is_none() {
            *own = Some(made.clone());
        }
        Ok(made)
    }

    fn server_identity(&self, content: &Content) -> anyhow::Result<ServerIdentity> {
        let usable = |identity: &Identity, pair: Option<&Pair>| {
            let of = match pair {
                Some(pair) => format!("cannot use {} and {}", pair.certificate.display(), pair.key.display()),
                None => "cannot use the server's own certificate".into(),
            };
            certified(&identity.certificate, &identity.key).map(Arc::new).context(of)
        };
        let named = content.named.iter().zip(&self.named).map(|(identity, files)| {
            Ok(NamedCertificate {
                certificate: usable(identity, Some(&files.pair))?,
                names: files.names.clone(),
            })
        });
        let own = content.own.iter().map(|identity| {
            Ok(NamedCertificate { certificate: usable(identity, None)?, names: vec![LOOPBACK_NAME.into()] })
        });
        let authorities: Vec<&str> = content.authorities.iter().map(String::as_str).collect();
        if let (Some(path), Some(pem)) = (&self.client_authorities, authorities.last()) {
            certificates(pem).with_context(|| format!("--client-ca-file: cannot use {}", path.display()))?;
        }
        let clients = ClientTrust::new(&authorities).context("cannot use the client CAs")?;
        let clients = match &self.front_proxies {
            Some(pem) => clients.with_front_proxies(pem).context("--requestheader-client-ca-file")?,
            None => clients,
        };
        Ok(ServerIdentity {
            certificate: usable(&content.certificate, self.certificate.as_ref())?,
            named: named.chain(own).collect::<anyhow::Result<_>>()?,
            clients: clients.reading_uid(self.reads_uid),
        })
    }
}

fn read_pair(pair: &Pair) -> anyhow::Result<Identity> {
    let read =
        |path: &PathBuf| read_if_exists(path)?.with_context(|| format!("{} does not exist", path.display()));
    Ok(Identity { certificate: read(&pair.certificate)?, key: read(&pair.key)? })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Files {
        directory: tempfile::TempDir,
        authority: Authority,
        now: Timestamp,
    }

    impl Files {
        fn new() -> Self {
            let now = Clock::system().now();
            let directory = tempfile::tempdir().unwrap();
            Self { directory, authority: Authority::generate(now).unwrap(), now }
        }

        fn pair(&self, name: &str) -> Pair {
            Pair::in_directory(self.directory.path(), name)
        }

        fn put(&self, name: &str, user: &str) -> Identity {
            let made = self.authority.client_certificate(user, &[], self.now).unwrap();
            self.pair(name).write(&made).unwrap();
            made
        }

        fn served(&self, change: impl FnOnce(&mut ServedFiles)) -> anyhow::Result<Served> {
            let mut files = ServedFiles {
                certificate: None,
                named: Vec::new(),
                client_authorities: None,
                pki: Directory::new(None),
                own_certificates: Directory::new(None),
                addresses: Vec::new(),
                reads_uid: true,
                front_proxies: None,
            };
            change(&mut files);
            Served::start(files, Protocol::default(), &self.authority, &Clock::system())
        }
    }

    #[test]
    fn a_changed_certificate_is_used_and_a_broken_one_is_not() {
        let files = Files::new();
        files.put("tls", "first");
        let mut served = files.served(|served| served.certificate = Some(files.pair("tls"))).unwrap();
        let second = files.put("tls", "second");
        served.check().unwrap();
        assert_eq!(served.content.certificate, second);
        fs::write(files.pair("tls").certificate, "broken").unwrap();
        assert!(served.check().is_err());
        assert_eq!(served.content.certificate, second, "the old one stays");
        let third = files.put("tls", "third");
        served.check().unwrap();
        assert_eq!(served.content.certificate, third);
    }

    #[test]
    fn startup_errors_name_unusable_files() {
        let files = Files::new();
        files.put("tls", "one");
        let other = files.authority.client_certificate("other", &[], files.now).unwrap();
        fs::write(files.pair("tls").key, other.key).unwrap();
        let start = |change: &dyn Fn(&mut ServedFiles)| match files.served(change) {
            Ok(_) => panic!("it starts"),
            Err(error) => format!("{error:#}"),
        };
        let mismatch = start(&|served| served.certificate = Some(files.pair("tls")));
        assert!(
            mismatch.contains("tls.crt") && mismatch.contains("the private key does not match"),
            "{mismatch}"
        );
        let missing = start(&|served| served.certificate = Some(files.pair("none")));
        assert!(missing.ends_with("none.crt does not exist"), "{missing}");
        let empty = files.directory.path().join("empty.crt");
        fs::write(&empty, "").unwrap();
        let bundle = start(&|served| served.client_authorities = Some(empty.clone()));
        assert!(bundle.starts_with("--client-ca-file: cannot use"), "{bundle}");
    }

    #[test]
    fn an_authority_added_to_the_bundle_is_trusted() {
        let files = Files::new();
        let bundle = files.directory.path().join("bundle.crt");
        let other = Authority::generate(files.now).unwrap();
        fs::write(&bundle, &other.identity().certificate).unwrap();
        let mut served = files.served(|served| served.client_authorities = Some(bundle.clone())).unwrap();
        assert_eq!(served.content.authorities.len(), 2, "besides the cluster's own");
        let third = Authority::generate(files.now).unwrap();
        let both = other.identity().certificate.clone() + &third.identity().certificate;
        fs::write(&bundle, &both).unwrap();
        served.check().unwrap();
        assert_eq!(served.content.authorities[1], both);
    }

    #[test]
    fn a_self_signed_certificate_is_renewed_before_it_expires() {
        let files = Files::new();
        let kept = Directory::new(Some(files.directory.path().join("pki")));
        for directory in [Directory::new(None), kept] {
            let mut own = None;
            let served = files.served(|served| served.own_certificates = directory.clone()).unwrap().files;
            let mut at = |days: i64| {
                let later = files.now + jiff::SignedDuration::from_hours(24 * days);
                served.read(&files.authority, &mut own, later).unwrap().certificate
            };
            let first = at(0);
            assert_eq!(at(300), first);
            let second = at(350);
            assert_ne!(second, first);
            assert_eq!(at(360), second);
        }
    }
}
