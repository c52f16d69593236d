//! Describes failed connections as Go's `net/http`, `crypto/tls` and `crypto/x509` do.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError, OtherError};

use crate::first_record::NotTls;
use crate::trusted::Rejected;

/// Describes an error by its cause, as Go's `http.Transport` does.
pub fn go_text(error: &(dyn Error + 'static)) -> String {
    if let Some(not_tls) = find::<NotTls>(error) {
        return not_tls.to_string();
    }
    if let Some(tls) = find::<rustls::Error>(error) {
        return tls_text(tls);
    }
    let cause = innermost(error);
    let is_eof = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
    // The connection ended before the response.
    let is_incomplete = cause.downcast_ref().is_some_and(hyper::Error::is_incomplete_message);
    match is_incomplete || cause.downcast_ref().is_some_and(is_eof) {
        true => "EOF".into(),
        false => cause.to_string(),
    }
}

/// Describes an error as Go's `http.Client` does: it explains plain HTTP where TLS was expected.
pub(crate) fn go_client_text(error: &(dyn Error + 'static)) -> String {
    match find::<NotTls>(error).is_some_and(NotTls::is_http) {
        true => "http: server gave HTTP response to HTTPS client".into(),
        false => go_text(error),
    }
}

/// Describes a TLS failure.
fn tls_text(error: &rustls::Error) -> String {
    use rustls::Error as Tls;
    match error {
        Tls::InvalidCertificate(CertificateError::Other(OtherError(why))) => {
            match why.downcast_ref::<Rejected>() {
                Some(why) => format!("tls: failed to verify certificate: {why}"),
                None => format!("tls: {why}"),
            }
        }
        Tls::InvalidCertificate(CertificateError::BadSignature) => {
            "tls: invalid signature by the server certificate".into()
        }
        Tls::NoCertificatesPresented => "tls: received empty certificates message".into(),
        Tls::AlertReceived(alert) => format!("remote error: tls: {}", alert_text(*alert)),
        other => format!("tls: {other}"),
    }
}

fn alert_text(alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    let text = match alert {
        Alert::CloseNotify => "close notify",
        Alert::UnexpectedMessage => "unexpected message",
        Alert::BadRecordMac => "bad record MAC",
        Alert::DecryptionFailed => "decryption failed",
        Alert::RecordOverflow => "record overflow",
        Alert::DecompressionFailure => "decompression failure",
        Alert::HandshakeFailure => "handshake failure",
        Alert::BadCertificate => "bad certificate",
        Alert::UnsupportedCertificate => "unsupported certificate",
        Alert::CertificateRevoked => "revoked certificate",
        Alert::CertificateExpired => "expired certificate",
        Alert::CertificateUnknown => "unknown certificate",
        Alert::IllegalParameter => "illegal parameter",
        Alert::UnknownCA => "unknown certificate authority",
        Alert::AccessDenied => "access denied",
        Alert::DecodeError => "error decoding message",
        Alert::DecryptError => "error decrypting message",
        Alert::ExportRestriction => "export restriction",
        Alert::ProtocolVersion => "protocol version not supported",
        Alert::InsufficientSecurity => "insufficient security level",
        Alert::InternalError => "internal error",
        Alert::InappropriateFallback => "inappropriate fallback",
        Alert::UserCanceled => "user canceled",
        Alert::NoRenegotiation => "no renegotiation",
        Alert::MissingExtension => "missing extension",
        Alert::UnsupportedExtension => "unsupported extension",
        Alert::UnrecognisedName => "unrecognized name",
        Alert::CertificateRequired => "certificate required",
        Alert::NoApplicationProtocol => "no application protocol",
        other => return format!("alert({})", u8::from(other)),
    };
    text.into()
}

/// Finds an error among the causes of another one, also inside I/O errors.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let inside =
        |error: &'a (dyn Error + 'static)| error.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref();
    causes(error).find_map(|cause| cause.downcast_ref::<E>().or_else(|| inside(cause)))
}

/// Returns the first cause.
pub(crate) fn innermost<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    causes(error).last().unwrap_or(error)
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tls_failure_is_described_as_go_does() {
        for (error, expected) in [
            (
                rustls::Error::AlertReceived(AlertDescription::BadCertificate),
                "remote error: tls: bad certificate",
            ),
            (
                rustls::Error::AlertReceived(AlertDescription::UnknownCA),
                "remote error: tls: unknown certificate authority",
            ),
            (rustls::Error::AlertReceived(AlertDescription::from(200)), "remote error: tls: alert(200)"),
            (rustls::Error::NoCertificatesPresented, "tls: received empty certificates message"),
            (
                Rejected("x509: malformed certificate".into()).into(),
                "tls: failed to verify certificate: x509: malformed certificate",
            ),
        ] {
            assert_eq!(go_text(&io::Error::other(error.clone())), expected);
            assert_eq!(go_text(&error), expected);
        }
        assert_eq!(go_text(&io::Error::from(io::ErrorKind::UnexpectedEof)), "EOF");
        assert_eq!(go_text(&io::Error::other("dial tcp: no route")), "dial tcp: no route");
    }
}
