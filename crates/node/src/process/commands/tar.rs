//! `tar`, as `kubectl cp` uses it.

use super::files::ENTRY_WORK;
use crate::files::archive::{ArchiveError, END, Member, Reader, encode};
use crate::files::{Entry, path};
use crate::process::{Done, Io, Shell};

/// The maximum size of a file in an archive: that of all files of a pod.
const LARGEST: usize = 32 << 20;

/// The maximum depth of archived directories, which bounds the stack.
const DEEPEST: usize = 64;

#[derive(Default)]
struct Options {
    action: Option<char>,
    file: String,
    directory: String,
    names: Vec<String>,
    keeps_time: bool,
    strips: usize,
    is_verbose: bool,
}

impl Options {
    /// Parses `cf - x`, `-cf - x`, `xmf - -C /d` and the like. An error names what is not supported.
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self { keeps_time: true, file: "-".into(), ..Self::default() };
        let mut words = arguments.iter();
        let mut is_first = true;
        while let Some(word) = words.next() {
            let letters = match word.strip_prefix('-') {
                Some(long) if long.starts_with('-') => {
                    options.long(long)?;
                    continue;
                }
                Some(letters) if !letters.is_empty() => letters,
                _ if is_first => word.as_str(),
                _ => {
                    options.names.push(word.clone());
                    continue;
                }
            };
            is_first = false;
            for letter in letters.chars() {
                match letter {
                    'c' | 'x' | 't' => options.action = Some(letter),
                    'f' => options.file = words.next().ok_or("option requires an argument -- f")?.clone(),
                    'C' => {
                        options.directory = words.next().ok_or("option requires an argument -- C")?.clone()
                    }
                    'm' => options.keeps_time = false,
                    'v' => options.is_verbose = true,
                    'p' | 'h' | 'o' | 'k' => {}
                    other => return Err(format!("invalid option -- '{other}'")),
                }
            }
        }
        Ok(options)
    }

    fn long(&mut self, long: &str) -> Result<(), String> {
        match long.trim_start_matches('-').split_once('=') {
            Some(("strip-components", count)) => {
                self.strips = count.parse().map_err(|_| format!("invalid number '{count}'"))?;
            }
            _ if ["-no-same-permissions", "-no-same-owner", "-overwrite", "-numeric-owner"]
                .contains(&long) => {}
            _ => return Err(format!("unrecognized option '-{long}'")),
        }
        Ok(())
    }
}

impl Shell {
    pub(super) async fn tar(&mut self, arguments: &[String], io: &Io) -> Done {
        let options = match Options::parse(arguments) {
            Ok(options) => options,
            Err(why) => return self.usage(io, &format!("tar: {why}")).await,
        };
        let before = self.directory.clone();
        if !options.directory.is_empty() {
            let path = self.path(&options.directory);
            if !self.machine.look(&path).is_some_and(|entry| entry.is_directory()) {
                let directory = &options.directory;
                let why = format!("tar: can't change directory to '{directory}': No such file or directory");
                return self.complain(io, why).await;
            }
            self.directory = path;
        }
        let done = match options.action {
            Some('c') => self.pack(&options, io).await,
            Some(_) => self.unpack(&options, io).await,
            None => self.usage(io, "tar: must specify one of -c, -x, -t").await,
        };
        self.directory = before;
        done
    }

    async fn pack(&mut self, options: &Options, io: &Io) -> Done {
        let output = match &*options.file {
            "-" => io.stdout.clone(),
            file => match self.open_output(file, false, io) {
                Ok(output) => output,
                Err(why) => return self.complain(io, format!("tar: can't open '{file}': {why}")).await,
            },
        };
        let mut code = 0;
        for name in &options.names {
            self.pay().await?;
            let path = self.path(name);
            let found = self.machine.certain(&path, self.machine.files.get(&path))?;
            if let Err(why) = found {
                code = self.complain(io, format!("tar: {name}: {why}")).await?;
                continue;
            }
            if name.starts_with('/') {
                self.complain(io, "tar: removing leading '/' from member names").await?;
            }
            let mut listed = Vec::new();
            self.list_below(&path, name.trim_matches('/'), 0, &mut listed);
            for (path, name) in listed {
                // Only one file is held at a time. A file that is gone by now is skipped.
                if let Some(member) = self.member(&path, name) {
                    self.machine.owe(member.content.as_ref().map_or(0, Vec::len));
                    self.pay().await?;
                    output.write(&self.machine, &encode(&member)).await?;
                }
            }
        }
        output.write(&self.machine, &END).await?;
        Ok(code)
    }

