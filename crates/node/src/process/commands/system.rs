//! Commands about the container, its time and its environment.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use super::flags;
use crate::process::{Done, Io, Shell};

impl Shell {
    pub(super) async fn system(&mut self, name: &str, arguments: &[String], io: &Io) -> Done {
        match name {
            "sleep" => self.sleep(arguments, io).await,
            "env" => self.env(arguments, io).await,
            "printenv" => self.printenv(arguments, io).await,
            "pwd" => self.print(io, format!("{}\n", self.directory)).await.map(|()| 0),
            "id" => self.id(arguments, io).await,
            "whoami" => self.print(io, format!("{}\n", self.user_name())).await.map(|()| 0),
            "hostname" => self.hostname(arguments, io).await,
            "uname" => self.uname(arguments, io).await,
            "nproc" => self.print(io, "1\n").await.map(|()| 0),
            "tty" => {
                let (name, code) = if io.is_terminal() { ("/dev/pts/0", 0) } else { ("not a tty", 1) };
                self.print(io, format!("{name}\n")).await.map(|()| code)
            }
            "date" => self.date(arguments, io).await,
            name => self.unknown_command(name, io).await,
        }
    }

    async fn sleep(&mut self, arguments: &[String], io: &Io) -> Done {
        if arguments.iter().any(|time| matches!(time.as_str(), "infinity" | "inf")) {
            return Err(self.machine.pace.wait_forever().await);
        }
        let Some(duration) = sleep_time(arguments) else {
            let time = arguments.first().map_or("", String::as_str);
            return self.usage(io, &format!("sleep: invalid number '{time}'")).await;
        };
        self.machine.pace.sleep(duration).await.map(|()| 0)
    }

    /// Returns the exported variables as lines.
    fn environment(&self) -> String {
        let exported = self.variables.iter().filter(|(_, variable)| variable.is_exported);
        exported.map(|(name, variable)| format!("{name}={}\n", variable.value)).collect()
    }

    async fn env(&mut self, arguments: &[String], io: &Io) -> Done {
        let assignments = arguments.iter().take_while(|word| word.contains('=')).count();
        let (assignments, command) = arguments.split_at(assignments);
        let mut subshell = self.forked()?;
        for (name, value) in assignments.iter().filter_map(|word| word.split_once('=')) {
            subshell.insert(name, value.to_owned(), true)?;
        }
        match command.split_first() {
            None => self.print(io, subshell.environment()).await.map(|()| 0),
            Some((name, _)) if name.starts_with('-') => {
                self.usage(io, &format!("env: unrecognized option '{name}'")).await
            }
            Some((name, arguments)) => subshell.call(name, arguments, io).await,
        }
    }

    async fn printenv(&mut self, arguments: &[String], io: &Io) -> Done {
        if arguments.is_empty() {
            return self.print(io, self.environment()).await.map(|()| 0);
        }
        let mut code = 0;
        for name in arguments {
            match self.get(name)? {
                Some(value) => self.print(io, format!("{value}\n")).await?,
                None => code = 1,
            }
        }
        Ok(code)
    }

    fn user_name(&self) -> String {
        match self.machine.identity.user {
            0 => "root".to_owned(),
            user => user.to_string(),
        }
    }

    async fn id(&mut self, arguments: &[String], io: &Io) -> Done {
        let (user, group) = (self.machine.identity.user, self.machine.identity.group);
        let named = |number: i64| if number == 0 { format!("{number}(root)") } else { number.to_string() };
        let text = match flags(arguments, "ugnG").map(|(found, _)| found).as_deref() {
            Some("") => format!("uid={} gid={} groups={}", named(user), named(group), named(group)),
            Some("u") => user.to_string(),
            Some("g" | "G") => group.to_string(),
            Some("un" | "nu") => self.user_name(),
            _ => return self.usage(io, "id: unrecognized option").await,
        };
        self.print(io, text + "\n").await.map(|()| 0)
    }

