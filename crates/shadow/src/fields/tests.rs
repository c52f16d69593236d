use serde_json::json;

use super::*;

const COMPARISON: Comparison = Comparison { tolerance: Duration::from_secs(30) };

#[track_caller]
fn created(want: Value, live: Value, expected: &[&str]) {
    let found: Vec<_> = COMPARISON.of_object(&want, &live).iter().map(|one| one.path.to_string()).collect();
    assert_eq!(found, expected, "{want} against {live}");
}

#[test]
fn a_created_object_matches_if_it_contains_the_intended_fields() {
    created(json!({"spec": {"a": 1}}), json!({"spec": {"a": 1, "default": true}, "status": {}}), &[]);
    created(json!({"spec": {"a": 1}}), json!({"spec": {"a": 2}}), &["spec.a"]);
    created(json!({"spec": {"a": 0, "b": null, "c": []}}), json!({}), &[]);
    created(
        json!({"metadata": {"uid": "1", "resourceVersion": "2"}}),
        json!({"metadata": {"uid": "3", "name": "x"}}),
        &[],
    );
    let tolerations = |keys: &[&str]| json!({"spec": {"tolerations": keys}});
    created(tolerations(&["a"]), tolerations(&["b", "a"]), &[]);
    created(tolerations(&["a", "a"]), tolerations(&["b", "a"]), &["spec.tolerations"]);
    created(
        json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}),
        json!({"spec": {"containers": [{"name": "sidecar"}, {"name": "c", "image": "j"}]}}),
        &["spec.containers[name=c].image"],
    );
    created(
        json!({"metadata": {"annotations": {"a.b/c": "1"}}}),
        json!({"metadata": {}}),
        &["metadata.annotations"],
    );
}

#[test]
fn times_agree_within_the_tolerance() {
    let at = |time: &str| json!({"status": {"startTime": time}});
    created(at("2025-01-01T00:00:00Z"), at("2025-01-01T00:00:29Z"), &[]);
    created(at("2025-01-01T00:00:00Z"), at("2025-01-01T00:01:00Z"), &["status.startTime"]);
}

#[test]
fn a_signature_agrees_with_any_other() {
    created(json!({"status": {"certificate": "a"}}), json!({"status": {"certificate": "b"}}), &[]);
    created(json!({"status": {"certificate": "a"}}), json!({"status": {}}), &["status.certificate"]);
}

#[track_caller]
fn changed(before: Value, after: Value, live: Value, expected: &[(&str, bool)]) {
    let found = COMPARISON.of_changes(&changes(&before, &after), &live);
    let found: Vec<_> = found.iter().map(|one| (one.path.to_string(), one.moved)).collect();
    let expected: Vec<_> = expected.iter().map(|(path, moved)| ((*path).to_owned(), *moved)).collect();
    assert_eq!(found, expected, "{before} to {after}, live {live}");
}

#[test]
fn only_changed_fields_are_compared() {
    let status = |ready: u32, other: u32| json!({"status": {"ready": ready, "other": other}});
    changed(status(1, 1), status(2, 1), status(2, 9), &[]);
    changed(status(1, 1), status(2, 1), status(1, 9), &[("status.ready", false)]);
    changed(status(1, 1), status(2, 1), status(3, 1), &[("status.ready", true)]);
    changed(status(1, 1), status(1, 1), status(3, 3), &[]);
    changed(status(1, 0), json!({"status": {"ready": 1}}), status(3, 0), &[]);
    changed(status(1, 1), json!({"status": {"ready": 1}}), status(1, 1), &[("status.other", false)]);
}

#[test]
fn conditions_are_compared_one_by_one() {
    let with = |conditions: Value| json!({"status": {"conditions": conditions}});
    let (ready, unready) = (json!({"type": "Ready", "status": "True"}), json!({"type": "Ready"}));
    let other = json!({"type": "Other", "status": "True"});
    changed(with(json!([unready])), with(json!([ready])), with(json!([other, ready])), &[]);
    changed(
        with(json!([unready])),
        with(json!([ready])),
        with(json!([unready])),
        &[("status.conditions[type=Ready].status", false)],
    );
    changed(with(json!([ready])), with(json!([])), with(json!([])), &[]);
}

#[test]
fn an_intention_with_a_newer_time_is_the_same() {
    let at = |time: &str, n: u32| json!({"status": {"conditions": [{"type": "A", "time": time, "n": n}]}});
    let of = |time: &str, n: u32| changes(&json!({"status": {"conditions": []}}), &at(time, n)).remove(0);
    let (early, late) = ("2025-01-01T00:00:00Z", "2025-01-01T00:10:00Z");
    assert!(of(early, 1).is_like(&of(late, 1)) && !of(early, 1).is_like(&of(early, 2)));
}

#[test]
fn the_order_of_a_list_is_ignored() {
    let with = |ready: &[&str]| json!({"subsets": ready});
    changed(with(&["a"]), with(&["a", "b"]), with(&["b", "a"]), &[]);
    changed(with(&["a", "b"]), with(&["b", "a"]), with(&["c"]), &[]);
    changed(with(&["a"]), with(&["a", "b"]), with(&["a", "b", "c"]), &[("subsets", true)]);
}
