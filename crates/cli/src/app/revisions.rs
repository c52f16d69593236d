//! `setpoint app revisions`.

use serde_json::Value;
use setpoint::Kind;

use super::connection::Connection;
use super::output::{age, print, print_objects, table};
use super::{Revisions, applications};

fn kind() -> Kind {
    Kind::new("core.oam.dev", "v1beta1", "ApplicationRevision", "applicationrevisions", true)
}

fn number(revision: &Value) -> i64 {
    let name = revision["metadata"]["name"].as_str().unwrap_or_default();
    name.rsplit_once("-v").and_then(|(_, number)| number.parse().ok()).unwrap_or_default()
}

/// Returns the revisions of an application, the newest first.
pub(super) async fn of(connection: &Connection, app: &str) -> anyhow::Result<Vec<Value>> {
    let labels = format!("app.oam.dev/name={app}");
    let mut found = connection.list(&kind(), Some(&connection.namespace), Some(labels)).await?;
    found.iter_mut().try_for_each(setpoint_oam::unpack_revision).map_err(anyhow::Error::msg)?;
    found.sort_by_key(|revision| -number(revision));
    Ok(found)
}

pub(super) async fn run(arguments: &Revisions) -> anyhow::Result<()> {
    let connection = arguments.app.connect().await?;
    let app = connection.get(&applications(), &arguments.app.name).await?;
    let found = of(&connection, &arguments.app.name).await?;
    if let Some(format) = arguments.output {
        return print_objects(&found, format, true);
    }
    let current = &app["status"]["latestRevision"]["name"];
    let row = |revision: &Value| {
        let meta = &revision["metadata"];
        let version = meta["annotations"]["app.oam.dev/publishVersion"].as_str().unwrap_or("<none>");
        vec![
            meta["name"].as_str().unwrap_or_default().to_owned(),
            (if meta["name"] == *current { "yes" } else { "no" }).to_owned(),
            (if revision["status"]["succeeded"] == true { "yes" } else { "no" }).to_owned(),
            version.to_owned(),
            age(revision),
        ]
    };
    let rows: Vec<_> = found.iter().map(row).collect();
    print(&table(&["NAME", "CURRENT", "SUCCEEDED", "PUBLISH VERSION", "AGE"], &rows))
}
