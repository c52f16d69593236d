//! Documents, patches and their results.

use serde_json::{Value, json};

use super::*;
use crate::schema::Schema;

fn deployment() -> Value {
    json!({
        "metadata": {"finalizers": ["a", "b"], "labels": {"l": "1"}},
        "spec": {
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
            "template": {"spec": {
                "containers": [
                    {"name": "c", "image": "img:1", "args": ["x", "y"], "env": [{"name": "A", "value": "1"}],
                     "ports": [{"containerPort": 80, "name": "http"}]},
                    {"name": "d", "image": "img:2"},
                ],
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"key": "k"}, {"key": "q"}],
                "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "secret": {"secretName": "s"}}],
            }},
        },
    })
}

fn strategically(patch: Value) -> Result<Value, PatchError> {
    let schema = Schema::built_in_kind("apps", "v1", "Deployment").unwrap();
    strategic::apply(&schema, deployment(), patch)
}

/// Returns the pod's spec after a strategic merge patch.
#[track_caller]
fn pod_after(patch: Value) -> Value {
    let patched = strategically(json!({"spec": {"template": {"spec": patch}}})).unwrap();
    patched["spec"]["template"]["spec"].clone()
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[test]
fn items_with_a_merge_key_merge_and_new_ones_come_first() {
    let pod =
        pod_after(json!({"containers": [{"name": "d", "image": "img:3"}, {"name": "n", "image": "x"}]}));
    assert_eq!(names(&pod["containers"]), ["c", "d", "n"]);
    assert_eq!(pod["containers"][1]["image"], "img:3");
    let pod = pod_after(json!({"containers": [{"name": "n"}]}));
    assert_eq!(names(&pod["containers"]), ["n", "c", "d"]);
    let pod = pod_after(json!({"containers": [{"name": "c", "env": [{"name": "B", "value": "2"}]}]}));
    assert_eq!(names(&pod["containers"][0]["env"]), ["B", "A"]);
}

#[test]
fn lists_without_a_merge_strategy_are_replaced() {
    let pod = pod_after(json!({"tolerations": [{"key": "z"}], "containers": [{"name": "c", "args": ["z"]}]}));
    assert_eq!(pod["tolerations"], json!([{"key": "z"}]));
    assert_eq!(pod["containers"][0]["args"], json!(["z"]));
}

#[test]
fn nulls_delete_fields_and_are_not_stored() {
    let pod = pod_after(json!({"nodeSelector": null, "affinity": {"nodeAffinity": null}, "hostname": null}));
    assert_eq!(pod.get("nodeSelector"), None);
    assert_eq!(pod["affinity"], json!({}));
    assert_eq!(pod.get("hostname"), None);
}

#[test]
fn directives_replace_and_delete() {
    let pod = pod_after(json!({"containers": [{"name": "c", "$patch": "delete"}]}));
    assert_eq!(names(&pod["containers"]), ["d"]);
    let pod = pod_after(json!({"containers": [{"$patch": "replace"}, {"name": "n"}]}));
    assert_eq!(pod["containers"], json!([{"name": "n"}]));
    let pod = pod_after(json!({"nodeSelector": {"$patch": "replace", "a": "b"}}));
    assert_eq!(pod["nodeSelector"], json!({"a": "b"}));
    let pod = pod_after(json!({"nodeSelector": {"$patch": "delete"}}));
    assert_eq!(pod["nodeSelector"], json!({}));
    let pod = pod_after(
        json!({"securityContext": {"$patch": "delete"}, "initContainers": [{"name": "x", "$patch": "delete"}]}),
    );
    assert_eq!(pod.get("securityContext"), None);
    assert_eq!(pod["initContainers"], json!([]));
}

#[test]
fn an_object_that_is_replaced_as_a_whole_keeps_nothing() {
    let schema = Schema::built_in_kind("policy", "v1", "PodDisruptionBudget").unwrap();
    let budget = json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "1"}}}});
    let patched =
        strategic::apply(&schema, budget, json!({"spec": {"selector": {"matchLabels": {"b": "2"}}}}));
    let expected = json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"b": "2"}}}});
    assert_eq!(patched.unwrap(), expected);
}

#[test]
fn retain_keys_removes_other_keys() {
    let patch =
        json!({"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/h"}}]});
    assert_eq!(pod_after(patch)["volumes"][0], json!({"name": "v", "hostPath": {"path": "/h"}}));
    let patched =
        strategically(json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}})).unwrap();
    assert_eq!(patched["spec"]["strategy"], json!({"type": "Recreate"}));
}

