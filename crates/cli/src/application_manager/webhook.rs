//! The admission webhook of `setpoint application-manager`: an HTTPS port that the API server calls.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use rustls::ServerConfig;
use serde_json::{Value, json};
use setpoint::Clock;
use setpoint_apiserver::tls::{Authority, MinVersion, Protocol as TlsProtocol, SniCertificates, certified};
use setpoint_oam::admission::{Admission, PATH};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::controller_manager::connections::{self, Answer, Certificates, Limits, Port, Protocol};
use crate::reviews::Reviews;

/// The largest review: an Application and its old version, of 3 MiB each, and what is around them.
const MAX_BYTES: usize = 8 << 20;

#[derive(Debug, Args)]
#[command(next_help_heading = "Webhook")]
pub(crate) struct WebhookFlags {
    /// Address of the webhook that checks properties of Applications; empty disables it.
    #[arg(long, default_value = "", value_name = "ADDRESS", hide_default_value = true)]
    webhook_address: String,
    /// URL at which the API server reaches the webhook, such as https://192.0.2.1:9443.
    #[arg(long, value_name = "URL", conflicts_with = "webhook_service")]
    webhook_url: Option<String>,
    /// Service at which the API server reaches the webhook: NAMESPACE/NAME, on port 443.
    #[arg(long, value_name = "SERVICE", requires = "webhook_tls_cert_file")]
    webhook_service: Option<String>,
    /// Certificate of the webhook [default: a self-signed one for the IP address in --webhook-url].
    #[arg(long, value_name = "FILE", requires = "webhook_tls_private_key_file")]
    webhook_tls_cert_file: Option<PathBuf>,
    /// Private key of --webhook-tls-cert-file.
    #[arg(long, value_name = "FILE", requires = "webhook_tls_cert_file")]
    webhook_tls_private_key_file: Option<PathBuf>,
    /// CA bundle with which the API server verifies --webhook-tls-cert-file [default: the certificate itself].
    #[arg(long, value_name = "FILE", requires = "webhook_tls_cert_file")]
    webhook_ca_file: Option<PathBuf>,
}

/// A webhook that is ready to be served.
pub(super) struct Webhook {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    /// What the API server needs to know of it.
    pub(super) client_config: Value,
}

impl WebhookFlags {
    /// Binds the webhook's port. `None` if it is disabled.
    pub(super) async fn prepare(&self, clock: &Clock) -> anyhow::Result<Option<Webhook>> {
        if self.webhook_address.is_empty() {
            return Ok(None);
        }
        let shown = &self.webhook_address;
        let address: SocketAddr = shown.parse().with_context(|| {
            format!("--webhook-address {shown}: expected an address and a port, such as 0.0.0.0:9443")
        })?;
        let (certificate, key, authority) = self.certificate(clock)?;
        let mut client_config = self.place()?;
        client_config["caBundle"] = STANDARD.encode(authority).into();
        let acceptor = acceptor(&certificate, &key)?;
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("--webhook-address: cannot listen on {address}"))?;
        Ok(Some(Webhook { listener, acceptor, client_config }))
    }

    /// Returns the certificate, its key, and the CA bundle of both.
    fn certificate(&self, clock: &Clock) -> anyhow::Result<(String, String, String)> {
        let read = |flag: &str, path: &PathBuf| {
            std::fs::read_to_string(path).with_context(|| format!("--{flag}: cannot read {}", path.display()))
        };
        if let (Some(certificate), Some(key)) =
            (&self.webhook_tls_cert_file, &self.webhook_tls_private_key_file)
        {
            let authority = self.webhook_ca_file.as_ref().unwrap_or(certificate);
            return Ok((
                read("webhook-tls-cert-file", certificate)?,
                read("webhook-tls-private-key-file", key)?,
                read("webhook-ca-file", authority)?,
            ));
        }
        let address = self.url()?.and_then(|url| url.host()?.trim_matches(['[', ']']).parse::<IpAddr>().ok());
        let Some(address) = address else {
            bail!("--webhook-url: expected one with an IP address, or --webhook-tls-cert-file");
        };
        let authority = Authority::generate(clock.now())?;
        let made = authority.server_certificate(&[address], clock.now())?;
        Ok((made.certificate, made.key, authority.identity().certificate.clone()))
    }

    fn url(&self) -> anyhow::Result<Option<Uri>> {
        let Some(text) = &self.webhook_url else { return Ok(None) };
        let url: Uri = text.parse().with_context(|| format!("--webhook-url {text}: expected a URL"))?;
        match url.scheme_str() {
            Some("https") => Ok(Some(url)),
            _ => bail!("--webhook-url {text}: expected https"),
        }
    }

    fn place(&self) -> anyhow::Result<Value> {
        match (self.url()?, &self.webhook_service) {
            (Some(url), _) => Ok(json!({"url": format!("{}{PATH}", url.to_string().trim_end_matches('/'))})),
            (None, Some(service)) => match service.split_once('/') {
                Some((namespace, name)) => {
                    Ok(json!({"service": {"namespace": namespace, "name": name, "path": PATH, "port": 443}}))
                }
                None => bail!("--webhook-service {service}: expected NAMESPACE/NAME"),
            },
            (None, None) => bail!("--webhook-address: also set --webhook-url or --webhook-service"),
        }
    }
}

