//! RBAC: permissions, grants and impersonation.

use http::Method;
use serde_json::{Value, json};
use setpoint_apiserver::User;

use crate::client::{Answer, Api};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn rule(verbs: &[&str], resources: &[&str]) -> Value {
    json!({"apiGroups": [""], "resources": resources, "verbs": verbs})
}

fn role(name: &str, rules: Value) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, kind: &str, role: &str, user: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"kind": kind, "name": role},
        "subjects": [{"kind": "User", "name": user}],
    })
}

/// A server with RBAC, and requests from several users.
struct World(Api);

impl World {
    async fn start() -> Self {
        Self(Api::start_with_roles().await)
    }

    async fn ask(&self, user: &str, method: Method, path: &str, body: Value) -> Answer {
        let request =
            http::Request::builder().method(method).uri(path).body(body.to_string().into()).unwrap();
        let user = User::authenticated(user, "", Vec::new());
        Answer::read(self.0.server.handle(user, request).await).await
    }

    async fn get(&self, user: &str, path: &str) -> u16 {
        self.ask(user, Method::GET, path, Value::Null).await.code
    }

    /// Gives a user a role in `default`.
    async fn grant(&self, user: &str, rules: Value) {
        let name = format!("of-{user}");
        self.0.post(&format!("{RBAC}/namespaces/default/roles"), role(&name, rules)).await.created();
        let binding = binding(&name, "Role", &name, user);
        self.0.post(&format!("{RBAC}/namespaces/default/rolebindings"), binding).await.created();
    }
}

#[tokio::test(start_paused = true)]
async fn permission_to_update_does_not_imply_create() {
    let world = World::start().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a";
    let both = |verbs: &[&str]| json!([{"apiGroups": ["", "coordination.k8s.io"], "resources": ["configmaps", "leases"], "verbs": verbs}]);
    let apply = async |user: &str| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}).to_string();
        let request = http::Request::builder()
            .method(Method::PATCH)
            .uri(format!("{MAPS}/a?fieldManager=m"))
            .header("content-type", "application/apply-patch+yaml")
            .body(map.into())
            .unwrap();
        let user = User::authenticated(user, "", Vec::new());
        Answer::read(world.0.server.handle(user, request).await).await
    };
    let replace = async |user: &str| {
        world.ask(user, Method::PUT, leases, json!({"metadata": {"name": "a"}, "spec": {}})).await
    };
    world.grant("ann", both(&["patch", "update"])).await;
    let message = "configmaps \"a\" is forbidden: User \"ann\" cannot create resource \"configmaps\" in API group \"\" in \
                   the namespace \"default\"";
    assert_eq!(apply("ann").await.refusal(), (403, "Forbidden", message));
    assert_eq!(replace("ann").await.code, 403);
    world.grant("bob", both(&["patch", "update", "create"])).await;
    assert_eq!((apply("bob").await.code, replace("bob").await.code), (201, 201));
    assert_eq!(apply("ann").await.code, 200, "it exists now");
}

#[tokio::test(start_paused = true)]
async fn roles_determine_what_a_user_may_do() {
    let world = World::start().await;
    assert_eq!(world.get("ann", MAPS).await, 403);
    world.grant("ann", json!([rule(&["get", "list"], &["configmaps"])])).await;
    assert_eq!(world.get("ann", MAPS).await, 200);
    assert_eq!(world.get("ann", "/api/v1/namespaces/default/secrets").await, 403);
    assert_eq!(world.get("ann", "/api/v1/namespaces/kube-system/configmaps").await, 403);
    assert_eq!(world.get("ann", "/api/v1/configmaps").await, 403);
    assert_eq!(world.get("bob", MAPS).await, 403);
    let refused = world.ask("ann", Method::POST, MAPS, json!({"metadata": {"name": "a"}})).await;
    let message = "configmaps is forbidden: User \"ann\" cannot create resource \"configmaps\" in API group \"\" in \
                   the namespace \"default\"";
    assert_eq!(refused.refusal(), (403, "Forbidden", message));
}

