//! `ls`.

use super::flags;
use crate::files::{Entry, path};
use crate::process::{Done, Io, Shell, Stop, UnknownCommands};

impl Shell {
    pub(super) async fn ls(&mut self, arguments: &[String], io: &Io) -> Done {
        let Some((found, names)) = flags(arguments, "1aAdhlnrtF") else {
            return self.usage(io, "ls: unrecognized option").await;
        };
        let names = if names.is_empty() { vec!["."] } else { names };
        let (mut code, mut files, mut directories) = (0, Vec::new(), Vec::new());
        for name in &names {
            let path = self.path(name);
            match self.machine.certain(&path, self.machine.files.get(&path))? {
                Ok(entry) if entry.is_directory() && !found.contains('d') => directories.push((*name, path)),
                Ok(entry) => files.push(((*name).to_owned(), entry)),
                Err(why) => code = self.complain(io, format!("ls: {name}: {why}")).await?,
            }
        }
        self.print(io, listing(&files, &found, io)).await?;
        for (at, (name, path)) in directories.iter().enumerate() {
            if names.len() > 1 {
                let gap = if at > 0 || !files.is_empty() { "\n" } else { "" };
                self.print(io, format!("{gap}{name}:\n")).await?;
            }
            let entries = self.entries(path, &found)?;
            self.machine.owe(entries.iter().map(|(name, _)| path.len() + 2 * name.len() + 64).sum());
            self.pay().await?;
            if found.contains(['l', 'n']) {
                let blocks: usize = entries.iter().map(|(_, entry)| entry.size().div_ceil(4096) * 4).sum();
                self.print(io, format!("total {blocks}\n")).await?;
            }
            self.print(io, listing(&entries, &found, io)).await?;
        }
        Ok(code)
    }

    fn entries(&self, path: &str, found: &str) -> Result<Vec<(String, Entry)>, Stop> {
        if self.machine.manner == UnknownCommands::Certain && !self.machine.files.is_complete(path) {
            return Err(Stop::Unknown);
        }
        let mut names = self.machine.files.list(path).unwrap_or_default();
        names.retain(|name| found.contains(['a', 'A']) || !name.starts_with('.'));
        if found.contains('a') {
            names.splice(0..0, [".".to_owned(), "..".to_owned()]);
        }
        if found.contains('r') {
            names.reverse();
        }
        let entry = |name: String| {
            let entry = self.machine.files.get(&path::normal(path, &name)).ok()?;
            Some((name, entry))
        };
        Ok(names.into_iter().filter_map(entry).collect())
    }
}

fn listing(entries: &[(String, Entry)], found: &str, io: &Io) -> String {
    if found.contains(['l', 'n']) {
        return entries.iter().map(|(name, entry)| long_line(name, entry, found)).collect();
    }
    let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
    match names.is_empty() {
        true => String::new(),
        false if io.is_terminal() && !found.contains('1') => format!("{}\n", names.join("  ")),
        false => format!("{}\n", names.join("\n")),
    }
}

fn long_line(name: &str, entry: &Entry, found: &str) -> String {
    let kind = if entry.is_directory() { 'd' } else { '-' };
    let bits: String = (0..9)
        .map(|at| if entry.mode() >> (8 - at) & 1 == 1 { ['r', 'w', 'x'][at % 3] } else { '-' })
        .collect();
    let (links, owner) =
        (if entry.is_directory() { 2 } else { 1 }, if found.contains('n') { "0" } else { "root" });
    let (size, time) = (entry.size(), entry.modified().strftime("%b %e %H:%M"));
    format!("{kind}{bits} {links:>4} {owner:<8} {owner:<8} {size:>9} {time} {name}\n")
}
