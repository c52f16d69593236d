//! Scenarios of objects with several managers.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::schema::FieldValidation;

/// An object and its history. Each write is a second after the previous one.
struct TestObject {
    target: Target,
    resets: Resets,
    subresource: &'static str,
    transitions: Transitions,
    object: Option<Value>,
    second: i64,
}

impl TestObject {
    fn of(schema: &str) -> Self {
        let target = Target::built_in(schema).unwrap();
        let (resets, transitions) = (Resets::new(&[&["status"]]), Transitions::default());
        Self { target, resets, subresource: "", transitions, object: None, second: 0 }
    }

    fn config_map() -> Self {
        Self::of("io.k8s.api.core.v1.ConfigMap")
    }

    fn deployment() -> Self {
        Self::of("io.k8s.api.apps.v1.Deployment")
    }

    fn now(&mut self) -> Timestamp {
        self.second += 1;
        Timestamp::from_second(self.second).unwrap()
    }

    fn endpoint(&self) -> Endpoint<'_> {
        let Self { target, resets, subresource, transitions, .. } = self;
        Endpoint { target, subresource, resets, transitions, versions: None }
    }

    fn full(&self, body: Value) -> Value {
        let mut object = json!({"apiVersion": self.target.api_version(), "kind": self.target.kind,
            "metadata": {"name": "a"}});
        let fields = object.as_object_mut().unwrap();
        for (name, value) in body.as_object().unwrap() {
            if name == "metadata" {
                fields["metadata"].as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
            } else {
                fields.insert(name.clone(), value.clone());
            }
        }
        object
    }

    fn try_apply(&mut self, manager: &str, body: Value, force: bool) -> Result<(), ApplyError> {
        let now = self.now();
        let configuration = self.full(body);
        let object = apply(&self.endpoint(), self.object.as_ref(), &configuration, manager, force, now)?;
        self.object = Some(self.target.decode_value(object, FieldValidation::Strict).unwrap().object);
        Ok(())
    }

    #[track_caller]
    fn apply(&mut self, manager: &str, body: Value) -> &mut Self {
        self.try_apply(manager, body, false).unwrap();
        self
    }

    fn force(&mut self, manager: &str, body: Value) -> &mut Self {
        self.try_apply(manager, body, true).unwrap();
        self
    }

    fn refusal(&mut self, manager: &str, body: Value) -> String {
        self.try_apply(manager, body, false).unwrap_err().to_string()
    }

    /// Writes the whole object, without managed fields.
    fn update(&mut self, manager: &str, body: Value) -> &mut Self {
        let now = self.now();
        let mut object = self.target.decode_value(self.full(body), FieldValidation::Strict).unwrap().object;
        let live = self.object.clone().map(|mut live| (ManagedFields::take_from(&mut live), live));
        let live = live.as_ref().map(|(fields, object)| Live { object, fields });
        let fields = update(&self.endpoint(), live, &mut object, manager, now);
        self.object = Some(fields.inside(object));
        self
    }

    fn object(&self) -> &Value {
        self.object.as_ref().unwrap()
    }

    /// Returns `m1: {"f:data":…}` for each entry.
    fn owners(&self) -> Vec<(String, Value)> {
        entries_of(self.object())
            .iter()
            .map(|e| (e["manager"].as_str().unwrap().to_owned(), e["fieldsV1"].clone()))
            .collect()
    }

    #[track_caller]
    fn check_owners(&self, expected: &[(&str, Value)]) {
        let expected: Vec<_> =
            expected.iter().map(|(name, fields)| ((*name).to_owned(), fields.clone())).collect();
        assert_eq!(self.owners(), expected);
    }
}

