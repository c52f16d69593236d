//! An API server by itself: no controllers, nothing kept.
//!
//! `cargo run -p setpoint-apiserver --example serve -- PORT TOKEN_FILE`

use std::sync::Arc;

use setpoint_apiserver::tls::{Authority, ServerTls};
use setpoint_apiserver::{ApiServer, Authenticator, Config, FlowSettings};
use setpoint_clock::{Clock, Rng};
use setpoint_store::MemoryStore;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let port: u16 = arguments.next().ok_or("expected a port")?.parse()?;
    let tokens = arguments.next().ok_or("expected a token file")?;
    let authenticator = Authenticator::new().with_token_file(&std::fs::read_to_string(tokens)?)?;

    let clock = Clock::system();
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let authority = Authority::generate(clock.now())?;
    let certificate = authority.server_certificate(&[], clock.now())?;
    let tls = ServerTls::new(&certificate, &authority)?;
    let config = Config {
        authenticator,
        flow: Some(FlowSettings::default()),
        ..Config::new(store, clock, Rng::from_entropy()).with_roles()
    };
    let server = ApiServer::start(config).await?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("serving on https://127.0.0.1:{port}");
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        stopping.cancel();
    });
    let maintaining = server.maintain(stop.clone());
    tokio::join!(server.clone().serve(listener, tls, stop.clone()), maintaining);
    Ok(())
}
