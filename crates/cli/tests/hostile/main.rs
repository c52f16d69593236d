//! Malicious clients against the real binary, over TLS. In the meantime, a well-behaved client is served, memory stays
//! bounded, nothing panics, and no request gains access it should not have.

mod bodies;
mod connections;
mod cuts;
mod expressions;
mod frames;
mod polite;
mod server;
mod tokens;
mod watches;

use std::sync::Mutex;
use std::time::Duration;

use self::polite::Polite;
use self::server::Server;

/// Latencies below this are noise on a busy machine, so an idle p99 is rounded up to this.
const MIN_LATENCY: Duration = Duration::from_millis(15);
/// The factor by which the p99 of a well-behaved client may grow under attack.
const SLOWER: u32 = 20;
/// How much the server's memory may grow under attack.
const GROWTH_MIB: u64 = 300;

/// Runs an attack next to a well-behaved client, and checks the server during and after it.
fn withstand<A>(attack: impl FnOnce(&'static Server) -> A)
where
    A: Future<Output = ()>,
{
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        // Leaked, so that tasks of an attack can borrow it. It is stopped below.
        let server: &'static Server = Box::leak(Box::new(Server::start().await));
        let polite = Polite::start(server);
        let idle = polite.observe(Duration::from_secs(2)).await.max(MIN_LATENCY);
        let before = server.resident_mib();
        let began = polite.mark();
        attack(server).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let during = polite.since(began);
        let memory = server.resident_mib();
        polite.stop();
        server.check_health().await;
        println!("p99 {idle:?} idle, {during:?} under attack; {before} MiB idle, {memory} MiB after");
        assert!(during <= idle * SLOWER, "p99 is {during:?} under attack and {idle:?} idle");
        assert!(memory <= before + GROWTH_MIB, "{memory} MiB after the attack, {before} MiB before");
        server.stop();
    });
}

#[test]
fn slow_idle_and_malformed_connections_block_no_others() {
    withstand(connections::all_at_once);
}

#[test]
fn watches_that_never_read_are_bounded() {
    withstand(watches::never_read);
}

#[test]
fn bodies_that_expand_without_bound_are_rejected() {
    withstand(bodies::blow_up);
}

#[test]
fn malformed_frames_end_their_connection() {
    withstand(frames::malformed);
}

#[test]
fn crafted_tokens_are_unauthorized() {
    withstand(tokens::crafted);
}

#[test]
fn patterns_and_expressions_that_explode_are_rejected() {
    withstand(expressions::explode);
}

#[test]
fn a_create_cut_off_at_any_byte_is_whole_or_absent() {
    withstand(cuts::every_byte);
}
