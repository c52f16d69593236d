//! Records what passes through, unchanged.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use http::{Request, Response};
use http_body_util::{BodyExt, Collected};
use kube::client::Body;

use super::Recording;
use super::entry::{Call, EntryKind, Failure, Item, List, RecordedResponse, request_name};
use crate::source::{ObjectList, Selection, Source, WatchItem};
use crate::{ClientError, Kind};

type Items = BoxStream<'static, Result<WatchItem, ClientError>>;

pub(super) fn source(recording: &Recording, inner: Arc<dyn Source>) -> Arc<dyn Source> {
    Arc::new(RecordingSource { recording: recording.clone(), inner })
}

struct RecordingSource {
    recording: Recording,
    inner: Arc<dyn Source>,
}

impl RecordingSource {
    fn listed(
        &self,
        kind: &Kind,
        selection: &Selection,
        listed: Result<ObjectList, ClientError>,
    ) -> Result<ObjectList, ClientError> {
        let answer = listed.as_ref().map(List::of).map_err(Failure::of);
        self.recording.record(EntryKind::ObjectList { of: request_name(kind, selection), answer });
        listed
    }
}

impl Source for RecordingSource {
    fn list<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
    ) -> BoxFuture<'a, Result<ObjectList, ClientError>> {
        Box::pin(async move { self.listed(kind, selection, self.inner.list(kind, selection).await) })
    }

    fn watch<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
        resource_version: &'a str,
    ) -> BoxFuture<'a, Result<Items, ClientError>> {
        Box::pin(async move {
            let opened = self.inner.watch(kind, selection, resource_version).await;
            let watch = self.recording.next_watch();
            let refusal = opened.as_ref().err().map(Failure::of);
            self.recording.record(EntryKind::Watched { of: request_name(kind, selection), watch, refusal });
            Ok(watched(self.recording.clone(), watch, opened?))
        })
    }

    fn shares_objects(&self) -> bool {
        self.inner.shares_objects()
    }
}

fn watched(recording: Recording, watch: u64, items: Items) -> Items {
    let ended = {
        let recording = recording.clone();
        stream::once(async move { recording.record(EntryKind::Ended { watch, failure: None }) })
            .filter_map(async |()| None)
    };
    let noted = items.inspect(move |item| match item {
        Ok(item) => {
            if let Some(item) = Item::of(item) {
                recording.record(EntryKind::Came { watch, item });
            }
        }
        Err(error) => recording.record(EntryKind::Ended { watch, failure: Some(Failure::of(error)) }),
    });
    noted.chain(ended).boxed()
}

pub(super) fn client(recording: &Recording, client: kube::Client) -> kube::Client {
    let (recording, namespace) = (recording.clone(), client.default_namespace().to_owned());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (recording, client) = (recording.clone(), client.clone());
        async move { call(&recording, &client, request).await }
    });
    kube::Client::new(service, namespace)
}

async fn call(
    recording: &Recording,
    client: &kube::Client,
    request: Request<Body>,
) -> Result<Response<Body>, kube::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(Collected::to_bytes)?;
    let call = Call::of(&head, &body);
    match answer(client, Request::from_parts(head, Body::from(body))).await {
        Ok((head, body)) => {
            let answer = RecordedResponse {
                code: head.status.as_u16(),
                body: String::from_utf8_lossy(&body).into_owned(),
            };
            recording.record(EntryKind::Called { call, answer: Ok(answer) });
            Ok(Response::from_parts(head, Body::from(body)))
        }
        Err(error) => {
            recording.record(EntryKind::Called { call, answer: Err(error.to_string()) });
            Err(error)
        }
    }
}

async fn answer(
    client: &kube::Client,
    request: Request<Body>,
) -> Result<(http::response::Parts, Bytes), kube::Error> {
    let (head, body) = client.send(request).await?.into_parts();
    Ok((head, body.collect().await?.to_bytes()))
}

impl Call {
    pub(super) fn of(head: &http::request::Parts, body: &[u8]) -> Self {
        let path = head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
        Self { method: head.method.to_string(), path, body: String::from_utf8_lossy(body).into_owned() }
    }
}
