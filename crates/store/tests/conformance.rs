//! The guarantees of every engine. Each test runs on each engine.

use std::time::Duration;

use setpoint_store::*;

use crate::engines::{World, brief, drain, pods, text};

on_every_engine![
    an_empty_store_is_at_revision_one,
    every_change_takes_the_next_revision,
    a_create_of_what_exists_conflicts_and_shows_it,
    an_update_from_a_stale_revision_conflicts_and_shows_the_newer,
    an_update_of_what_is_absent_conflicts_with_nothing,
    an_update_keeps_the_revision_of_the_creation,
    a_delete_returns_the_last_state_at_the_revision_of_the_removal,
    a_delete_expecting_nothing_conflicts,
    a_recreated_record_is_a_new_one,
    a_value_is_stamped_with_its_own_revision,
    facts_known_to_the_writer_are_kept,
    a_get_of_the_past_shows_what_was_there,
    a_list_of_the_past_shows_what_was_there,
    a_list_of_the_future_is_refused,
    pages_of_one_revision_make_up_the_whole,
    a_page_begins_strictly_after_the_given_path,
    a_page_says_how_many_follow_it,
    a_prefix_selects_its_records_only,
    resources_are_separate,
    a_watch_hands_out_every_change_in_order_once,
    a_watch_resumes_after_any_revision,
    a_watch_carries_previous_values,
    a_watch_of_a_prefix_sees_that_prefix_only,
    a_waiting_watch_is_woken_by_a_change,
    many_waiting_watches_are_all_woken_by_every_change,
    a_cancelled_wait_loses_nothing,
    a_watch_reports_progress_when_nothing_concerned_it,
    a_watch_reports_no_progress_beyond_what_it_handed_out,
    a_quiet_watch_survives_any_traffic_elsewhere,
    a_slow_watch_is_cut_off,
    a_watch_at_the_compacted_revision_stays_valid,
    compacted_revisions_are_rejected,
    a_watch_that_has_read_everything_survives_compaction,
    compacting_the_future_is_refused,
    history_ages,
    busy_resources_do_not_take_the_history_of_quiet_ones,
    all_histories_together_are_bounded,
    a_range_of_one_path_has_that_record_only,
    a_watch_by_value_sees_what_has_the_value_or_had_it,
    a_watch_by_value_falls_behind_by_its_own_changes_only,
    changes_of_others_wake_no_watch_by_value_or_path,
    a_long_list_lets_others_run,
    closing_ends_watches_after_their_last_event_and_refuses_writes,
];

fn limited(limit: usize, after: Option<&str>) -> ListOptions {
    ListOptions { limit, from: after.map(just_after), ..ListOptions::default() }
}

fn paths(page: &Page) -> Vec<&str> {
    page.records.iter().map(|record| &*record.key.path).collect()
}

#[track_caller]
fn assert_conflict(result: Result<std::sync::Arc<Record>, Error>, expected: Option<(&str, Revision)>) {
    let Err(Error::Conflict { current }) = result else { panic!("not a conflict: {result:?}") };
    assert_eq!(current.as_deref().map(|record| (text(record), record.modified)), expected);
}

async fn an_empty_store_is_at_revision_one(world: World) {
    assert_eq!(world.store.revision(), 1);
    let page = world.list("", ListOptions::default()).await.unwrap();
    assert_eq!((page.records.len(), page.revision, page.remaining), (0, 1, 0));
    assert_eq!(world.get("a").await.map(|record| record.modified), None);
}

async fn every_change_takes_the_next_revision(world: World) {
    assert_eq!(world.create("a").await, 2);
    assert_eq!(world.create_in(&Resource::new("nodes"), "n").await, 3);
    assert_eq!(world.update("a", "A").await, 4);
    assert_eq!(world.delete("a").await.modified, 5);
    assert_eq!(world.store.revision(), 5);
}

async fn a_create_of_what_exists_conflicts_and_shows_it(world: World) {
    world.create("a").await;
    let again = world.put(pods().key("a"), Expect::Absent, "other", None).await;
    assert_conflict(again, Some(("a", 2)));
    assert_eq!(world.store.revision(), 2);
}

