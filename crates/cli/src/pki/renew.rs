//! Renews certificates and keys, and keeps the old ones as long as they are needed.

use anyhow::Context;
use jiff::Timestamp;
use setpoint_apiserver::tls::{Authority, CertificateInfo};
use setpoint_controllers::TokenSigner;

use super::{
    Directory, FRONT_PROXY_CA, FRONT_PROXY_CLIENT, KUBELET_CLIENT, Retired, new_server_certificate,
    read_if_exists, write_private,
};

/// What to renew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Renewal {
    /// The CA, and everything it signs.
    pub(crate) authority: bool,
    pub(crate) admin: bool,
    pub(crate) server: bool,
    pub(crate) service_account_key: bool,
    /// The client certificate for kubelets. Renewed with the CA, if it exists.
    pub(crate) kubelet_client: bool,
    /// The client certificate for aggregated API servers.
    pub(crate) front_proxy_client: bool,
    /// The CA of that certificate. A server signs a new one with it when it starts.
    pub(crate) front_proxy_ca: bool,
}

/// Renews files in an existing directory. Returns a line for each.
pub(crate) fn renew(directory: &Directory, what: Renewal, now: Timestamp) -> anyhow::Result<Vec<String>> {
    let path = directory.0.as_deref().context("there is no data directory")?;
    let kept = directory.authority()?;
    let mut authority = kept.with_context(|| format!("no CA found in {}", path.display()))?;
    let mut done = Vec::new();
    if what.authority {
        authority = renew_authority(directory, &authority, now)?;
        done.push("ca: renewed; the old CA stays trusted for a year".to_owned());
    }
    if what.admin || what.authority {
        let made = authority.admin_certificate(now)?;
        directory.pair("admin").context("there is no data directory")?.write(&made)?;
        done.push("admin: renewed".into());
    }
    if what.server || what.authority {
        renew_server(directory, &authority, now)?;
        done.push("apiserver: renewed".into());
    }
    let kubelet_client = directory.pair(KUBELET_CLIENT.file).context("there is no data directory")?;
    if what.kubelet_client || (what.authority && kubelet_client.certificate.exists()) {
        kubelet_client.write(&KUBELET_CLIENT.issue(directory, &authority, now)?)?;
        done.push(format!("{}: renewed", KUBELET_CLIENT.file));
    }
    if what.front_proxy_ca {
        directory.renew_front_proxy_authority(now)?;
        done.push(format!("{FRONT_PROXY_CA}: renewed; the old CA stays trusted for a year"));
    }
    if what.front_proxy_client {
        let made = FRONT_PROXY_CLIENT.issue(directory, &directory.front_proxy_authority(now)?, now)?;
        directory.pair(FRONT_PROXY_CLIENT.file).context("there is no data directory")?.write(&made)?;
        done.push(format!("{}: renewed", FRONT_PROXY_CLIENT.file));
    }
    if what.service_account_key {
        renew_service_account_key(directory, now)?;
        done.push("sa: renewed; tokens signed by the old key are accepted for up to a year".into());
    }
    Ok(done)
}

fn renew_authority(directory: &Directory, old: &Authority, now: Timestamp) -> anyhow::Result<Authority> {
    let path = directory.0.as_deref().context("there is no data directory")?;
    let (new, cross_signed) = old.renewed(now)?;
    let cross = path.join("ca-cross.crt");
    let before = read_if_exists(&cross)?.unwrap_or_default();
    // The chain from the new CA back to the old ones, newest first. If this is interrupted, the old CA is still active,
    // and is also listed as retired.
    Retired::keep(path, "ca", "crt", &old.identity().certificate, now)?;
    write_private(&cross, &(cross_signed + &before))?;
    directory.pair("ca").context("there is no data directory")?.write(new.identity())?;
    Ok(new)
}

/// Renews the serving certificate for the same addresses.
fn renew_server(directory: &Directory, authority: &Authority, now: Timestamp) -> anyhow::Result<()> {
    let pair = directory.pair("apiserver").context("there is no data directory")?;
    let old = pair.read()?.and_then(|old| CertificateInfo::of_pem(&old.certificate).ok());
    let mut addresses = old.map(|old| old.addresses).unwrap_or_default();
    addresses.retain(|address| !address.is_loopback());
    pair.write(&new_server_certificate(directory, authority, &addresses, now)?)
}

fn renew_service_account_key(directory: &Directory, now: Timestamp) -> anyhow::Result<()> {
    let path = directory.0.as_deref().context("there is no data directory")?;
    let old = TokenSigner::from_pem(&directory.token_key()?)?;
    let key = TokenSigner::generate_key()?;
    let public = TokenSigner::from_pem(&key)?.public_pem();
    Retired::keep(path, "sa", "pub", &old.public_pem(), now)?;
    write_private(&path.join("sa.key"), &key)?;
    write_private(&path.join("sa.pub"), &public)
}
