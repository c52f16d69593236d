//! Delegated authentication and authorization: the API server decides.

use http::{HeaderMap, Method, header::AUTHORIZATION};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use rustls::pki_types::CertificateDer;

use super::trust::Trust;

/// Authenticates and authorizes requests to the secure port.
pub(crate) struct Delegated {
    /// The clients for TokenReviews and SubjectAccessReviews. Without them, no token is accepted and nothing is
    /// allowed.
    pub(crate) authentication: Option<kube::Client>,
    pub(crate) authorization: Option<kube::Client>,
    /// Paths that need no authorization. A trailing `*` matches anything.
    pub(crate) always_allow: Vec<String>,
    pub(crate) trust: Trust,
}

/// Why a request is denied.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    Unauthenticated,
    Forbidden(String),
    /// The API server could not be reached.
    Unknown(String),
}

impl Delegated {
    pub(crate) async fn check(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        certificates: &[CertificateDer<'static>],
    ) -> Result<(), Denial> {
        if is_always_allowed(&self.always_allow, path) {
            return Ok(());
        }
        let user = match self.trust.user(certificates, headers) {
            Ok(Some(user)) => user,
            // A token may still be valid. Without a token, an untrusted certificate does not count as anonymous.
            Err(_) if bearer_token(headers).is_none() => return Err(Denial::Unauthenticated),
            Ok(None) | Err(_) => self.user_of_token(headers).await?,
        };
        self.authorize(&user, method, path).await
    }

    /// Returns the user of the request's token. A request without one is anonymous.
    async fn user_of_token(&self, headers: &HeaderMap) -> Result<UserInfo, Denial> {
        let Some(token) = bearer_token(headers) else { return Ok(anonymous()) };
        let token = std::str::from_utf8(token).map_err(|_| Denial::Unauthenticated)?;
        let Some(client) = &self.authentication else { return Err(Denial::Unauthenticated) };
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviewed = Api::all(client.clone()).create(&PostParams::default(), &review).await;
        let reviewed =
            reviewed.map_err(|error| Denial::Unknown(format!("cannot review the token: {error}")))?;
        let status = reviewed.status.unwrap_or_default();
        status.user.filter(|_| status.authenticated == Some(true)).ok_or(Denial::Unauthenticated)
    }

    async fn authorize(&self, user: &UserInfo, method: &Method, path: &str) -> Result<(), Denial> {
        let name = user.username.clone().unwrap_or_default();
        let verb = method.as_str().to_lowercase();
        let forbidden = || Denial::Forbidden(format!("User \"{name}\" cannot {verb} path \"{path}\""));
        let groups = user.groups.clone().unwrap_or_default();
        if groups.iter().any(|group| group == "system:masters") {
            return Ok(());
        }
        let Some(client) = &self.authorization else { return Err(forbidden()) };
        let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some(verb.clone()) };
        let spec = SubjectAccessReviewSpec {
            user: Some(name.clone()),
            groups: Some(groups),
            uid: user.uid.clone(),
            extra: user.extra.clone(),
            non_resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviewed = Api::all(client.clone()).create(&PostParams::default(), &review).await;
        let reviewed =
            reviewed.map_err(|error| Denial::Unknown(format!("cannot check authorization: {error}")))?;
        match reviewed.status.is_some_and(|status| status.allowed) {
            true => Ok(()),
            false => Err(forbidden()),
        }
    }
}

/// Returns the bearer token of a request. A header with another scheme is ignored, and so is one whose token does not
/// follow the scheme after a single space.
fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let mut words = headers.get(AUTHORIZATION)?.as_bytes().trim_ascii().splitn(3, |byte| *byte == b' ');
    let (scheme, token) = (words.next()?, words.next()?);
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then_some(token)
}

pub(crate) fn anonymous() -> UserInfo {
    UserInfo {
        username: Some("system:anonymous".into()),
        groups: Some(vec!["system:unauthenticated".into()]),
        ..UserInfo::default()
    }
}

fn is_always_allowed(paths: &[String], path: &str) -> bool {
    paths.iter().any(|allowed| match allowed.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => path == allowed,
    })
}

#[cfg(test)]
mod tests {
    use setpoint_apiserver::auth::FrontProxy;

    use super::*;

    #[test]
    fn always_allowed_paths_may_end_in_a_star() {
        let paths = ["/healthz".to_owned(), "/open/*".to_owned()];
        let check =
            |path: &str, expected: bool| assert_eq!(is_always_allowed(&paths, path), expected, "{path}");
        check("/healthz", true);
        check("/healthz/x", false);
        check("/open/x", true);
        check("/metrics", false);
    }

    #[tokio::test]
    async fn without_an_api_server_to_ask_only_health_is_answered() {
        let delegated = Delegated {
            authentication: None,
            authorization: None,
            always_allow: vec!["/healthz".into()],
            trust: Trust::new(None, None, FrontProxy::default(), setpoint::Clock::system()).unwrap(),
        };
        let check = |path: &'static str, headers: HeaderMap| {
            let delegated = &delegated;
            async move { delegated.check(&Method::GET, path, &headers, &[]).await }
        };
        assert_eq!(check("/healthz", HeaderMap::new()).await, Ok(()));
        let why = "User \"system:anonymous\" cannot get path \"/metrics\"";
        assert_eq!(check("/metrics", HeaderMap::new()).await, Err(Denial::Forbidden(why.into())));
        let token = HeaderMap::from_iter([(AUTHORIZATION, http::HeaderValue::from_static("Bearer x"))]);
        assert_eq!(check("/metrics", token).await, Err(Denial::Unauthenticated));
        let unreadable = http::HeaderValue::from_bytes(b"bearer \xff").unwrap();
        let token = HeaderMap::from_iter([(AUTHORIZATION, unreadable)]);
        assert_eq!(check("/metrics", token).await, Err(Denial::Unauthenticated));
    }
}