#[test]
fn lists_of_scalars_merge_and_lose_items() {
    let finalizers =
        |patch: Value| strategically(json!({"metadata": patch})).unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers(json!({"finalizers": ["c", "a"]})), json!(["c", "a", "b"]));
    assert_eq!(finalizers(json!({"$deleteFromPrimitiveList/finalizers": ["a"]})), json!(["b"]));
    assert_eq!(
        finalizers(json!({"$setElementOrder/finalizers": ["b", "a"], "finalizers": ["b"]})),
        json!(["b", "a"])
    );
}

#[test]
fn set_element_order_applies_with_and_without_items() {
    let order = json!([{"name": "d"}, {"name": "c"}]);
    let pod = pod_after(json!({"$setElementOrder/containers": order.clone()}));
    assert_eq!(names(&pod["containers"]), ["d", "c"]);
    let patch = json!({"$setElementOrder/containers": [{"name": "n"}, {"name": "c"}, {"name": "d"}], "containers": [{"name": "n"}]});
    assert_eq!(names(&pod_after(patch)["containers"]), ["n", "c", "d"]);
    let patch = json!({"$setElementOrder/initContainers": [{"name": "b"}, {"name": "a"}],
        "initContainers": [{"name": "b"}, {"name": "a"}]});
    assert_eq!(names(&pod_after(patch)["initContainers"]), ["b", "a"]);
}

#[test]
fn invalid_patches_are_rejected() {
    let check = |patch: Value, expected: PatchError| {
        assert_eq!(strategically(json!({"spec": {"template": {"spec": patch}}})), Err(expected));
    };
    let internal = |message: &str| PatchError::Internal(message.to_owned());
    check(
        json!({"containers": [{"image": "x"}]}),
        internal("map: map[image:x] does not contain declared merge key: name"),
    );
    check(
        json!({"containers": [{"name": "c", "$patch": "frob"}]}),
        internal("unknown patch type: frob in map: map[$patch:frob name:c]"),
    );
    check(
        json!({"$setElementOrder/containers": [{"name": "d"}], "containers": [{"name": "c", "image": "z"}]}),
        internal(
            "The order in patch list:\n[map[image:z name:c]]\n doesn't match $setElementOrder list:\n[map[name:d]]\n",
        ),
    );
    check(
        json!({"containers": [["x"]]}),
        internal(
            "list element types are not identical: [[map[args:[x y] env:[map[name:A value:1]] image:img:1 name:c ports:[map[containerPort:80 name:http]]] map[image:img:2 name:d]] [[x]]]",
        ),
    );
    check(
        json!({"$retainKeys": "x"}),
        PatchError::BadRequest("invalid patch format of retainKeys".to_owned()),
    );
    check(
        json!({"$retainKeys": ["a"], "b": 1}),
        PatchError::BadRequest("invalid patch format of retainKeys".to_owned()),
    );
}

