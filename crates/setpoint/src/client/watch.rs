//! Opens watches.

use http::Method;
use kube::client::Body;

use super::send::Call;
use super::{Client, ClientError, path};
use crate::Kind;
use crate::source::Selection;

impl Client {
    /// Opens a watch whose events are lines of the body. `query` says where it starts.
    pub(crate) async fn open_watch(
        &self,
        kind: &Kind,
        selection: &Selection,
        query: &[(&str, Option<&str>)],
    ) -> Result<Body, ClientError> {
        let selected = [
            ("watch", Some("true")),
            ("allowWatchBookmarks", Some("true")),
            ("labelSelector", selection.labels.as_deref()),
            ("fieldSelector", selection.fields.as_deref()),
        ];
        let query = [&selected[..], query].concat();
        let path = path::with_query(path::collection(kind, selection.namespace.as_deref()), &query);
        let accept = match selection.metadata_only {
            true => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            false => "application/json",
        };
        self.transport.open(Call::new(Method::GET, path).accepting(accept)).await
    }
}

impl From<kube::Client> for Client {
    fn from(kube: kube::Client) -> Self {
        Self::new(kube)
    }
}
