//! Searches a chain from a certificate to a trusted one, to describe in Go's words why there is none.
//!
//! It follows `buildChains` of Go's `crypto/x509`: the candidates, their order, and which of several failures is reported.
//! It only ever rejects: what it lets pass is still verified by webpki. Unlike webpki, and like Go, it checks the validity
//! of the trusted certificates themselves.

use std::cell::Cell;
use std::collections::BTreeSet;

use x509_parser::error::X509Error;
use x509_parser::oid_registry::{
    OID_KEY_TYPE_EC_PUBLIC_KEY, OID_PKCS1_RSAENCRYPTION, OID_PKCS1_SHA1WITHRSA, OID_SIG_ECDSA_WITH_SHA256,
    OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ED25519,
};
use x509_parser::prelude::{ParsedExtension, X509Certificate, X509Version};

use crate::x509::{check_validity, common_name, parse, text};

/// The limit on signature checks, as in Go. It also bounds the depth of the search.
const MAX_CHECKS: usize = 100;

pub(crate) const UNKNOWN_AUTHORITY: &str = "x509: certificate signed by unknown authority";

/// A trusted certificate.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    /// The encoded subject.
    pub(crate) subject: Vec<u8>,
    pub(crate) der: Vec<u8>,
}

/// A search for a chain. Each certificate is parsed once, however often it is considered.
pub(crate) struct Search<'a> {
    candidates: Vec<Candidate<'a>>,
    /// Seconds since the epoch.
    now: i64,
    checks: Cell<usize>,
}

/// A certificate that may have signed another one.
struct Candidate<'a> {
    certificate: X509Certificate<'a>,
    is_root: bool,
}

/// Why a candidate is not the issuer of a certificate.
enum Unsuitable {
    /// It did not sign the certificate.
    Signature(String),
    /// It did, but it is not valid.
    Invalid(String),
}

impl<'a> Search<'a> {
    /// Prepares to search issuers of a certificate, among the trusted ones and those that the server sent.
    pub(crate) fn new(
        leaf: &X509Certificate<'_>,
        roots: &'a [Root],
        intermediates: impl Iterator<Item = &'a [u8]>,
        now: i64,
    ) -> Self {
        let intermediates: Vec<_> = intermediates.filter_map(parse).collect();
        // A bundle may have hundreds of roots, and few of them are relevant.
        let children = intermediates.iter().chain(std::iter::once(leaf));
        let issuers: BTreeSet<&[u8]> = children.map(|child| child.issuer().as_raw()).collect();
        let relevant = roots.iter().filter(|root| issuers.contains(root.subject.as_slice()));
        let relevant: Vec<_> = relevant.filter_map(|root| parse(&root.der)).collect();
        let candidate = |is_root| move |certificate| Candidate { certificate, is_root };
        let roots = relevant.into_iter().map(candidate(true));
        let candidates = roots.chain(intermediates.into_iter().map(candidate(false))).collect();
        Self { candidates, now, checks: Cell::new(0) }
    }

    /// Extends a chain, which starts with the server's certificate, to a root.
    pub(crate) fn extend(&self, chain: &[&X509Certificate<'_>]) -> Result<(), String> {
        let Some(child) = chain.last() else { return Err(UNKNOWN_AUTHORITY.into()) };
        let mut hint = None;
        let mut failure = None;
        for Candidate { certificate, is_root } in self.candidates(child) {
            self.count_check()?;
            if chain.iter().any(|other| is_same(other, certificate)) {
                continue;
            }
            match self.consider(certificate, chain, *is_root) {
                Ok(()) if *is_root => return Ok(()),
                Ok(()) => match self.extend(&[chain, &[certificate]].concat()) {
                    Ok(()) => return Ok(()),
                    Err(why) => failure = Some(why),
                },
                Err(Unsuitable::Signature(why)) => {
                    _ = hint.get_or_insert_with(|| described(certificate, &why))
                }
                Err(Unsuitable::Invalid(why)) => {
                    hint.get_or_insert_with(|| described(certificate, &why));
                    failure = Some(why);
                }
            }
        }
        Err(failure.unwrap_or_else(|| format!("{UNKNOWN_AUTHORITY}{}", hint.unwrap_or_default())))
    }

    fn count_check(&self) -> Result<(), String> {
        self.checks.set(self.checks.get() + 1);
        match self.checks.get() > MAX_CHECKS {
            true => {
                Err("x509: signature check attempts limit reached while verifying certificate chain".into())
            }
            false => Ok(()),
        }
    }

    /// Returns the certificates that may have signed another one, roots first, the most plausible ones first.
    fn candidates(&self, child: &X509Certificate<'_>) -> Vec<&Candidate<'a>> {
        let issuer = child.issuer().as_raw();
        let is_issuer = |candidate: &&Candidate<'a>| candidate.certificate.subject().as_raw() == issuer;
        let mut candidates: Vec<_> = self.candidates.iter().filter(is_issuer).collect();
        candidates.sort_by_cached_key(|candidate| {
            (!candidate.is_root, implausibility(child, &candidate.certificate))
        });
        candidates
    }

    /// Checks that a certificate signed the last one of a chain, and may have.
    fn consider(
        &self,
        candidate: &X509Certificate<'_>,
        chain: &[&X509Certificate<'_>],
        is_root: bool,
    ) -> Result<(), Unsuitable> {
        let child = chain.last().ok_or_else(|| Unsuitable::Invalid(UNKNOWN_AUTHORITY.into()))?;
        check_signature(child, candidate).map_err(Unsuitable::Signature)?;
        check_validity(candidate, self.now).map_err(Unsuitable::Invalid)?;
        let constraints = candidate.basic_constraints().ok().flatten();
        if !is_root && !constraints.as_ref().is_some_and(|constraints| constraints.value.ca) {
            let why = "x509: certificate is not authorized to sign other certificates";
            return Err(Unsuitable::Invalid(why.into()));
        }
        let limit = constraints.and_then(|constraints| constraints.value.path_len_constraint);
        match limit.is_some_and(|limit| chain.len() - 1 > limit as usize) {
            true => {
                Err(Unsuitable::Invalid("x509: too many intermediates for path length constraint".into()))
            }
            false => Ok(()),
        }
    }
}

/// Ranks a candidate by its key ID: equal, missing on one side, or different.
fn implausibility(child: &X509Certificate<'_>, candidate: &X509Certificate<'_>) -> u8 {
    match (key_id(candidate), authority_key_id(child)) {
        (own, wanted) if own == wanted => 0,
        (None, Some(_)) | (Some(_), None) => 1,
        _ => 2,
    }
}

fn key_id<'a>(certificate: &'a X509Certificate<'_>) -> Option<&'a [u8]> {
    certificate.iter_extensions().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
        _ => None,
    })
}

fn authority_key_id<'a>(certificate: &'a X509Certificate<'_>) -> Option<&'a [u8]> {
    certificate.iter_extensions().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|id| id.0),
        _ => None,
    })
}