#[test]
fn json_patches_follow_their_operations() {
    let check = |patch: Value, expected: Result<Value, &str>| {
        let document = json!({"a": {"b": 1}, "l": ["x", "y"], "t~/": "q"});
        let operations =
            json::Operations::parse(patch.to_string().as_bytes(), FieldValidation::Warn).unwrap();
        let patched = operations.apply(document).map_err(|error| error.to_string());
        assert_eq!(patched.as_ref().map_err(String::as_str), expected.as_ref().map_err(|e| *e), "{patch}");
    };
    let all = |a: Value, l: Value| Ok(json!({"a": a, "l": l, "t~/": "q"}));
    check(
        json!([{"op": "add", "path": "/a/c", "value": 2}]),
        all(json!({"b": 1, "c": 2}), json!(["x", "y"])),
    );
    check(json!([{"op": "add", "path": "/l/0", "value": "w"}]), all(json!({"b": 1}), json!(["w", "x", "y"])));
    check(json!([{"op": "add", "path": "/l/-", "value": "z"}]), all(json!({"b": 1}), json!(["x", "y", "z"])));
    check(
        json!([{"op": "add", "path": "/l/-1", "value": "z"}]),
        all(json!({"b": 1}), json!(["x", "y", "z"])),
    );
    check(json!([{"op": "remove", "path": "/l/-1"}]), all(json!({"b": 1}), json!(["x"])));
    check(
        json!([{"op": "replace", "path": "/a/new", "value": 1}]),
        all(json!({"b": 1, "new": 1}), json!(["x", "y"])),
    );
    check(json!([{"op": "replace", "path": "/l/1", "value": 1}]), all(json!({"b": 1}), json!(["x", 1])));
    check(json!([{"op": "move", "from": "/l/0", "path": "/a/b"}]), all(json!({"b": "x"}), json!(["y"])));
    check(
        json!([{"op": "copy", "from": "/l/0", "path": "/l/-"}]),
        all(json!({"b": 1}), json!(["x", "y", "x"])),
    );
    check(json!([{"op": "test", "path": "/t~0~1", "value": "q"}]), all(json!({"b": 1}), json!(["x", "y"])));
    check(json!([{"op": "test", "path": "/none", "value": null}]), all(json!({"b": 1}), json!(["x", "y"])));
    check(json!([{"op": "replace", "path": "", "value": {"n": 1}}]), Ok(json!({"n": 1})));
    check(json!([{"op": "test", "path": "/a/b", "value": 2}]), Err("testing value /a/b failed: test failed"));
    check(
        json!([{"op": "remove", "path": "/a/z"}]),
        Err("error in remove for path: '/a/z': Unable to remove nonexistent key: z: missing value"),
    );
    check(
        json!([{"op": "add", "path": "/n/z", "value": 1}]),
        Err("add operation does not apply: doc is missing path: \"/n/z\": missing value"),
    );
    check(
        json!([{"op": "add", "path": "/l/9", "value": 1}]),
        Err("error in add for path: '/l/9': Unable to access invalid index: 9: invalid index referenced"),
    );
    check(json!([{"op": "frob", "path": "/a"}]), Err("Unexpected kind: frob"));
}

#[test]
fn copies_are_bounded() {
    let check = |copy: Value, document: Value, expected: &str| {
        let patch = Value::Array(vec![copy; 200]).to_string();
        let operations = json::Operations::parse(patch.as_bytes(), FieldValidation::Warn).unwrap();
        let error = operations.apply(document).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    };
    check(
        json!({"op": "copy", "from": "/a", "path": "/b/-"}),
        json!({"a": "y".repeat(100_000), "b": []}),
        "Unable to complete the copy, the accumulated size increase of copy is",
    );
    check(
        json!({"op": "copy", "from": "/a", "path": "/a/a"}),
        json!({"a": {}}),
        "the patched document would be nested 128 deep",
    );
}

#[test]
fn merge_patches_follow_their_standard() {
    // The examples in RFC 7386, except those that replace the whole document with something else.
    for (document, patch, expected) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ] {
        assert_eq!(merge::apply(document.clone(), patch.clone()), Ok(expected), "{document} {patch}");
    }
}

fn config_map() -> Target {
    Target::built_in("io.k8s.api.core.v1.ConfigMap").unwrap()
}

