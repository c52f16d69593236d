//! Commands that change files.

use super::flags;
use crate::files::{Entry, FileError, MAX_PATH, path};
use crate::process::{Done, Io, Shell, Stop, base_name};

/// The maximum depth of copied directories, which bounds the stack.
const DEEPEST: usize = 64;

/// Reading or writing an entry takes as long as copying this many bytes.
pub(super) const ENTRY_WORK: usize = 256;

impl Shell {
    /// Prepares a change to a file.
    fn about_to_change(&self, path: &str) {
        self.machine.touch(path);
        self.make_doubtful_parents(path);
    }

    pub(super) async fn touch(&mut self, arguments: &[String], io: &Io) -> Done {
        let Some((found, names)) = flags(arguments, "camh") else {
            return self.usage(io, "touch: unrecognized option").await;
        };
        let mut code = 0;
        for name in names {
            self.pay().await?;
            let path = self.path(name);
            if found.contains('c') && self.machine.look(&path).is_none() {
                continue;
            }
            self.about_to_change(&path);
            if let Err(why) = self.machine.files.touch(&path, self.machine.pace.now()) {
                code = self.complain(io, format!("touch: {name}: {why}")).await?;
            }
        }
        Ok(code)
    }

    pub(super) async fn mkdir(&mut self, arguments: &[String], io: &Io) -> Done {
        let Some((found, names)) = flags(arguments, "pv") else {
            return self.usage(io, "mkdir: unrecognized option").await;
        };
        let mut code = 0;
        for name in names {
            self.pay().await?;
            let path = self.path(name);
            let made = match found.contains('p') {
                true => self.make_all(&path),
                false => {
                    self.about_to_change(&path);
                    self.machine.files.make_directory(&path, self.machine.pace.now())
                }
            };
            if let Err(why) = made {
                code = self.complain(io, format!("mkdir: can't create directory '{name}': {why}")).await?;
            }
        }
        Ok(code)
    }