    async fn hostname(&mut self, arguments: &[String], io: &Io) -> Done {
        let identity = &self.machine.identity;
        let text = match arguments.first().map(String::as_str) {
            None | Some("-f" | "-s") => identity.host_name.clone(),
            Some("-i" | "-I") => identity.pod_ip.clone(),
            Some(_) => return self.usage(io, "hostname: unrecognized option").await,
        };
        self.print(io, text + "\n").await.map(|()| 0)
    }

    async fn uname(&mut self, arguments: &[String], io: &Io) -> Done {
        let host = self.machine.identity.host_name.clone();
        let text = match arguments.first().map(String::as_str) {
            None | Some("-s") => "Linux".to_owned(),
            Some("-n") => host,
            Some("-m") => "x86_64".to_owned(),
            Some("-r") => "0.0.0".to_owned(),
            Some("-a") => format!("Linux {host} 0.0.0 setpoint simulated node x86_64 GNU/Linux"),
            Some(_) => return self.usage(io, "uname: unrecognized option").await,
        };
        self.print(io, text + "\n").await.map(|()| 0)
    }

    async fn date(&mut self, arguments: &[String], io: &Io) -> Done {
        match shown_date(arguments, self.machine.pace.now()) {
            Some(text) => self.print(io, text + "\n").await.map(|()| 0),
            None => self.usage(io, "date: invalid arguments").await,
        }
    }
}

/// Returns the duration of a `sleep`. `None` if it is not understood.
fn sleep_time(arguments: &[String]) -> Option<Duration> {
    let one = |text: &String| {
        let (number, unit) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
            Some(number) => (number, &text[number.len()..]),
            None => (text.as_str(), "s"),
        };
        let seconds = match unit {
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            _ => 1.0,
        };
        Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
    };
    let times: Option<Vec<Duration>> = arguments.iter().map(one).collect();
    let times = times.filter(|times| !times.is_empty())?;
    Some(times.into_iter().fold(Duration::ZERO, Duration::saturating_add))
}

fn shown_date(arguments: &[String], now: Timestamp) -> Option<String> {
    let (mut format, mut time) = ("%a %b %e %H:%M:%S UTC %Y".to_owned(), now);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-u" => {}
            "-R" => format = "%a, %d %b %Y %H:%M:%S +0000".into(),
            "-I" => format = "%Y-%m-%d".into(),
            "-Iseconds" | "-Is" => format = "%Y-%m-%dT%H:%M:%S+00:00".into(),
            "-d" => {
                let at = words.next()?.strip_prefix('@')?;
                time = Timestamp::from_second(at.parse().ok()?).ok()?;
            }
            other => format = other.strip_prefix('+')?.to_owned(),
        }
    }
    let zoned: Zoned = time.to_zoned(TimeZone::UTC);
    jiff::fmt::strtime::format(format, &zoned).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_the_format_of_busybox() {
        let now: Timestamp = "2025-01-02T03:04:05Z".parse().expect("a time");
        let check = |words: &[&str], expected: Option<&str>| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(shown_date(&words, now).as_deref(), expected, "{words:?}");
        };
        check(&[], Some("Thu Jan  2 03:04:05 UTC 2025"));
        check(&["+%s"], Some("1735787045"));
        check(&["-u", "+%Y-%m-%dT%H:%M:%SZ"], Some("2025-01-02T03:04:05Z"));
        check(&["-d", "@0", "+%F"], Some("1970-01-01"));
        check(&["--rfc-822"], None);
    }

    #[test]
    fn sleeps_are_added_up() {
        let check = |words: &[&str], expected: Option<f64>| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(sleep_time(&words).map(|time| time.as_secs_f64()), expected, "{words:?}");
        };
        check(&["1.5"], Some(1.5));
        check(&["1m", "3s"], Some(63.0));
        check(&["1d"], Some(86400.0));
        check(&[], None);
        check(&["x"], None);
        check(&["-1"], None);
    }
}
