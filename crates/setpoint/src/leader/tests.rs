use std::time::Duration;

use serde_json::{Value, json};
use setpoint_clock::{Clock, Instant};

use super::*;
use crate::client::fake;
use crate::{Key, Rng};

const SECOND: Duration = Duration::from_secs(1);

fn clock() -> Clock {
    Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"))
}

fn held_by(holder: &str, seconds: u32) -> LeaderElectionRecord {
    LeaderElectionRecord {
        holder_identity: holder.into(),
        lease_duration_seconds: seconds,
        ..LeaderElectionRecord::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_acquired_only_after_release_or_expiry() {
    let seen = clock().instant();
    let check = |holder: Option<&str>, silent_for: Duration, expected: Step| {
        let observed = holder.map(|holder| Observed { record: held_by(holder, 15), at: seen });
        assert_eq!(step("me", observed.as_ref(), seen + silent_for), expected, "{holder:?} {silent_for:?}");
    };
    check(None, Duration::ZERO, Step::Create);
    check(Some("me"), Duration::ZERO, Step::Keep);
    check(Some("me"), 60 * SECOND, Step::Keep);
    check(Some("other"), Duration::ZERO, Step::Leave);
    check(Some("other"), 15 * SECOND - Duration::from_nanos(1), Step::Leave);
    check(Some("other"), 15 * SECOND, Step::Take);
    check(Some(""), Duration::ZERO, Step::Take);
}

#[tokio::test(start_paused = true)]
async fn silence_counts_from_when_the_record_was_seen_to_change() {
    let start = clock().instant();
    let first = Observed::seen(None, held_by("other", 15), start);
    let same = Observed::seen(Some(first.clone()), held_by("other", 15), start + 9 * SECOND);
    assert_eq!(same.at, start);
    let renewed = LeaderElectionRecord { lease_transitions: 1, ..held_by("other", 15) };
    assert_eq!(Observed::seen(Some(first), renewed, start + 9 * SECOND).at, start + 9 * SECOND);
}

#[test]
fn durations_that_could_leave_two_leaders_are_rejected() {
    let check = |lease: u64, renew: u64, retry: u64, expected: &str| {
        let config = ElectionConfig {
            lease_duration: Duration::from_millis(lease),
            renew_deadline: Duration::from_millis(renew),
            retry_period: Duration::from_millis(retry),
            ..ElectionConfig::new("kube-system", "operator", "me")
        };
        let refusal = config.validate().err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(refusal, expected);
    };
    check(15_000, 10_000, 2_000, "");
    check(
        10_000,
        10_000,
        2_000,
        "leaderElection.leaseDuration: must be greater than renewDeadline (10s), not 10s",
    );
    check(15_500, 10_000, 2_000, "leaderElection.leaseDuration: must be whole seconds, not 15.5s");
    check(
        15_000,
        2_400,
        2_000,
        "leaderElection.renewDeadline: must be greater than retryPeriod*1.2 (2.4s), not 2.4s",
    );
    check(15_000, 10_000, 0, "leaderElection.retryPeriod: must be greater than zero");
}

#[tokio::test(start_paused = true)]
async fn guarded_work_takes_no_step_after_the_deadline() {
    let clock = clock();
    let fence = Fence::closed(&clock);
    assert_eq!(fence.guard(async { 1 }).await, None, "no work starts behind a closed fence");
    fence.hold_until(clock.instant() + 10 * SECOND);
    assert_eq!(fence.guard(async { 2 }).await, Some(2));
    let started = clock.instant();
    let extended = async {
        clock.sleep(5 * SECOND).await;
        fence.hold_until(clock.instant() + 10 * SECOND);
        std::future::pending::<()>().await;
    };
    assert_eq!(fence.guard(extended).await, None);
    assert_eq!(clock.instant() - started, 15 * SECOND, "it ran until the deadline");
    let always = Fence::open(&clock);
    let closing = async {
        clock.sleep(SECOND).await;
        always.close();
    };
    let (closed, ()) = tokio::join!(always.lost(), closing);
    assert_eq!(((), clock.instant() - started), (closed, 16 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_fenced_client_reads_and_does_not_write() {
    let clock = clock();
    let (client, log) = fake::client(fake::echo);
    let fence = Fence::closed(&clock);
    let client = client.with_fence(&fence);
    let configs = crate::Kind::new("", "v1", "ConfigMap", "configmaps", true);
    let create = async || client.create(&configs, Some("shop"), &json!({"metadata": {"name": "a"}})).await;
    let refused = create().await.expect_err("no right to write");
    assert_eq!(refused.to_string(), "not sent: this process does not hold the lease that its writes need");
    let read = client.get_path(&["version"], &[]).await;
    assert!(read.is_ok());
    fence.hold_until(clock.instant() + SECOND);
    assert!(create().await.is_ok());
    clock.sleep(SECOND).await;
    assert!(create().await.is_err());
    assert_eq!(log.lines(), ["GET /version", "POST /api/v1/namespaces/shop/configmaps"]);
}

#[tokio::test(start_paused = true)]
async fn the_record_has_the_format_of_client_go() {
    let (client, log) = fake::client(|received| match received.method.as_str() {
        "GET" => Some((404, json!({"kind": "Status", "reason": "NotFound", "code": 404}))),
        _ => fake::echo(received),
    });
    let runtime = Runtime { clock: clock(), rng: Rng::seeded(1) };
    let config = ElectionConfig::new("kube-system", "operator", "pod-a");
    let election = LeaderElection::new(&client, &runtime, config).expect("a valid configuration");
    let leadership = election.leadership();
    let clock = runtime.clock.clone();
    let ended = election.run(CancellationToken::new(), async |_| clock.sleep(3 * SECOND).await).await;
    assert_eq!((ended, leadership.borrow().holder.as_str()), (ExitReason::Stopped, "pod-a"));
    let record = |holder: &str, duration: u32, acquired: &str, renewed: &str| -> Value {
        json!({"holderIdentity": holder, "leaseDurationSeconds": duration, "leaseTransitions": 0,
            "acquireTime": format!("2025-01-01T00:00:{acquired}.000000Z"),
            "renewTime": format!("2025-01-01T00:00:{renewed}.000000Z")})
    };
    let written: Vec<Value> = log
        .all()
        .iter()
        .filter(|call| call.method != "GET")
        .map(|call| call.json()["spec"].clone())
        .collect();
    let expected =
        [record("pod-a", 15, "00", "00"), record("pod-a", 15, "00", "02"), record("", 1, "03", "03")];
    assert_eq!(written, expected, "created, renewed, released");
    let name = concat!("setpoint/", env!("CARGO_PKG_VERSION"), "/leader-election");
    assert_eq!(log.all()[0].header("user-agent"), name, "the candidate stays the manager of its fields");
}

#[test]
fn waits_are_jittered_between_one_and_2_2_retry_periods() {
    let config = ElectionConfig::new("kube-system", "operator", "pod-a");
    let rng = Rng::seeded(1);
    let waits: Vec<Duration> = (0..1000).map(|_| config.jittered(&rng)).collect();
    assert!(waits.iter().all(|wait| (2 * SECOND..=Duration::from_millis(4400)).contains(wait)));
    assert!(waits.iter().any(|wait| *wait > 4 * SECOND) && waits.iter().any(|wait| *wait < 3 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_hangs_without_ending_is_not_alive() {
    let (client, _) = fake::client(fake::echo);
    let runtime = Runtime { clock: clock(), rng: Rng::seeded(1) };
    let config = ElectionConfig::new("kube-system", "operator", "pod-a");
    let election = LeaderElection::new(&client, &runtime, config).expect("a valid configuration");
    let check = election.check();
    let renewed = |at: Option<Instant>| Leadership { holder: "pod-a".into(), is_ours: true, renewed: at };
    assert_eq!(check(), Ok(()), "a standby is alive");
    election.leader.send_replace(renewed(Some(runtime.clock.instant())));
    runtime.clock.sleep(35 * SECOND).await;
    assert_eq!(check(), Ok(()));
    runtime.clock.sleep(SECOND).await;
    assert_eq!(check(), Err("failed election to renew leadership on lease operator".into()));
    assert_eq!(election.lease.key(), &Key::namespaced("kube-system", "operator"));
}