fn acceptor(certificate: &str, key: &str) -> anyhow::Result<TlsAcceptor> {
    let protocol = TlsProtocol::new(MinVersion::Tls12, &[])?;
    let resolver = SniCertificates::new(Arc::new(certified(certificate, key)?), &[])?;
    let mut config = ServerConfig::builder_with_provider(protocol.provider().clone())
        .with_protocol_versions(protocol.versions())?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

impl Webhook {
    /// Serves until `stop` is cancelled.
    pub(super) async fn serve(self, admission: Admission, stop: CancellationToken) {
        let reviews = Reviews::new(admission);
        let answer = move |request: Request<Incoming>, _: Certificates| {
            let reviews = reviews.clone();
            async move { answer(&reviews, request).await }
        };
        let protocol = Protocol { http2: true, most_streams: None };
        let port = Port { acceptor: self.acceptor, protocol, limits: Limits::default(), answer };
        connections::serve(self.listener, port, stop).await;
    }
}

async fn answer(reviews: &Reviews, request: Request<Incoming>) -> Answer {
    if request.method() != Method::POST || request.uri().path() != PATH {
        return response(StatusCode::NOT_FOUND, "expected a POST of an AdmissionReview\n".to_owned());
    }
    let Ok(body) = Limited::new(request.into_body(), MAX_BYTES).collect().await else {
        return response(StatusCode::PAYLOAD_TOO_LARGE, format!("expected at most {MAX_BYTES} bytes\n"));
    };
    match serde_json::from_slice::<Value>(&body.to_bytes()) {
        Ok(review) => response(StatusCode::OK, reviews.review(review).await.to_string()),
        Err(error) => response(StatusCode::BAD_REQUEST, format!("expected an AdmissionReview: {error}\n")),
    }
}

fn response(status: StatusCode, body: String) -> Answer {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        flags: WebhookFlags,
    }

    fn parsed(flags: &[&str]) -> WebhookFlags {
        Command::parse_from(["x"].iter().chain(flags)).flags
    }

    #[test]
    fn the_place_of_the_webhook_comes_from_the_flags() {
        let url = parsed(&["--webhook-address=127.0.0.1:0", "--webhook-url=https://127.0.0.1:9443/"]);
        assert_eq!(url.place().unwrap()["url"], format!("https://127.0.0.1:9443{PATH}"));
        assert!(url.certificate(&Clock::system()).is_ok());
        assert!(parsed(&["--webhook-url=http://127.0.0.1"]).place().is_err());
        let named = parsed(&["--webhook-url=https://hooks.example"]);
        assert!(named.certificate(&Clock::system()).unwrap_err().to_string().contains("IP address"));
        assert!(parsed(&[]).place().is_err());
    }
}