#[test]
fn refusals_have_their_codes() {
    let current =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let check = |kind, patch: &str, code: u16, message: &str| {
        let error =
            apply(kind, &config_map(), &current, patch.as_bytes(), FieldValidation::Strict).unwrap_err();
        assert_eq!((error.code(), error.to_string().as_str()), (code, message), "{patch}");
    };
    use PatchKind::{Json, Merge, Strategic};
    let not_a_map = "json: cannot unmarshal array into Go value of type map[string]interface {}";
    check(Json, "[{", 400, "error decoding patch: unexpected end of JSON input");
    check(
        Json,
        "{}",
        400,
        "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
    );
    check(
        Json,
        r#"[{"op":5}]"#,
        400,
        "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
    );
    check(Merge, "[1]", 400, &format!("error decoding patch: {not_a_map}"));
    check(Merge, "null", 400, "Invalid JSON Patch");
    check(Strategic, "[1]", 400, not_a_map);
    check(
        Json,
        r#"[{"op":"test","path":"/data/k","value":"x"}]"#,
        422,
        "testing value /data/k failed: test failed",
    );
    check(
        Json,
        r#"[{"op":"add","path":"/data/a","value":"b","x":1}]"#,
        422,
        "strict decoding error: json patch unknown field \"[0].x\"",
    );
    check(
        Merge,
        r#"{"data":{"k":5}}"#,
        422,
        "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
    );
    check(Merge, r#"{"kind":"Secret"}"#, 422, "illegal base64 data at input byte 0");
    check(Merge, r#"{"data":{"k":"1","k":"2"}}"#, 422, "strict decoding error: duplicate field \"data.k\"");
    check(Strategic, r#"{"nope":1}"#, 422, "strict decoding error: unknown field \"nope\"");
    let many = format!("[{}]", vec![r#"{"op":"test","path":"/data/k","value":"v"}"#; 10_001].join(","));
    let error = apply(Json, &config_map(), &current, many.as_bytes(), FieldValidation::Warn).unwrap_err();
    assert_eq!(error.code(), 413);
    assert_eq!(error.to_string(), "The allowed maximum operations in a JSON patch is 10000, got 10001");
}

#[test]
fn a_patched_object_has_its_stored_form_and_warns() {
    let current =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let patch = br#"{"data":{"k":null},"nope":1,"metadata":{"labels":{}}}"#;
    let patched = apply(PatchKind::Merge, &config_map(), &current, patch, FieldValidation::Warn).unwrap();
    assert_eq!(patched.object, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}));
    assert_eq!(patched.warnings, ["unknown field \"nope\""]);
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_merge_patch_is_idempotent(document in object(3), patch in object(3)) {
            let once = merge::apply(document, patch.clone()).unwrap();
            prop_assert_eq!(merge::apply(once.clone(), patch), Ok(once));
        }

        #[test]
        fn an_empty_patch_changes_nothing(document in object(3)) {
            prop_assert_eq!(merge::apply(document.clone(), json!({})), Ok(document.clone()));
            let schema = Schema::built_in_kind("", "v1", "Pod").unwrap();
            prop_assert_eq!(strategic::apply(&schema, document.clone(), json!({})), Ok(document));
        }

        #[test]
        fn merged_containers_are_the_union_by_name(
            old in proptest::collection::btree_map("[a-e]", "[a-z]{1,3}", 0..5),
            new in proptest::collection::btree_map("[a-e]", "[a-z]{1,3}", 0..5),
            gone in proptest::collection::btree_set("[a-e]", 0..3),
        ) {
            let list = |images: &std::collections::BTreeMap<String, String>| -> Vec<Value> {
                images.iter().map(|(name, image)| json!({"name": name, "image": image})).collect()
            };
            let mut patch = list(&new);
            patch.extend(gone.iter().map(|name| json!({"name": name, "$patch": "delete"})));
            let schema = Schema::built_in("io.k8s.api.core.v1.PodSpec").unwrap();
            let merged = strategic::apply(&schema, json!({"containers": list(&old)}), json!({"containers": patch})).unwrap();
            let found: std::collections::BTreeMap<String, String> = merged["containers"]
                .as_array()
                .unwrap()
                .iter()
                .map(|c| (c["name"].as_str().unwrap().to_owned(), c["image"].as_str().unwrap().to_owned()))
                .collect();
            let mut model = old.clone();
            model.retain(|name, _| !gone.contains(name));
            model.extend(new.clone());
            prop_assert_eq!(merged["containers"].as_array().unwrap().len(), model.len());
            prop_assert_eq!(found, model);
        }

        #[test]
        fn no_patch_makes_the_server_panic(patch in proptest::collection::vec(any::<u8>(), 0..100), value in any_patch(4)) {
            for kind in [PatchKind::Json, PatchKind::Merge, PatchKind::Strategic] {
                for patch in [&patch, &value.to_string().into_bytes()] {
                    _ = apply(kind, &config_map(), &deployment(), patch, FieldValidation::Strict);
                }
            }
            let schema = Schema::built_in_kind("apps", "v1", "Deployment").unwrap();
            _ = strategic::apply(&schema, deployment(), value);
        }
    }

    fn leaf() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0i32..3).prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from),
            prop::sample::select(vec!["delete", "replace", "merge", "add", "remove", "/spec/template"])
                .prop_map(Value::from),
        ]
    }

    fn object(depth: u32) -> impl Strategy<Value = Value> {
        let inner = leaf().prop_recursive(depth, 24, 4, |inner| {
            prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(|fields| fields.into_iter().collect())
        });
        prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(|fields| fields.into_iter().collect())
    }

    fn any_patch(depth: u32) -> impl Strategy<Value = Value> {
        let key = prop::sample::select(vec![
            "metadata",
            "finalizers",
            "spec",
            "template",
            "containers",
            "name",
            "ports",
            "containerPort",
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$deleteFromPrimitiveList/finalizers",
            "op",
            "path",
            "from",
            "value",
            "strategy",
            "volumes",
        ]);
        leaf().prop_recursive(depth, 48, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key.clone(), inner, 0..5)
                    .prop_map(|fields| fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
            ]
        })
    }
}