#[tokio::test(start_paused = true)]
async fn removed_permissions_take_effect_immediately() {
    let world = World::start().await;
    world.grant("ann", json!([rule(&["list"], &["configmaps"])])).await;
    assert_eq!(world.get("ann", MAPS).await, 200);
    let path = format!("{RBAC}/namespaces/default/roles/of-ann");
    world.0.merge(&path, json!({"rules": []})).await.ok();
    assert_eq!(world.get("ann", MAPS).await, 403);
    world.0.merge(&path, json!({"rules": [rule(&["*"], &["*"])]})).await.ok();
    assert_eq!(world.get("ann", MAPS).await, 200);
    world.0.delete(&path).await.ok();
    let refused = world.ask("ann", Method::GET, MAPS, Value::Null).await;
    let reason = ": RBAC: role.rbac.authorization.k8s.io \"of-ann\" not found";
    assert!(refused.refusal().2.ends_with(reason), "{}", refused.text);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_role_applies_in_the_namespace_of_its_binding() {
    let world = World::start().await;
    let rules =
        json!([rule(&["list"], &["configmaps"]), {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
    world.0.post(&format!("{RBAC}/clusterroles"), role("reader", rules)).await.created();
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    world.0.post(&bindings, binding("b", "ClusterRole", "reader", "ann")).await.created();
    assert_eq!(world.get("ann", MAPS).await, 200);
    assert_eq!(world.get("ann", "/api/v1/configmaps").await, 403);
    assert_eq!(world.get("ann", "/metrics").await, 403);
    let bindings = format!("{RBAC}/clusterrolebindings");
    world.0.post(&bindings, binding("b", "ClusterRole", "reader", "ann")).await.created();
    assert_eq!(world.get("ann", "/api/v1/configmaps").await, 200);
    assert_eq!(world.get("ann", "/metrics").await, 200);
}

#[tokio::test(start_paused = true)]
async fn authenticated_users_may_discover_and_anonymous_ones_see_health() {
    let world = World::start().await;
    for path in ["/api", "/apis/apps/v1", "/version", "/healthz", "/openapi/v3"] {
        assert_eq!(world.get("ann", path).await, 200, "{path}");
    }
    let mut stranger = world.0;
    stranger.user = User::anonymous();
    for (path, code) in [("/healthz", 200), ("/version", 200), ("/api", 403), ("/healthz/ping", 403)] {
        assert_eq!(stranger.get(path).await.code, code, "{path}");
    }
}

/// Permission to write roles must not allow privilege escalation.
#[tokio::test(start_paused = true)]
async fn permissions_the_user_lacks_cannot_be_granted() {
    let world = World::start().await;
    let writes_roles = json!({
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles", "rolebindings"],
        "verbs": ["create", "update"],
    });
    world.grant("ann", json!([writes_roles, rule(&["get"], &["pods"])])).await;
    let (roles, bindings) =
        (format!("{RBAC}/namespaces/default/roles"), format!("{RBAC}/namespaces/default/rolebindings"));
    let secrets = role("secrets", json!([rule(&["get", "list"], &["secrets", "pods"])]));
    let refused = world.ask("ann", Method::POST, &roles, secrets.clone()).await;
    let message = "roles.rbac.authorization.k8s.io \"secrets\" is forbidden: user \"ann\" \
                   (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
                   {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}\n\
                   {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}";
    assert_eq!(refused.refusal(), (403, "Forbidden", message), "{}", refused.text);
    let own = role("own", json!([rule(&["get"], &["pods"])]));
    world.ask("ann", Method::POST, &roles, own.clone()).await.created();
    let mut more = own;
    more["rules"] = json!([rule(&["*"], &["pods"])]);
    assert_eq!(world.ask("ann", Method::PUT, &format!("{roles}/own"), more).await.code, 403);
    for (name, kind, of, code) in
        [("a", "ClusterRole", "cluster-admin", 403), ("b", "Role", "own", 201), ("c", "Role", "none", 404)]
    {
        let answer = world.ask("ann", Method::POST, &bindings, binding(name, kind, of, "ann")).await;
        assert_eq!(answer.code, code, "{}", answer.text);
    }
}

#[tokio::test(start_paused = true)]
async fn escalate_and_bind_allow_granting_anything() {
    let world = World::start().await;
    let group = "rbac.authorization.k8s.io";
    let escalate = json!({"apiGroups": [group], "resources": ["roles"], "verbs": ["create", "escalate"]});
    let bind = json!({
        "apiGroups": [group],
        "resources": ["clusterroles"],
        "resourceNames": ["view"],
        "verbs": ["bind"],
    });
    let bindings = json!({"apiGroups": [group], "resources": ["rolebindings"], "verbs": ["create"]});
    world.grant("ann", json!([escalate, bind, bindings])).await;
    let all = role("all", json!([rule(&["*"], &["*"])]));
    world.ask("ann", Method::POST, &format!("{RBAC}/namespaces/default/roles"), all).await.created();
    let path = format!("{RBAC}/namespaces/default/rolebindings");
    for (name, role, code) in [("a", "view", 201), ("b", "cluster-admin", 403)] {
        let answer = world.ask("ann", Method::POST, &path, binding(name, "ClusterRole", role, "ann")).await;
        assert_eq!(answer.code, code, "{}", answer.text);
    }
}

#[tokio::test(start_paused = true)]
async fn impersonation_takes_a_right_for_user_group_uid_and_extra() {
    let mut world = World::start().await;
    let impersonating = [
        ("impersonate-user", "bob"),
        ("impersonate-group", "dev"),
        ("impersonate-uid", "7"),
        ("impersonate-extra-scope", "x"),
    ];
    world.0.user = User::authenticated("ann", "", Vec::new());
    let rights = [
        ("", "users", "users \"bob\" is forbidden"),
        ("", "groups", "groups \"dev\" is forbidden"),
        ("authentication.k8s.io", "userextras/scope", "userextras.authentication.k8s.io \"x\" is forbidden"),
        ("authentication.k8s.io", "uids", "uids.authentication.k8s.io \"7\" is forbidden"),
    ];
    let masters = User::system("root");
    for (at, (group, resource, message)) in rights.iter().enumerate() {
        let refused = world.0.ask(Method::GET, "/api", &impersonating, "").await;
        assert!(refused.refusal().2.starts_with(message), "{}", refused.text);
        let ann = std::mem::replace(&mut world.0.user, masters.clone());
        let rules = json!([{"apiGroups": [group], "resources": [resource], "verbs": ["impersonate"]}]);
        let name = format!("r{at}");
        world.0.post(&format!("{RBAC}/clusterroles"), role(&name, rules)).await.created();
        let binding = binding(&name, "ClusterRole", &name, "ann");
        world.0.post(&format!("{RBAC}/clusterrolebindings"), binding).await.created();
        world.0.user = ann;
    }
    assert_eq!(world.0.ask(Method::GET, "/api", &impersonating, "").await.code, 200);
    let refused = world.0.ask(Method::GET, MAPS, &impersonating, "").await;
    assert!(refused.refusal().2.starts_with("configmaps is forbidden: User \"bob\" cannot list"));
    let anonymous = world.0.ask(Method::GET, MAPS, &[("impersonate-group", "system:masters")], "").await;
    assert_eq!(anonymous.code, 500, "groups without a user");
}

#[tokio::test(start_paused = true)]
async fn default_roles_exist_and_are_reconciled_at_startup() {
    let api = Api::start_with_roles().await;
    let role = |name: &str| format!("{RBAC}/clusterroles/{name}");
    let before = api.get(&role("system:discovery")).await.ok();
    let tampered = json!({"rules": [rule(&["get"], &["pods"])]});
    api.merge(&role("system:discovery"), tampered.clone()).await.ok();
    let left_alone = json!({"rules": [], "metadata": {"annotations": {
        "rbac.authorization.kubernetes.io/autoupdate": "false"}}});
    api.merge(&role("system:basic-user"), left_alone).await.ok();
    api.delete(&role("system:kube-dns")).await.ok();
    let revision = api.server.revision();
    let api = api.restart_with_roles().await;
    assert_eq!(api.server.revision(), revision + 2, "one completed, one created");
    let rules = api.get(&role("system:discovery")).await.ok()["rules"].as_array().unwrap().len();
    assert_eq!(rules, 12, "the old rule, and one for each path of {before}");
    assert_eq!(api.get(&role("system:basic-user")).await.ok()["rules"], Value::Null);
    api.get(&role("system:kube-dns")).await.ok();
    let revision = api.server.revision();
    assert_eq!(api.restart_with_roles().await.server.revision(), revision, "a steady state writes nothing");
}

/// What the authorizer takes as the selected name or node must be what is actually selected.
#[tokio::test(start_paused = true)]
async fn an_escaped_selector_selects_no_more_than_the_rights_allow() {
    let world = World::start().await;
    for name in ["own", "other"] {
        let secret = json!({"metadata": {"name": name}});
        world.0.post("/api/v1/namespaces/default/secrets", secret).await.created();
    }
    let rule = json!({
        "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["own"],
        "verbs": ["list", "watch", "deletecollection"]});
    world.grant("ann", json!([rule])).await;
    let secrets = "/api/v1/namespaces/default/secrets?fieldSelector=";
    for (selector, code) in [
        ("metadata.name=own", 200),
        ("metadata.name==own", 200),
        ("metadata.name=other", 403),
        ("metadata.namespace!=x%5C,metadata.name=own", 403),
        ("metadata.name!=x%5C,metadata.name%3Down", 403),
        ("metadata.name!=own", 403),
        ("metadata.name=own&limit=x", 403),
    ] {
        assert_eq!(world.get("ann", &format!("{secrets}{selector}")).await, code, "{selector}");
    }
    let path = format!("{secrets}metadata.name=own");
    let deleted = world.ask("ann", Method::DELETE, &path, json!({})).await;
    assert_eq!(deleted.code, 403, "a collection has no name");
}

/// Permissions in a namespace give no access to other namespaces, whatever the request looks like.
#[tokio::test(start_paused = true)]
async fn no_namespace_is_found_in_another() {
    let world = World::start().await;
    world.grant("ann", json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])).await;
    assert_eq!(world.get("ann", "/api/v1/namespaces/default").await, 200);
    let (inside, name) = ("/api/v1/namespaces/default/namespaces", "kube-system");
    let system = json!({"metadata": {"name": name, "labels": {"mine": "now"}}, "spec": {"finalizers": []}});
    for path in [inside.to_owned(), format!("{inside}/{name}"), format!("{inside}/{name}/finalize")] {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let answer = world.ask("ann", method.clone(), &path, system.clone()).await;
            assert_eq!(answer.code, 404, "{method} {path}: {}", answer.text);
        }
    }
    let made = world.ask("ann", Method::POST, inside, json!({"metadata": {"name": "new"}})).await;
    assert_eq!(made.code, 404, "{}", made.text);
    let found = world.0.get("/api/v1/namespaces/kube-system").await.ok();
    assert!(
        found["metadata"]["labels"]["mine"].is_null() && found["metadata"]["deletionTimestamp"].is_null()
    );
}

/// A rule for one name does not cover others, whatever a selector says.
#[tokio::test(start_paused = true)]
async fn a_selector_does_not_widen_access_to_one_object() {
    let world = World::start().await;
    let named =
        json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["*"]}]);
    world.grant("ann", named).await;
    world.0.config_map("a", json!({})).await;
    world.0.config_map("b", json!({})).await;
    for (selector, code) in [
        ("metadata.name%3Da", 200),
        ("metadata.name%3D%3Da", 200),
        ("metadata.name%3Db", 403),
        ("metadata.name!%3Da", 403),
        ("metadata.namespace!%3Dx%5C,metadata.name%3Da", 403),
        ("metadata.namespace%3Ddefault,metadata.name%3Da", 200),
    ] {
        assert_eq!(world.get("ann", &format!("{MAPS}?fieldSelector={selector}")).await, code, "{selector}");
    }
    let new = json!({"metadata": {"name": "c"}});
    for query in ["", "?fieldSelector=metadata.name%3Da"] {
        let answer = world.ask("ann", Method::POST, &format!("{MAPS}{query}"), new.clone()).await;
        assert_eq!(answer.code, 403, "{query}: {}", answer.text);
        let answer = world.ask("ann", Method::DELETE, &format!("{MAPS}{query}"), Value::Null).await;
        assert_eq!(answer.code, 403, "{query}: {}", answer.text);
    }
}

