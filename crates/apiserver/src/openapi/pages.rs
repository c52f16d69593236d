//! Endpoints without a kind: discovery and version.

use super::endpoint::{Content, Endpoint, Operation};
use super::names;
use super::routes::DISCOVERED;
use super::schemas::META;

/// A page that has its own document in version 3.
pub(super) struct Page {
    /// Relative to `/`, and to `/openapi/v3/`.
    pub(super) path: String,
    id: String,
    description: &'static str,
    media_types: &'static [&'static str],
    /// Set only if the page accepts bodies of some form.
    consumes: &'static [&'static str],
    pub(super) answer: Option<String>,
}

const VERSION: &str = "io.k8s.apimachinery.pkg.version.Info";

/// Returns the pages of a server with these built-in groups.
pub(super) fn all(groups: impl Iterator<Item = String>) -> Vec<Page> {
    let mut pages = vec![
        discovery("api", "getCoreAPIVersions".into(), "get available API versions", "APIVersions"),
        discovery("apis", "getAPIVersions".into(), "get available API versions", "APIGroupList"),
        Page {
            path: "version".into(),
            id: "getCodeVersion".into(),
            description: "get the version information for this server",
            media_types: &["application/json"],
            consumes: &["application/json"],
            answer: Some(VERSION.into()),
        },
        openid(
            ".well-known/openid-configuration",
            "getServiceAccountIssuerOpenIDConfiguration",
            "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
            &["application/json"],
        ),
        openid(
            "openid/v1/jwks",
            "getServiceAccountIssuerOpenIDKeyset",
            "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
            &["application/jwk-set+json"],
        ),
    ];
    pages.extend(groups.map(|group| {
        let id = format!("get{}APIGroup", names::group_id(&group));
        discovery(&format!("apis/{group}"), id, "get information of a group", "APIGroup")
    }));
    pages
}

fn discovery(path: &str, id: String, description: &'static str, answer: &str) -> Page {
    let answer = Some(format!("{META}.{answer}"));
    Page { path: path.into(), id, description, media_types: DISCOVERED, consumes: DISCOVERED, answer }
}

fn openid(path: &str, id: &str, description: &'static str, media_types: &'static [&'static str]) -> Page {
    Page { path: path.into(), id: id.into(), description, media_types, consumes: &[], answer: None }
}

impl Page {
    pub(super) fn endpoint(&self) -> Endpoint {
        let operation = Operation {
            method: "get",
            id: self.id.clone(),
            description: self.description.into(),
            tag: self.tag(),
            consumes: self.consumes,
            produces: self.media_types,
            parameters: Vec::new(),
            body: None,
            codes: &[200],
            answer: self.answer.clone().map_or(Content::Text, Content::Object),
            about: None,
        };
        Endpoint { path: format!("/{}/", self.path), operations: vec![operation] }
    }

    fn tag(&self) -> String {
        match self.path.split_once('/') {
            None if self.path == "api" => "core".into(),
            Some(("apis", group)) => names::group_tag(group),
            Some((first, _)) => names::valid(first, false),
            None => self.path.clone(),
        }
    }
}
