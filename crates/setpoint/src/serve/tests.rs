use http_body_util::BodyExt;

use super::*;

fn operations() -> Operations {
    let health = Health::new();
    health.add_livez("ping", || Ok(()));
    health.add_readyz("informer-sync", || Err("pods have not synced".into()));
    let heap: Heap = Arc::new(|| {
        let mut profile = Profile::new("inuse_space", "bytes");
        profile.add(["cache of pods", "informers"], 300);
        profile.add(["cache of nodes", "informers"], 2);
        profile
    });
    let clock = Clock::system();
    Operations { health, metrics: Metrics::new(), clock, heap, introspects: true }
}

async fn get(target: &str) -> (u16, Bytes) {
    let request = Request::get(target).body(()).expect("a request");
    let response = operations().handle(&request).await;
    let status = response.status().as_u16();
    (status, response.into_body().collect().await.expect("a body").to_bytes())
}

#[tokio::test]
async fn checks_respond_in_the_format_of_kubernetes() {
    let check = async |target: &str, status: u16, body: &str| {
        let answer = get(target).await;
        assert_eq!((answer.0, String::from_utf8_lossy(&answer.1).as_ref()), (status, body), "{target}");
    };
    check("/healthz", 200, "ok").await;
    check("/livez", 200, "ok").await;
    check("/livez?verbose", 200, "[+]ping ok\nlivez check passed\n").await;
    check("/readyz", 500, "[+]ping ok\n[-]informer-sync failed: pods have not synced\nreadyz check failed\n")
        .await;
    check("/readyz?exclude=informer-sync", 200, "ok").await;
    check("/readyz/ping", 200, "ok").await;
    check(
        "/readyz/informer-sync",
        500,
        "[-]informer-sync failed: pods have not synced\nreadyz check failed\n",
    )
    .await;
    check("/readyz/nothing", 404, "404 page not found\n").await;
    check("/nothing", 404, "404 page not found\n").await;
    check("/", 404, "404 page not found\n").await;
    check("/debug/pprof/profile?seconds=0", 400, "seconds: expected a whole number from 1 to 300\n").await;
}

/// Decodes the fields of a message: field number, and a number or bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let varint = |bytes: &mut &[u8]| {
        let (mut number, mut shift) = (0, 0);
        loop {
            let (first, rest) = bytes.split_first().expect("a whole number");
            *bytes = rest;
            number |= u64::from(first & 0x7f) << shift;
            shift += 7;
            if first & 0x80 == 0 {
                return number;
            }
        }
    };
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let number = varint(&mut bytes);
        let length = if tag & 7 == 2 { number as usize } else { 0 };
        let (inner, rest) = bytes.split_at(length);
        found.push((tag >> 3, number, inner));
        bytes = rest;
    }
    found
}

#[tokio::test]
async fn a_heap_profile_is_readable_by_pprof() {
    let (status, body) = get("/debug/pprof/heap").await;
    assert_eq!(status, 200);
    let all = fields(&body);
    let texts: Vec<&str> = all
        .iter()
        .filter(|(field, ..)| *field == 6)
        .map(|(.., text)| std::str::from_utf8(text).expect("text"))
        .collect();
    assert_eq!(texts, ["", "inuse_space", "bytes", "cache of nodes", "informers", "cache of pods"]);
    let samples: Vec<Vec<Vec<u8>>> = all
        .iter()
        .filter(|(field, ..)| *field == 2)
        .map(|(.., sample)| fields(sample).iter().map(|(.., packed)| packed.to_vec()).collect())
        .collect();
    // Stacks by location ID, with values of 2 and 300 bytes.
    assert_eq!(samples, [[vec![1, 2], vec![2]], [vec![3, 2], vec![0xac, 0x02]]]);
    assert_eq!(all.iter().filter(|(field, ..)| *field == 4).count(), 3, "a location for every frame");
    assert_eq!(all.iter().filter(|(field, ..)| *field == 5).count(), 3, "a function for every location");
}

/// Uses real time: CPU time does not advance while the clock is paused.
#[cfg(feature = "pprof")]
#[tokio::test]
async fn a_cpu_profile_shows_running_functions() {
    let profiling = tokio::spawn(async { get("/debug/pprof/profile?seconds=1").await });
    let mut spun = 0u64;
    while !profiling.is_finished() {
        spun = (0..10_000u64).fold(spun, |sum, more| sum.wrapping_mul(31).wrapping_add(more));
        tokio::task::yield_now().await;
    }
    let (status, body) = profiling.await.expect("no panic");
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    assert!(fields(&body).iter().any(|(field, ..)| *field == 2), "something was sampled (spun {spun})");
}

#[tokio::test]
async fn responses_are_served_on_a_listener() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let stop = CancellationToken::new();
    let serving = tokio::spawn(operations().serve(listener, stop.clone()));
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("connected");
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.expect("sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.expect("an answer");
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with("ok"), "{reply}");
    stop.cancel();
    serving.await.expect("no panic");
}
