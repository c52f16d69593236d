//! `setpoint certs`: lists and renews the certificates in a data directory.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use serde_json::{Value, json};
use setpoint::Clock;
use setpoint_apiserver::tls::CertificateInfo;

use crate::pki::{Directory, FRONT_PROXY_CA, FRONT_PROXY_CLIENT, KUBELET_CLIENT, Renewal, Retired, renew};

#[derive(Debug, Subcommand)]
pub(crate) enum Certs {
    /// List certificates and when they expire.
    Check(Check),
    /// Renew certificates and keys; without flags, the admin, serving, kubelet client and front proxy client certificates.
    Renew(Renew),
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    place: DataDirectory,
    /// Output format.
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct Renew {
    #[command(flatten)]
    place: DataDirectory,
    /// Renew the CA and everything it signs. The old CA stays trusted for a year.
    #[arg(long)]
    ca: bool,
    /// Renew the admin certificate.
    #[arg(long)]
    admin: bool,
    /// Renew the serving certificate.
    #[arg(long)]
    server: bool,
    /// Renew the client certificate for kubelets.
    #[arg(long)]
    kubelet_client: bool,
    /// Renew the client certificate for aggregated API servers.
    #[arg(long)]
    front_proxy_client: bool,
    /// Renew the CA of that certificate. The old one stays trusted for a year.
    #[arg(long)]
    front_proxy_ca: bool,
    /// Renew the service account key. Tokens signed by the old key are accepted for up to a year.
    #[arg(long)]
    service_account_key: bool,
}

#[derive(Debug, Args)]
struct DataDirectory {
    /// Data directory of `setpoint up`.
    #[arg(long, default_value = "setpoint-data", value_name = "DIR")]
    data_dir: PathBuf,
}

impl DataDirectory {
    fn directory(&self) -> Directory {
        Directory::new(Some(self.data_dir.join("pki")))
    }
}

pub(crate) fn run(command: Certs) -> anyhow::Result<()> {
    let now = Clock::system().now();
    match command {
        Certs::Check(check) => {
            let listed = CertificateList::of(&check.place.directory(), now)?;
            match check.output {
                Output::Text => print!("{}", listed.text(now)),
                Output::Json => println!("{:#}", listed.json(now)),
            }
        }
        Certs::Renew(arguments) => {
            for line in renew(&arguments.place.directory(), arguments.renewal(), now)? {
                println!("{line}");
            }
            println!(
                "A running server picks up its new serving and client certificates within seconds. Restart it for the \
                 rest."
            );
        }
    }
    Ok(())
}

impl Renew {
    fn has(&self, certificate: &str) -> bool {
        let pair = self.place.directory().pair(certificate);
        pair.is_some_and(|pair| pair.certificate.exists())
    }

    fn renewal(&self) -> Renewal {
        let Self { ca, admin, server, kubelet_client, front_proxy_client, .. } = *self;
        let Self { front_proxy_ca, service_account_key, .. } = *self;
        let given =
            [ca, admin, server, kubelet_client, front_proxy_client, front_proxy_ca, service_account_key];
        let none = !given.contains(&true);
        Renewal {
            authority: ca,
            admin: admin || none,
            server: server || none,
            kubelet_client: kubelet_client || (none && self.has(KUBELET_CLIENT.file)),
            front_proxy_client: front_proxy_client || (none && self.has(FRONT_PROXY_CLIENT.file)),
            front_proxy_ca,
            service_account_key,
        }
    }
}

/// The contents of a data directory.
struct CertificateList {
    certificates: Vec<Certificate>,
    /// Replaced service account keys that are still accepted.
    keys: Vec<Retired>,
}

struct Certificate {
    name: String,
    /// `None` if it is missing or cannot be read.
    found: Option<CertificateInfo>,
    /// The CA that signed it.
    authority: Option<String>,
}

impl CertificateList {
    fn of(directory: &Directory, now: Timestamp) -> anyhow::Result<Self> {
        let retired = directory.retired("ca", now)?;
        let file = |name: &str| (name.to_owned(), directory.file(&format!("{name}.crt")));
        let mut files: Vec<(String, Option<PathBuf>)> = ["ca", "apiserver", "admin"].map(file).into();
        // With certificates of the operator's own there are none.
        let clients = [KUBELET_CLIENT.file, FRONT_PROXY_CA, FRONT_PROXY_CLIENT.file].map(file);
        files.extend(clients.into_iter().filter(|(_, path)| path.as_ref().is_some_and(|path| path.exists())));
        files.extend(retired.iter().map(|old| (stem(&old.path), Some(old.path.clone()))));
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        let pems: Vec<(String, Option<String>)> =
            files.into_iter().map(|(name, path)| (name, path.as_deref().and_then(read))).collect();
        let certificates = pems.iter().map(|(name, pem)| {
            let found = pem.as_deref().and_then(|pem| CertificateInfo::of_pem(pem).ok());
            let signed = |(_, pem): &&(String, Option<String>)| {
                let authority = pem
                    .as_deref()
                    .filter(|pem| CertificateInfo::of_pem(pem).is_ok_and(|one| one.is_authority));
                found.as_ref().zip(authority).is_some_and(|(found, authority)| found.is_signed_by(authority))
            };
            let authority = pems.iter().find(signed).map(|(name, _)| name.clone());
            Certificate { name: name.clone(), authority, found: found.clone() }
        });
        Ok(Self { certificates: certificates.collect(), keys: directory.retired("sa", now)? })
    }

