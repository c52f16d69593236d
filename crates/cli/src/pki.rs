//! The cluster's certificates and keys. They are stored in `pki` in the data directory and reused at the next start.
//! Files that are missing, about to expire, or not signed by the current CA are replaced.
//!
//! ```text
//!  ca.crt, ca.key                 the CA
//!  ca-old-until-DATE.crt          retired CAs, trusted until that date
//!  ca-cross.crt                   the CA, cross-signed by the previous one
//!  apiserver.crt, apiserver.key   the serving certificate
//!  admin.crt, admin.key           kubernetes-admin in system:masters
//!  apiserver-kubelet-client.crt, .key
//!                                 the certificate shown to kubelets
//!  front-proxy-ca.crt, .key       the CA of the certificate shown to aggregated API servers
//!  front-proxy-client.crt, .key   that certificate
//!  sa.key, sa.pub                 signs and verifies service account tokens
//!  sa-old-until-DATE.pub          retired keys, whose tokens are accepted until that date
//! ```
//!
//! Every file is written atomically and readable only by its owner. See docs/guide/certificates.md.

mod front_proxy;
mod pair;
mod proxy_client;
mod renew;
mod retired;
mod served;

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use jiff::{Timestamp, ToSpan};
use setpoint::Clock;
use setpoint_apiserver::PublicKey;
use setpoint_apiserver::tls::{Authority, CertificateInfo, Identity, SERVER_NAMES};
use setpoint_controllers::{CertificateAuthority, Signers, TokenSigner};
use setpoint_store::private;

pub(crate) use front_proxy::AUTHORITY as FRONT_PROXY_CA;
pub(crate) use pair::Pair;
pub(crate) use proxy_client::{FRONT_PROXY_CLIENT, KUBELET_CLIENT, ProxyClient, Source as ProxyClientSource};
pub(crate) use renew::{Renewal, renew};
pub(crate) use retired::Retired;
pub(crate) use served::{NamedFiles, Served, ServedFiles};

/// A certificate is renewed when less than this is left of its lifetime, which is a year.
const RENEW_BEFORE_DAYS: i64 = 30;

/// All certificates and keys of the cluster.
pub(crate) struct Credentials {
    authority: Authority,
    retired: Vec<Retired>,
    pub(crate) admin: Identity,
    /// Signs service account tokens.
    pub(crate) token_signer: TokenSigner,
    /// Retired public keys, whose tokens are still accepted.
    pub(crate) retired_keys: Vec<PublicKey>,
}

/// The directory for certificates. `None`: they are not stored.
#[derive(Clone, Debug)]
pub(crate) struct Directory(Option<PathBuf>);

impl Directory {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self(path)
    }

    /// Makes the existing files readable only by their owner.
    fn tighten(&self) -> anyhow::Result<()> {
        match self.0.as_ref().filter(|directory| directory.exists()) {
            Some(directory) => private::tighten(directory, |_| true)
                .with_context(|| format!("cannot make {} private", directory.display())),
            None => Ok(()),
        }
    }

    /// Returns the files of a certificate and its key.
    pub(crate) fn pair(&self, name: &str) -> Option<Pair> {
        self.0.as_ref().map(|directory| Pair::in_directory(directory, name))
    }

    pub(crate) fn file(&self, name: &str) -> Option<PathBuf> {
        self.0.as_ref().map(|directory| directory.join(name))
    }

    /// Returns the certificates and keys in the directory, sorted by name. Other files are ignored.
    fn files(&self) -> Vec<PathBuf> {
        let entries = self.0.iter().filter_map(|directory| fs::read_dir(directory).ok()).flatten().flatten();
        let is_ours = |path: &PathBuf| {
            path.extension()
                .is_some_and(|extension| ["crt", "key", "pub"].iter().any(|ours| extension == *ours))
        };
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_ours).collect();
        paths.sort();
        paths
    }

    /// Loads the CA, if there is one.
    pub(crate) fn authority(&self) -> anyhow::Result<Option<Authority>> {
        let Some(pair) = self.pair("ca") else { return Ok(None) };
        let Some(identity) = pair.read()? else { return Ok(None) };
        let authority = Authority::from_pem(identity);
        Ok(Some(authority.with_context(|| format!("cannot use {}", pair.certificate.display()))?))
    }

    /// Loads the retired CAs or keys that are still valid.
    pub(crate) fn retired(&self, prefix: &str, now: Timestamp) -> anyhow::Result<Vec<Retired>> {
        let Some(directory) = &self.0 else { return Ok(Vec::new()) };
        let all = Retired::all(directory, prefix)?;
        Ok(all.into_iter().filter(|retired| retired.counts(now)).collect())
    }

    /// Returns the chain from the CA to the retired ones that are still valid.
    fn chain_to_retired(&self, now: Timestamp) -> anyhow::Result<Option<String>> {
        match self.file("ca-cross.crt").filter(|path| path.exists()) {
            Some(path) if !self.retired("ca", now)?.is_empty() => read_if_exists(&path),
            _ => Ok(None),
        }
    }

    fn authority_or_new(&self, now: Timestamp) -> anyhow::Result<Authority> {
        if let Some(authority) = self.authority()? {
            return Ok(authority);
        }
        let authority = Authority::generate(now)?;
        if let Some(pair) = self.pair("ca") {
            pair.write(authority.identity())?;
        }
        Ok(authority)
    }

    /// Returns the stored certificate if `will_do` accepts it. Otherwise creates and stores a new one.
    fn stored_or_new(
        &self,
        name: &str,
        will_do: impl Fn(&CertificateInfo) -> bool,
        make: impl FnOnce() -> anyhow::Result<Identity>,
    ) -> anyhow::Result<Identity> {
        let Some(pair) = self.pair(name) else { return make() };
        if let Some(identity) = pair.read_usable(will_do)? {
            return Ok(identity);
        }
        let made = make()?;
        pair.write(&made)?;
        Ok(made)
    }

    fn token_key(&self) -> anyhow::Result<String> {
        let Some(path) = self.file("sa.key") else { return Ok(TokenSigner::generate_key()?) };
        let key = match read_if_exists(&path)? {
            Some(key) => key,
            None => {
                let key = TokenSigner::generate_key()?;
                write_private(&path, &key)?;
                key
            }
        };
        let public = path.with_extension("pub");
        let signer = TokenSigner::from_pem(&key).with_context(|| format!("cannot use {}", path.display()))?;
        if read_if_exists(&public)?.as_deref() != Some(&*signer.public_pem()) {
            write_private(&public, &signer.public_pem())?;
        }
        Ok(key)
    }
}

