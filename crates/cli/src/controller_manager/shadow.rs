//! `--shadow`: run beside the live controllers, write nothing, report differences.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use setpoint::metrics::Metrics;
use setpoint::{Manager, Runtime};
use setpoint_controllers::flags::duration;
use setpoint_controllers::{Entry, REGISTRY};
use setpoint_shadow::{Config, Report, Shadow};
use tokio_util::sync::CancellationToken;

/// The time limit of the final check of pending writes.
const FINAL_CHECK_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
#[command(next_help_heading = "Shadow mode")]
pub(crate) struct ShadowFlags {
    /// Write nothing: compute what the controllers would write and compare it with kube-controller-manager's writes.
    /// Takes no lease.
    #[arg(long)]
    pub(crate) shadow: bool,
    /// Time in which the cluster must show an intended write.
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = duration, requires = "shadow")]
    shadow_window: Duration,
    /// Time for which a write of kube-controller-manager is withheld from the controllers, so that they can intend it
    /// independently.
    #[arg(long, default_value = "1s", value_name = "DURATION", value_parser = duration, requires = "shadow")]
    shadow_head_start: Duration,
    /// Stop after this time. The exit code is 1 if there is a difference.
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "shadow")]
    shadow_duration: Option<Duration>,
    /// File for the final report: YAML if it ends with .yaml or .yml, otherwise JSON.
    #[arg(long, value_name = "FILE", requires = "shadow")]
    shadow_report: Option<PathBuf>,
    /// Field manager of the live controllers.
    #[arg(long, default_value = "kube-controller-manager", value_name = "NAME", requires = "shadow")]
    shadow_manager: String,
    /// Format of the final report on standard output.
    #[arg(long, short, default_value = "table", value_name = "FORMAT", requires = "shadow")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
    Yaml,
}

impl ShadowFlags {
    /// Validates the durations.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.shadow_window <= self.shadow_head_start {
            bail!("--shadow-window: expected more than --shadow-head-start ({:?})", self.shadow_head_start);
        }
        // Nothing is reported before its window has ended.
        if self.shadow_duration.is_some_and(|duration| duration <= self.shadow_window) {
            bail!("--shadow-duration: expected more than --shadow-window ({:?})", self.shadow_window);
        }
        Ok(())
    }

    /// Returns the shadow, if shadow mode is enabled.
    pub(crate) fn shadow(
        &self,
        controllers: &[&'static Entry],
        runtime: &Runtime,
        metrics: &Metrics,
    ) -> Option<Shadow> {
        let is_absent =
            |entry: &&Entry| entry.on_by_default && !controllers.iter().any(|one| one.name == entry.name);
        let config = Config {
            window: self.shadow_window,
            head_start: self.shadow_head_start,
            manager: self.shadow_manager.clone(),
            ..Config::default()
        };
        let others = REGISTRY.iter().filter(is_absent);
        let config = config.expecting(written(controllers.iter().copied()), written(others));
        self.shadow.then(|| Shadow::new(config, runtime.clone(), metrics.clone()))
    }

    /// Runs the manager until it is stopped or its time is up, then reports.
    pub(crate) async fn run(
        &self,
        shadow: &Shadow,
        reader: &kube::Client,
        manager: Manager,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let timer = async {
            match self.shadow_duration {
                Some(duration) => tokio::time::sleep(duration).await,
                None => std::future::pending().await,
            }
            stop.cancel();
        };
        let is_complete = tokio::select! {
            _ = manager.run(stop.clone()) => self.shadow_duration.is_none(),
            () = timer => true,
        };
        // Pending writes are checked once more. Those that are not read in time stay pending.
        _ = tokio::time::timeout(FINAL_CHECK_TIMEOUT, shadow.recheck(reader)).await;
        self.finish(&shadow.report())?;
        if !is_complete {
            bail!("stopped before --shadow-duration");
        }
        Ok(())
    }

    fn finish(&self, report: &Report) -> anyhow::Result<()> {
        let text = self.output.render(report)?;
        // The file is written even if nobody reads standard output any more.
        let printed = std::io::stdout().write_all(text.as_bytes()).context("cannot print the report");
        if let Some(path) = &self.shadow_report {
            let is_yaml = path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml");
            let output = if is_yaml { Output::Yaml } else { Output::Json };
            std::fs::write(path, output.render(report)?)
                .with_context(|| format!("--shadow-report: cannot write {}", path.display()))?;
        }
        printed?;
        if self.shadow_duration.is_some() && !report.is_clean() {
            let total = report.total();
            bail!(
                "{} differences, {} missing writes, {} intended writes not compared",
                total.differences,
                report.missing,
                total.dropped
            );
        }
        Ok(())
    }
}

impl Output {
    fn render(self, report: &Report) -> anyhow::Result<String> {
        Ok(match self {
            Self::Table => report.table(),
            Self::Json => serde_json::to_string_pretty(report)? + "\n",
            Self::Yaml => serde_saphyr::to_string(report)?,
        })
    }
}

/// Returns the resources that controllers write.
fn written<'a>(
    controllers: impl IntoIterator<Item = &'a Entry>,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let accesses = controllers.into_iter().flat_map(|entry| entry.writes);
    accesses.map(|access| (access.group, access.resource))
}
