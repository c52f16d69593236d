//! Lists, page by page.

use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::send::Call;
use super::{Client, ClientError, path};
use crate::source::{Listed, Selection};
use crate::{Kind, Object};

/// How many objects a page has. As client-go's pager: a large list is read in bounded steps.
const PAGE: &str = "500";

/// A page of a list; its items stay encoded.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: ListMeta,
    // `null` is how Go writes an empty list.
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    next: String,
}

impl Client {
    /// Lists objects from the API server, not from a cache; the list is consistent.
    pub async fn list(&self, kind: &Kind, selection: &Selection) -> Result<Listed, ClientError> {
        let mut listed = Listed { objects: Vec::new(), resource_version: String::new(), undecodable: 0 };
        let mut next = String::new();
        loop {
            let page = self.page(kind, selection, &next).await?;
            next = add_page(&mut listed, &page)?;
            if next.is_empty() {
                return Ok(listed);
            }
        }
    }

    async fn page(&self, kind: &Kind, selection: &Selection, next: &str) -> Result<Bytes, ClientError> {
        let query = [
            ("labelSelector", selection.labels.as_deref()),
            ("fieldSelector", selection.fields.as_deref()),
            ("limit", Some(PAGE)),
            ("continue", Some(next).filter(|next| !next.is_empty())),
        ];
        let path = path::with_query(path::collection(kind, selection.namespace.as_deref()), &query);
        let accept = match selection.metadata_only {
            true => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            false => "application/json",
        };
        self.transport.send(Call::new(Method::GET, path).accepting(accept)).await
    }
}

/// Adds the items of a page and says where the next one starts, if there is one.
fn add_page(listed: &mut Listed, page: &Bytes) -> Result<String, ClientError> {
    let Page { metadata, items } =
        serde_json::from_slice(page).map_err(|error| ClientError::Answer(Box::new(error)))?;
    for item in items.unwrap_or_default() {
        match Object::from_json(page.slice_ref(item.get().as_bytes())) {
            Ok(object) => listed.objects.push(object),
            Err(_) => listed.undecodable += 1,
        }
    }
    listed.resource_version = metadata.resource_version;
    Ok(metadata.next)
}
