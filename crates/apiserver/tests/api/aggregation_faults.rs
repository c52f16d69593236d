//! Extension API servers that fail: each failure is bounded, and nothing of it stays.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http::{Method, Request, Response};
use serde_json::{Value, json};
use setpoint_apiserver::User;

use crate::extension_server::{
    API_SERVICES, Aggregated, Answered, ExtensionServer, GIZMOS, NAME, ok, pieces, read, reply,
};

fn broken_off() -> Answered {
    let first = stream::iter([Ok(Bytes::from_static(b"{\"items\":["))]);
    let then = stream::once(async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Err(io::Error::other("reset"))
    });
    Ok(Response::new(pieces(first.chain(then))))
}

#[tokio::test(start_paused = true)]
async fn a_response_that_breaks_off_does_not_look_complete() {
    let aggregated = Aggregated::start(|_, _| std::future::ready(broken_off()).boxed()).await;
    let response = aggregated.api.send(Method::GET, GIZMOS, &[], "").await;
    assert_eq!(response.status(), 200);
    let (body, is_complete) = read(response.into_body()).await;
    assert_eq!((&*body, is_complete), (&b"{\"items\":["[..], false));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_or_closes_connections_is_unavailable() {
    let aggregated =
        Aggregated::start(|_, _| std::future::ready(Err(io::Error::other("closed"))).boxed()).await;
    let closed = aggregated.api.get(GIZMOS).await;
    assert_eq!(closed.code, 503);
    assert!(closed.text.starts_with("error trying to reach service: "), "{}", closed.text);
    ExtensionServer::set(&aggregated.extension.refuses, true);
    aggregated
        .api
        .merge(&format!("{API_SERVICES}/{NAME}"), json!({"spec": {"versionPriority": 16}}))
        .await
        .ok();
    let refused = aggregated.api.post(GIZMOS, json!({})).await;
    assert_eq!(refused.code, 503);
    let until = aggregated.until(NAME, "False").await;
    assert_eq!(until["reason"], "FailedDiscoveryCheck");
    assert_eq!(aggregated.api.get(GIZMOS).await.text, "service unavailable\n");
    ExtensionServer::set(&aggregated.extension.refuses, false);
    aggregated.until(NAME, "True").await;
    assert_eq!(aggregated.api.get(GIZMOS).await.code, 503, "it still closes them");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_ends_the_forwarded_request() {
    let under_way = Arc::<AtomicUsize>::default();
    let counting = under_way.clone();
    let aggregated = Aggregated::start(move |_, _| {
        struct Ended(Arc<AtomicUsize>);
        impl Drop for Ended {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        counting.fetch_add(1, Ordering::SeqCst);
        let ended = Ended(counting.clone());
        async move {
            let _ended = ended;
            std::future::pending().await
        }
        .boxed()
    })
    .await;
    for method in [Method::GET, Method::POST] {
        let request =
            Request::builder().method(method.clone()).uri(GIZMOS).body(Bytes::from_static(b"{}")).unwrap();
        let user = User::system("admin");
        let asking = aggregated.api.server.handle(user, request);
        assert!(tokio::time::timeout(Duration::from_secs(1), asking).await.is_err());
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(under_way.load(Ordering::SeqCst), 0, "{method}");
    }
    aggregated.api.server.finish_writes().await;
}

#[tokio::test(start_paused = true)]
async fn an_api_service_deleted_during_a_request_does_not_end_it() {
    let aggregated = Aggregated::start(|head, _| {
        let is_watch = head.uri.query().is_some();
        async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            match is_watch {
                true => {
                    let events = stream::iter([Ok(Bytes::from_static(b"{}\n"))]).chain(stream::pending());
                    Ok(Response::new(pieces(events)))
                }
                false => Ok(reply(200, &json!({"late": true}))),
            }
        }
        .boxed()
    })
    .await;
    let deleting = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        aggregated.api.delete(&format!("{API_SERVICES}/{NAME}")).await.ok();
        assert_eq!(aggregated.api.get(GIZMOS).await.code, 404);
    };
    let path = format!("{GIZMOS}?watch=1");
    let (answer, watch, ()) =
        tokio::join!(aggregated.api.get(GIZMOS), aggregated.api.send(Method::GET, &path, &[], ""), deleting);
    assert_eq!(answer.ok()["late"], true);
    let mut pieces = watch.into_body().into_stream();
    assert_eq!(pieces.next().await.unwrap(), "{}\n");
    assert!(
        tokio::time::timeout(Duration::from_secs(600), pieces.next()).await.is_err(),
        "the watch goes on"
    );
    drop(pieces);
    aggregated.until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn failures_leak_no_connections() {
    let turn = Arc::<AtomicUsize>::default();
    let counting = turn.clone();
    let aggregated = Aggregated::start(move |_, _| match counting.fetch_add(1, Ordering::SeqCst) % 5 {
        0 => std::future::pending().boxed(),
        1 => std::future::ready(Err(io::Error::other("closed"))).boxed(),
        2 => std::future::ready(broken_off()).boxed(),
        3 => {
            let flood = stream::repeat_with(|| Ok(Bytes::from(vec![0; 64 << 10])));
            std::future::ready(Ok(Response::new(pieces(flood)))).boxed()
        }
        _ => ok(&json!({"fine": true})),
    })
    .await;
    let path = format!("{GIZMOS}?timeout=1s");
    let mut fine = 0;
    for round in 0..400 {
        let several = (0..10).map(|_| async {
            let asking = aggregated.api.send(Method::GET, &path, &[], "");
            // Some clients do not wait for the response, and some read only the beginning of it.
            let response = tokio::time::timeout(Duration::from_millis(100 + round), asking).await.ok()?;
            let mut pieces = response.into_body().into_stream();
            let first = pieces.next().await?;
            Some(serde_json::from_slice::<Value>(&first).is_ok())
        });
        let outcomes = futures::future::join_all(several).await;
        fine += outcomes.into_iter().filter(|one| *one == Some(true)).count();
        assert!(aggregated.extension.connections() <= 60, "{}", aggregated.extension.connections());
    }
    assert!(turn.load(Ordering::SeqCst) >= 4000);
    assert!(fine >= 800, "{fine} of 4,000 succeeded");
    assert_eq!(aggregated.until(NAME, "True").await["reason"], "Passed");
    aggregated.api.delete(&format!("{API_SERVICES}/{NAME}")).await.ok();
    aggregated.api.get("/apis/other/v1/x").await;
    aggregated.until_idle().await;
}