/// Whether two certificates have the same subject, key and alternative names. That ends loops of cross-signed
/// certificates.
fn is_same(one: &X509Certificate<'_>, other: &X509Certificate<'_>) -> bool {
    let names = |certificate: &X509Certificate<'_>| {
        let mut extensions = certificate.iter_extensions();
        let is_names =
            |parsed: &ParsedExtension<'_>| matches!(parsed, ParsedExtension::SubjectAlternativeName(_));
        extensions.find(|extension| is_names(extension.parsed_extension())).map(|found| found.value.to_vec())
    };
    one.subject().as_raw() == other.subject().as_raw()
        && one.public_key().raw == other.public_key().raw
        && names(one) == names(other)
}

fn check_signature(child: &X509Certificate<'_>, parent: &X509Certificate<'_>) -> Result<(), String> {
    let constraints = parent.basic_constraints().ok().flatten();
    let may_sign = match constraints {
        Some(constraints) => constraints.value.ca,
        None => parent.version() != X509Version::V3,
    };
    let usage = parent.key_usage().ok().flatten().filter(|usage| usage.value.flags != 0);
    if !may_sign || usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
        return Err("x509: invalid signature: parent certificate cannot sign this kind of certificate".into());
    }
    let Some(algorithm) = Algorithm::of_signature(child) else { return Ok(()) };
    if child.signature_algorithm.algorithm == OID_PKCS1_SHA1WITHRSA {
        return Err("x509: cannot verify signature: insecure algorithm SHA1-RSA".into());
    }
    if let Some(key) = Algorithm::of_key(parent).filter(|key| *key != algorithm) {
        return Err(format!(
            "x509: signature algorithm specifies an {} public key, but have public key of type {}",
            algorithm.name(),
            key.go_type()
        ));
    }
    match child.verify_signature(Some(parent.public_key())) {
        // An algorithm that is not known here is left to webpki.
        Ok(()) | Err(X509Error::SignatureUnsupportedAlgorithm) => Ok(()),
        Err(_) => Err(algorithm.failure().into()),
    }
}

/// The kind of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Rsa,
    Ecdsa,
    Ed25519,
}

impl Algorithm {
    fn of_signature(certificate: &X509Certificate<'_>) -> Option<Self> {
        let oid = &certificate.signature_algorithm.algorithm;
        let is_ecdsa = *oid == OID_SIG_ECDSA_WITH_SHA256 || *oid == OID_SIG_ECDSA_WITH_SHA384;
        // The names of all RSA signatures are below 1.2.840.113549.1.1.
        let is_rsa = oid.to_id_string().starts_with("1.2.840.113549.1.1.");
        match () {
            () if is_ecdsa => Some(Self::Ecdsa),
            () if is_rsa => Some(Self::Rsa),
            () => (*oid == OID_SIG_ED25519).then_some(Self::Ed25519),
        }
    }

    fn of_key(certificate: &X509Certificate<'_>) -> Option<Self> {
        let oid = &certificate.public_key().algorithm.algorithm;
        match () {
            () if *oid == OID_PKCS1_RSAENCRYPTION => Some(Self::Rsa),
            () if *oid == OID_KEY_TYPE_EC_PUBLIC_KEY => Some(Self::Ecdsa),
            () => (*oid == OID_SIG_ED25519).then_some(Self::Ed25519),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rsa => "RSA",
            Self::Ecdsa => "ECDSA",
            Self::Ed25519 => "Ed25519",
        }
    }

    fn go_type(self) -> &'static str {
        match self {
            Self::Rsa => "*rsa.PublicKey",
            Self::Ecdsa => "*ecdsa.PublicKey",
            Self::Ed25519 => "ed25519.PublicKey",
        }
    }

    fn failure(self) -> &'static str {
        match self {
            Self::Rsa => "crypto/rsa: verification error",
            Self::Ecdsa => "x509: ECDSA verification failure",
            Self::Ed25519 => "x509: Ed25519 verification failure",
        }
    }
}

/// Describes a candidate that was not suitable.
fn described(candidate: &X509Certificate<'_>, why: &str) -> String {
    let organization = || candidate.subject().iter_organization().find_map(text);
    let named = common_name(candidate).filter(|name| !name.is_empty()).or_else(organization);
    let name = named.map_or_else(|| format!("serial:{}", candidate.serial), str::to_owned);
    format!(" (possibly because of {why:?} while trying to verify candidate authority certificate {name:?})")
}
