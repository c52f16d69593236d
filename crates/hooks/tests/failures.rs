//! Hooks that hang, crash, answer nonsense or never settle: bounded, visible, and the others go on.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::*;
use setpoint_hooks::{HookReply, MAX_ANSWER};

const MINUTE: Duration = Duration::from_secs(60);

/// A hook that does something else for parents whose names begin with `bad`.
fn but_for_bad<F>(bad: impl Fn() -> F + Send + Sync + 'static) -> Functions
where
    F: Future<Output = Result<HookReply, String>> + Send + 'static,
{
    Functions::new().replying(SYNC, move |request| {
        let is_bad = name_of(&request["parent"]).starts_with("bad");
        let failing = is_bad.then(&bad);
        async move {
            match failing {
                Some(failing) => failing.await,
                None => Ok(HookReply::ok(maps(&request).to_string())),
            }
        }
    })
}

/// Checks that others go on, and that the error about the bad parent says what is wrong.
fn check(hooks: Functions, error: &str) {
    with_hooks(hooks, async |cluster| {
        create_controller(cluster, composite("maps", "InPlace")).await;
        create_thing(cluster, "bad", json!({})).await;
        cluster.pass(MINUTE).await;
        create_thing(cluster, "good", json!({"value": "1"})).await;
        until_value(cluster, &config_maps(), "good-0", "/data/value", json!("1")).await;
        patch(cluster, &things(), &key("good"), json!({"spec": {"value": "2"}})).await;
        until_value(cluster, &config_maps(), "good-0", "/data/value", json!("2")).await;
        let messages = messages(cluster, "bad", "SyncError").await;
        assert!(messages.iter().any(|message| message.contains(error)), "{messages:?}");
    });
}

#[test]
fn a_hanging_hook_is_cancelled_after_its_timeout() {
    check(but_for_bad(std::future::pending), "no answer within 10s");
}

#[test]
fn a_hook_that_cannot_be_reached_is_an_error() {
    check(but_for_bad(async || Err("connection refused".to_owned())), "connection refused");
}

#[test]
fn an_invalid_response_is_an_error() {
    check(but_for_bad(async || Ok(HookReply::ok("<html>"))), "it is not JSON");
    check(
        but_for_bad(async || Ok(HookReply { status: 500, ..HookReply::ok("out of order") })),
        "unsupported status code: 500 body: out of order",
    );
}

#[test]
fn a_response_of_10_mib_is_rejected() {
    let long = vec![b' '; 10 << 20];
    check(
        but_for_bad(move || std::future::ready(Ok(HookReply::ok(long.clone())))),
        &format!("longer than {MAX_ANSWER} bytes"),
    );
}

#[test]
fn a_busy_hook_is_retried_after_its_delay() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let hooks = but_for_bad(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        let retry_after = Some("600".to_owned());
        std::future::ready(Ok(HookReply { status: 429, retry_after, ..HookReply::default() }))
    });
    with_hooks(hooks, async |cluster| {
        create_controller(cluster, composite("maps", "InPlace")).await;
        create_thing(cluster, "bad", json!({})).await;
        cluster.pass(Duration::from_secs(3610)).await;
        assert!((6..=7).contains(&count(&calls)), "{} calls", count(&calls));
        assert!(messages(cluster, "bad", "SyncError").await.is_empty());
    });
}