#[test]
fn the_applier_of_a_field_owns_it() {
    let mut subject = TestObject::config_map();
    subject.apply("m1", json!({"data": {"a": "1"}})).apply("m2", json!({"data": {"b": "2"}}));
    assert_eq!(subject.object()["data"], json!({"a": "1", "b": "2"}));
    subject.check_owners(&[("m1", json!({"f:data": {"f:a": {}}})), ("m2", json!({"f:data": {"f:b": {}}}))]);
    let entry = &entries_of(subject.object())[0];
    assert_eq!(
        *entry,
        json!({"manager": "m1", "operation": "Apply", "apiVersion": "v1", "time": "1970-01-01T00:00:01Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}})
    );
}

#[test]
fn unapplied_fields_are_removed_unless_another_manager_owns_them() {
    let mut subject = TestObject::config_map();
    subject.apply("m1", json!({"data": {"a": "1", "b": "2"}})).apply("m2", json!({"data": {"a": "1"}}));
    subject.apply("m1", json!({}));
    assert_eq!(subject.object()["data"], json!({"a": "1"}));
    subject.check_owners(&[("m2", json!({"f:data": {"f:a": {}}}))]);
    subject.apply("m2", json!({}));
    assert_eq!(subject.object().get("data"), None);
    subject.check_owners(&[]);
}

#[test]
fn an_apply_that_changes_nothing_leaves_no_time() {
    let mut subject = TestObject::config_map();
    subject.apply("m1", json!({"data": {"a": "1"}}));
    let before = subject.object().clone();
    subject.apply("m1", json!({"data": {"a": "1"}}));
    assert_eq!(*subject.object(), before);
    subject.apply("m2", json!({"data": {"a": "1"}}));
    assert_eq!(entries_of(subject.object())[0].get("time"), None);
}

#[test]
fn conflicts_name_every_field_and_manager() {
    let mut subject = TestObject::config_map();
    subject.apply("m1", json!({"metadata": {"labels": {"l": "1"}}, "data": {"a": "1", "b": "1"}}));
    assert_eq!(
        subject.refusal("m2", json!({"metadata": {"labels": {"l": "2"}}, "data": {"a": "2", "b": "2"}})),
        "Apply failed with 3 conflicts: conflicts with \"m1\":\n- .data.a\n- .data.b\n- .metadata.labels.l"
    );
    subject.update("editor", json!({"metadata": {"labels": {"l": "1"}}, "data": {"a": "3", "b": "1"}}));
    assert_eq!(
        subject.refusal("m2", json!({"data": {"a": "2"}})),
        "Apply failed with 1 conflict: conflict with \"editor\" using v1: .data.a"
    );
    subject.force("m2", json!({"data": {"a": "2"}}));
    assert_eq!(subject.object()["data"]["a"], "2");
    assert_eq!(
        subject.refusal("m1", json!({"data": {"a": "1", "b": "1"}})),
        "Apply failed with 1 conflict: conflict with \"m2\": .data.a"
    );
}

#[test]
fn an_empty_map_is_a_field() {
    let mut subject = TestObject::config_map();
    subject.apply("m1", json!({"data": {}}));
    subject.check_owners(&[("m1", json!({"f:data": {}}))]);
    assert_eq!(
        subject.refusal("m2", json!({"data": {"k": "v"}})),
        "Apply failed with 1 conflict: conflict with \"m1\": .data"
    );
}

fn with_containers(containers: Value) -> Value {
    json!({"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": {"spec": {"containers": containers}}}})
}

#[test]
fn items_of_lists_are_owned_by_their_keys() {
    let mut subject = TestObject::deployment();
    subject
        .apply("m1", with_containers(json!([{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}])));
    subject.apply("m2", json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "env": [{"name": "B"}]}, {"name": "d"}]}}}}));
    let containers = &subject.object()["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers[0]["image"], "i");
    assert_eq!(containers[0]["env"], json!([{"name": "B"}]));
    assert_eq!(containers[1]["name"], "d");
    subject.check_owners(&[
        (
            "m1",
            json!({"f:spec": {"f:selector": {}, "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
                ".": {}, "f:image": {}, "f:name": {},
                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
            }}}}}}),
        ),
        (
            "m2",
            json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
                "k:{\"name\":\"c\"}": {".": {}, "f:env": {"k:{\"name\":\"B\"}": {".": {}, "f:name": {}}}, "f:name": {}},
                "k:{\"name\":\"d\"}": {".": {}, "f:name": {}},
            }}}}}),
        ),
    ]);
    subject.apply("m2", json!({}));
    let containers = &subject.object()["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers.as_array().unwrap().len(), 1);
    assert_eq!(containers[0].get("env"), None);
}

#[test]
fn items_of_sets_are_owned_by_their_values() {
    let mut subject = TestObject::config_map();
    subject.apply("m1", json!({"metadata": {"finalizers": ["e.com/a"]}}));
    subject.apply("m2", json!({"metadata": {"finalizers": ["e.com/b"]}}));
    assert_eq!(subject.object()["metadata"]["finalizers"], json!(["e.com/a", "e.com/b"]));
    subject.check_owners(&[
        ("m1", json!({"f:metadata": {"f:finalizers": {"v:\"e.com/a\"": {}}}})),
        ("m2", json!({"f:metadata": {"f:finalizers": {"v:\"e.com/b\"": {}}}})),
    ]);
    subject.apply("m1", json!({}));
    assert_eq!(subject.object()["metadata"]["finalizers"], json!(["e.com/b"]));
}