impl Credentials {
    /// Loads the contents of the directory, and creates what is missing. Tokens are signed with the given key, or with
    /// the stored one.
    pub(crate) fn prepare(
        directory: &Directory,
        signer: Option<TokenSigner>,
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        let now = clock.now();
        directory.tighten()?;
        let authority = directory.authority_or_new(now)?;
        let retired = directory.retired("ca", now)?;
        let certificate = &authority.identity().certificate;
        let will_do = |found: &CertificateInfo| is_fresh(found, now) && found.is_signed_by(certificate);
        let admin = directory.stored_or_new("admin", will_do, || Ok(authority.admin_certificate(now)?))?;
        let token_signer = match signer {
            Some(signer) => signer,
            None => TokenSigner::from_pem(&directory.token_key()?)?,
        };
        let mut retired_keys = Vec::new();
        for key in directory.retired("sa", now)? {
            retired_keys.extend(PublicKey::all_from_pem(&key.content)?);
        }
        Ok(Self { authority, retired, admin, token_signer, retired_keys })
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Returns the CA and the retired CAs that are still trusted.
    pub(crate) fn bundle(&self) -> String {
        let own = [self.authority.identity().certificate.as_str()];
        own.into_iter().chain(self.retired.iter().map(|one| one.content.as_str())).collect()
    }

    /// Returns the signers: the cluster CA signs everything that controllers sign.
    pub(crate) fn signers(&self) -> anyhow::Result<Signers> {
        let identity = self.authority.identity();
        Ok(Signers::all(CertificateAuthority::from_pem(&identity.certificate, &identity.key)?))
    }
}

/// Returns the default serving certificate. It is stored in `directory`, and the CA in `pki`.
pub(crate) fn server_certificate(
    directory: &Directory,
    pki: &Directory,
    authority: &Authority,
    addresses: &[IpAddr],
    now: Timestamp,
) -> anyhow::Result<Identity> {
    let certificate = &authority.identity().certificate;
    let will_do = |found: &CertificateInfo| {
        is_fresh(found, now)
            && found.is_signed_by(certificate)
            && addresses.iter().all(|address| found.addresses.contains(address))
            && SERVER_NAMES.iter().all(|name| found.dns_names.iter().any(|found| found == name))
    };
    directory.stored_or_new("apiserver", will_do, || new_server_certificate(pki, authority, addresses, now))
}

/// Creates a serving certificate. Includes the chain to the retired CAs, for clients that trust only those.
fn new_server_certificate(
    pki: &Directory,
    authority: &Authority,
    addresses: &[IpAddr],
    now: Timestamp,
) -> anyhow::Result<Identity> {
    let mut made = authority.server_certificate(addresses, now)?;
    made.certificate.extend(pki.chain_to_retired(now)?);
    Ok(made)
}

/// Returns whether a certificate is valid, and not about to expire.
fn is_fresh(found: &CertificateInfo, now: Timestamp) -> bool {
    let soon = now.checked_add((24 * RENEW_BEFORE_DAYS).hours()).unwrap_or(Timestamp::MAX);
    found.not_before <= now && soon < found.not_after
}

fn read_if_exists(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        read => Ok(Some(read.with_context(|| format!("cannot read {}", path.display()))?)),
    }
}

/// Writes a file atomically, readable only by its owner.
pub(crate) fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let unfinished = path.with_extension("tmp");
    let attempt = || -> std::io::Result<()> {
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            private::create_directory(directory)?;
        }
        let mut file = private::create_file(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    attempt().with_context(|| format!("cannot write {}", path.display()))
}
