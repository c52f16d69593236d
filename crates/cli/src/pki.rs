//! The cluster's certificates and keys. They are kept in `pki` below the data directory and used again at the next
//! start; what has to be made anew is made anew: what is missing, about to expire, or not of the authority.
//!
//! ```text
//!  ca.crt, ca.key                 the authority
//!  ca-old-until-DATE.crt          authorities before it, believed until that date
//!  ca-cross.crt                   the authority as signed by the one before it
//!  apiserver.crt, apiserver.key   what the server shows
//!  admin.crt, admin.key           kubernetes-admin of system:masters
//!  sa.key, sa.pub                 signs and verifies the tokens of service accounts
//!  sa-old-until-DATE.pub          keys before it, whose tokens count until that date
//! ```
//!
//! Every file is written whole or not at all, for its owner alone. docs/guide/certificates.md is about them.

mod pair;
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
use setpoint_apiserver::tls::{Authority, Identity, Inspected, SERVER_NAMES};
use setpoint_controllers::{CertificateAuthority, Signers, TokenSigner};
use setpoint_store::private;

pub(crate) use pair::Pair;
pub(crate) use renew::{Renewal, renew};
pub(crate) use retired::Retired;
pub(crate) use served::{NamedFiles, Served, ServedFiles};

/// A certificate is made anew when less than this is left of its life, which is a year.
const RENEW_BEFORE_DAYS: i64 = 30;

/// Everything that proves who is who.
pub(crate) struct Credentials {
    authority: Authority,
    retired: Vec<Retired>,
    pub(crate) admin: Identity,
    /// Signs the tokens of service accounts.
    pub(crate) token_signer: TokenSigner,
    /// The public halves of the keys before it, whose tokens still count.
    pub(crate) retired_keys: Vec<PublicKey>,
}

/// Where certificates are kept; nowhere without a directory.
#[derive(Clone, Debug)]
pub(crate) struct Directory(Option<PathBuf>);

impl Directory {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self(path)
    }

    /// Makes what is there readable by its owner alone.
    fn tighten(&self) -> anyhow::Result<()> {
        match self.0.as_ref().filter(|directory| directory.exists()) {
            Some(directory) => private::tighten(directory, |_| true)
                .with_context(|| format!("cannot make {} private", directory.display())),
            None => Ok(()),
        }
    }

    /// The files of a certificate and its key.
    pub(crate) fn pair(&self, name: &str) -> Option<Pair> {
        self.0.as_ref().map(|directory| Pair::in_directory(directory, name))
    }

    pub(crate) fn file(&self, name: &str) -> Option<PathBuf> {
        self.0.as_ref().map(|directory| directory.join(name))
    }

    /// The certificates and keys in it, by name; what else there may be is not looked at.
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

    /// The authority that is kept, if there is one.
    pub(crate) fn authority(&self) -> anyhow::Result<Option<Authority>> {
        let Some(pair) = self.pair("ca") else { return Ok(None) };
        let Some(identity) = pair.read()? else { return Ok(None) };
        let authority = Authority::from_pem(identity);
        Ok(Some(authority.with_context(|| format!("cannot use {}", pair.certificate.display()))?))
    }

    /// The authorities and keys before those of now that still count.
    pub(crate) fn retired(&self, prefix: &str, now: Timestamp) -> anyhow::Result<Vec<Retired>> {
        let Some(directory) = &self.0 else { return Ok(Vec::new()) };
        let all = Retired::all(directory, prefix)?;
        Ok(all.into_iter().filter(|retired| retired.counts(now)).collect())
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

    /// A certificate that is kept if it will do, or a new one, which is kept then.
    fn kept(
        &self,
        name: &str,
        will_do: impl Fn(&Inspected) -> bool,
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
        let key = match read_if_there(&path)? {
            Some(key) => key,
            None => {
                let key = TokenSigner::generate_key()?;
                write_private(&path, &key)?;
                key
            }
        };
        let public = path.with_extension("pub");
        let signer = TokenSigner::from_pem(&key).with_context(|| format!("cannot use {}", path.display()))?;
        if read_if_there(&public)?.as_deref() != Some(&*signer.public_pem()) {
            write_private(&public, &signer.public_pem())?;
        }
        Ok(key)
    }
}

impl Credentials {
    /// What the directory keeps, completed. Tokens are signed with this key, or with one that is kept.
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
        let will_do = |found: &Inspected| is_fresh(found, now) && found.is_signed_by(certificate);
        let admin = directory.kept("admin", will_do, || Ok(authority.admin_certificate(now)?))?;
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

    /// The authority, and those before it that are still believed.
    pub(crate) fn bundle(&self) -> String {
        let own = [self.authority.identity().certificate.as_str()];
        own.into_iter().chain(self.retired.iter().map(|one| one.content.as_str())).collect()
    }

    /// The cluster's authority signs whatever its controllers sign.
    pub(crate) fn signers(&self) -> anyhow::Result<Signers> {
        let identity = self.authority.identity();
        Ok(Signers::all(CertificateAuthority::from_pem(&identity.certificate, &identity.key)?))
    }
}

/// The certificate that the server shows if it is given no other. It is kept in `directory`; `pki` keeps the authority.
pub(crate) fn server_certificate(
    directory: &Directory,
    pki: &Directory,
    authority: &Authority,
    addresses: &[IpAddr],
    now: Timestamp,
) -> anyhow::Result<Identity> {
    let certificate = &authority.identity().certificate;
    let will_do = |found: &Inspected| {
        is_fresh(found, now)
            && found.is_signed_by(certificate)
            && addresses.iter().all(|address| found.addresses.contains(address))
            && SERVER_NAMES.iter().all(|name| found.dns_names.iter().any(|found| found == name))
    };
    directory.kept("apiserver", will_do, || new_server_certificate(pki, authority, addresses, now))
}

/// With what leads to the authorities before this one, for those who believe only them.
fn new_server_certificate(
    pki: &Directory,
    authority: &Authority,
    addresses: &[IpAddr],
    now: Timestamp,
) -> anyhow::Result<Identity> {
    let mut made = authority.server_certificate(addresses, now)?;
    if let Some(path) = pki.file("ca-cross.crt")
        && !pki.retired("ca", now)?.is_empty()
    {
        made.certificate.extend(read_if_there(&path)?);
    }
    Ok(made)
}

/// Whether a certificate is valid, and will be for a while.
fn is_fresh(found: &Inspected, now: Timestamp) -> bool {
    let soon = now.checked_add((24 * RENEW_BEFORE_DAYS).hours()).unwrap_or(Timestamp::MAX);
    found.not_before <= now && soon < found.not_after
}

fn read_if_there(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        read => Ok(Some(read.with_context(|| format!("cannot read {}", path.display()))?)),
    }
}

/// Writes the file whole or not at all, readable by its owner alone.
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
