//! Commands that print their arguments.

use super::format::{escaped, formatted};
use crate::process::pace::MAX_TEXT;
use crate::process::{Done, Io, Shell, base_name};

impl Shell {
    pub(super) async fn echo(&mut self, arguments: &[String], io: &Io) -> Done {
        let (mut ends_line, mut escapes, mut words) = (true, false, arguments);
        while let [flag, rest @ ..] = words
            && flag.len() > 1
            && flag.starts_with('-')
            && flag[1..].chars().all(|letter| "neE".contains(letter))
        {
            ends_line &= !flag.contains('n');
            escapes = flag.contains('e') || escapes && !flag.contains('E');
            words = rest;
        }
        let text = words.join(" ");
        let (mut text, is_cut) = if escapes { escaped(&text) } else { (text.into_bytes(), false) };
        if ends_line && !is_cut {
            text.push(b'\n');
        }
        self.machine.pace.read(text.len())?;
        self.print(io, text).await.map(|()| 0)
    }

    pub(super) async fn printf(&mut self, arguments: &[String], io: &Io) -> Done {
        let arguments = arguments.strip_prefix(&["--".to_owned()]).unwrap_or(arguments);
        let Some((format, arguments)) = arguments.split_first() else {
            return self.usage(io, "usage: printf FORMAT [ARG]...").await;
        };
        let Some(text) = formatted(format, arguments) else {
            return self.usage(io, &format!("printf: {format}: invalid format")).await;
        };
        self.machine.pace.read(text.len())?;
        self.print(io, text).await.map(|()| 0)
    }

    pub(super) async fn seq(&mut self, arguments: &[String], io: &Io) -> Done {
        let numbers: Option<Vec<i64>> = arguments.iter().map(|text| text.parse().ok()).collect();
        let (first, step, last) = match numbers.as_deref() {
            Some([last]) => (1, 1, *last),
            Some([first, last]) => (*first, 1, *last),
            Some([first, step, last]) if *step != 0 => (*first, *step, *last),
            _ => return self.usage(io, "seq: invalid arguments").await,
        };
        let (mut text, mut number) = (String::new(), first);
        while (step > 0 && number <= last) || (step < 0 && number >= last) {
            text.push_str(&format!("{number}\n"));
            if text.len() > MAX_TEXT {
                return self.usage(io, "seq: too many numbers").await;
            }
            let Some(next) = number.checked_add(step) else { break };
            number = next;
        }
        self.machine.pace.read(text.len())?;
        self.print(io, text).await.map(|()| 0)
    }

    pub(super) async fn basename(&mut self, arguments: &[String], io: &Io) -> Done {
        let [path, suffix @ ..] = arguments else {
            return self.usage(io, "usage: basename FILE [SUFFIX]").await;
        };
        let name = base_name(path.trim_end_matches('/'));
        let stem = suffix.first().and_then(|suffix| name.strip_suffix(suffix.as_str()));
        let stem = stem.filter(|stem| !stem.is_empty()).unwrap_or(name);
        let stem = if path.starts_with('/') && stem.is_empty() { "/" } else { stem };
        self.print(io, format!("{stem}\n")).await.map(|()| 0)
    }

    pub(super) async fn dirname(&mut self, arguments: &[String], io: &Io) -> Done {
        let [path] = arguments else { return self.usage(io, "usage: dirname FILENAME").await };
        let directory = match path.trim_end_matches('/').rsplit_once('/') {
            Some(("", _)) => "/",
            Some((directory, _)) => directory,
            None if path.starts_with('/') => "/",
            None => ".",
        };
        self.print(io, format!("{directory}\n")).await.map(|()| 0)
    }
}
