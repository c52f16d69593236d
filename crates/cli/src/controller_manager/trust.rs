//! Client certificates at the secure port: those of users, and those of front proxies, which pass the user in headers.
//! They are verified for each request, in the same way as by the API server.

use std::sync::Arc;

use http::HeaderMap;
use k8s_openapi::api::authentication::v1::UserInfo;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use setpoint::Clock;
use setpoint_apiserver::auth::{FrontProxy, User};
use setpoint_apiserver::tls::{AnyClient, ClientTrust, TlsError};

pub(crate) struct Trust {
    clients: ClientTrust,
    front_proxy: Option<FrontProxy>,
    is_empty: bool,
    clock: Clock,
}

impl Trust {
    /// Creates the trust settings from the CAs of users and of front proxies, as PEM.
    pub(crate) fn new(
        users: Option<&str>,
        proxies: Option<&str>,
        front_proxy: FrontProxy,
        clock: Clock,
    ) -> Result<Self, TlsError> {
        let mut clients = ClientTrust::new(users.as_slice())?;
        if let Some(proxies) = proxies {
            clients = clients.with_front_proxies(proxies)?;
        }
        let is_empty = users.is_none() && proxies.is_none();
        Ok(Self { clients, front_proxy: proxies.map(|_| front_proxy), is_empty, clock })
    }

    /// Returns the verifier that requests client certificates in the handshake. `None` if no CA is configured.
    pub(crate) fn verifier(&self, provider: &Arc<CryptoProvider>) -> Option<Arc<dyn ClientCertVerifier>> {
        let verifier = || AnyClient::with_ca_hints(provider.clone(), &self.clients);
        (!self.is_empty).then(|| Arc::new(verifier()) as Arc<dyn ClientCertVerifier>)
    }

    /// Returns the user of a request according to its certificate or, for a front proxy, the request headers.
    pub(crate) fn user(
        &self,
        certificates: &[CertificateDer<'static>],
        headers: &HeaderMap,
    ) -> Result<Option<UserInfo>, Vec<String>> {
        let now = self.clock.now();
        let user = self.clients.authenticate(certificates, self.front_proxy.as_ref(), headers, now)?;
        Ok(user.map(info))
    }
}

fn info(user: User) -> UserInfo {
    let uid = Some(user.uid).filter(|uid| !uid.is_empty());
    UserInfo { username: Some(user.name), uid, groups: Some(user.groups), extra: Some(user.extra) }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use setpoint_apiserver::tls::{Authority, certificates};

    use super::*;

    fn der(pem: &str) -> Vec<CertificateDer<'static>> {
        certificates(pem).unwrap()
    }

    #[test]
    fn a_certificate_is_trusted_if_its_authority_is() {
        let clock = Clock::system();
        let now = clock.now();
        let [users, proxies, others] = std::array::from_fn(|_| Authority::generate(now).unwrap());
        let pem = |authority: &Authority| authority.identity().certificate.clone();
        let trust = |allowed: &[&str]| {
            let front_proxy = FrontProxy {
                allowed_names: allowed.iter().map(|name| (*name).to_owned()).collect(),
                username_headers: vec!["x-remote-user".into()],
                ..FrontProxy::default()
            };
            Trust::new(Some(&pem(&users)), Some(&pem(&proxies)), front_proxy, clock.clone()).unwrap()
        };
        let remote = |value: &[u8]| {
            let value = HeaderValue::from_bytes(value).unwrap();
            HeaderMap::from_iter([(http::HeaderName::from_static("x-remote-user"), value)])
        };
        let found = |allowed: &[&str], authority: &Authority, headers: &HeaderMap| {
            let chain = der(&authority.client_certificate("jane", &["dev"], now).unwrap().certificate);
            let user = trust(allowed).user(&chain, headers);
            user.map(|user| user.and_then(|user| user.username)).map_err(drop)
        };
        let (eve, none) = (remote(b"eve"), HeaderMap::new());
        let named = |name: &str| Ok(Some(name.to_owned()));
        assert_eq!(found(&[], &users, &none), named("jane"));
        assert_eq!(found(&[], &users, &eve), named("jane"), "only a proxy may speak for others");
        assert_eq!(found(&[], &proxies, &eve), named("eve"));
        assert_eq!(found(&["jane"], &proxies, &eve), named("eve"));
        for (allowed, authority, headers) in [
            (&[][..], &proxies, &none),
            (&[], &others, &eve),
            (&["front"], &proxies, &eve),
            (&[], &proxies, &remote(b"\xff")),
        ] {
            assert_eq!(
                found(allowed, authority, headers),
                Err(()),
                "an untrusted user is rejected, not anonymous"
            );
        }
        assert_eq!(trust(&[]).user(&[], &eve), Ok(None), "headers are ignored without a certificate");
    }
}