    fn text(&self, now: Timestamp) -> String {
        let mut rows =
            vec![["CERTIFICATE", "SUBJECT", "EXPIRES", "RESIDUAL TIME", "SIGNED BY"].map(String::from)];
        rows.extend(self.certificates.iter().map(|one| match &one.found {
            Some(found) => [
                one.name.clone(),
                found.subject.clone(),
                found.not_after.strftime("%b %d, %Y %H:%M UTC").to_string(),
                residual(seconds_left(found.not_after, now)),
                one.authority.clone().unwrap_or_default(),
            ],
            None => [one.name.clone(), "!MISSING!".into(), String::new(), String::new(), String::new()],
        }));
        let mut text = table(&rows);
        if !self.keys.is_empty() {
            let mut rows = vec![["SERVICE ACCOUNT KEY", "VALID UNTIL"].map(String::from)];
            rows.extend(self.keys.iter().map(|key| [stem(&key.path), key.until.to_string()]));
            let _ = write!(text, "\n{}", table(&rows));
        }
        text
    }

    fn json(&self, now: Timestamp) -> Value {
        let certificate = |one: &Certificate| match &one.found {
            Some(found) => json!({
                "name": one.name,
                "subject": found.subject,
                "expirationDate": found.not_after.to_string(),
                "residualTime": seconds_left(found.not_after, now),
                "caName": one.authority,
                "missing": false,
            }),
            None => json!({"name": one.name, "missing": true}),
        };
        let (authorities, others): (Vec<_>, Vec<_>) = self
            .certificates
            .iter()
            .partition(|one| one.found.as_ref().is_some_and(|found| found.is_authority));
        json!({
            "certificates": others.into_iter().map(certificate).collect::<Vec<_>>(),
            "certificateAuthorities": authorities.into_iter().map(certificate).collect::<Vec<_>>(),
            "serviceAccountKeys": self.keys.iter().map(|key| {
                json!({"name": stem(&key.path), "validUntil": key.until.to_string()})
            }).collect::<Vec<_>>(),
        })
    }
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn seconds_left(until: Timestamp, now: Timestamp) -> i64 {
    until.as_second().saturating_sub(now.as_second()).max(0)
}

/// In the largest unit that fits: `9y`, `364d`, `5h`, `3m`, `2s`; `<invalid>` if expired.
fn residual(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match () {
        () if seconds == 0 => "<invalid>".into(),
        () if minutes == 0 => format!("{seconds}s"),
        () if hours == 0 => format!("{minutes}m"),
        () if days == 0 => format!("{hours}h"),
        () if days < 365 => format!("{days}d"),
        () => format!("{}y", days / 365),
    }
}

/// Columns as wide as their widest cell, with three spaces between them.
fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| format!("{cell:<0$}", width(column)));
        let line = cells.collect::<Vec<_>>().join("   ");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::Credentials;

    #[test]
    fn renewing_keeps_old_authorities_trusted() {
        let data = tempfile::tempdir().unwrap();
        let directory = Directory::new(Some(data.path().join("pki")));
        let clock = Clock::system();
        let first = Credentials::prepare(&directory, None, &clock).unwrap();
        let again = Credentials::prepare(&directory, None, &clock).unwrap();
        assert_eq!(again.admin, first.admin, "the admin certificate is reused");
        assert_eq!(again.authority().identity(), first.authority().identity());

        let all = Renewal { authority: true, service_account_key: true, ..Renewal::default() };
        renew(&directory, all, clock.now()).unwrap();
        let renewed = Credentials::prepare(&directory, None, &clock).unwrap();
        assert_ne!(renewed.admin, first.admin);
        let bundle = renewed.bundle();
        let old = &first.authority().identity().certificate;
        assert!(bundle.contains(old) && bundle.starts_with(&renewed.authority().identity().certificate));
        assert_ne!(renewed.token_signer.public_pem(), first.token_signer.public_pem());
        let kept = directory.retired("sa", clock.now()).unwrap();
        assert_eq!(kept[0].content, first.token_signer.public_pem());

        let listed = CertificateList::of(&directory, clock.now()).unwrap();
        let text = listed.text(clock.now());
        let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(
            names[..5],
            ["CERTIFICATE", "ca", "apiserver", "admin", &*stem(&listed_old(&directory, &clock))]
        );
        let json = listed.json(clock.now());
        assert_eq!(json["certificates"][1]["caName"], "ca");
        assert_eq!(json["certificateAuthorities"].as_array().map(Vec::len), Some(2));
    }

    fn listed_old(directory: &Directory, clock: &Clock) -> PathBuf {
        directory.retired("ca", clock.now()).unwrap()[0].path.clone()
    }

    #[test]
    fn the_residual_time_is_shown_in_the_largest_unit() {
        for (seconds, expected) in [
            (0, "<invalid>"),
            (59, "59s"),
            (60, "1m"),
            (7200, "2h"),
            (364 * 86400, "364d"),
            (3650 * 86400, "10y"),
        ] {
            assert_eq!(residual(seconds), expected);
        }
    }
}
