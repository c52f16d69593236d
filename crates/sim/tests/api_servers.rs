//! Aggregated API servers in the simulation: functions of the test, reached through the API server.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::Key;
use setpoint_apiserver::Body;
use setpoint_sim::{Callee, Fault, OnReply, Running, TestCluster};

const GROUP: &str = "gizmos.example.com";

/// The gizmos of a server, by namespace and name.
#[derive(Clone, Default)]
struct Gizmos(Arc<Mutex<BTreeMap<(String, String), Value>>>);

fn answer(code: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::full(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

impl Gizmos {
    fn add(&self, namespace: &str, name: &str, metadata: Value) {
        let mut gizmo = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Gizmo", "metadata": metadata});
        gizmo["metadata"]["name"] = name.into();
        gizmo["metadata"]["namespace"] = namespace.into();
        gizmo["metadata"]["uid"] = format!("uid-{name}").into();
        gizmo["metadata"]["resourceVersion"] = "1".into();
        self.0.lock().insert((namespace.into(), name.into()), gizmo);
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().keys().map(|(_, name)| name.clone()).collect()
    }

    fn list(&self, namespace: Option<&str>) -> Response<Body> {
        let gizmos = self.0.lock();
        let is_in = |own: &str| namespace.is_none_or(|namespace| namespace == own);
        let items: Vec<&Value> =
            gizmos.iter().filter(|((own, _), _)| is_in(own)).map(|(_, gizmo)| gizmo).collect();
        let metadata = json!({"resourceVersion": "1"});
        let list = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "GizmoList", "metadata": metadata, "items": items});
        answer(200, &list)
    }

    fn answer(&self, request: &Request<Bytes>) -> Response<Body> {
        let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
        let query = request.uri().query().unwrap_or("");
        match (request.method(), path.as_slice()) {
            (_, ["apis", _, "v1"]) => answer(
                200,
                &json!({"kind": "APIResourceList", "groupVersion": format!("{GROUP}/v1"), "resources": [
                    {"name": "gizmos", "singularName": "gizmo", "namespaced": true, "kind": "Gizmo",
                        "verbs": ["get", "list", "watch", "delete", "deletecollection", "patch"]}]}),
            ),
            (&Method::GET, [.., "gizmos"]) if query.contains("sendInitialEvents") => answer(422, &json!({})),
            (&Method::GET, [.., "gizmos"]) if query.contains("watch") => {
                Response::new(Body::stream(futures::stream::pending(), None))
            }
            (&Method::GET, ["apis", _, "v1", "gizmos"]) => self.list(None),
            (&Method::GET, [.., namespace, "gizmos"]) => self.list(Some(namespace)),
            (&Method::DELETE, [.., namespace, "gizmos"]) => {
                self.0.lock().retain(|(own, _), _| own != namespace);
                answer(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
            (method, [.., namespace, "gizmos", name]) => {
                let key = ((*namespace).to_owned(), (*name).to_owned());
                let mut gizmos = self.0.lock();
                let found =
                    if method == Method::DELETE { gizmos.remove(&key) } else { gizmos.get(&key).cloned() };
                match found {
                    Some(gizmo) => answer(200, &gizmo),
                    None => answer(404, &json!({"kind": "Status", "code": 404, "reason": "NotFound"})),
                }
            }
            _ => answer(404, &json!({"kind": "Status", "code": 404, "reason": "NotFound"})),
        }
    }
}

fn cluster(gizmos: &Gizmos) -> TestCluster {
    let gizmos = gizmos.clone();
    TestCluster::new().api_server("gizmos.default.svc", move |request| {
        let response = gizmos.answer(&request);
        async move { response }
    })
}

/// Registers the server, and waits until it is available.
async fn register(cluster: &Running) {
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "gizmos", "namespace": "default"},
            "spec": {"type": "ExternalName", "externalName": "gizmos.example"}}))
        .await;
    cluster
        .create(json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("v1.{GROUP}")}, "spec": {"group": GROUP, "version": "v1",
                "groupPriorityMinimum": 1000, "versionPriority": 15, "insecureSkipTLSVerify": true,
                "service": {"namespace": "default", "name": "gizmos"}}}))
        .await;
    let is_available = |service: &APIService| {
        let conditions = service.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|one| one.type_ == "Available" && one.status == "True")
    };
    cluster.until(&Key::cluster(format!("v1.{GROUP}")), is_available).await;
}

async fn get(cluster: &Running, path: &str) -> Result<Value, kube::Error> {
    cluster.kube().request(Request::get(path).body(Vec::new()).unwrap()).await
}

#[test]
fn an_aggregated_server_is_a_function_of_the_test() {
    let gizmos = Gizmos::default();
    gizmos.add("default", "g", json!({}));
    cluster(&gizmos).run(async |cluster| {
        assert!(get(cluster, &format!("/apis/{GROUP}/v1/gizmos")).await.is_err());
        register(cluster).await;
        let list = get(cluster, &format!("/apis/{GROUP}/v1/gizmos")).await.unwrap();
        assert_eq!(list["items"][0]["metadata"]["name"], "g");
        let groups = get(cluster, "/apis").await.unwrap();
        assert_eq!(groups["groups"].as_array().unwrap().last().unwrap()["name"], GROUP);
    });
}

#[test]
fn objects_of_an_aggregated_server_go_with_their_namespace_and_their_owner() {
    let gizmos = Gizmos::default();
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone"});
    gizmos.add("default", "orphan", json!({"ownerReferences": [owner]}));
    gizmos.add("default", "stays", json!({}));
    gizmos.add("other", "goes", json!({}));
    cluster(&gizmos).controllers(&["namespace-controller", "garbage-collector-controller"]).run(
        async |cluster| {
            cluster
                .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}))
                .await;
            register(cluster).await;
            let namespaces: kube::Api<Namespace> = kube::Api::all(cluster.kube());
            // Discovery is read twice a minute.
            cluster.pass(std::time::Duration::from_secs(120)).await;
            namespaces.delete("other", &kube::api::DeleteParams::default()).await.unwrap();
            cluster.gone::<Namespace>(&Key::cluster("other")).await;
            assert_eq!(gizmos.names(), ["stays"]);
        },
    );
}

#[test]
fn an_aggregated_server_that_fails_is_unavailable_until_it_responds_again() {
    let gizmos = Gizmos::default();
    cluster(&gizmos).run(async |cluster| {
        register(cluster).await;
        let available = async |expected: &str| {
            let shows = |service: &APIService| {
                let conditions = service.status.iter().flat_map(|status| status.conditions.iter().flatten());
                conditions.into_iter().any(|one| one.type_ == "Available" && one.status == expected)
            };
            cluster.until(&Key::cluster(format!("v1.{GROUP}")), shows).await;
        };
        cluster.faults().add(Fault::Replies { of: Callee::ApiServer, what: OnReply::Drop });
        assert!(get(cluster, &format!("/apis/{GROUP}/v1/gizmos")).await.is_err());
        available("False").await;
        cluster.faults().calm();
        available("True").await;
        assert!(get(cluster, &format!("/apis/{GROUP}/v1/gizmos")).await.is_ok());
    });
}