#[test]
fn applied_items_keep_the_order_of_the_configuration() {
    let containers =
        |names: &[&str]| with_containers(names.iter().map(|name| json!({"name": name})).collect());
    let order = |subject: &TestObject| -> Vec<String> {
        let list = subject.object()["spec"]["template"]["spec"]["containers"].as_array().unwrap().clone();
        list.iter().map(|c| c["name"].as_str().unwrap().to_owned()).collect()
    };
    let mut subject = TestObject::deployment();
    subject.update("x", containers(&["a", "s", "b"]));
    subject.apply("m", containers(&["b", "n", "a"]));
    assert_eq!(order(&subject), ["s", "b", "n", "a"]);
}

#[test]
fn updates_do_not_own_server_fields() {
    let mut subject = TestObject::deployment();
    subject.update(
        "creator",
        json!({"spec": {"replicas": 1}, "status": {"replicas": 4}, "metadata": {"generation": 3}}),
    );
    subject.check_owners(&[("creator", json!({"f:spec": {"f:replicas": {}}}))]);
    subject.update("scaler", json!({"spec": {"replicas": 2}}));
    subject.check_owners(&[("scaler", json!({"f:spec": {"f:replicas": {}}}))]);
    subject.subresource = "status";
    subject.resets = Resets::new(&[&["spec"]]);
    subject.update("controller", json!({"spec": {"replicas": 9}, "status": {"replicas": 2}}));
    subject.check_owners(&[
        ("scaler", json!({"f:spec": {"f:replicas": {}}})),
        ("controller", json!({"f:status": {"f:replicas": {}}})),
    ]);
    assert_eq!(entries_of(subject.object())[1]["subresource"], "status");
}

#[test]
fn a_removed_field_has_no_owner() {
    let mut subject = TestObject::config_map();
    subject.update("one", json!({"data": {"a": "1", "b": "1"}})).update("two", json!({"data": {"b": "1"}}));
    subject.check_owners(&[("one", json!({"f:data": {".": {}, "f:b": {}}}))]);
    subject.update("two", json!({}));
    subject.check_owners(&[]);
}

#[test]
fn managed_fields_can_be_cleared_but_not_corrupted() {
    let mut subject = TestObject::config_map();
    subject.apply("m1", json!({"data": {"a": "1"}}));
    subject.update(
        "x",
        json!({"metadata": {"managedFields": [{"manager": "x", "operation": "Bogus"}]}, "data": {"a": "1"}}),
    );
    subject.check_owners(&[("m1", json!({"f:data": {"f:a": {}}}))]);
    subject.update("x", json!({"metadata": {"managedFields": [{}]}, "data": {"a": "1"}}));
    subject.check_owners(&[]);
    // The first apply takes over what was there before.
    subject.object.as_mut().unwrap()["metadata"]["uid"] = "u".into();
    subject.force("m2", json!({"data": {"b": "2"}}));
    subject.check_owners(&[
        ("m2", json!({"f:data": {"f:b": {}}})),
        ("before-first-apply", json!({"f:data": {".": {}, "f:a": {}}})),
    ]);
}

#[test]
fn the_oldest_updaters_become_one() {
    let mut subject = TestObject::config_map();
    let mut data = serde_json::Map::new();
    for number in 0..12 {
        data.insert(format!("k{number:02}"), "v".into());
        subject.update(&format!("m{number:02}"), json!({"data": data}));
    }
    let owners = subject.owners();
    assert_eq!(owners.len(), 10);
    assert_eq!(
        owners[0],
        ("ancient-changes".to_owned(), json!({"f:data": {".": {}, "f:k00": {}, "f:k01": {}, "f:k02": {}}}))
    );
}

#[test]
fn kubectl_takes_over_its_last_applied_fields() {
    let applied =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "1"}});
    let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": applied.to_string()});
    let mut subject = TestObject::config_map();
    subject.update(
        "kubectl-client-side-apply",
        json!({"metadata": {"annotations": annotations}, "data": {"a": "1", "b": "1"}}),
    );
    assert_eq!(
        subject.refusal("kubectl", json!({"data": {"a": "2", "b": "2"}})),
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .data.b"
    );
    subject.apply("kubectl", json!({"data": {"a": "2"}}));
    assert_eq!(subject.object()["data"], json!({"a": "2", "b": "1"}));
    let annotation =
        &subject.object()["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    let annotation: Value = serde_json::from_str(annotation.as_str().unwrap()).unwrap();
    assert_eq!(annotation["data"], json!({"a": "2"}));
}

