//! `setpoint bundle`: writes a bundle for the Operator Lifecycle Manager, and checks it.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use setpoint_scaffold::{BundleOptions, Finding, Project, Severity, validate};

#[derive(Debug, Args)]
pub(crate) struct Bundle {
    /// Directory of the project. The bundle is written to `bundle` in it.
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Version of the bundle [default: that of the project].
    #[arg(long = "version", value_name = "VERSION")]
    bundle_version: Option<String>,
    /// Channels of the bundle.
    #[arg(long, value_delimiter = ',', value_name = "NAMES", default_value = "stable")]
    channels: Vec<String>,
    /// Default channel of the package [default: the first one].
    #[arg(long, value_name = "NAME")]
    default_channel: Option<String>,
    /// Version that this one replaces.
    #[arg(long, value_name = "VERSION")]
    replaces: Option<String>,
    /// Image of the operator [default: that of the Deployment].
    #[arg(long)]
    image: Option<String>,
    /// Check the bundle in this directory, and write nothing.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["directory", "bundle_version", "channels", "default_channel", "replaces", "image"])]
    validate: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Bundle) -> anyhow::Result<()> {
    if let Some(directory) = &arguments.validate {
        let findings = validate(directory)?;
        report(&findings)?;
        eprintln!("{} is valid", directory.display());
        return Ok(());
    }
    let project = Project::open(&arguments.directory)?;
    let options = BundleOptions {
        version: arguments.bundle_version.clone(),
        channels: arguments.channels.clone(),
        default_channel: arguments.default_channel.clone(),
        replaces: arguments.replaces.clone(),
        image: arguments.image.clone(),
    };
    report(&setpoint_scaffold::bundle(&project, &options)?)?;
    eprintln!("Wrote {} and bundle.Dockerfile", arguments.directory.join("bundle").display());
    Ok(())
}

/// Prints the findings. Errors fail the command.
fn report(findings: &[Finding]) -> anyhow::Result<()> {
    findings.iter().for_each(|finding| eprintln!("{finding}"));
    match findings.iter().filter(|finding| finding.severity == Severity::Error).count() {
        0 => Ok(()),
        1 => bail!("the bundle has an error"),
        count => bail!("the bundle has {count} errors"),
    }
}
