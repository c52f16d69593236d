//! Connections to the clusters that applications are deployed to: over HTTPS, and never to denied addresses.

use std::sync::Arc;
use std::time::Duration;

use futures::TryFutureExt;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::BodyExt;
use setpoint::source::KubeSource;
use setpoint::{Client, Runtime};
use setpoint_oam::{Connect, Connection, Credential, Identity, Trust};
use setpoint_webhook::{ClientIdentity, Dial, TlsSettings, Transport};
use tower::BoxError;

/// How long the first byte of a list may take.
const LIST_WITHIN: Duration = Duration::from_secs(60);

/// Connects with a `dial` that decides which addresses are denied.
pub(crate) struct MemberClusters {
    dial: Arc<dyn Dial>,
    runtime: Runtime,
}

impl MemberClusters {
    pub(crate) fn new(dial: Arc<dyn Dial>, runtime: &Runtime) -> Self {
        Self { dial, runtime: runtime.clone() }
    }
}

impl Connect for MemberClusters {
    fn connect(&self, credential: &Credential) -> Result<Connection, String> {
        let kube = client(credential, self.dial.clone())?;
        let client = Client::new(kube).with_user_agent("setpoint-application-manager");
        let source = KubeSource::new(client.clone().with_timeout(LIST_WITHIN), self.runtime.clone());
        Ok(Connection { client, source: Arc::new(source) })
    }
}

/// Returns a client of a cluster. The error says what is wrong with the credential.
pub(crate) fn client(credential: &Credential, dial: Arc<dyn Dial>) -> Result<kube::Client, String> {
    let base: Uri = credential.endpoint.parse().map_err(|error| format!("data.endpoint: {error}"))?;
    let token = match &credential.identity {
        Identity::Token(token) => Some(bearer(token)?),
        Identity::Certificate { .. } => None,
    };
    let transport = Transport::new(&tls(credential), dial).map_err(|error| error.to_string())?;
    let transport = Arc::new(transport);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (transport, request) = (transport.clone(), addressed(request, &base, token.as_ref()));
        async move {
            let request = request?.map(|body| body.map_err(BoxError::from).boxed_unsync());
            // Watches last, and would leave no streams of a shared connection to others.
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            match is_watch {
                true => transport.send_long_running(request).map_err(BoxError::from).await,
                false => transport.send(request).map_err(BoxError::from).await,
            }
        }
    });
    Ok(kube::Client::new(service, "default"))
}

fn bearer(token: &str) -> Result<HeaderValue, String> {
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut value = value.map_err(|_| "data.token: not a valid header".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

fn tls(credential: &Credential) -> TlsSettings {
    let identity = match &credential.identity {
        Identity::Certificate { certificate, key } => {
            Some(ClientIdentity { certificate: certificate.clone(), key: key.clone() })
        }
        Identity::Token(_) => None,
    };
    let (authorities, is_insecure) = match &credential.trust {
        Trust::Authorities(authorities) => (Some(authorities.clone()), false),
        Trust::System => (None, false),
        Trust::Anyone => (None, true),
    };
    TlsSettings { authorities, is_insecure, identity, ..TlsSettings::default() }
}

/// Adds the address and the token to a request, which has only a path.
fn addressed<B>(
    mut request: Request<B>,
    base: &Uri,
    token: Option<&HeaderValue>,
) -> Result<Request<B>, BoxError> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut parts = base.clone().into_parts();
    let prefix = base.path().trim_end_matches('/');
    parts.path_and_query = Some(format!("{prefix}{path}").parse()?);
    *request.uri_mut() = Uri::from_parts(parts)?;
    if let Some(token) = token {
        request.headers_mut().insert(header::AUTHORIZATION, token.clone());
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_gets_the_address_and_the_token_of_its_cluster() {
        let request = Request::get("/api/v1/pods?watch=true").body(()).unwrap();
        let base = "https://h:6443/clusters/east/".parse().unwrap();
        let request = addressed(request, &base, Some(&bearer("t").unwrap())).unwrap();
        assert_eq!(request.uri(), "https://h:6443/clusters/east/api/v1/pods?watch=true");
        assert_eq!(request.headers()[header::AUTHORIZATION], "Bearer t");
    }
}