#[test]
fn configurations_of_the_wrong_shape_are_refused() {
    let mut subject = TestObject::deployment();
    let mut check = |body: Value, expected: &str| {
        let expected =
            format!("failed to create typed patch object (/a; apps/v1, Kind=Deployment): {expected}");
        assert_eq!(subject.refusal("m", body), expected);
    };
    check(json!({"nope": 1}), ".nope: field not declared in schema");
    check(json!({"spec": {"replicas": "x"}}), ".spec.replicas: expected numeric (int or float), got string");
    check(
        with_containers(json!([{"name": "c", "env": [{"name": "A"}, {"name": "A"}]}])),
        ".spec.template.spec.containers[name=\"c\"].env: duplicate entries for key [name=\"A\"]",
    );
    let mut subject = TestObject::config_map();
    let bad = |subject: &mut TestObject, body: Value| subject.try_apply("m", body, false).unwrap_err();
    assert_eq!(
        bad(&mut subject, json!({"kind": "Secret"})),
        ApplyError::BadRequest("invalid object type: /v1, Kind=Secret".into())
    );
    assert_eq!(
        bad(&mut subject, json!({"metadata": {"managedFields": [{}]}})),
        ApplyError::BadRequest("metadata.managedFields must be nil".into())
    );
    assert_eq!(
        bad(&mut subject, json!({"metadata": {"managedFields": []}})),
        ApplyError::BadRequest("metadata.managedFields must be nil".into())
    );
}

#[test]
fn times_alone_are_no_change() {
    let mut subject = TestObject::config_map();
    subject.update("m1", json!({"data": {"a": "1"}}));
    let live = ManagedFields::take_from(&mut subject.object().clone());
    subject.object.as_mut().unwrap()["metadata"]["managedFields"][0]["time"] = "2030-01-01T00:00:00Z".into();
    let later = ManagedFields::take_from(&mut subject.object().clone());
    assert_ne!(later, live);
    assert_eq!(later.clone().keeping_times(&live, || true), live, "the object is the same");
    assert_eq!(later.clone().keeping_times(&live, || false), later, "the object is another");
}

#[test]
fn the_same_change_again_gives_the_same_owners_at_its_own_time() {
    let mut subject = TestObject::deployment();
    let mut other = TestObject::deployment();
    for subject in [&mut subject, &mut other] {
        subject.update("maker", json!({"spec": {"replicas": 1, "paused": true}}));
        subject.update("scaler", json!({"spec": {"replicas": 2, "paused": true}}));
    }
    // As if the second object were written later on the same server.
    std::mem::swap(&mut subject.transitions, &mut other.transitions);
    let mut third = TestObject::deployment();
    third.transitions = std::mem::take(&mut other.transitions);
    third.second = 100;
    third.update("maker", json!({"spec": {"replicas": 1, "paused": true}}));
    third.update("scaler", json!({"spec": {"replicas": 2, "paused": true}}));
    assert_eq!(third.owners(), subject.owners());
    let times: Vec<_> = entries_of(third.object()).iter().map(|entry| entry["time"].clone()).collect();
    assert_eq!(times, ["1970-01-01T00:01:41Z", "1970-01-01T00:01:42Z"]);
}

#[test]
fn the_fields_of_a_new_object_are_those_that_a_comparison_finds() {
    let objects = [
        (
            "io.k8s.api.core.v1.Pod",
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "a-",
            "labels": {"a\"b": "1", "x/y": ""}, "annotations": {}, "finalizers": ["z", "a"],
            "ownerReferences": [{"uid": "u", "name": "n", "kind": "K", "apiVersion": "v1", "controller": true}],
            "uid": "x", "resourceVersion": "1", "creationTimestamp": null, "managedFields": []},
            "spec": {"containers": [
                {"name": "b", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80}],
                 "env": [{"name": "E", "value": ""}, {"name": "E", "value": "2"}, {"name": "F"}],
                 "resources": {"limits": {"cpu": "1"}, "requests": {}}, "command": ["a", "b"]},
                {"name": "a", "securityContext": {}}],
              "nodeSelector": {"k": "v"}, "tolerations": [{"key": "k"}], "affinity": null, "restartPolicy": "Always"},
            "status": {"phase": "Pending", "conditions": [{"type": "Ready", "status": "True"}]}}),
        ),
        (
            "io.k8s.api.core.v1.ConfigMap",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
            "data": {"k": "v", ".": "dot"}, "immutable": false}),
        ),
        (
            "io.k8s.api.apps.v1.Deployment",
            json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "namespace": "n"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {}}, "strategy": {"type": "Recreate"}}}),
        ),
        ("io.k8s.api.core.v1.Namespace", json!({})),
    ];
    for (schema, object) in objects {
        let target = Target::built_in(schema).unwrap();
        for resets in [Resets::default(), Resets::new(&[&["status"], &["metadata", "labels"]])] {
            let transitions = Transitions::default();
            let endpoint = Endpoint {
                target: &target,
                subresource: "",
                resets: &resets,
                transitions: &transitions,
                versions: None,
            };
            let who = endpoint.manager("m", Operation::Update);
            let mut updater = endpoint.updater(Managers::default());
            updater.update(&target.empty(), &object, who, endpoint.time(Timestamp::UNIX_EPOCH)).unwrap();
            let found = update(&endpoint, None, &mut object.clone(), "m", Timestamp::UNIX_EPOCH);
            assert_eq!(found.entries(), updater.managers.into_fields().entries(), "{schema}");
        }
    }
}

