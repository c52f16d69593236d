//! Parses the PEM of requests and certificates.

use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Returns what is wrong with a request: it must be valid, and signed with its own key.
pub(super) fn problem_of_request(text: &[u8]) -> Option<String> {
    let block = Pem::iter_from_buffer(text).next().and_then(Result::ok);
    let Some(block) = block.filter(|block| block.label == "CERTIFICATE REQUEST") else {
        return Some("PEM block type must be CERTIFICATE REQUEST".into());
    };
    match X509CertificationRequest::from_der(&block.contents) {
        Err(why) => Some(format!("asn1: structure error: {why}")),
        Ok((rest, _)) if !rest.is_empty() => Some("asn1: syntax error: trailing data".into()),
        Ok((_, request)) => request.verify_signature().err().map(|_| "x509: signature is not valid".into()),
    }
}

/// Returns what is wrong with issued certificates; there must be at least one.
pub(in crate::kinds) fn problem_of_certificates(text: &[u8]) -> Option<String> {
    let mut blocks = 0;
    for block in Pem::iter_from_buffer(text).map_while(Result::ok) {
        if block.label != "CERTIFICATE" {
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.label));
        }
        if let Err(why) = X509Certificate::from_der(&block.contents) {
            return Some(format!("x509: malformed certificate: {why}"));
        }
        blocks += 1;
    }
    (blocks == 0).then(|| "must contain at least one CERTIFICATE PEM block".into())
}