async fn an_update_from_a_stale_revision_conflicts_and_shows_the_newer(world: World) {
    world.create("a").await;
    world.update("a", "newer").await;
    let stale = world.put(pods().key("a"), Expect::Revision(2), "stale", None).await;
    assert_conflict(stale, Some(("newer", 3)));
    let stale = world.commit(pods().key("a"), Expect::Revision(2), Change::Delete).await;
    assert_conflict(stale, Some(("newer", 3)));
}

async fn an_update_of_what_is_absent_conflicts_with_nothing(world: World) {
    assert_conflict(world.put(pods().key("a"), Expect::Revision(1), "a", None).await, None);
    assert_conflict(world.commit(pods().key("a"), Expect::Revision(1), Change::Delete).await, None);
}

async fn an_update_keeps_the_revision_of_the_creation(world: World) {
    world.create("a").await;
    world.update("a", "b").await;
    let record = world.get("a").await.unwrap();
    assert_eq!((record.created, record.modified), (2, 3));
}

async fn a_delete_returns_the_last_state_at_the_revision_of_the_removal(world: World) {
    world.create("a").await;
    world.update("a", "last").await;
    let removed = world.delete("a").await;
    assert_eq!((text(&removed), removed.created, removed.modified), ("last", 2, 4));
    assert!(world.get("a").await.is_none());
}

async fn a_delete_expecting_nothing_conflicts(world: World) {
    assert_conflict(world.commit(pods().key("a"), Expect::Absent, Change::Delete).await, None);
    world.create("a").await;
    assert_conflict(world.commit(pods().key("a"), Expect::Absent, Change::Delete).await, Some(("a", 2)));
}

async fn a_recreated_record_is_a_new_one(world: World) {
    let mut watch = world.watch("", 1);
    world.create("a").await;
    world.delete("a").await;
    world.create("a").await;
    let record = world.get("a").await.unwrap();
    assert_eq!((record.created, record.modified), (4, 4));
    assert_eq!(drain(&mut watch).unwrap(), ["+a@2", "-a@3", "+a@4"]);
}