#[test]
fn managers_without_a_name_are_called_by_their_user_agent() {
    assert_eq!(manager_name("m", "kubectl/v1.34 (linux)"), "m");
    assert_eq!(manager_name("", "kubectl/v1.34 (linux)"), "kubectl");
    assert_eq!(manager_name("", "a\u{7}b"), "ab");
    assert_eq!(manager_name("", &"x".repeat(200)).len(), 128);
}

mod properties {
    use proptest::prelude::*;

    use super::*;
    use crate::apply::compare::Comparison;
    use crate::apply::fields::fields_of;

    proptest! {
        #[test]
        fn stored_sets_read_back_as_they_were(object in config()) {
            let target = TestObject::deployment().target;
            let set = fields_of(SchemaNode::root(&target.schema), &object);
            prop_assert_eq!(Set::from_stored(set.clone().into_stored()), set);
        }

        #[test]
        fn sets_follow_the_laws_of_sets(a in config(), b in config()) {
            let target = TestObject::deployment().target;
            let place = SchemaNode::root(&target.schema);
            let (a, b) = (fields_of(place, &a), fields_of(place, &b));
            let union = a.clone().union(b.clone());
            prop_assert_eq!(&union, &b.clone().union(a.clone()));
            prop_assert_eq!(union.intersection(&a), a.clone());
            let only_b = union.difference(&a);
            prop_assert!(only_b.intersection(&a).is_empty());
            prop_assert_eq!(a.clone().union(only_b), b.union(a));
        }

        #[test]
        fn applying_twice_is_applying_once(first in config(), second in config()) {
            let mut subject = TestObject::deployment();
            subject.update("x", first);
            subject.force("m", second.clone());
            let once = subject.object().clone();
            subject.force("m", second);
            prop_assert_eq!(subject.object(), &once);
        }

        #[test]
        fn nothing_differs_from_itself_and_all_from_nothing(object in config()) {
            let target = TestObject::deployment().target;
            let place = SchemaNode::root(&target.schema);
            prop_assert!(Comparison::between(place, &object, &object).is_same());
            let added = Comparison::between(place, &json!({}), &object).added;
            let own = fields_of(place, &object);
            prop_assert!(own.difference(&added).is_empty());
        }

        #[test]
        fn forced_fields_are_applied(first in config(), second in config()) {
            let mut subject = TestObject::deployment();
            subject.update("x", first);
            subject.force("m", second.clone());
            let place = SchemaNode::root(&subject.target.schema);
            let comparison = Comparison::between(place, &subject.full(second), subject.object());
            prop_assert!(comparison.modified.is_empty(), "{:?}", comparison.modified.paths());
        }
    }

    /// Generates configurations without empty lists and maps, which objects do not keep.
    fn config() -> impl Strategy<Value = Value> {
        let text = "[a-c]";
        let env = prop::collection::btree_map(text, text, 1..3).prop_map(|env| {
            env.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect::<Vec<_>>()
        });
        let containers = prop::collection::btree_map(text, (text, env), 1..3).prop_map(|containers| {
            containers
                .into_iter()
                .map(|(name, (image, env))| json!({"name": name, "image": image, "env": env}))
                .collect::<Vec<_>>()
        });
        let labels = prop::collection::btree_map(text, text, 1..3);
        (containers.prop_shuffle(), labels, prop::option::of(1i32..9)).prop_map(|(containers, labels, replicas)| {
            let mut config = json!({"metadata": {"labels": labels}, "spec": {"template": {"spec": {"containers": containers}}}});
            if let Some(replicas) = replicas {
                config["spec"]["replicas"] = replicas.into();
            }
            config
        })
    }
}
