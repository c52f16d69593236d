//! The default certificate of the secure port: self-signed.

use std::net::IpAddr;
use std::path::Path;

use anyhow::Context;
use setpoint::Clock;
use setpoint_apiserver::tls::Authority;

use super::signing::read;
use crate::pki::write_private;

/// The file name of the self-signed certificate, as in kube-controller-manager.
const PAIR: &str = "kube-controller-manager";

/// Returns the self-signed certificate and key from the directory, or generates and stores new ones.
pub(super) fn own(
    directory: Option<&Path>,
    address: IpAddr,
    clock: &Clock,
) -> anyhow::Result<(String, String)> {
    let files = directory
        .map(|directory| (directory.join(format!("{PAIR}.crt")), directory.join(format!("{PAIR}.key"))));
    if let Some((certificate, key)) = files.as_ref().filter(|(one, other)| one.exists() && other.exists()) {
        return Ok((read("cert-dir", certificate)?, read("cert-dir", key)?));
    }
    let made = Authority::generate(clock.now())?.server_certificate(&[address], clock.now())?;
    if let (Some(directory), Some((certificate, key))) = (directory, files) {
        let failed = || format!("--cert-dir: cannot write to {}", directory.display());
        std::fs::create_dir_all(directory).with_context(failed)?;
        // The key is private to its owner. The certificate is public.
        write_private(&key, &made.key).context("--cert-dir")?;
        std::fs::write(certificate, &made.certificate).with_context(failed)?;
    }
    Ok((made.certificate, made.key))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_self_signed_certificate_is_stored_in_the_given_directory() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Clock::system();
        let address = "127.0.0.1".parse().unwrap();
        let first = own(Some(directory.path()), address, &clock).unwrap();
        assert_eq!(own(Some(directory.path()), address, &clock).unwrap(), first);
        assert_ne!(own(None, address, &clock).unwrap(), first);
        setpoint_apiserver::tls::certified(&first.0, &first.1).unwrap();
        let key = directory.path().join(format!("{PAIR}.key"));
        let mode = std::fs::metadata(key).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "others must not read the key");
    }
}
