//! The commands of a simulated container, in the manner of BusyBox.
//!
//! ```text
//!  text.rs       echo, printf, seq, basename, dirname
//!  format.rs     pure: `printf`
//!  filters.rs    cat, head, tail, wc, tee
//!  grep.rs       grep
//!  files.rs      touch, mkdir, rmdir, rm, cp, mv, chmod
//!  listing.rs    ls
//!  tar.rs        tar
//!  system.rs     env, id, hostname, date, sleep and the like
//!  conditions.rs test, expr
//! ```

mod conditions;
mod files;
mod filters;
mod format;
mod grep;
mod listing;
mod system;
mod tar;
mod text;

use super::{Done, Io, Shell, Stop, UnknownCommands, base_name};

/// The exit code of a command that does not exist.
pub(crate) const NOT_FOUND: i32 = 127;

/// All of them, sorted.
const KNOWN: [&str; 48] = [
    "[", "[[", "ash", "basename", "bash", "cat", "chgrp", "chmod", "chown", "cp", "dash", "date", "dirname",
    "echo", "egrep", "env", "expr", "false", "fgrep", "grep", "head", "hostname", "id", "ls", "mkdir", "mv",
    "nproc", "printenv", "printf", "pwd", "readlink", "realpath", "rm", "rmdir", "seq", "sh", "sleep",
    "sync", "tail", "tar", "tee", "test", "touch", "true", "tty", "uname", "wc", "whoami",
];

/// Whether a command can be run.
pub(crate) fn is_known(name: &str) -> bool {
    KNOWN.contains(&name)
}

/// Appends the list of known commands to an error message.
pub(crate) fn not_found() -> String {
    let names: Vec<&str> = KNOWN.into_iter().filter(|name| name.starts_with(char::is_alphabetic)).collect();
    format!(
        "this is a simulated container: it has no image, and runs only these commands: {}",
        names.join(" ")
    )
}

impl Shell {
    /// Runs a command that is not a builtin.
    pub(super) async fn run_command(&mut self, name: &str, arguments: &[String], io: &Io) -> Done {
        match base_name(name) {
            "true" | "sync" => Ok(0),
            "false" => Ok(1),
            "sh" | "bash" | "ash" | "dash" => self.nested_shell(arguments, io).await,
            "echo" => self.echo(arguments, io).await,
            "printf" => self.printf(arguments, io).await,
            "seq" => self.seq(arguments, io).await,
            "basename" => self.basename(arguments, io).await,
            "dirname" => self.dirname(arguments, io).await,
            "test" => self.test(arguments, io).await,
            "[" => self.bracket(arguments, "]", io).await,
            "[[" => self.bracket(arguments, "]]", io).await,
            "expr" => self.expr(arguments, io).await,
            "cat" => self.cat(arguments, io).await,
            "head" => self.head(arguments, io).await,
            "tail" => self.tail(arguments, io).await,
            "wc" => self.wc(arguments, io).await,
            "tee" => self.tee(arguments, io).await,
            grep @ ("grep" | "egrep" | "fgrep") => self.grep(grep, arguments, io).await,
            "touch" => self.touch(arguments, io).await,
            "mkdir" => self.mkdir(arguments, io).await,
            "rmdir" => self.rmdir(arguments, io).await,
            "rm" => self.rm(arguments, io).await,
            "cp" => self.cp(arguments, io).await,
            "mv" => self.mv(arguments, io).await,
            "chmod" => self.chmod(arguments, io).await,
            "chown" | "chgrp" => Ok(0),
            "ls" => self.ls(arguments, io).await,
            "tar" => self.tar(arguments, io).await,
            "realpath" | "readlink" => self.realpath(arguments, io).await,
            name => self.system(name, arguments, io).await,
        }
    }

    /// Reports an unknown command.
    async fn unknown_command(&self, name: &str, io: &Io) -> Done {
        if self.machine.manner == UnknownCommands::Certain {
            return Err(Stop::Unknown);
        }
        self.complain(io, format!("sh: {name}: not found ({})", not_found())).await?;
        Ok(NOT_FOUND)
    }

    /// Reports options or arguments that do not exist or are not simulated.
    async fn usage(&self, io: &Io, text: &str) -> Done {
        if self.machine.manner == UnknownCommands::Certain {
            return Err(Stop::Unknown);
        }
        self.complain(io, format!("{text} (a simulated container supports fewer options)")).await
    }

    /// `sh -c SCRIPT`, `sh FILE`, or `sh` with a script on stdin.
    async fn nested_shell(&mut self, arguments: &[String], io: &Io) -> Done {
        let mut subshell = self.forked()?;
        subshell.functions = Default::default();
        subshell.options = super::shell::Options::default();
        if subshell.variables.values().any(|variable| !variable.is_exported) {
            subshell.own_variables().retain(|_, variable| variable.is_exported);
        }
        let options =
            arguments.iter().take_while(|word| word.starts_with(['-', '+']) && word.len() > 1).count();
        let (options, rest) = arguments.split_at(options);
        _ = subshell.set_options(options)?;
        subshell.parameters = Default::default();
        let takes_script = options.iter().any(|flags| flags.starts_with('-') && flags.contains('c'));
        let done = match (takes_script, rest) {
            (true, [script, rest @ ..]) => {
                if let Some((name, parameters)) = rest.split_first() {
                    (subshell.name, subshell.parameters) = (name.clone(), parameters.into());
                }
                subshell.evaluate(script, io).await
            }
            (true, []) => return self.usage(io, "sh: -c requires an argument").await,
            (false, [file, parameters @ ..]) => {
                let path = self.path(file);
                let read = self.machine.certain(&path, self.machine.files.read(&path))?;
                let Ok(content) = read else {
                    return self.complain(io, format!("sh: can't open '{file}'")).await.map(|_| 2);
                };
                (subshell.name, subshell.parameters) = (file.clone(), parameters.into());
                subshell.evaluate(&String::from_utf8_lossy(&content), io).await
            }
            (false, []) => subshell.interpret(io).await,
        };
        match done {
            Err(Stop::Exit(code) | Stop::Return(code)) => Ok(code),
            Err(Stop::Break(_) | Stop::Continue(_)) => Ok(0),
            done => done,
        }
    }
}

/// Splits single-letter options from the other arguments. `None` if there is an option that is not among `known`.
fn flags<'a>(arguments: &'a [String], known: &str) -> Option<(String, Vec<&'a str>)> {
    let (mut found, mut others) = (String::new(), Vec::new());
    let mut only_others = false;
    for argument in arguments {
        match argument.strip_prefix('-') {
            Some("-") if !only_others => only_others = true,
            Some(letters) if !letters.is_empty() && !only_others => {
                if letters.chars().any(|letter| !known.contains(letter)) {
                    return None;
                }
                found.push_str(letters);
            }
            _ => others.push(argument.as_str()),
        }
    }
    Some((found, others))
}
