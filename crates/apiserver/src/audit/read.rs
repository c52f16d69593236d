//! Lists and watches by components in this process, which share the server's records instead of sending requests. They
//! are audited like requests, without the objects of the response.

use std::sync::Arc;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, Method, Uri};

use super::record::Record;
use super::request::{Received, id};
use crate::auth::User;
use crate::chain::Caller;
use crate::query::Query;
use crate::registry::Gvr;
use crate::request::Target;
use crate::selector::Selection;
use crate::server::ApiServer;
use crate::status::Status;

/// A component that reads records.
#[derive(Clone, Debug)]
pub struct Reader {
    pub user: User,
    pub user_agent: String,
}

/// A read that lasts until this is dropped.
#[derive(Default)]
pub struct Read(Record);

impl ApiServer {
    /// Records that a component starts to list or watch objects. Costs nothing without an audit policy.
    pub async fn record_read(
        &self,
        reader: &Reader,
        gvr: &Gvr,
        selection: &Selection,
        watches: bool,
    ) -> Result<Read, Status> {
        if self.0.audit.is_none() {
            return Ok(Read::default());
        }
        let path = path(gvr, selection, watches);
        let uri: Uri = path.parse().map_err(Status::internal)?;
        let query = Query::parse(uri.query().unwrap_or(""));
        let target = Target::parse(&Method::GET, uri.path(), &query)?;
        let caller = Caller::InProcess(Arc::new(reader.user.clone()));
        let agent = HeaderValue::from_str(&reader.user_agent);
        let headers = HeaderMap::from_iter(agent.map(|agent| (USER_AGENT, agent)));
        let record =
            Record::begin(self.0.audit.as_ref(), &caller, id(&self.0, &caller, &headers).as_ref(), None);
        let received = Received {
            user: Some(&reader.user),
            method: &Method::GET,
            uri: &uri,
            headers: &headers,
            target: &target,
        };
        let refused = |_| Status::internal("failed to store audit event");
        record.received(&received).await.map_err(refused)?;
        record.started().await;
        Ok(Read(record))
    }
}

impl Read {
    /// Records that the read failed.
    pub fn failed(&self, status: &Status) {
        self.0.status(status);
    }
}

/// Returns the path that a client would request.
fn path(gvr: &Gvr, selection: &Selection, watches: bool) -> String {
    let mut path = match gvr.group.is_empty() {
        true => format!("/api/{}", gvr.version),
        false => format!("/apis/{}/{}", gvr.group, gvr.version),
    };
    if let Some(namespace) = &selection.namespace {
        path.push_str(&format!("/namespaces/{namespace}"));
    }
    path.push_str(&format!("/{}", gvr.resource));
    let flag = watches.then(|| ("watch", "true".to_owned()));
    let labels = selection.labels.clone().map(|labels| ("labelSelector", labels));
    let fields = selection.fields.clone().map(|fields| ("fieldSelector", fields));
    for (at, (name, value)) in [labels, fields, flag].into_iter().flatten().enumerate() {
        let separator = if at == 0 { '?' } else { '&' };
        let value: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
        path.push_str(&format!("{separator}{name}={value}"));
    }
    path
}
