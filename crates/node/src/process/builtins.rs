//! Commands that change the shell itself. All others are in [`super::commands`].

use super::{Done, Io, Shell, Stop, UnknownCommands, base_name};
use crate::shell::parse;

/// Parsing a byte takes as long as copying this many.
pub(super) const PARSED_BYTE: usize = 8;

impl Shell {
    /// Runs a builtin, or any other command.
    pub(super) async fn builtin(&mut self, name: &str, arguments: &[String], io: &Io) -> Done {
        match name {
            ":" | "wait" | "umask" | "ulimit" => Ok(0),
            "exit" => Err(Stop::Exit(self.code(arguments)?)),
            "return" => Err(Stop::Return(self.code(arguments)?)),
            "break" => Err(Stop::Break(levels(arguments))),
            "continue" => Err(Stop::Continue(levels(arguments))),
            // Replaces the shell. A chain of `exec` is collapsed.
            "exec" => match arguments.iter().position(|word| word != "exec") {
                Some(at) => {
                    let done = self.run_command(&arguments[at], &arguments[at + 1..], io).await;
                    done.and_then(|code| Err(Stop::Exit(code)))
                }
                None => Ok(0),
            },
            "eval" => self.evaluate(&arguments.join(" "), io).await,
            "." | "source" => self.read_script(arguments, io).await,
            "cd" => self.change_directory(arguments, io).await,
            "export" | "readonly" | "local" => self.declare(name == "export", arguments, io).await,
            "unset" => {
                for name in arguments.iter().filter(|name| !name.starts_with('-')) {
                    self.unset(name);
                }
                Ok(0)
            }
            "set" => self.set_options(arguments),
            "shift" => self.shift(arguments, io).await,
            "trap" => self.trap(arguments),
            "read" => self.read_variables(arguments, io).await,
            "command" => self.find_command(arguments, io).await,
            "type" | "which" => self.locate_commands(name, arguments, io).await,
            _ => self.run_command(name, arguments, io).await,
        }
    }

    fn code(&self, arguments: &[String]) -> Result<i32, Stop> {
        match arguments.first() {
            None => Ok(self.status),
            Some(code) => Ok(code.parse::<i32>().map_err(|_| self.unclear(2))? & 255),
        }
    }

    /// Returns the effect of an unknown command.
    pub(super) fn unclear(&self, code: i32) -> Stop {
        match self.machine.manner {
            UnknownCommands::Certain => Stop::Unknown,
            UnknownCommands::Interactive => Stop::Exit(code),
        }
    }

    /// Runs text as a script in this shell.
    pub(super) async fn evaluate(&mut self, text: &str, io: &Io) -> Done {
        self.machine.owe(text.len() * PARSED_BYTE);
        self.pay().await?;
        let script = match parse(text) {
            Ok(script) => script,
            Err(_) if self.machine.manner == UnknownCommands::Certain => return Err(Stop::Unknown),
            Err(why) => return self.complain(io, format!("sh: {why}")).await.map(|_| 2),
        };
        self.list(&script, io).await
    }

    async fn read_script(&mut self, arguments: &[String], io: &Io) -> Done {
        let Some(name) = arguments.first() else { return Ok(0) };
        let path = self.path(name);
        match self.machine.certain(&path, self.machine.files.read(&path))? {
            Ok(content) => match self.evaluate(&String::from_utf8_lossy(&content), io).await {
                Err(Stop::Return(code)) => Ok(code),
                done => done,
            },
            Err(why) => {
                self.complain(io, format!("sh: .: can't open '{name}': {why}")).await?;
                Err(Stop::Exit(2))
            }
        }
    }

    async fn change_directory(&mut self, arguments: &[String], io: &Io) -> Done {
        let home = self.get("HOME")?.unwrap_or("/root");
        let name = arguments.iter().find(|word| *word != "--").map_or(home, String::as_str).to_owned();
        let path = self.path(&name);
        let found = self.machine.files.get(&path);
        let may_be_of_the_image =
            self.machine.manner == UnknownCommands::Certain && !self.machine.files.is_complete(&path);
        match found {
            Ok(entry) if entry.is_directory() => {}
            Err(_) if may_be_of_the_image => {}
            Ok(_) => return self.complain(io, format!("sh: cd: can't cd to {name}: Not a directory")).await,
            Err(why) => return self.complain(io, format!("sh: cd: can't cd to {name}: {why}")).await,
        }
        self.directory = path;
        Ok(0)
    }

