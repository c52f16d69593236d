//! `setpoint snapshot`: saves, restores and checks snapshots of a data directory.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use setpoint_store::{SnapshotInfo, check_snapshot, restore_snapshot, save_snapshot};

#[derive(Debug, Subcommand)]
pub(crate) enum Snapshot {
    /// Save a snapshot of a data directory. A server may be using it.
    Save(Save),
    /// Restore a snapshot to a data directory without a store.
    Restore(Restore),
    /// Check a snapshot, and show what is in it.
    Status(Status),
}

#[derive(Debug, Args)]
pub(crate) struct Save {
    /// File to write; it must not exist.
    file: PathBuf,
    /// Data directory of the store.
    #[arg(long, default_value = "setpoint-data", value_name = "DIR")]
    data_dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// Snapshot to read.
    file: PathBuf,
    /// Data directory to write; created if it does not exist.
    #[arg(long, default_value = "setpoint-data", value_name = "DIR")]
    data_dir: PathBuf,
    /// How much the revision grows: more than there were changes after the snapshot, so that clients that have seen them
    /// list again. 0 keeps it.
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    bump_revision: u64,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Snapshot to read.
    file: PathBuf,
    /// Output format.
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    output: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    /// One line.
    Text,
    /// A JSON document.
    Json,
}

pub(crate) fn run(command: Snapshot) -> anyhow::Result<()> {
    match command {
        Snapshot::Save(Save { file, data_dir }) => {
            let info = save_snapshot(&data_dir, &file).context("cannot save a snapshot")?;
            println!("Saved {}: {info}", file.display());
        }
        Snapshot::Restore(Restore { file, data_dir, bump_revision }) => {
            let info = restore_snapshot(&file, &data_dir, bump_revision);
            let info = info.context("cannot restore the snapshot")?;
            println!("Restored {} to {}: {info}", file.display(), data_dir.display());
        }
        Snapshot::Status(Status { file, output }) => {
            let info = check_snapshot(&file).context("the snapshot cannot be used")?;
            match output {
                Format::Text => println!("{info}"),
                Format::Json => println!("{}", document(info)),
            }
        }
    }
    Ok(())
}

fn document(info: SnapshotInfo) -> serde_json::Value {
    let SnapshotInfo { revision, records, bytes, checksum } = info;
    json!({"revision": revision, "records": records, "bytes": bytes, "checksum": format!("{checksum:08x}")})
}
