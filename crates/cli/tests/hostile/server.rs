//! The real binary under attack, and connections to it.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustix::process::{Resource, getrlimit, setrlimit};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The token of a user who may do anything, through its group.
pub(crate) const ADMIN: &str = "admin-token";
/// The token of a user who may do anything, through a role. It is in no exempt group, so its requests are queued like
/// others.
pub(crate) const POLITE: &str = "polite-token";
/// The token of an authenticated user without any permission.
pub(crate) const MALLORY: &str = "mallory-token";

const TOKENS: &str =
    "admin-token,admin,1,\"system:masters\"\npolite-token,polite,2\nmallory-token,mallory,3\n";

pub(crate) type Tls = TlsStream<TcpStream>;

/// A running `setpoint up` without controllers.
pub(crate) struct Server {
    process: Mutex<Child>,
    pid: u32,
    address: SocketAddr,
    http1: TlsConnector,
    http2: TlsConnector,
    log: PathBuf,
    _directory: tempfile::TempDir,
}

impl Server {
    pub(crate) async fn start() -> Self {
        raise_file_limit();
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("tokens.csv"), TOKENS).expect("the token file is written");
        let log = path("log");
        let process = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            .args([
                "up",
                "--in-memory",
                "--port",
                "0",
                "--nodes",
                "0",
                "--no-scheduler",
                "--controllers",
                "-*",
            ])
            .arg("--kubeconfig")
            .arg(path("kubeconfig"))
            .arg("--token-auth-file")
            .arg(path("tokens.csv"))
            .stderr(Stdio::from(File::create(&log).expect("the log is created")))
            .spawn()
            .expect("the binary starts");
        let (address, authority) = access(&path("kubeconfig")).await;
        let pid = process.id();
        let (http1, http2) = (connector(&authority, b"http/1.1"), connector(&authority, b"h2"));
        let server =
            Self { process: Mutex::new(process), pid, address, http1, http2, log, _directory: directory };
        server.give_polite_its_role().await;
        server
    }

    async fn give_polite_its_role(&self) {
        let binding = r#"{"metadata": {"name": "polite"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "polite"}]}"#;
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        let (code, text) = self.session().await.send(Method::POST, path, ADMIN, binding.into()).await;
        assert_eq!(code, 201, "{text}");
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Opens a connection for HTTP/1.1.
    pub(crate) async fn connect(&self) -> std::io::Result<Tls> {
        self.connect_by(&self.http1).await
    }

    /// Opens a connection for HTTP/2.
    pub(crate) async fn connect_http2(&self) -> std::io::Result<Tls> {
        self.connect_by(&self.http2).await
    }

    async fn connect_by(&self, connector: &TlsConnector) -> std::io::Result<Tls> {
        let name = ServerName::IpAddress(self.address.ip().into());
        let connecting = async { connector.connect(name, TcpStream::connect(self.address).await?).await };
        tokio::time::timeout(Duration::from_secs(30), connecting).await?
    }

    /// Opens a connection for complete requests.
    pub(crate) async fn session(&self) -> Session {
        let stream = self.connect().await.expect("the server accepts connections");
        let (sender, connection) = handshake(TokioIo::new(stream)).await.expect("HTTP/1.1");
        tokio::spawn(async move { _ = connection.await });
        Session(sender)
    }

    pub(crate) fn resident_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("it runs");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("the process reports its memory");
        line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") / 1024
    }

    /// Checks that the server runs, nothing panicked, and anonymous clients still see nothing.
    pub(crate) async fn check_health(&self) {
        let mut session = self.session().await;
        let (code, metrics) = session.get("/metrics", ADMIN).await;
        assert_eq!(code, 200);
        assert!(metrics.contains("\nsetpoint_apiserver_panics_total 0\n"), "a request panicked");
        let log = std::fs::read_to_string(&self.log).expect("the log is readable");
        assert!(!log.contains("panicked"), "{log}");
        let secrets = "/api/v1/secrets";
        assert_eq!(session.get(secrets, MALLORY).await.0, 403);
        assert_eq!(session.get(secrets, "wrong").await.0, 401);
    }

    pub(crate) fn stop(&self) {
        let mut process = self.process.lock().expect("no request panicked");
        _ = process.kill();
        _ = process.wait();
    }
}

/// A connection that sends complete requests, one after the other.
pub(crate) struct Session(SendRequest<Full<Bytes>>);

impl Session {
    pub(crate) async fn get(&mut self, path: &str, token: &str) -> (u16, String) {
        self.send(Method::GET, path, token, Bytes::new()).await
    }

    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        token: &str,
        body: Bytes,
    ) -> (u16, String) {
        self.send_as(method, path, token, "application/json", body).await.expect("the server answers")
    }

    /// Returns the response, or `None` if the server closes the connection.
    pub(crate) async fn send_as(
        &mut self,
        method: Method,
        path: &str,
        token: &str,
        media_type: &str,
        body: Bytes,
    ) -> Option<(u16, String)> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", media_type)
            .body(Full::new(body))
            .expect("a request");
        self.0.ready().await.ok()?;
        let response = self.0.send_request(request).await.ok()?;
        let code: StatusCode = response.status();
        let text = response.into_body().collect().await.ok()?.to_bytes();
        Some((code.as_u16(), String::from_utf8_lossy(&text).into_owned()))
    }
}

/// An attack may hold five thousand connections, each with a file descriptor here and one in the server.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("the limit of open files is raised");
}

/// Waits for the kubeconfig and returns the server's address and CA.
async fn access(kubeconfig: &std::path::Path) -> (SocketAddr, Vec<u8>) {
    for _ in 0..600 {
        if let Ok(config) = kube::config::Kubeconfig::read_from(kubeconfig) {
            let cluster = config.clusters[0].cluster.clone().expect("a cluster");
            let url = cluster.server.expect("an address");
            let address = url.trim_start_matches("https://").parse().expect("host and port");
            let data = cluster.certificate_authority_data.expect("an authority");
            return (address, STANDARD.decode(data).expect("base64"));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the server never wrote its kubeconfig");
}

fn connector(authority: &[u8], protocol: &[u8]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority) {
        roots.add(certificate.expect("a certificate")).expect("an authority");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config.expect("versions").with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsConnector::from(Arc::new(config))
}