    async fn declare(&mut self, exports: bool, arguments: &[String], io: &Io) -> Done {
        if arguments.is_empty() || arguments.first().is_some_and(|first| first == "-p") {
            let exported = self.variables.iter().filter(|(_, variable)| variable.is_exported);
            let lines: String =
                exported.map(|(name, variable)| format!("export {name}='{}'\n", variable.value)).collect();
            return self.print(io, lines).await.map(|()| 0);
        }
        for argument in arguments.iter().filter(|argument| !argument.starts_with('-')) {
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => (argument.as_str(), self.get(argument)?.unwrap_or_default().to_owned()),
            };
            let was_exported = self.variables.get(name).is_some_and(|variable| variable.is_exported);
            self.insert(name, value, exports || was_exported)?;
        }
        Ok(0)
    }

    pub(super) fn set_options(&mut self, arguments: &[String]) -> Done {
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let (on, flags) = match word.as_bytes() {
                [b'-', b'-'] => {
                    self.parameters = words.cloned().collect();
                    return Ok(0);
                }
                [b'-', flags @ ..] => (true, flags),
                [b'+', flags @ ..] => (false, flags),
                _ => {
                    self.parameters = std::iter::once(word).chain(words).cloned().collect();
                    return Ok(0);
                }
            };
            for flag in flags {
                match flag {
                    b'e' => self.options.exits_on_failure = on,
                    b'u' => self.options.rejects_unset = on,
                    b'o' => match words.next().map(String::as_str) {
                        Some("pipefail") => self.options.pipes_fail = on,
                        Some("errexit") => self.options.exits_on_failure = on,
                        Some("nounset") => self.options.rejects_unset = on,
                        _ => {}
                    },
                    // Tracing and the other options have no visible effect in the simulation.
                    _ => {}
                }
            }
        }
        Ok(0)
    }

    async fn shift(&mut self, arguments: &[String], io: &Io) -> Done {
        let count = arguments.first().and_then(|count| count.parse().ok()).unwrap_or(1);
        if count > self.parameters.len() {
            return self.complain(io, "sh: shift: can't shift that many").await;
        }
        self.machine.owe(self.parameters.iter().map(String::len).sum());
        self.parameters = self.parameters[count..].into();
        Ok(0)
    }

    /// Traps of signals are accepted, because no signals are simulated. A trap on exit would have to run.
    fn trap(&self, arguments: &[String]) -> Done {
        let at_exit = arguments.iter().skip(1).any(|signal| signal == "EXIT" || signal == "0");
        if at_exit { Err(self.unclear(2)) } else { Ok(0) }
    }

    async fn read_variables(&mut self, arguments: &[String], io: &Io) -> Done {
        let names: Vec<&String> = arguments.iter().filter(|name| !name.starts_with('-')).collect();
        let line = io.stdin.read_line(&self.machine).await?;
        let text = String::from_utf8_lossy(line.as_deref().unwrap_or_default()).into_owned();
        let mut rest = text.trim_end_matches('\n').trim();
        let Some((last, first)) = names.split_last() else {
            self.set("REPLY", rest.to_owned())?;
            return Ok(i32::from(line.is_none()));
        };
        for name in first {
            let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            self.set(name, word.to_owned())?;
            rest = after.trim_start();
        }
        self.set(last, rest.to_owned())?;
        Ok(i32::from(line.is_none()))
    }

    async fn find_command(&mut self, arguments: &[String], io: &Io) -> Done {
        match arguments {
            [flag, name, ..] if flag == "-v" || flag == "-V" => {
                self.locate_commands("command", std::slice::from_ref(name), io).await
            }
            [name, rest @ ..] => self.builtin_without_functions(name, rest, io).await,
            [] => Ok(0),
        }
    }

    async fn builtin_without_functions(&mut self, name: &str, arguments: &[String], io: &Io) -> Done {
        self.enter_call()?;
        let done = Box::pin(self.builtin(name, arguments, io)).await;
        self.leave_call();
        done
    }

    async fn locate_commands(&mut self, how: &str, names: &[String], io: &Io) -> Done {
        let mut code = 0;
        for name in names {
            let is_builtin = BUILTINS.contains(&name.as_str()) || self.functions.contains_key(name);
            let is_known = super::is_known(base_name(name));
            if !is_builtin && !is_known {
                // The image may contain it.
                if self.machine.manner == UnknownCommands::Certain {
                    return Err(Stop::Unknown);
                }
                code = 127;
                continue;
            }
            let found = if is_builtin { name.clone() } else { format!("/bin/{}", base_name(name)) };
            let line = if how == "type" { format!("{name} is {found}\n") } else { format!("{found}\n") };
            self.print(io, line).await?;
        }
        Ok(code)
    }
}

/// Commands that exist in the shell only.
const BUILTINS: [&str; 24] = [
    ".", ":", "break", "cd", "command", "continue", "eval", "exec", "exit", "export", "local", "read",
    "readonly", "return", "set", "shift", "source", "trap", "type", "ulimit", "umask", "unset", "wait",
    "which",
];

fn levels(arguments: &[String]) -> usize {
    arguments.first().and_then(|levels| levels.parse().ok()).unwrap_or(1).max(1)
}
