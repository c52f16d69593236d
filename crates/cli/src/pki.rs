//! The cluster's certificates and keys. The authority is kept beside the data, so that a kubeconfig stays good
//! across restarts, and so is the key of the service accounts' tokens; what the authority signs is made anew at
//! every start.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use setpoint::Clock;
use setpoint_apiserver::tls::{Authority, Identity, ServerTls};
use setpoint_controllers::{CertificateAuthority, Signers, TokenSigner};

/// Everything that proves who is who.
pub(crate) struct Credentials {
    authority: Authority,
    pub(crate) server: ServerTls,
    pub(crate) admin: Identity,
    /// Signs the tokens of service accounts.
    pub(crate) token_signer: TokenSigner,
}

impl Credentials {
    /// With the authority kept in `directory`, or a new one that nothing keeps; tokens are signed with this key, or
    /// with one that is kept in the same way. Front proxies show certificates of their own authority.
    pub(crate) fn prepare(
        directory: Option<&Path>,
        addresses: &[IpAddr],
        clock: &Clock,
        signer: Option<TokenSigner>,
        front_proxies: Option<&str>,
    ) -> anyhow::Result<Self> {
        let authority = match directory {
            Some(directory) => kept_authority(directory, clock)?,
            None => Authority::generate(clock.now())?,
        };
        let own = authority.server_certificate(addresses, clock.now())?;
        let server = ServerTls::with_front_proxies(&own, &authority, front_proxies)?;
        let admin = authority.admin_certificate(clock.now())?;
        let token_signer = match (signer, directory) {
            (Some(signer), _) => signer,
            (None, Some(directory)) => TokenSigner::from_pem(&kept_token_key(&directory.join("sa.key"))?)?,
            (None, None) => TokenSigner::from_pem(&TokenSigner::generate_key()?)?,
        };
        Ok(Self { authority, server, admin, token_signer })
    }

    pub(crate) fn authority_certificate(&self) -> &str {
        &self.authority.identity().certificate
    }

    /// The cluster's authority signs whatever its controllers sign.
    pub(crate) fn signers(&self) -> anyhow::Result<Signers> {
        let identity = self.authority.identity();
        Ok(Signers::all(CertificateAuthority::from_pem(&identity.certificate, &identity.key)?))
    }
}

fn kept_authority(directory: &Path, clock: &Clock) -> anyhow::Result<Authority> {
    let (certificate, key) = (directory.join("ca.crt"), directory.join("ca.key"));
    if certificate.exists() && key.exists() {
        let read =
            |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
        let identity = Identity { certificate: read(&certificate)?, key: read(&key)? };
        return Authority::from_pem(identity)
            .with_context(|| format!("cannot use {}", certificate.display()));
    }
    let authority = Authority::generate(clock.now())?;
    write_private(&key, &authority.identity().key)?;
    write_private(&certificate, &authority.identity().certificate)?;
    Ok(authority)
}

fn kept_token_key(path: &Path) -> anyhow::Result<String> {
    if path.exists() {
        return fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    }
    let key = TokenSigner::generate_key()?;
    write_private(path, &key)?;
    Ok(key)
}

/// Writes the file whole or not at all, readable by its owner alone.
pub(crate) fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let unfinished = path.with_extension("tmp");
    let attempt = || -> std::io::Result<()> {
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            fs::create_dir_all(directory)?;
        }
        let mut file =
            OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    attempt().with_context(|| format!("cannot write {}", path.display()))
}