#[test]
fn a_hook_that_fails_for_everyone_is_left_alone_and_shown_until_it_works() {
    let (works, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (is_working, counter) = (works.clone(), calls.clone());
    let hooks = Functions::new().replying(SYNC, move |request| {
        counter.fetch_add(1, Ordering::Relaxed);
        let works = is_working.load(Ordering::Relaxed);
        let answer = maps(&request).to_string();
        std::future::ready(if works { Ok(HookReply::ok(answer)) } else { Err("connection refused".into()) })
    });
    with_hooks(hooks, async |cluster| {
        create_controller(cluster, composite("maps", "InPlace")).await;
        for nth in 0..20 {
            create_thing(cluster, &format!("t{nth}"), json!({})).await;
        }
        let condition = until_condition(cluster, &composites(), "maps", "HooksWorking", "False").await;
        assert!(condition["message"].as_str().expect("a text").contains("connection refused"), "{condition}");
        let before = count(&calls);
        cluster.pass(Duration::from_secs(600)).await;
        assert!(count(&calls) - before < 30, "{} calls of a hook that is left alone", count(&calls) - before);
        works.store(true, Ordering::Relaxed);
        until_condition(cluster, &composites(), "maps", "HooksWorking", "True").await;
        for nth in 0..20 {
            until_value(cluster, &things(), &format!("t{nth}"), "/status/children", json!(1)).await;
        }
    });
}

#[test]
fn parents_that_a_hook_rejects_do_not_hold_up_the_others() {
    let hooks = but_for_bad(async || Ok(HookReply { status: 500, ..HookReply::ok("no spec.value") }));
    with_hooks(hooks, async |cluster| {
        create_controller(cluster, composite("maps", "InPlace")).await;
        for nth in 0..4 {
            create_thing(cluster, &format!("bad-{nth}"), json!({})).await;
        }
        until_condition(cluster, &composites(), "maps", "HooksWorking", "False").await;
        cluster.pass(Duration::from_secs(600)).await;
        create_thing(cluster, "good", json!({"value": "1"})).await;
        cluster.pass(Duration::from_secs(1)).await;
        assert!(cluster.get(&config_maps(), &key("good-0")).await.is_some());
        until_condition(cluster, &composites(), "maps", "HooksWorking", "True").await;
    });
}

#[test]
fn a_child_that_never_settles_does_not_keep_the_hook_busy() {
    for method in ["InPlace", "Recreate"] {
        let ticks = AtomicUsize::new(0);
        let (hooks, calls) = counted(move |request| {
            let mut answer = maps(request);
            answer["children"][0]["data"]["tick"] = ticks.fetch_add(1, Ordering::Relaxed).to_string().into();
            answer
        });
        with_hooks(hooks, async |cluster| {
            create_controller(cluster, composite("maps", method)).await;
            create_thing(cluster, "a", json!({"value": "1"})).await;
            cluster.pass(Duration::from_secs(3600)).await;
            assert!(count(&calls) < 60, "{method}: {} calls in an hour", count(&calls));
            if method == "InPlace" {
                let messages = messages(cluster, "a", "UnstableChild").await;
                assert!(messages.len() == 1 && messages[0].contains("ConfigMap default/a-0"), "{messages:?}");
            }
            patch(cluster, &things(), &key("a"), json!({"spec": {"value": "2"}})).await;
            cluster.pass(Duration::from_secs(5)).await;
            until_value(cluster, &config_maps(), "a-0", "/data/value", json!("2")).await;
        });
    }
}

#[test]
fn children_that_are_made_one_after_the_other_are_not_held_up() {
    let (hooks, _) = counted(|request| {
        let observed = request["children"]["ConfigMap.v1"].as_object().map_or(0, |children| children.len());
        let child = |nth| config_map(&format!("a-{nth}"), &json!("1"));
        json!({"status": {}, "children": (0..(observed + 1).min(30)).map(child).collect::<Vec<_>>()})
    });
    with_hooks(hooks, async |cluster| {
        create_controller(cluster, composite("maps", "InPlace")).await;
        create_thing(cluster, "a", json!({})).await;
        cluster.pass(Duration::from_secs(10)).await;
        assert!(cluster.get(&config_maps(), &key("a-29")).await.is_some());
    });
}

#[test]
fn a_status_that_never_settles_does_not_keep_the_hook_busy() {
    let ticks = AtomicUsize::new(0);
    let (hooks, calls) = counted(move |request| {
        let mut answer = maps(request);
        answer["status"]["tick"] = json!(ticks.fetch_add(1, Ordering::Relaxed));
        answer
    });
    with_hooks(hooks, async |cluster| {
        create_controller(cluster, composite("maps", "InPlace")).await;
        create_thing(cluster, "a", json!({"value": "1"})).await;
        cluster.pass(Duration::from_secs(3600)).await;
        assert!(count(&calls) < 40, "{} calls in an hour", count(&calls));
        assert_eq!(messages(cluster, "a", "UnstableStatus").await.len(), 1);
        patch(cluster, &things(), &key("a"), json!({"spec": {"value": "2"}})).await;
        cluster.pass(Duration::from_secs(5)).await;
        until_value(cluster, &config_maps(), "a-0", "/data/value", json!("2")).await;
    });
}

#[test]
fn unknown_fields_fail_a_strict_hook_only() {
    for (version, fails) in [("v1", false), ("v2", true)] {
        let (hooks, _) = counted(|request| {
            let mut answer = maps(request);
            answer["chilren"] = json!([]);
            answer
        });
        with_hooks(hooks, async |cluster| {
            let mut controller = composite("maps", "InPlace");
            controller["spec"]["hooks"]["sync"]["version"] = json!(version);
            create_controller(cluster, controller).await;
            create_thing(cluster, "a", json!({})).await;
            cluster.pass(MINUTE).await;
            let messages = messages(cluster, "a", "SyncError").await;
            assert_eq!(messages.iter().any(|message| message.contains("unknown field \"chilren\"")), fails);
            assert_eq!(cluster.get(&config_maps(), &key("a-0")).await.is_none(), fails);
        });
    }
}
