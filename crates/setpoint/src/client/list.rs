//! Paged lists.

use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::send::Call;
use super::{Client, ClientError, path};
use crate::object::DecodeError;
use crate::source::{ListSink, ObjectList, Selection};
use crate::{Kind, Object};

/// The page size. Like client-go's pager, it reads a large list in bounded steps.
const PAGE: &str = "500";

/// A received page. Its items stay encoded.
#[derive(Deserialize)]
struct Reply<'a> {
    #[serde(default)]
    metadata: ListMeta,
    // Go writes an empty list as `null`.
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

/// The start and size of a page.
enum Page {
    First,
    After(String),
    /// Everything at once.
    Whole,
}

impl Client {
    /// Lists objects from the API server, not from a cache. The list is consistent.
    pub async fn list(&self, kind: &Kind, selection: &Selection) -> Result<ObjectList, ClientError> {
        self.list_as(kind, selection, None, Object::from_json).await
    }

    /// Lists objects and passes each page on. `make` creates an object from an item, which is a slice of its page.
    pub(crate) async fn list_as(
        &self,
        kind: &Kind,
        selection: &Selection,
        parts: Option<&ListSink>,
        make: impl Fn(Bytes) -> Result<Object, DecodeError>,
    ) -> Result<ObjectList, ClientError> {
        let mut listed = ObjectList::default();
        let mut page = Page::First;
        loop {
            match self.page(kind, selection, &page).await {
                Ok(reply) => {
                    let next = add_page(&mut listed, &reply, &make)?;
                    if next.is_empty() {
                        return Ok(listed);
                    }
                    page = Page::After(next);
                    drop(reply);
                    listed.send(parts).await;
                }
                // The version of the pages has expired. Request everything at once, so that this cannot happen again.
                Err(error) if error.is_expired() && matches!(page, Page::After(_)) => {
                    (listed, page) = (ObjectList::default(), Page::Whole);
                    if let Some(parts) = parts {
                        parts.restart().await;
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn page(&self, kind: &Kind, selection: &Selection, page: &Page) -> Result<Bytes, ClientError> {
        let (limit, next) = match page {
            Page::First => (Some(PAGE), None),
            Page::After(next) => (Some(PAGE), Some(next.as_str())),
            Page::Whole => (None, None),
        };
        let query = [
            ("labelSelector", selection.labels.as_deref()),
            ("fieldSelector", selection.fields.as_deref()),
            ("limit", limit),
            ("continue", next),
        ];
        let path = path::with_query(path::collection(kind, selection.namespace.as_deref()), &query);
        let accept = match selection.metadata_only {
            true => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            false => "application/json",
        };
        self.transport.send(Call::new(Method::GET, path).accepting(accept)).await
    }
}

/// Adds the items of a page. Returns the continue token of the next page, if there is one.
fn add_page(
    listed: &mut ObjectList,
    page: &Bytes,
    make: impl Fn(Bytes) -> Result<Object, DecodeError>,
) -> Result<String, ClientError> {
    let Reply { metadata, items } =
        serde_json::from_slice(page).map_err(|error| ClientError::InvalidResponse(Box::new(error)))?;
    for item in items.unwrap_or_default() {
        match make(page.slice_ref(item.get().as_bytes())) {
            Ok(object) => listed.objects.push(object),
            Err(_) => listed.undecodable += 1,
        }
    }
    listed.resource_version = metadata.resource_version;
    Ok(metadata.next)
}
