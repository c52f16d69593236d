//! Tests the source with a client whose server is scripted.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ::kube::client::Body;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

use super::*;
use crate::{Clock, Rng, Runtime};

type Scripted = UnsyncBoxBody<Bytes, Infallible>;

/// Replies in order, and records the requests.
#[derive(Clone, Default)]
struct Script {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

enum Reply {
    Json(u16, String),
    /// Lines, then the end of the body.
    Lines(Vec<String>),
    /// Lines, then nothing forever.
    Silence(Vec<String>),
}

impl Script {
    fn source(replies: impl IntoIterator<Item = Reply>) -> (KubeSource, Self) {
        let script = Self { replies: Arc::new(Mutex::new(replies.into_iter().collect())), ..Self::default() };
        let service = {
            let script = script.clone();
            tower::service_fn(move |request: Request<Body>| {
                let reply = script.answer(&request);
                async move { Ok::<_, Infallible>(reply) }
            })
        };
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        let runtime = Runtime { clock, rng: Rng::seeded(1) };
        (KubeSource::new(::kube::Client::new(service, "default"), runtime), script)
    }

    fn answer(&self, request: &Request<Body>) -> Response<Scripted> {
        let accept = request.headers()["accept"].to_str().unwrap().to_owned();
        let partial = if accept.contains("PartialObjectMetadata") { " (metadata)" } else { "" };
        self.asked.lock().push(format!("{}{partial}", request.uri()));
        let reply = self.replies.lock().pop_front().expect("the script has a reply");
        let (code, body) = match reply {
            Reply::Json(code, json) => (code, streamed(stream::iter([json]))),
            Reply::Lines(lines) => (200, streamed(stream::iter(lines))),
            Reply::Silence(lines) => (200, streamed(stream::iter(lines).chain(stream::pending()))),
        };
        Response::builder().status(code).body(body).unwrap()
    }

    /// Returns the requests, without the parts that differ from run to run.
    fn asked(&self) -> Vec<String> {
        let without_timeout = |uri: String| {
            let (head, tail) = uri.split_once("&timeoutSeconds=").unwrap_or((&uri, ""));
            let rest = tail.trim_start_matches(|digit: char| digit.is_ascii_digit());
            format!("{head}{rest}").replace("/api/v1/pods?", "")
        };
        std::mem::take(&mut *self.asked.lock()).into_iter().map(without_timeout).collect()
    }
}

fn streamed(lines: impl futures::Stream<Item = String> + Send + 'static) -> Scripted {
    let frames = lines.map(|line| Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(line))));
    StreamBody::new(frames).boxed_unsync()
}

fn pod(name: &str, version: u64) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"default","resourceVersion":"{version}","managedFields":[{{}}]}},"spec":{{}}}}"#
    )
}

fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn end_of_list(version: u64) -> String {
    let annotations = r#""annotations":{"k8s.io/initial-events-end":"true"}"#;
    event("BOOKMARK", &format!(r#"{{"metadata":{{"resourceVersion":"{version}",{annotations}}}}}"#))
}

fn page(version: u64, next: &str, items: &[String]) -> Reply {
    let items = items.join(",");
    Reply::Json(
        200,
        format!(r#"{{"metadata":{{"resourceVersion":"{version}","continue":"{next}"}},"items":[{items}]}}"#),
    )
}

fn status(code: u16, reason: &str) -> Reply {
    Reply::Json(
        code,
        format!(r#"{{"kind":"Status","status":"Failure","reason":"{reason}","code":{code},"message":"no"}}"#),
    )
}

async fn list(source: &KubeSource) -> Result<(Vec<String>, String, usize), ClientError> {
    let listed = source.list(&Kind::of::<Pod>(), &Selection::default()).await?;
    assert!(
        listed.objects.iter().all(|object| !String::from_utf8_lossy(object.raw()).contains("managedFields"))
    );
    let names = listed.objects.iter().map(|object| object.key().name().to_owned()).collect();
    Ok((names, listed.resource_version, listed.undecodable))
}

const STREAM: &str =
    "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

#[tokio::test(start_paused = true)]
async fn a_list_is_streamed_where_the_server_can() {
    let lines = vec![
        event("ADDED", &pod("a", 3)),
        event("ADDED", "{}"),
        event("ADDED", &pod("b", 2)),
        end_of_list(9),
    ];
    let (source, script) = Script::source([Reply::Silence(lines)]);
    assert_eq!(list(&source).await.unwrap(), (vec!["a".into(), "b".into()], "9".into(), 1));
    assert_eq!(script.asked(), [STREAM]);
}

#[tokio::test(start_paused = true)]
async fn an_unsupported_streaming_list_falls_back_to_pages_for_good() {
    for refusal in [
        status(422, "Invalid"),
        status(400, "BadRequest"),
        Reply::Silence(vec![event("ADDED", &pod("a", 3))]),
        Reply::Silence(vec![event("ADDED", &pod("a", 3)), event("MODIFIED", &pod("a", 4))]),
    ] {
        let (source, script) =
            Script::source([refusal, page(5, "", &[pod("a", 3)]), page(6, "", &[pod("a", 3)])]);
        assert_eq!(list(&source).await.unwrap().1, "5");
        assert_eq!(list(&source).await.unwrap().1, "6");
        assert_eq!(script.asked(), [STREAM, "limit=500", "limit=500"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_off_is_followed_by_pages() {
    let (source, script) =
        Script::source([Reply::Lines(vec![event("ADDED", &pod("a", 3))]), page(5, "", &[pod("a", 3)])]);
    assert_eq!(list(&source).await.unwrap(), (vec!["a".into()], "5".into(), 0));
    assert_eq!(script.asked(), [STREAM, "limit=500"]);
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_server_is_not_asked_for_pages_too() {
    let (source, script) = Script::source([status(503, "ServiceUnavailable")]);
    assert_eq!(list(&source).await.unwrap_err().code(), Some(503));
    assert_eq!(script.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn pages_are_put_together() {
    let pages = [page(7, "x/y=", &[pod("a", 1), pod("b", 2)]), page(7, "", &[pod("c", 3), "{}".into()])];
    let (source, script) = Script::source(pages);
    let (names, version, undecodable) = list(&source.paged()).await.unwrap();
    assert_eq!((names.join(" ").as_str(), version.as_str(), undecodable), ("a b c", "7", 1));
    assert_eq!(script.asked(), ["limit=500", "limit=500&continue=x%2Fy%3D"]);
}

#[tokio::test(start_paused = true)]
async fn pages_that_expire_are_followed_by_the_whole_list() {
    let replies =
        [page(7, "next", &[pod("a", 1)]), status(410, "Expired"), page(9, "", &[pod("a", 8), pod("b", 9)])];
    let (source, script) = Script::source(replies);
    assert_eq!(list(&source.paged()).await.unwrap(), (vec!["a".into(), "b".into()], "9".into(), 0));
    assert_eq!(script.asked(), ["limit=500", "limit=500&continue=next", "/api/v1/pods"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumes_from_its_version() {
    let bookmark = event("BOOKMARK", r#"{"metadata":{"resourceVersion":"12"}}"#);
    let lines = vec![
        event("MODIFIED", &pod("a", 10)),
        event("ADDED", "{}") + &event("DELETED", &pod("a", 11)) + &bookmark[..20],
        bookmark[20..].to_owned() + "{\"type\":\"ADDED\",\"obj",
    ];
    let (source, script) = Script::source([Reply::Lines(lines)]);
    let selection = Selection {
        namespace: Some("default".into()),
        labels: Some("app in (a, b)".into()),
        fields: None,
        metadata_only: true,
    };
    let watch = source.watch(&Kind::of::<Pod>(), &selection, "9").await.unwrap();
    let items: Vec<String> =
        watch.map(|item| format!("{:?}", item.unwrap()).chars().take(11).collect()).collect().await;
    assert_eq!(items, ["Modified(Ob", "Undecodable", "Deleted(Obj", "Bookmark { "]);
    assert_eq!(
        script.asked(),
        [
            "/api/v1/namespaces/default/pods?watch=true&allowWatchBookmarks=true&labelSelector=app+in+%28a%2C+b%29&resourceVersion=9 (metadata)"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_error_event_ends_a_watch() {
    let gone = r#"{"kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"too old"}"#;
    let lines = vec![event("ERROR", gone), event("ADDED", &pod("a", 10))];
    let (source, _) = Script::source([Reply::Silence(lines)]);
    let watch = source.watch(&Kind::of::<Pod>(), &Selection::default(), "9").await.unwrap();
    let items: Vec<_> = watch.collect().await;
    assert!(matches!(&items[..], [Err(error)] if error.is_expired()), "{items:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_on_a_dead_connection_ends_by_itself() {
    let (source, script) = Script::source([Reply::Silence(vec![])]);
    let watch = source.watch(&Kind::of::<Pod>(), &Selection::default(), "9").await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(306), watch.collect::<Vec<_>>()).await;
    assert!(ended.is_ok_and(|items| items.is_empty()));
    let asked = script.asked.lock()[0].clone();
    let seconds: u64 = asked.split_once("timeoutSeconds=").unwrap().1.parse().unwrap();
    assert!((260..=290).contains(&seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn a_rejected_watch_is_an_error() {
    let (source, _) = Script::source([status(403, "Forbidden")]);
    let refused = source.watch(&Kind::of::<Pod>(), &Selection::default(), "9").await;
    assert_eq!(refused.err().and_then(|error| error.code()), Some(403));
}
