//! TLS versions and cipher suites, by their names in Kubernetes flags.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

/// Suites that v1.34 knows and this server does not support: those with CBC, and insecure ones.
const UNSUPPORTED: [&str; 4] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
];
const INSECURE: [&str; 12] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];
/// Legacy names that v1.34 still accepts.
const LEGACY: [(&str, &str); 2] = [
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
];

/// The minimum TLS version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinVersion {
    #[default]
    Tls12,
    Tls13,
}

/// TLS versions and cipher suites.
#[derive(Clone, Debug)]
pub struct Protocol {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) versions: &'static [&'static SupportedProtocolVersion],
}

/// An unavailable suite.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuiteError {
    #[error("Cipher suite {0} not supported or doesn't exist")]
    Unknown(String),
    #[error("cipher suite {name} is insecure and not supported by this server: expected some of {known}")]
    Insecure { name: String, known: String },
    #[error("cipher suite {name} is not supported by this server: expected some of {known}")]
    NotSpoken { name: String, known: String },
}

impl std::str::FromStr for MinVersion {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "" | "VersionTLS12" => Ok(Self::Tls12),
            "VersionTLS13" => Ok(Self::Tls13),
            "VersionTLS10" | "VersionTLS11" => Err(format!(
                "{name} is insecure and not supported by this server: expected VersionTLS12 or VersionTLS13"
            )),
            _ => Err(format!("unknown tls version {name:?}: expected VersionTLS12 or VersionTLS13")),
        }
    }
}

impl Default for Protocol {
    fn default() -> Self {
        Self {
            provider: Arc::new(rustls::crypto::ring::default_provider()),
            versions: versions(MinVersion::Tls12),
        }
    }
}

static FROM_12: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];
static FROM_13: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];

fn versions(least: MinVersion) -> &'static [&'static SupportedProtocolVersion] {
    match least {
        MinVersion::Tls12 => &FROM_12,
        MinVersion::Tls13 => &FROM_13,
    }
}

impl Protocol {
    /// Enables TLS from this version on. `suites` are TLS 1.2 suites, by Go's names; empty enables all supported ones.
    /// As in Go, TLS 1.3 suites cannot be chosen: all are enabled.
    pub fn new(least: MinVersion, suites: &[String]) -> Result<Self, SuiteError> {
        let mut provider = rustls::crypto::ring::default_provider();
        if !suites.is_empty() {
            let chosen = suites.iter().map(|name| chosen(&provider, name)).collect::<Result<Vec<_>, _>>()?;
            provider.cipher_suites.retain(|suite| is_13(suite) || chosen.contains(&shown(suite)));
        }
        Ok(Self { provider: Arc::new(provider), versions: versions(least) })
    }

    pub fn provider(&self) -> &Arc<CryptoProvider> {
        &self.provider
    }

    pub fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        self.versions
    }
}

fn is_13(suite: &SupportedCipherSuite) -> bool {
    suite.tls13().is_some()
}

/// Returns Go's name of a suite: `TLS_` even if rustls uses `TLS13_`.
fn shown(suite: &SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1)
}

fn chosen(provider: &CryptoProvider, name: &str) -> Result<String, SuiteError> {
    let legacy = LEGACY.iter().find(|(old, _)| *old == name).map(|(_, now)| *now);
    let name = legacy.unwrap_or(name).to_owned();
    let spoken: Vec<String> = provider.cipher_suites.iter().map(shown).collect();
    if spoken.contains(&name) {
        return Ok(name);
    }
    let choice = provider.cipher_suites.iter().filter(|suite| !is_13(suite)).map(shown);
    let known = choice.collect::<Vec<_>>().join(", ");
    Err(match name.as_str() {
        insecure if INSECURE.contains(&insecure) => SuiteError::Insecure { name, known },
        other if UNSUPPORTED.contains(&other) => SuiteError::NotSpoken { name, known },
        _ => SuiteError::Unknown(name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suites(names: &[&str]) -> Result<Vec<String>, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).into()).collect();
        let protocol = Protocol::new(MinVersion::Tls12, &names).map_err(|error| error.to_string())?;
        Ok(protocol.provider.cipher_suites.iter().filter(|suite| !is_13(suite)).map(shown).collect())
    }

    #[test]
    fn suites_of_tls_12_are_chosen_by_name_and_those_of_13_stay() {
        let one = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        assert_eq!(suites(&[one]).unwrap(), [one]);
        let legacy = suites(&["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"]).unwrap();
        assert_eq!(legacy, ["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"]);
        assert_eq!(suites(&["TLS_AES_128_GCM_SHA256"]).unwrap(), Vec::<String>::new());
        assert_eq!(suites(&[]).unwrap().len(), 6);
        let protocol = Protocol::new(MinVersion::Tls13, &[one.to_owned()]).unwrap();
        assert_eq!(protocol.provider.cipher_suites.iter().filter(|suite| is_13(suite)).count(), 3);
        assert_eq!(protocol.versions.len(), 1);
    }

    #[test]
    fn an_unsupported_cipher_suite_is_named() {
        let check = |name: &str, expected: &str| {
            let error = suites(&[name]).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        };
        check("NONSENSE", "Cipher suite NONSENSE not supported or doesn't exist");
        check("TLS_RSA_WITH_RC4_128_SHA", "cipher suite TLS_RSA_WITH_RC4_128_SHA is insecure");
        check(
            "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
            "cipher suite TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA is not supported",
        );
    }

    #[test]
    fn versions_have_kubernetes_names() {
        assert_eq!("VersionTLS13".parse(), Ok(MinVersion::Tls13));
        assert_eq!("".parse(), Ok(MinVersion::Tls12));
        for bad in ["VersionTLS11", "1.2"] {
            assert!(bad.parse::<MinVersion>().is_err(), "{bad}");
        }
    }
}
