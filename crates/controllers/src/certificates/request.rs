//! Parses a PKCS #10 certification request and checks its signature.

use std::net::IpAddr;

use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer;

/// The contents of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) common_name: String,
    pub(super) organizations: Vec<String>,
    pub(super) dns_names: Vec<String>,
    pub(super) emails: Vec<String>,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) uris: Vec<String>,
    /// The DER-encoded subject and public key.
    pub(super) subject: Vec<u8>,
    pub(super) public_key: Vec<u8>,
    pub(super) der: Vec<u8>,
}

impl Request {
    /// Reads the first PEM block.
    pub(super) fn parse(pem: &[u8]) -> Result<Self, String> {
        let wrong_type = || "PEM block type must be CERTIFICATE REQUEST".to_owned();
        let (_, block) = parse_x509_pem(pem).map_err(|_| wrong_type())?;
        if block.label != "CERTIFICATE REQUEST" {
            return Err(wrong_type());
        }
        let parsed = X509CertificationRequest::from_der(&block.contents);
        let (_, parsed) = parsed.map_err(|error| format!("no certification request: {error}"))?;
        let info = &parsed.certification_request_info;
        // Reject unreadable values: others might read them, and the certificate copies the subject verbatim.
        let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            value.as_str().map(str::to_owned).map_err(|error| format!("cannot read the subject: {error}"))
        };
        let organizations = info.subject.iter_organization().map(text).collect::<Result<_, _>>()?;
        let mut request = Self {
            // The last one wins, as in Go.
            common_name: info.subject.iter_common_name().last().map_or(Ok(String::new()), text)?,
            organizations,
            subject: info.subject.as_raw().to_vec(),
            public_key: info.subject_pki.raw.to_vec(),
            ..Self::default()
        };
        for extension in parsed.requested_extensions().into_iter().flatten() {
            if let ParsedExtension::SubjectAlternativeName(names) = extension {
                names.general_names.iter().for_each(|name| request.note(name));
            }
        }
        request.der = block.contents;
        Ok(request)
    }

    fn note(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(name) => self.dns_names.push((*name).to_owned()),
            GeneralName::RFC822Name(email) => self.emails.push((*email).to_owned()),
            GeneralName::URI(uri) => self.uris.push((*uri).to_owned()),
            GeneralName::IPAddress(bytes) => self.addresses.extend(address(bytes)),
            _ => {}
        }
    }

    /// Whether the request is signed with its own key.
    pub(super) fn is_signed_by_its_key(&self) -> bool {
        let parsed = X509CertificationRequest::from_der(&self.der);
        parsed.is_ok_and(|(_, parsed)| parsed.verify_signature().is_ok())
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}