/// The missing permissions are a product too. The error must not be larger than the request by orders of magnitude.
#[tokio::test(start_paused = true)]
async fn a_long_list_of_missing_permissions_is_shortened() {
    let world = World::start().await;
    let writes_roles =
        json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}]);
    world.grant("ann", writes_roles).await;
    let words = |prefix: &str| -> Vec<String> { (0..60).map(|at| format!("{prefix}{at}")).collect() };
    let broad = json!([{"apiGroups": ["apps"], "resources": words("r"), "verbs": words("v"), "resourceNames": words("n")}]);
    let roles = format!("{RBAC}/namespaces/default/roles");
    let refused = world.ask("ann", Method::POST, &roles, role("broad", broad)).await;
    let message = refused.refusal().2;
    assert_eq!(refused.code, 403);
    assert!(
        message.contains(r#"{APIGroups:["apps"], Resources:["r0"], ResourceNames:["n0"], Verbs:["v0" "v1""#)
    );
    assert!(message.ends_with("\nand more"), "{} bytes", message.len());
    assert!(message.len() < 200_000, "{} bytes", message.len());
}

/// A rule is a product: a body of a few kilobytes may expand to billions of permissions.
#[tokio::test(start_paused = true)]
async fn a_role_too_broad_to_compare_is_refused() {
    let world = World::start().await;
    let writes_roles =
        json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]});
    world.grant("ann", json!([writes_roles, rule(&["*"], &["*"])])).await;
    let words = |prefix: &str| -> Vec<String> { (0..2_000).map(|at| format!("{prefix}{at}")).collect() };
    let roles = format!("{RBAC}/namespaces/default/roles");
    let held = json!([{"apiGroups": [""], "resources": words("r"), "verbs": words("v"), "resourceNames": words("n")}]);
    world.ask("ann", Method::POST, &roles, role("held", held)).await.created();
    let broad = json!([{"apiGroups": ["apps"], "resources": words("r"), "verbs": words("v"), "resourceNames": words("n")}]);
    let refused = world.ask("ann", Method::POST, &roles, role("broad", broad)).await;
    let message = "roles.rbac.authorization.k8s.io \"broad\" is forbidden: the rules stand for 8000000000 combinations of \
                   verbs, groups, resources and names, too many to compare with";
    assert_eq!(refused.code, 403);
    assert!(refused.refusal().2.starts_with(message), "{}", refused.text);
}