    /// Lists a file, or a directory and everything below it: paths, and names in the archive.
    fn list_below(&self, path: &str, name: &str, depth: usize, listed: &mut Vec<(String, String)>) {
        let shown = if name.is_empty() { "." } else { name };
        self.machine.owe(ENTRY_WORK + path.len());
        listed.push((path.to_owned(), shown.to_owned()));
        let names = if depth == DEEPEST { Ok(Vec::new()) } else { self.machine.files.list(path) };
        for below in names.unwrap_or_default() {
            let path = path::normal(path, &below);
            self.list_below(&path, &path::below(name, &below), depth + 1, listed);
        }
    }

    fn member(&self, path: &str, name: String) -> Option<Member> {
        let entry = self.machine.files.get(path).ok()?;
        let (mode, modified) = (entry.mode(), entry.modified());
        let content = match entry {
            Entry::File { content, .. } => Some(Vec::clone(&content)),
            Entry::Directory { .. } => None,
        };
        Some(Member { name, mode, modified, content })
    }

    async fn unpack(&mut self, options: &Options, io: &Io) -> Done {
        let input = match self
            .open_input(if options.file == "-" { "/dev/stdin" } else { &options.file }, io)?
        {
            Ok(input) => input,
            Err(why) => return self.complain(io, format!("tar: can't open '{}': {why}", options.file)).await,
        };
        let (mut reader, mut code) = (Reader::new(LARGEST), 0);
        while let Some(piece) = input.read(&self.machine).await? {
            self.machine.owe(piece.len());
            match reader.read(&piece) {
                Ok(members) => {
                    for member in members {
                        self.machine.owe(ENTRY_WORK + options.names.iter().map(String::len).sum::<usize>());
                        self.pay().await?;
                        code = self.unpack_member(member, options, io).await?.max(code);
                    }
                }
                Err(why) => return self.complain(io, format!("tar: {}", reason(why))).await,
            }
        }
        match reader.finish() {
            Ok(()) => Ok(code),
            Err(why) => self.complain(io, format!("tar: {}", reason(why))).await,
        }
    }

    async fn unpack_member(&mut self, member: Member, options: &Options, io: &Io) -> Done {
        let name = member.name.trim_start_matches('/');
        // A member never leaves the directory.
        if name.split('/').any(|part| part == "..") {
            return self.complain(io, format!("tar: name '{name}' contains '..'")).await;
        }
        let name = name.split('/').filter(|part| !part.is_empty() && *part != ".").skip(options.strips);
        let name = name.collect::<Vec<_>>().join("/");
        let is_meant = |wanted: &String| name == *wanted || name.starts_with(&format!("{wanted}/"));
        if name.is_empty() || !options.names.is_empty() && !options.names.iter().any(is_meant) {
            return Ok(0);
        }
        if options.action == Some('t') || options.is_verbose {
            self.print(io, format!("{name}\n")).await?;
        }
        if options.action == Some('t') {
            return Ok(0);
        }
        match self.place(&self.path(&name), member, options) {
            Ok(()) => Ok(0),
            Err(why) => self.complain(io, format!("tar: can't create '{name}': {why}")).await,
        }
    }

    fn place(&self, path: &str, member: Member, options: &Options) -> Result<(), crate::files::FileError> {
        let now = self.machine.pace.now();
        let Some(content) = member.content else { return self.make_all(path) };
        self.make_all(match path::split(path).0 {
            "" => "/",
            directory => directory,
        })?;
        self.machine.touch(path);
        let modified = if options.keeps_time { member.modified } else { now };
        self.machine.files.write(path, content, modified)?;
        self.machine.files.set_mode(path, member.mode)
    }
}

fn reason(error: ArchiveError) -> &'static str {
    match error {
        ArchiveError::InvalidHeader => "invalid tar magic",
        ArchiveError::TooLarge => "a member is too large for a simulated container",
        ArchiveError::ShortRead => "short read",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_that_kubectl_uses_are_understood() {
        let parse = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            Options::parse(&words)
                .map(|options| (options.action, options.file, options.directory, options.names))
        };
        let parsed = |action, directory: &str, names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            Ok((Some(action), "-".to_owned(), directory.to_owned(), names))
        };
        assert_eq!(parse("cf - /etc/config"), parsed('c', "", &["/etc/config"]));
        assert_eq!(parse("-xmf - -C /tmp"), parsed('x', "/tmp", &[]));
        let unprivileged = "--no-same-permissions --no-same-owner -xmf - -C /tmp";
        assert_eq!(parse(unprivileged), parsed('x', "/tmp", &[]));
        assert_eq!(parse("czf - x"), Err("invalid option -- 'z'".into()));
    }
}