    /// Creates a directory and its parents, unless they exist.
    pub(super) fn make_all(&self, path: &str) -> Result<(), FileError> {
        if path.len() > MAX_PATH {
            return Err(FileError::NameTooLong);
        }
        self.owe_parents(path);
        let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0).chain([path.len()]);
        for directory in ends.map(|end| &path[..end]) {
            match self.machine.files.get(directory) {
                Ok(entry) if entry.is_directory() => {}
                Ok(_) => return Err(FileError::NotADirectory),
                Err(_) => {
                    self.machine.touch(directory);
                    self.machine.files.make_directory(directory, self.machine.pace.now())?;
                }
            }
        }
        Ok(())
    }

    pub(super) async fn rmdir(&mut self, arguments: &[String], io: &Io) -> Done {
        let mut code = 0;
        for name in arguments {
            let path = self.path(name);
            let listed = self.machine.certain(&path, self.machine.files.list(&path))?;
            let removed = match listed {
                Ok(names) if !names.is_empty() => Err(FileError::NotEmpty),
                Ok(_) => self.machine.files.remove(&path),
                Err(why) => Err(why),
            };
            if let Err(why) = removed {
                code = self.complain(io, format!("rmdir: '{name}': {why}")).await?;
            }
        }
        Ok(code)
    }

    pub(super) async fn rm(&mut self, arguments: &[String], io: &Io) -> Done {
        let Some((found, names)) = flags(arguments, "rRfiv") else {
            return self.usage(io, "rm: unrecognized option").await;
        };
        let (mut code, removes_all, is_forced) = (0, found.contains(['r', 'R']), found.contains('f'));
        for name in names {
            let path = self.path(name);
            self.machine.touch(&path);
            let removed = match self.machine.files.get(&path) {
                Ok(entry) if entry.is_directory() && !removes_all => Err(FileError::IsADirectory),
                Ok(_) => self.machine.files.remove(&path),
                // The image may have contained it.
                Err(_) if self.may_be_of_the_image(&path) => Ok(()),
                Err(why) => Err(why),
            };
            match removed {
                Err(FileError::NotFound) if is_forced => {}
                Err(why) => code = self.complain(io, format!("rm: can't remove '{name}': {why}")).await?,
                Ok(()) => {}
            }
        }
        Ok(code)
    }

    fn may_be_of_the_image(&self, path: &str) -> bool {
        self.machine.manner == crate::process::UnknownCommands::Certain
            && !self.machine.files.is_complete(path)
    }

    pub(super) async fn chmod(&mut self, arguments: &[String], io: &Io) -> Done {
        let words: Vec<&String> = arguments.iter().filter(|word| *word != "-R").collect();
        let Some((mode, names)) = words.split_first() else {
            return self.usage(io, "usage: chmod MODE FILE...").await;
        };
        let mut code = 0;
        for name in names {
            let path = self.path(name);
            let entry = match self.machine.files.get(&path) {
                Ok(entry) => entry,
                Err(_) if self.may_be_of_the_image(&path) => continue,
                Err(why) => {
                    code = self.complain(io, format!("chmod: {name}: {why}")).await?;
                    continue;
                }
            };
            let Some(mode) = changed_mode(entry.mode(), mode) else {
                return self.usage(io, &format!("chmod: invalid mode '{mode}'")).await;
            };
            if let Err(why) = self.machine.files.set_mode(&path, mode) {
                code = self.complain(io, format!("chmod: {name}: {why}")).await?;
            }
        }
        Ok(code)
    }

    pub(super) async fn realpath(&mut self, arguments: &[String], io: &Io) -> Done {
        for name in arguments.iter().filter(|name| !name.starts_with('-')) {
            self.print(io, format!("{}\n", self.path(name))).await?;
        }
        Ok(0)
    }

    pub(super) async fn cp(&mut self, arguments: &[String], io: &Io) -> Done {
        let Some((found, names)) = flags(arguments, "rRapfdLPTv") else {
            return self.usage(io, "cp: unrecognized option").await;
        };
        let is_deep = found.contains(['r', 'R', 'a']);
        self.transfer("cp", &names, is_deep, false, io).await
    }

    pub(super) async fn mv(&mut self, arguments: &[String], io: &Io) -> Done {
        let Some((_, names)) = flags(arguments, "fvnT") else {
            return self.usage(io, "mv: unrecognized option").await;
        };
        self.transfer("mv", &names, true, true, io).await
    }

    async fn transfer(
        &mut self,
        command: &str,
        names: &[&str],
        is_deep: bool,
        removes: bool,
        io: &Io,
    ) -> Done {
        let [sources @ .., target] = names else {
            return self.usage(io, &format!("{command}: missing file")).await;
        };
        if sources.is_empty() {
            return self.usage(io, &format!("{command}: missing file")).await;
        }
        let to = self.path(target);
        let is_directory = self.machine.look(&to).is_some_and(|entry| entry.is_directory());
        if sources.len() > 1 && !is_directory {
            return self.complain(io, format!("{command}: target '{target}' is not a directory")).await;
        }
        let mut code = 0;
        for source in sources {
            self.pay().await?;
            let from = self.path(source);
            let to = if is_directory {
                format!("{}/{}", to.trim_end_matches('/'), base_name(&from))
            } else {
                to.clone()
            };
            self.about_to_change(&to);
            let done = self.copied(&from, &to, is_deep, 0)?;
            let done = done.and_then(|()| if removes { self.machine.files.remove(&from) } else { Ok(()) });
            if let Err(why) = done {
                let message = match command {
                    "mv" => format!("mv: can't rename '{source}': {why}"),
                    _ => format!("cp: can't stat '{source}': {why}"),
                };
                code = self.complain(io, message).await?;
            }
        }
        Ok(code)
    }

    fn copied(
        &self,
        from: &str,
        to: &str,
        is_deep: bool,
        depth: usize,
    ) -> Result<Result<(), FileError>, Stop> {
        let entry = match self.machine.certain(from, self.machine.files.get(from))? {
            Ok(entry) => entry,
            Err(why) => return Ok(Err(why)),
        };
        let now = self.machine.pace.now();
        self.machine.owe(ENTRY_WORK + from.len() + to.len());
        let content = match entry {
            Entry::File { content, .. } => content,
            Entry::Directory { .. } if !is_deep => return Ok(Err(FileError::IsADirectory)),
            Entry::Directory { .. } if depth == DEEPEST || to.starts_with(&format!("{from}/")) => {
                return Ok(Err(FileError::Busy));
            }
            Entry::Directory { .. } => {
                if let Err(why) = self.make_all(to) {
                    return Ok(Err(why));
                }
                for name in self.machine.files.list(from).unwrap_or_default() {
                    let (from, to) = (path::below(from, &name), path::below(to, &name));
                    if let Err(why) = self.copied(&from, &to, is_deep, depth + 1)? {
                        return Ok(Err(why));
                    }
                }
                return Ok(Ok(()));
            }
        };
        let mode = self.machine.files.get(from).map_or(0o644, |entry| entry.mode());
        let written = self.machine.files.write_shared(to, content, now);
        Ok(written.and_then(|()| self.machine.files.set_mode(to, mode)))
    }
}

/// Returns a mode after `chmod`: octal, or letters such as `u+x` and `a=r`.
fn changed_mode(mode: u32, change: &str) -> Option<u32> {
    if change.starts_with(|c: char| c.is_ascii_digit()) {
        return u32::from_str_radix(change, 8).ok().filter(|mode| *mode <= 0o7777);
    }
    let mut mode = mode;
    for clause in change.split(',') {
        let at = clause.find(['+', '-', '='])?;
        let (who, operation, letters) = (&clause[..at], clause.as_bytes()[at], &clause[at + 1..]);
        let mut mask = 0;
        for letter in if who.is_empty() { "a" } else { who }.chars() {
            mask |= match letter {
                'u' => 0o700,
                'g' => 0o070,
                'o' => 0o007,
                'a' => 0o777,
                _ => return None,
            };
        }
        let mut bits = 0;
        for letter in letters.chars() {
            bits |= match letter {
                'r' => 0o444,
                'w' => 0o222,
                'x' | 'X' => 0o111,
                's' | 't' => 0,
                _ => return None,
            };
        }
        mode = match operation {
            b'+' => mode | bits & mask,
            b'-' => mode & !(bits & mask),
            _ => mode & !mask | bits & mask,
        };
    }
    Some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_change_as_chmod_says() {
        let check = |change: &str, expected| assert_eq!(changed_mode(0o644, change), expected, "{change}");
        check("755", Some(0o755));
        check("+x", Some(0o755));
        check("u+x,go-r", Some(0o700));
        check("a=r", Some(0o444));
        check("99999", None);
        check("x", None);
        check("q+x", None);
    }
}