async fn a_value_is_stamped_with_its_own_revision(world: World) {
    let payload = |n: u32| Payload {
        bytes: format!("{{\"n\":{n}}}").into(),
        stamp_at: Some(1),
        inset_at: None,
        inset: Inset::default(),
        facts: None,
    };
    let put = |n| Change::Put { payload: payload(n), ttl: None };
    let created = world.commit(pods().key("a"), Expect::Absent, put(1)).await.unwrap();
    assert_eq!(text(&created), r#"{"resourceVersion":"2","n":1}"#);
    let updated = world.commit(pods().key("a"), Expect::Revision(2), put(2)).await.unwrap();
    assert_eq!(text(&updated), r#"{"resourceVersion":"3","n":2}"#);
    assert_eq!(updated.payload().bytes, payload(2).bytes);
    let removed = world.delete("a").await;
    assert_eq!(text(&removed), r#"{"resourceVersion":"4","n":2}"#);
}

async fn facts_known_to_the_writer_are_kept(world: World) {
    let payload = Payload {
        bytes: "a".into(),
        stamp_at: None,
        inset_at: None,
        inset: Inset::default(),
        facts: Some(std::sync::Arc::new(7_u32)),
    };
    world.commit(pods().key("a"), Expect::Absent, Change::Put { payload, ttl: None }).await.unwrap();
    let record = world.get("a").await.unwrap();
    assert_eq!(record.facts(|_| -> u32 { unreachable!("the writer knew") }), Some(&7));
    assert_eq!(world.delete("a").await.facts(|_| 0_u32), Some(&7));
}

async fn a_get_of_the_past_shows_what_was_there(world: World) {
    world.create("a").await; // 2
    world.update("a", "b").await; // 3
    world.create("other").await; // 4
    world.delete("a").await; // 5
    world.create("a").await; // 6
    let expected = [None, Some("a"), Some("b"), Some("b"), None, Some("a")];
    for (at, value) in (1..).zip(expected) {
        assert_eq!(world.get_at("a", at).await.unwrap().as_deref(), value, "at {at}");
    }
    assert!(matches!(world.get_at("a", 7).await, Err(Error::Future { requested: 7, newest: 6 })));
}

async fn a_list_of_the_past_shows_what_was_there(world: World) {
    world.create("a").await; // 2
    world.create("b").await; // 3
    world.update("a", "A").await; // 4
    world.delete("b").await; // 5
    world.create("c").await; // 6
    world.create("b").await; // 7
    let expected: [&[&str]; 7] =
        [&[], &["a=a"], &["a=a", "b=b"], &["a=A", "b=b"], &["a=A"], &["a=A", "c=c"], &["a=A", "b=b", "c=c"]];
    for (at, state) in (1..).zip(expected) {
        assert_eq!(world.state_at(at).await.unwrap(), state, "at {at}");
    }
}

async fn a_list_of_the_future_is_refused(world: World) {
    assert!(matches!(world.state_at(2).await, Err(Error::Future { requested: 2, newest: 1 })));
    assert!(matches!(world.store.watch(pods().all(), 2), Err(Error::Future { requested: 2, newest: 1 })));
}

async fn pages_of_one_revision_make_up_the_whole(world: World) {
    for i in 0..25 {
        world.create(&format!("ns/{i:02}")).await;
    }
    let first = world.list("ns/", limited(10, None)).await.unwrap();
    assert_eq!((first.records.len(), first.remaining, first.revision), (10, 15, 26));
    world.create("ns/05a").await;
    world.delete("ns/20").await;
    world.update("ns/11", "changed").await;
    let mut seen: Vec<String> = paths(&first).into_iter().map(str::to_owned).collect();
    let mut remaining = first.remaining;
    while remaining > 0 {
        let options =
            ListOptions { at: Some(first.revision), ..limited(10, seen.last().map(String::as_str)) };
        let page = world.list("ns/", options).await.unwrap();
        assert_eq!((page.revision, page.records.len() + page.remaining), (first.revision, remaining));
        assert!(page.records.iter().all(|record| text(record) != "changed"));
        remaining = page.remaining;
        seen.extend(paths(&page).into_iter().map(str::to_owned));
    }
    assert_eq!(seen, (0..25).map(|i| format!("ns/{i:02}")).collect::<Vec<_>>());
}

async fn a_page_begins_strictly_after_the_given_path(world: World) {
    for path in ["a/1", "a/2", "b/1", "b/2", "c/1"] {
        world.create(path).await;
    }
    let check = async |prefix: &str, limit, after, expected: &[&str], remaining| {
        let page = world.list(prefix, limited(limit, after)).await.unwrap();
        assert_eq!(
            (paths(&page), page.remaining),
            (expected.to_vec(), remaining),
            "{prefix} {limit} {after:?}"
        );
    };
    check("", 0, None, &["a/1", "a/2", "b/1", "b/2", "c/1"], 0).await;
    check("", 2, None, &["a/1", "a/2"], 3).await;
    check("", 2, Some("a/2"), &["b/1", "b/2"], 1).await;
    check("", 2, Some("b/2"), &["c/1"], 0).await;
    check("", 2, Some("z"), &[], 0).await;
    check("b/", 1, None, &["b/1"], 1).await;
    check("b/", 1, Some("b/1"), &["b/2"], 0).await;
    check("b/", 0, Some("a/1"), &["b/1", "b/2"], 0).await;
    check("b/", 0, Some("b/1x"), &["b/2"], 0).await;
    check("b/", 0, Some("b/2"), &[], 0).await;
    check("b/", 0, Some("c"), &[], 0).await;
}

async fn a_prefix_selects_its_records_only(world: World) {
    for path in ["a/1", "a-b/1", "aa/1", "a/2", "a"] {
        world.create(path).await;
    }
    let page = world.list("a/", ListOptions::default()).await.unwrap();
    assert_eq!(paths(&page), ["a/1", "a/2"]);
    for (prefix, count) in [("", 5), ("a/", 2), ("a", 5), ("aa/", 1), ("b/", 0)] {
        assert_eq!(world.store.count(&pods().under(prefix)).await.unwrap(), count, "{prefix}");
    }
}

async fn resources_are_separate(world: World) {
    let nodes = Resource::new("nodes");
    let mut watch = world.watch("", 1);
    world.create("x").await;
    world.create_in(&nodes, "x").await;
    world.delete("x").await;
    assert_eq!(world.store.count(&nodes.all()).await.unwrap(), 1);
    assert_eq!(world.store.count(&pods().all()).await.unwrap(), 0);
    assert_eq!(world.store.count(&Resource::new("none").all()).await.unwrap(), 0);
    assert_eq!(drain(&mut watch).unwrap(), ["+x@2", "-x@4"]);
}

async fn a_watch_hands_out_every_change_in_order_once(world: World) {
    let mut early = world.watch("", 1);
    let mut expected = Vec::new();
    for i in 0..600 {
        let path = format!("{i}");
        expected.push(format!("+{path}@{}", world.create(&path).await));
        if i % 3 == 0 {
            expected.push(format!("~{path}@{}", world.update(&path, "new").await));
        }
        if i % 5 == 0 {
            expected.push(format!("-{path}@{}", world.delete(&path).await.modified));
        }
    }
    assert_eq!(drain(&mut early).unwrap(), expected);
    assert_eq!(drain(&mut early).unwrap(), [""; 0]);
    assert_eq!(drain(&mut world.watch("", 1)).unwrap(), expected);
}

async fn a_watch_resumes_after_any_revision(world: World) {
    let mut all = Vec::new();
    for i in 0..20 {
        all.push(format!("+{i}@{}", world.create(&format!("{i}")).await));
    }
    for (skipped, from) in (1..=21).enumerate() {
        assert_eq!(drain(&mut world.watch("", from)).unwrap(), all[skipped..], "from {from}");
    }
    assert_eq!(drain(&mut world.watch("", 0)).unwrap(), all, "an empty store's history is complete");
}

async fn a_watch_carries_previous_values(world: World) {
    world.create("a").await;
    world.update("a", "b").await;
    world.delete("a").await;
    let events = world.watch("", 1).next().await.unwrap();
    let seen: Vec<_> = events
        .iter()
        .map(|event| (brief(event), text(&event.record), event.previous.as_deref().map(text)))
        .collect();
    assert_eq!(
        seen,
        [("+a@2".into(), "a", None), ("~a@3".into(), "b", Some("a")), ("-a@4".into(), "b", Some("b"))]
    );
    assert_eq!(events[2].previous.as_ref().unwrap().modified, 3);
}

async fn a_watch_of_a_prefix_sees_that_prefix_only(world: World) {
    let mut early = world.watch("b/", 1);
    for path in ["a/1", "b/1", "bb/1", "b/2", "c/1", "b"] {
        world.create(path).await;
    }
    assert_eq!(drain(&mut early).unwrap(), ["+b/1@3", "+b/2@5"]);
    assert_eq!(drain(&mut world.watch("b/", 1)).unwrap(), ["+b/1@3", "+b/2@5"]);
    assert_eq!(drain(&mut world.watch("b/2", 3)).unwrap(), ["+b/2@5"]);
    assert_eq!(drain(&mut world.watch("b/", 5)).unwrap(), [""; 0]);
}

async fn a_waiting_watch_is_woken_by_a_change(world: World) {
    let (mut all, mut some) = (world.watch("", 1), world.watch("ns/", 1));
    let waiting = tokio::spawn(async move {
        let all = all.next().await.unwrap();
        let some = some.next().await.unwrap();
        [brief(&all[0]), brief(&some[0])]
    });
    tokio::task::yield_now().await;
    world.create("other/a").await;
    tokio::task::yield_now().await;
    world.create("ns/a").await;
    assert_eq!(waiting.await.unwrap(), ["+other/a@2", "+ns/a@3"]);
}

async fn a_page_says_how_many_follow_it(world: World) {
    for path in ["a/1", "a/2", "a/3", "a/4", "b/1", "c"] {
        world.create(path).await;
    }
    world.delete("a/2").await;
    world.update("a/4", "again").await;
    let remaining = async |prefix: &str, after: Option<&str>, before: Option<usize>| {
        let options = ListOptions { before, ..limited(1, after) };
        world.list(prefix, options).await.unwrap().remaining
    };
    assert_eq!(remaining("", None, None).await, 4);
    assert_eq!(remaining("a/", None, None).await, 2);
    assert_eq!(remaining("b/", None, None).await, 0);
    assert_eq!(remaining("a/", Some("a/1"), None).await, 1);
    assert_eq!(remaining("a/", Some("a/1"), Some(1)).await, 1);
    assert_eq!(remaining("a/", Some("a/3"), Some(2)).await, 0);
    assert_eq!(remaining("", Some("a/1"), Some(99)).await, 1, "an overestimate is corrected");
}

async fn many_waiting_watches_are_all_woken_by_every_change(world: World) {
    const MANY: usize = 200;
    let wait = |mut watch: Watch, last: String| {
        tokio::spawn(async move {
            let mut seen = Vec::new();
            while seen.last() != Some(&last) {
                seen.extend(watch.next().await.unwrap().iter().map(|event| brief(event)));
            }
            (watch, seen)
        })
    };
    let all: Vec<_> = (0..MANY).map(|_| wait(world.watch("", 1), "+c@4".into())).collect();
    for path in ["a", "b", "c"] {
        tokio::task::yield_now().await;
        world.create(path).await;
    }
    let mut watches = Vec::new();
    for waiting in all {
        let (watch, seen) = waiting.await.unwrap();
        assert_eq!(seen, ["+a@2", "+b@3", "+c@4"]);
        watches.push(watch);
    }
    // Once the set is small again, its watchers are still woken.
    watches.truncate(3);
    let few: Vec<_> = watches.into_iter().map(|watch| wait(watch, "+d@5".into())).collect();
    tokio::task::yield_now().await;
    world.create("d").await;
    for waiting in few {
        assert_eq!(waiting.await.unwrap().1, ["+d@5"]);
    }
}

async fn a_cancelled_wait_loses_nothing(world: World) {
    let mut watch = world.watch("", 1);
    for i in 0..3 {
        assert_eq!(drain(&mut watch).unwrap(), [""; 0]);
        let revision = world.create(&format!("{i}")).await;
        assert_eq!(drain(&mut watch).unwrap(), [format!("+{i}@{revision}")]);
    }
}

async fn a_watch_reports_progress_when_nothing_concerned_it(world: World) {
    let (mut quiet, mut late) = (world.watch("ns/", 1), None);
    assert_eq!(quiet.revision(), 1);
    for i in 0..10 {
        world.create(&format!("other/{i}")).await;
        world.create_in(&Resource::new("nodes"), &format!("{i}")).await;
        assert_eq!(quiet.revision(), world.store.revision());
        assert_eq!(late.get_or_insert_with(|| world.watch("ns/", 1)).revision(), world.store.revision());
    }
    assert_eq!(drain(&mut quiet).unwrap(), [""; 0]);
    assert_eq!(quiet.revision(), 21);
}

async fn a_watch_reports_no_progress_beyond_what_it_handed_out(world: World) {
    let mut watch = world.watch("ns/", 1);
    world.create("other").await; // 2
    world.create("ns/a").await; // 3
    assert!(watch.revision() < 3, "the change at 3 has not been delivered");
    assert_eq!(drain(&mut watch).unwrap(), ["+ns/a@3"]);
    world.create("other2").await;
    assert_eq!(watch.revision(), 4);
    for i in 0..300 {
        world.create(&format!("ns/{i}")).await;
    }
    let batch = watch.next().await.unwrap();
    assert!(batch.len() < 300, "a batch is bounded");
    assert_eq!(watch.revision(), batch.last().unwrap().revision());
    drain(&mut watch).unwrap();
    assert_eq!(watch.revision(), 304);
}

async fn a_quiet_watch_survives_any_traffic_elsewhere(world: World) {
    let limits = Limits { events: 50, ..Limits::default() };
    let world = world.with_limits(limits).await;
    world.create("ns/a").await;
    let mut watch = world.watch("ns/", 2);
    for i in 0..500 {
        world.create(&format!("other/{i}")).await;
    }
    assert_eq!(watch.revision(), 502);
    assert_eq!(drain(&mut watch).unwrap(), [""; 0]);
    for i in 0..500 {
        world.create(&format!("another/{i}")).await;
    }
    world.update("ns/a", "new").await;
    assert_eq!(drain(&mut watch).unwrap(), ["~ns/a@1003"]);
}

async fn a_slow_watch_is_cut_off(world: World) {
    let world = world.with_limits(Limits { events: 50, ..Limits::default() }).await;
    let (mut slow, mut slow_in_namespace) = (world.watch("", 1), world.watch("ns/", 1));
    for i in 0..50 {
        world.create(&format!("ns/{i}")).await;
    }
    assert_eq!(drain(&mut world.watch("", 1)).unwrap().len(), 50, "the whole history is kept");
    world.create("last").await;
    assert_eq!(slow.next().await.unwrap_err(), WatchError::FellBehind { seen: 1 });
    assert_eq!(slow_in_namespace.next().await.unwrap_err(), WatchError::FellBehind { seen: 1 });
    assert_eq!(slow.revision(), 1);
    assert!(matches!(world.store.watch(pods().all(), 1), Err(Error::Compacted { requested: 1, oldest: 2 })));
    assert_eq!(drain(&mut world.watch("", 2)).unwrap().len(), 50);
}

async fn a_watch_at_the_compacted_revision_stays_valid(world: World) {
    for i in 0..10 {
        world.create(&format!("{i}")).await;
    }
    world.store.compact(5).await.unwrap();
    assert_eq!(world.store.compacted(), 5);
    assert_eq!(drain(&mut world.watch("", 5)).unwrap().len(), 6);
    assert_eq!(world.state_at(5).await.unwrap().len(), 4);
    world.store.compact(4).await.unwrap();
    assert_eq!(world.store.compacted(), 5, "compacted history stays compacted");
}

async fn compacted_revisions_are_rejected(world: World) {
    for i in 0..10 {
        world.create(&format!("{i}")).await;
    }
    let mut slow = world.watch("", 3);
    world.store.compact(5).await.unwrap();
    let nodes = Resource::new("nodes");
    for resource in [pods(), nodes] {
        let watch = world.store.watch(resource.all(), 4);
        assert!(matches!(watch, Err(Error::Compacted { requested: 4, oldest: 5 })));
        let options = ListOptions { at: Some(4), ..ListOptions::default() };
        let list = world.store.list(&resource.all(), options).await;
        assert!(matches!(list, Err(Error::Compacted { requested: 4, oldest: 5 })));
        let get = world.store.get(&resource.key("1"), Some(4)).await;
        assert!(matches!(get, Err(Error::Compacted { requested: 4, oldest: 5 })));
    }
    assert_eq!(slow.next().await.unwrap_err(), WatchError::FellBehind { seen: 3 });
}

async fn a_watch_that_has_read_everything_survives_compaction(world: World) {
    let mut watch = world.watch("", 1);
    let mut untouched = world.watch("ns/", 1);
    for i in 0..10 {
        world.create(&format!("{i}")).await;
    }
    drain(&mut watch).unwrap();
    world.store.compact(11).await.unwrap();
    world.create("ns/new").await;
    assert_eq!(drain(&mut watch).unwrap(), ["+ns/new@12"]);
    assert_eq!(drain(&mut untouched).unwrap(), ["+ns/new@12"]);
}

async fn compacting_the_future_is_refused(world: World) {
    assert!(matches!(world.store.compact(2).await, Err(Error::Future { requested: 2, newest: 1 })));
}

async fn history_ages(world: World) {
    world.create("a").await; // 2
    world.expire().await;
    world.advance(Duration::from_secs(200)).await;
    world.create("b").await; // 3
    world.expire().await;
    assert_eq!(drain(&mut world.watch("", 1)).unwrap().len(), 2);
    world.advance(Duration::from_secs(100)).await;
    world.expire().await;
    assert_eq!(world.store.compacted(), 2);
    assert_eq!(drain(&mut world.watch("", 2)).unwrap(), ["+b@3"]);
    world.advance(Duration::from_secs(400)).await;
    world.expire().await;
    assert_eq!(world.store.compacted(), 3);
    assert_eq!(drain(&mut world.watch("", 3)).unwrap(), [""; 0]);
}

async fn busy_resources_do_not_take_the_history_of_quiet_ones(world: World) {
    let world = world.with_limits(Limits { events: 50, ..Limits::default() }).await;
    world.create_in(&Resource::new("nodes"), "n").await;
    for i in 0..100 {
        world.create(&format!("{i}")).await;
    }
    let mut watch = world.store.watch(Resource::new("nodes").all(), 1).unwrap();
    assert_eq!(drain(&mut watch).unwrap(), ["+n@2"]);
}

async fn all_histories_together_are_bounded(world: World) {
    let world = world.with_limits(Limits { total_bytes: 40_000, ..Limits::default() }).await;
    world.create_in(&Resource::new("quiet"), "q").await;
    world.create("a").await;
    for i in 0..40 {
        world.update("a", &format!("{i:02000}")).await;
    }
    let held = world.store.revision() - oldest_watchable(&world, &pods());
    assert!((10..20).contains(&held), "{held} events of 2 KB are held");
    let mut watch = world.store.watch(Resource::new("quiet").all(), 1).unwrap();
    assert_eq!(drain(&mut watch).unwrap(), ["+q@2"], "the largest history is trimmed, not the oldest");
}

fn oldest_watchable(world: &World, resource: &Resource) -> Revision {
    match world.store.watch(resource.all(), 0) {
        Err(Error::Compacted { oldest, .. }) => oldest,
        _ => 0,
    }
}

async fn closing_ends_watches_after_their_last_event_and_refuses_writes(world: World) {
    let (mut behind, mut waiting) = (world.watch("", 1), world.watch("ns/", 1));
    let waiting = tokio::spawn(async move { waiting.next().await.unwrap_err() });
    world.create("a").await;
    tokio::task::yield_now().await;
    world.store.close().await;
    assert_eq!(behind.next().await.unwrap().len(), 1);
    assert_eq!(behind.next().await.unwrap_err(), WatchError::Closed);
    assert_eq!(waiting.await.unwrap(), WatchError::Closed);
    let write = world.put(pods().key("b"), Expect::Absent, "b", None).await;
    assert!(matches!(write, Err(Error::Closed)));
    assert_eq!(text(&world.get("a").await.unwrap()), "a");
    world.store.close().await;
}

async fn a_range_of_one_path_has_that_record_only(world: World) {
    for path in ["ns/a", "ns/a-1", "ns/a/b", "nt/a"] {
        world.create(path).await;
    }
    let only = pods().only("ns/a");
    let page = world.store.list(&only, ListOptions::default()).await.unwrap();
    assert_eq!(page.records.iter().map(|record| &*record.key.path).collect::<Vec<_>>(), ["ns/a"]);
    assert_eq!((page.remaining, world.store.count(&only).await.unwrap()), (0, 1));
    assert_eq!(world.store.count(&pods().only("ns/")).await.unwrap(), 0);
    let mut watch = world.store.watch(only, 1).unwrap();
    world.update("ns/a-1", "new").await;
    world.update("ns/a", "new").await;
    assert_eq!(drain(&mut watch).unwrap(), ["+ns/a@2", "~ns/a@7"]);
    world.delete("ns/a-1").await;
    assert!(!watch.has_unread());
    world.delete("ns/a").await;
    assert!(watch.has_unread());
    assert_eq!(drain(&mut watch).unwrap(), ["-ns/a@9"]);
}

/// A trigger on the whole value of a record.
fn value_is(value: &str) -> Option<Trigger> {
    let of: ValueOf = std::sync::Arc::new(|record| text(record));
    Some(Trigger { name: "value", value: value.into(), of })
}

async fn a_watch_by_value_sees_what_has_the_value_or_had_it(world: World) {
    world.put(pods().key("before"), Expect::Absent, "n1", None).await.unwrap();
    let mut ours = world.store.watch_by(pods().all(), value_is("n1"), 1).unwrap();
    let mut later = world.store.watch_by(pods().all(), value_is("n1"), 2).unwrap();
    let mut others = world.store.watch_by(pods().under("ns/"), value_is("n2"), 1).unwrap();
    world.put(pods().key("ns/a"), Expect::Absent, "n1", None).await.unwrap();
    world.update("ns/a", "n2").await;
    world.update("ns/a", "n3").await;
    world.update("before", "n2").await;
    world.delete("before").await;
    assert_eq!(drain(&mut ours).unwrap(), ["+before@2", "+ns/a@3", "~ns/a@4", "~before@6"]);
    assert_eq!(drain(&mut later).unwrap(), ["+ns/a@3", "~ns/a@4", "~before@6"]);
    assert_eq!(drain(&mut others).unwrap(), ["~ns/a@4", "~ns/a@5"], "its prefix matches too");
    let mut again = world.store.watch_by(pods().all(), value_is("n1"), 1).unwrap();
    assert_eq!(drain(&mut again).unwrap().len(), 4, "an existing subscription lists earlier events");
    assert_eq!((ours.revision(), again.revision()), (7, 7));
}

async fn a_watch_by_value_falls_behind_by_its_own_changes_only(world: World) {
    let world = world.with_limits(Limits { events: 50, ..Limits::default() }).await;
    let mut watch = world.store.watch_by(pods().all(), value_is("mine"), 1).unwrap();
    for i in 0..500 {
        world.create(&format!("other/{i}")).await;
    }
    assert_eq!(drain(&mut watch).unwrap(), [""; 0]);
    world.put(pods().key("a"), Expect::Absent, "mine", None).await.unwrap();
    assert_eq!(drain(&mut watch).unwrap(), ["+a@502"]);
    world.update("a", "mine").await;
    for i in 500..560 {
        world.create(&format!("other/{i}")).await;
    }
    assert_eq!(watch.next().await.unwrap_err(), WatchError::FellBehind { seen: 502 });
}

/// Counts wake-ups.
#[derive(Default)]
struct Wakes(std::sync::atomic::AtomicUsize);

impl std::task::Wake for Wakes {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

async fn changes_of_others_wake_no_watch_by_value_or_path(world: World) {
    let by_value = world.store.watch_by(pods().all(), value_is("mine"), 1).unwrap();
    let by_path = world.store.watch(pods().only("ns/a"), 1).unwrap();
    for mut watch in [by_value, by_path] {
        let wakes = std::sync::Arc::<Wakes>::default();
        let waker = std::task::Waker::from(wakes.clone());
        let mut context = std::task::Context::from_waker(&waker);
        drain(&mut watch).unwrap();
        assert!(watch.poll_next(&mut context).is_pending());
        let count = || wakes.0.load(std::sync::atomic::Ordering::Relaxed);
        world.create("ns/a-1").await;
        assert_eq!(count(), 0);
        world.put(pods().key("ns/a"), Expect::Absent, "mine", None).await.unwrap();
        assert_eq!(count(), 1);
        world.delete("ns/a").await;
        world.delete("ns/a-1").await;
    }
}

async fn a_long_list_lets_others_run(world: World) {
    for i in 0..5000 {
        world.create(&format!("p{i:04}")).await;
    }
    let range = pods().all();
    let mut list = world.store.list(&range, ListOptions::default());
    let mut turns = 0;
    let page = std::future::poll_fn(|context| {
        turns += 1;
        list.as_mut().poll(context)
    });
    assert_eq!(page.await.unwrap().records.len(), 5000);
    assert!(turns >= 3, "{turns}");
}
