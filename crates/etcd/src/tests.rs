//! Which servers are accepted. They are played by tasks that know one method.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use setpoint_clock::Clock;
use setpoint_store::etcd::{EtcdClient, EtcdError, RangeRequest};
use tokio::net::TcpListener;

use crate::endpoint::Failure;
use crate::messages::{RangeResponse, ResponseHeader, StatusResponse};
use crate::{ConnectError, EtcdCluster, EtcdConfig, Repeat, grpc, parse};

#[test]
fn servers_are_urls_with_a_port() {
    let url = |server: &str| parse(server).map(|(url, _)| url);
    for server in ["http://10.0.0.1:2379", "https://etcd.example:2379", "https://[fd00::1]:2379"] {
        assert_eq!(url(server).as_deref(), Some(server));
    }
    assert_eq!(url("http://a:1/").as_deref(), Some("http://a:1"));
    for server in ["", "10.0.0.1:2379", "http://10.0.0.1", "unix:///etcd", "http://a:1/x", "http://u@a:1"] {
        assert_eq!(url(server), None, "{server}");
    }
}

/// Starts a member of a cluster with a version. Returns its URL.
async fn member(cluster_id: u64, version: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    serve(listener, cluster_id, version, Arc::default())
}

/// Plays a member. While it is frozen, it answers no reads.
fn serve(
    listener: TcpListener,
    cluster_id: u64,
    version: &'static str,
    is_frozen: Arc<AtomicBool>,
) -> String {
    let url = format!("http://{}", listener.local_addr().expect("it listens"));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let is_frozen = is_frozen.clone();
            let answer = move |request: Request<Incoming>| {
                let is_frozen = is_frozen.clone();
                async move {
                    let header = Some(ResponseHeader { cluster_id, revision: 7 });
                    let message = match request.uri().path() {
                        "/etcdserverpb.Maintenance/Status" => {
                            let version = version.to_owned();
                            grpc::frame(&StatusResponse { header, version, is_learner: false })
                        }
                        _ if is_frozen.load(Ordering::Relaxed) => std::future::pending().await,
                        _ => grpc::frame(&RangeResponse { header, ..RangeResponse::default() }),
                    };
                    let mut trailers = HeaderMap::new();
                    trailers.insert("grpc-status", HeaderValue::from_static("0"));
                    let frames =
                        [Frame::data(message), Frame::trailers(trailers)].map(Ok::<Frame<Bytes>, Infallible>);
                    Ok::<_, Infallible>(Response::new(StreamBody::new(futures::stream::iter(frames))))
                }
            };
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    });
    url
}

async fn connect(servers: &[&str]) -> Result<EtcdCluster, String> {
    let servers = servers.iter().map(|server| (*server).to_owned()).collect();
    let config = EtcdConfig { servers, ..EtcdConfig::default() };
    EtcdCluster::connect(&config, &Clock::system()).await.map_err(|why| why.to_string())
}

#[tokio::test]
async fn an_old_etcd_is_refused_with_the_reason() {
    let url = member(1, "3.4.30").await;
    let error = connect(&[&url]).await.err().expect("it is too old");
    let expected = format!("etcd at {url}: version 3.4.30 is not supported, expected 3.5 or 3.6.");
    assert!(error.starts_with(&expected), "{error}");
}

#[tokio::test]
async fn members_of_two_clusters_are_refused() {
    let (one, other) = (member(0xa, "3.5.21").await, member(0xb, "3.5.21").await);
    let error = connect(&[&one, &other]).await.err().expect("they are two");
    assert!(error.contains("belongs to cluster") && error.contains("--etcd-servers"), "{error}");
}

#[tokio::test]
async fn one_old_member_makes_progress_unreliable() {
    let (one, other) = (member(1, "3.5.21").await, member(1, "3.5.12").await);
    assert!(connect(&[&one]).await.unwrap().features().reliable_progress);
    assert!(!connect(&[&one, &other]).await.unwrap().features().reliable_progress);
}

#[tokio::test]
async fn reads_go_on_without_a_member_that_cannot_be_reached() {
    let (one, gone) = (member(1, "3.6.0").await, "http://127.0.0.1:1");
    let cluster = connect(&[gone, &one]).await.unwrap();
    for _ in 0..4 {
        assert_eq!(cluster.range(RangeRequest::default()).await.unwrap().revision, 7);
    }
}

#[tokio::test]
async fn a_member_that_is_frozen_delays_reads_once() {
    let is_frozen = Arc::new(AtomicBool::new(false));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let frozen = serve(listener, 1, "3.6.0", is_frozen.clone());
    let one = member(1, "3.6.0").await;
    let cluster = connect(&[&frozen, &one]).await.unwrap();
    is_frozen.store(true, Ordering::Relaxed);
    let clock = Clock::system();
    let began = clock.instant();
    for _ in 0..6 {
        assert_eq!(cluster.range(RangeRequest::default()).await.unwrap().revision, 7);
    }
    // Half of them would have waited for it.
    assert!(clock.instant() < began + crate::SLOW * 2);
}

#[test]
fn a_call_goes_on_with_another_endpoint_only_if_that_is_safe() {
    let unavailable = || EtcdError::Unavailable("x".into());
    let refused = || EtcdError::Refused("x".into());
    for (error, is_unsent, read, write) in [
        (unavailable(), true, true, true),
        (unavailable(), false, true, false),
        // The endpoint belongs to another cluster, or is too old.
        (refused(), true, true, true),
        (refused(), false, false, false),
    ] {
        let failure = Failure { error, is_unsent };
        assert_eq!((Repeat::Always.allows(&failure), Repeat::IfUnsent.allows(&failure)), (read, write));
    }
}

#[tokio::test(start_paused = true)]
async fn an_etcd_that_cannot_be_reached_is_an_error_in_the_end() {
    let error = connect(&["http://127.0.0.1:1"]).await.err().expect("nobody listens");
    assert!(error.starts_with("etcd at http://127.0.0.1:1: dial tcp 127.0.0.1:1: "), "{error}");
}

#[tokio::test]
async fn bad_settings_name_the_flag() {
    let config = |servers: &[&str]| {
        let servers = servers.iter().map(|server| (*server).to_owned()).collect();
        EtcdConfig { servers, ..EtcdConfig::default() }
    };
    let file = Some("/does/not/exist".into());
    for (config, expected) in [
        (config(&[]), "--etcd-servers is empty"),
        (config(&["10.0.0.1:2379"]), "--etcd-servers: \"10.0.0.1:2379\" is not a URL of etcd"),
        (EtcdConfig { ca_file: file.clone(), ..config(&["http://a:1"]) }, "--etcd-cafile: cannot read"),
        (
            EtcdConfig { key_file: file.clone(), ..config(&["http://a:1"]) },
            "--etcd-certfile and --etcd-keyfile",
        ),
    ] {
        let error: Result<_, ConnectError> = EtcdCluster::connect(&config, &Clock::system()).await.map(drop);
        let error = error.expect_err("it is bad").to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    assert!(matches!(EtcdError::Unavailable("x".into()).into(), setpoint_store::Error::Unavailable(_)));
}
