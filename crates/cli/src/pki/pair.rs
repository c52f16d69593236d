//! A certificate and its key, in two files.
//!
//! Two files cannot be replaced atomically. So the new certificate is first written next to the old one, then the key
//! is replaced, then the certificate. A reader that finds a key without its certificate finds the certificate there.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use setpoint_apiserver::tls::{CertificateInfo, Identity, certified};

use super::{read_if_exists, write_private};

#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Pair {
    pub(crate) fn in_directory(directory: &Path, name: &str) -> Self {
        Self {
            certificate: directory.join(format!("{name}.crt")),
            key: directory.join(format!("{name}.key")),
        }
    }

    fn next(&self) -> PathBuf {
        self.certificate.with_extension("crt-new")
    }

    /// Reads both files. Returns `None` if one is missing. Completes an interrupted replacement.
    pub(crate) fn read(&self) -> anyhow::Result<Option<Identity>> {
        let (Some(certificate), Some(key)) = (read_if_exists(&self.certificate)?, read_if_exists(&self.key)?)
        else {
            return Ok(None);
        };
        if certified(&certificate, &key).is_err()
            && let Some(certificate) = read_if_exists(&self.next())?
            && certified(&certificate, &key).is_ok()
        {
            self.put_certificate()?;
            return Ok(Some(Identity { certificate, key }));
        }
        Ok(Some(Identity { certificate, key }))
    }

    /// Reads both files, if the certificate matches its key and `will_do` accepts it.
    pub(crate) fn read_usable(
        &self,
        will_do: impl Fn(&CertificateInfo) -> bool,
    ) -> anyhow::Result<Option<Identity>> {
        let Some(identity) = self.read()? else { return Ok(None) };
        let path = self.certificate.display();
        match certified(&identity.certificate, &identity.key)
            .and_then(|_| CertificateInfo::of_pem(&identity.certificate))
        {
            Ok(found) if will_do(&found) => return Ok(Some(identity)),
            Ok(found) => tracing::info!(%path, expires = %found.not_after, "renewing the certificate"),
            Err(error) => tracing::warn!(%path, %error, "replacing a certificate that cannot be used"),
        }
        Ok(None)
    }

    pub(crate) fn write(&self, identity: &Identity) -> anyhow::Result<()> {
        write_private(&self.next(), &identity.certificate)?;
        write_private(&self.key, &identity.key)?;
        match self.put_certificate() {
            // A server that watches these files has already completed the replacement.
            Err(_) if read_if_exists(&self.certificate)?.as_ref() == Some(&identity.certificate) => Ok(()),
            put => put,
        }
    }

    fn put_certificate(&self) -> anyhow::Result<()> {
        fs::rename(self.next(), &self.certificate)
            .with_context(|| format!("cannot write {}", self.certificate.display()))
    }
}

#[cfg(test)]
mod tests {
    use setpoint::Clock;
    use setpoint_apiserver::tls::Authority;

    use super::*;

    #[test]
    fn a_replacement_that_was_interrupted_is_completed() {
        let directory = tempfile::tempdir().unwrap();
        let pair = Pair::in_directory(directory.path(), "ca");
        let now = Clock::system().now();
        let (old, new) = (Authority::generate(now).unwrap(), Authority::generate(now).unwrap());
        pair.write(old.identity()).unwrap();
        assert_eq!(pair.read().unwrap().as_ref(), Some(old.identity()));
        write_private(&pair.next(), &new.identity().certificate).unwrap();
        assert_eq!(pair.read().unwrap().as_ref(), Some(old.identity()), "the key is still the old one");
        write_private(&pair.key, &new.identity().key).unwrap();
        assert_eq!(pair.read().unwrap().as_ref(), Some(new.identity()));
        assert_eq!(fs::read_to_string(&pair.certificate).unwrap(), new.identity().certificate);
        assert!(!pair.next().exists());
    }
}
