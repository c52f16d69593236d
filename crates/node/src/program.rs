//! Determines what a container's command does, as far as its text shows. Pure.
//!
//! Known are `true`, `false`, `exit`, `sleep`, `echo`, `test`, `expr`, a few file commands, `sh -c` scripts of these,
//! and images that only run a shell. An unknown command runs until it is stopped, like a server; most commands are
//! servers.
//!
//! Files on volumes outlive a container: the next run finds what the last one left. A file that a script checks is
//! assumed absent only if the script creates it itself; other files may exist.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use setpoint::Metadata;

use crate::shell::{Command, List, Part, Step, When, Word, parse};

/// A command that ends, or might end, on its own.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) script: List,
    pub(crate) environment: Vec<Variable>,
    pub(crate) mounts: Vec<Mount>,
    /// The termination message path.
    pub(crate) message_path: Box<str>,
    /// Whether the log of a failed run is its message if there is no other.
    pub(crate) is_log_message: bool,
}

/// The pod fields that variables may refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pod<'a> {
    pub(crate) meta: &'a Metadata,
    pub(crate) annotations: &'a BTreeMap<String, String>,
}

/// How a run ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) after: Duration,
    pub(crate) code: i32,
    /// The termination message.
    pub(crate) message: Box<str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Variable {
    pub(crate) name: Box<str>,
    value: Option<Box<str>>,
    value_from: Option<ValueFrom>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ValueFrom {
    field_ref: Option<FieldRef>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FieldRef {
    field_path: Box<str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Mount {
    mount_path: Box<str>,
}

/// How many runs of a container are simulated for the files they leave on volumes.
const MAX_SIMULATED_RUNS: u32 = 16;

/// The maximum size of a message from a file and from a log, as with the kubelet.
const MESSAGE_OF_FILE: usize = 4096;
const MESSAGE_OF_LOG: usize = 2048;

impl Program {
    /// Returns how the run after this many restarts ends, if it does.
    pub(crate) fn ending(&self, pod: Pod<'_>, restarts: u32) -> Option<Ending> {
        let mut files = BTreeMap::new();
        for _ in 0..restarts.min(MAX_SIMULATED_RUNS) {
            self.run(pod, &mut files)?;
            files.retain(|path, _| self.is_on_a_volume(path));
        }
        self.run(pod, &mut files)
    }

    fn is_on_a_volume(&self, path: &str) -> bool {
        self.mounts.iter().any(|mount| path.starts_with(mount.mount_path.trim_end_matches('/')))
    }

    fn run(&self, pod: Pod<'_>, files: &mut BTreeMap<String, String>) -> Option<Ending> {
        let mut variables = self.environment.iter().filter_map(|variable| variable.known(pod)).collect();
        let unknown = self.environment.iter().map(|variable| &*variable.name).collect();
        let mut shell = Shell::new(&mut variables, &unknown, files);
        let mut log = String::new();
        let code = shell.exit_code(&self.script, &mut log)?;
        let after = shell.elapsed;
        Some(Ending { after, code, message: self.message(code, files, &log) })
    }

    fn message(&self, code: i32, files: &BTreeMap<String, String>, log: &str) -> Box<str> {
        match files.get(&*self.message_path).filter(|message| !message.is_empty()) {
            Some(message) => tail(message, MESSAGE_OF_FILE).into(),
            None if self.is_log_message && code != 0 => tail(log, MESSAGE_OF_LOG).into(),
            None => "".into(),
        }
    }
}

fn tail(text: &str, bytes: usize) -> &str {
    let from = text.len().saturating_sub(bytes);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at));
    &text[from.unwrap_or(text.len())..]
}

/// Parses a command and its arguments, if it might end.
pub(crate) fn script(command: Vec<String>, args: Vec<String>) -> Option<List> {
    // Arguments alone are for the image's entrypoint, unless they name a program themselves.
    let named = args.first().is_some_and(|first| first.starts_with("/bin/") || first == "sh");
    if command.is_empty() && !named {
        return None;
    }
    let words: Vec<String> = command.into_iter().chain(args).collect();
    let (name, arguments) = words.split_first()?;
    if !["sh", "bash", "ash", "dash"].contains(&base_name(name)) {
        let words = words.iter().map(|word| Word::text(word)).collect();
        return Some(vec![(When::Always, Step::Command(Command { words, ..Command::default() }))]);
    }
    match arguments {
        [flags, script, ..] if flags == "-c" => parse(script),
        _ => None,
    }
}

/// Returns the default program of an image, if it is known to end: a shell without input exits.
pub(crate) fn of_image(image: &str) -> Option<List> {
    let name = base_name(image.split('@').next().unwrap_or(image));
    let name = name.split(':').next().unwrap_or(name);
    ["alpine", "busybox", "debian", "ubuntu"].contains(&name).then(List::new)
}

/// Returns the duration and exit code of a script without variables and files.
pub(crate) fn outcome(script: &List) -> Option<(Duration, i32)> {
    let (mut variables, mut files, unknown) = Default::default();
    let mut shell = Shell::new(&mut variables, &unknown, &mut files);
    let code = shell.exit_code(script, &mut String::new())?;
    Some((shell.elapsed, code))
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl Variable {
    /// Returns its name and value, if the value can be determined from the pod.
    pub(crate) fn known(&self, pod: Pod<'_>) -> Option<(String, String)> {
        let value = match &self.value_from {
            None => self.value.as_deref().unwrap_or_default().to_owned(),
            Some(from) => field(&from.field_ref.as_ref()?.field_path, pod)?,
        };
        (!value.contains("$(")).then(|| (self.name.to_string(), value))
    }
}

fn field(path: &str, pod: Pod<'_>) -> Option<String> {
    let of = |map: &str| path.strip_prefix(map)?.strip_prefix("['")?.strip_suffix("']");
    if let Some(key) = of("metadata.labels") {
        return Some(pod.meta.labels.get(key).unwrap_or_default().to_owned());
    }
    if let Some(key) = of("metadata.annotations") {
        return Some(pod.annotations.get(key).cloned().unwrap_or_default());
    }
    match path {
        "metadata.name" => Some(pod.meta.name.to_string()),
        "metadata.namespace" => pod.meta.namespace.as_ref().map(ToString::to_string),
        "metadata.uid" => Some(pod.meta.uid.to_string()),
        _ => None,
    }
}

/// Why the script stops.
enum Stop {
    Exit(i32),
    /// It does something unknown, or waits forever.
    Never,
}

/// The exit code of a command.
type Done = Result<i32, Stop>;

struct Shell<'a> {
    variables: &'a mut BTreeMap<String, String>,
    /// Variables that are set, possibly to an unknown value.
    unknown: &'a BTreeSet<&'a str>,
    files: &'a mut BTreeMap<String, String>,
    /// Files that this run has created or removed.
    touched: BTreeSet<String>,
    /// Files that were assumed absent.
    missed: BTreeSet<String>,
    elapsed: Duration,
    /// The total length of all expanded words.
    read: usize,
}

/// The maximum total length of expanded words in a run, which also bounds its files and log: a variable can double with
/// every line.
const LONGEST_RUN: usize = 1024 * 1024;

impl<'a> Shell<'a> {
    fn new(
        variables: &'a mut BTreeMap<String, String>,
        unknown: &'a BTreeSet<&'a str>,
        files: &'a mut BTreeMap<String, String>,
    ) -> Self {
        let (touched, missed) = Default::default();
        Self { variables, unknown, files, touched, missed, elapsed: Duration::ZERO, read: 0 }
    }

    /// Returns the exit code of a whole script, if it ends and the code can be determined.
    fn exit_code(&mut self, script: &List, log: &mut String) -> Option<i32> {
        let code = match self.list(script, log) {
            Ok(code) | Err(Stop::Exit(code)) => code,
            Err(Stop::Never) => return None,
        };
        self.missed.is_subset(&self.touched).then_some(code)
    }

    fn file(&mut self, path: &str) -> Option<&str> {
        if !self.files.contains_key(path) && !self.touched.contains(path) {
            self.missed.insert(path.to_owned());
        }
        self.files.get(path).map(String::as_str)
    }

    fn make(&mut self, path: &str) -> &mut String {
        self.touched.insert(path.to_owned());
        self.files.entry(path.to_owned()).or_default()
    }

    fn list(&mut self, list: &List, out: &mut String) -> Done {
        let mut code = 0;
        for (when, step) in list {
            let is_due = match when {
                When::Always => true,
                When::Succeeded => code == 0,
                When::Failed => code != 0,
            };
            if is_due {
                code = self.step(step, out)?;
            }
        }
        Ok(code)
    }

    fn step(&mut self, step: &Step, out: &mut String) -> Done {
        match step {
            Step::Command(command) => self.command(command, out),
            Step::If(branches, otherwise) => {
                for (condition, then) in branches {
                    if self.list(condition, out)? == 0 {
                        return self.list(then, out);
                    }
                }
                self.list(otherwise, out)
            }
        }
    }

    fn command(&mut self, command: &Command, out: &mut String) -> Done {
        let mut words = Vec::new();
        for word in &command.words {
            words.extend(self.word(word)?);
        }
        for (name, value) in &command.assigned {
            let value = self.word(value)?.unwrap_or_default();
            self.variables.insert(name.clone(), value);
        }
        let Some(output) = &command.output else { return self.call(&words, out) };
        let path = self.word(&output.path)?.unwrap_or_default();
        let mut written = String::new();
        let code = self.call(&words, &mut written);
        if path != "/dev/null" {
            let file = self.make(&path);
            if !output.appends {
                file.clear();
            }
            file.push_str(&written);
        }
        code
    }

    /// Expands a word. `None` if it is empty and unquoted.
    fn word(&mut self, word: &Word) -> Result<Option<String>, Stop> {
        let mut text = String::new();
        for part in &word.parts {
            let from = text.len();
            match part {
                Part::Text(plain) => text.push_str(plain),
                Part::Variable(name) => match self.variables.get(name) {
                    Some(value) => text.push_str(value),
                    None if self.unknown.contains(&**name) => return Err(Stop::Never),
                    None => {}
                },
                Part::Printed(list) => {
                    match self.list(list, &mut text) {
                        Ok(_) | Err(Stop::Exit(_)) => {}
                        Err(Stop::Never) => return Err(Stop::Never),
                    }
                    text.truncate(text.trim_end_matches('\n').len().max(from));
                }
            }
            self.read += text.len() - from;
            if self.read > LONGEST_RUN {
                return Err(Stop::Never);
            }
            // Word splitting is not supported.
            let is_put_in = !matches!(part, Part::Text(_));
            if is_put_in && !word.is_quoted && text[from..].contains(char::is_whitespace) {
                return Err(Stop::Never);
            }
        }
        Ok((word.is_quoted || !text.is_empty()).then_some(text))
    }

    fn call(&mut self, words: &[String], out: &mut String) -> Done {
        let Some((name, arguments)) = words.split_first() else { return Ok(0) };
        match base_name(name) {
            "true" | ":" | "date" | "mkdir" | "chmod" | "sync" => Ok(0),
            "false" => Ok(1),
            "exit" => Err(Stop::Exit(match arguments.first() {
                None => 0,
                Some(code) => code.parse::<i32>().map_err(|_| Stop::Never)? & 255,
            })),
            // Replaces the shell. A chain of `exec` is collapsed.
            "exec" => match arguments.iter().position(|word| word != "exec") {
                Some(at) => self.call(&arguments[at..], out).and_then(|code| Err(Stop::Exit(code))),
                None => Ok(0),
            },
            "sleep" => {
                self.elapsed += sleep(arguments).ok_or(Stop::Never)?;
                if self.elapsed < MAX_SLEEP { Ok(0) } else { Err(Stop::Never) }
            }
            "echo" => {
                echo(arguments, out);
                Ok(0)
            }
            "touch" => {
                for path in arguments {
                    self.make(path);
                }
                Ok(0)
            }
            "rm" => {
                for path in arguments {
                    self.make(path);
                    self.files.remove(path);
                }
                Ok(0)
            }
            "test" => self.test(arguments),
            "[" => self.test(arguments.strip_suffix(&["]".to_owned()]).ok_or(Stop::Never)?),
            "[[" => self.test(arguments.strip_suffix(&["]]".to_owned()]).ok_or(Stop::Never)?),
            "expr" => expr(arguments, out).ok_or(Stop::Never),
            _ => Err(Stop::Never),
        }
    }

    fn test(&mut self, arguments: &[String]) -> Done {
        let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let denials =
            words.iter().take(words.len().saturating_sub(1)).take_while(|word| **word == "!").count();
        words.drain(..denials);
        let number = |text: &str| text.parse::<i64>().map_err(|_| Stop::Never);
        let holds = match *words {
            [] => false,
            [word] => !word.is_empty(),
            ["-n", word] => !word.is_empty(),
            ["-z", word] => word.is_empty(),
            ["-e" | "-f" | "-r" | "-w", path] => self.file(path).is_some(),
            ["-s", path] => self.file(path).is_some_and(|content| !content.is_empty()),
            [left, "=" | "==", right] => left == right,
            [left, "!=", right] => left != right,
            [left, "-eq", right] => number(left)? == number(right)?,
            [left, "-ne", right] => number(left)? != number(right)?,
            [left, "-lt", right] => number(left)? < number(right)?,
            [left, "-le", right] => number(left)? <= number(right)?,
            [left, "-gt", right] => number(left)? > number(right)?,
            [left, "-ge", right] => number(left)? >= number(right)?,
            _ => return Err(Stop::Never),
        };
        let denied = denials % 2 == 1;
        Ok(i32::from(holds == denied))
    }
}

/// Returns the duration of a `sleep`. `None` if it is infinite or not understood.
fn sleep(arguments: &[String]) -> Option<Duration> {
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
    let naps: Option<Vec<Duration>> = arguments.iter().map(one).collect();
    naps.filter(|naps| !naps.is_empty())?
        .into_iter()
        .try_fold(Duration::ZERO, |sum, sleep| sum.checked_add(sleep).filter(|sum| *sum < MAX_SLEEP))
}

/// Anything longer than a year never ends.
const MAX_SLEEP: Duration = Duration::from_secs(366 * 86400);

fn echo(arguments: &[String], out: &mut String) {
    let (ends_line, words) = match arguments {
        [flag, words @ ..] if flag == "-n" => (false, words),
        words => (true, words),
    };
    out.push_str(&words.join(" "));
    if ends_line {
        out.push('\n');
    }
}

/// Prints the result of an operation. Fails if it is zero.
fn expr(arguments: &[String], out: &mut String) -> Option<i32> {
    let [left, operator, right] = arguments else { return None };
    let (left, right) = (left.parse::<i64>().ok()?, right.parse::<i64>().ok()?);
    let result = match operator.as_str() {
        "+" => left.checked_add(right),
        "-" => left.checked_sub(right),
        "*" => left.checked_mul(right),
        "/" => left.checked_div(right),
        "%" => left.checked_rem(right),
        _ => None,
    }?;
    out.push_str(&format!("{result}\n"));
    Some(i32::from(result == 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn program(container: Value) -> Option<Box<Program>> {
        serde_json::from_value::<crate::view::Container>(container).expect("a container").program
    }

    /// Returns how a run of a container ends: seconds and code, or `-` if it does not.
    fn ends(container: Value, restarts: u32) -> String {
        let pod = json!({"metadata": {"name": "p", "namespace": "ns", "labels": {"index": "3"}}}).to_string();
        let object = setpoint::Object::from_json(pod.into()).expect("an object");
        let pod = Pod { meta: object.meta(), annotations: &BTreeMap::new() };
        let ending = program(container).and_then(|program| program.ending(pod, restarts));
        ending.map_or("-".to_owned(), |ending| format!("{}s {}", ending.after.as_secs_f64(), ending.code))
    }

    fn script_ends(script: &str) -> String {
        let index =
            json!({"name": "INDEX", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['index']"}}});
        let secret = json!({"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
        ends(
            json!({"command": ["/bin/sh", "-c", script], "env": [index, secret, {"name": "N", "value": "5"}]}),
            0,
        )
    }

    #[test]
    fn a_program_that_is_too_costly_to_simulate_keeps_running() {
        let doubled = format!("a=xx; {}exit 0", "a=$a$a; ".repeat(60));
        let printed = format!("a={}; {}exit 0", "x".repeat(1000), "echo $a; ".repeat(2000));
        let slept = format!("{}exit 0", "sleep 300d; ".repeat(2));
        for script in [&doubled, &printed, &slept] {
            assert_eq!(script_ends(script), "-", "{}", &script[..40]);
        }
        let many = |first: &str, word: &str, last: &str| {
            let mut words = vec![word; 100_000];
            words.insert(0, first);
            words.push(last);
            ends(json!({"command": words}), 0)
        };
        assert_eq!((many("test", "!", "x"), many("exec", "exec", "true")), ("0s 0".into(), "0s 0".into()));
        assert_eq!(script_ends("test ! x"), "0s 1");
        assert_eq!(script_ends("[ ! -z x ] && exit 4"), "0s 4");
    }

    #[test]
    fn known_commands_exit_and_others_keep_running() {
        let check = |words: &[&str], expected: &str| {
            assert_eq!(ends(json!({"command": words}), 0), expected, "{words:?}");
        };
        check(&["/bin/true"], "0s 0");
        check(&["false"], "0s 1");
        check(&["sleep", "1.5"], "1.5s 0");
        check(&["sleep", "1m", "3s"], "63s 0");
        check(&["sleep", "infinity"], "-");
        check(&["sleep"], "-");
        check(&["nginx", "-g", "daemon off;"], "-");
        check(&["sh", "/run.sh"], "-");
        check(&["bash", "-c", "exit 300"], "0s 44");
        check(&[], "-");
    }

    #[test]
    fn arguments_alone_are_run_if_they_name_a_program() {
        assert_eq!(ends(json!({"args": ["/bin/sh", "-c", "exit 2"]}), 0), "0s 2");
        assert_eq!(ends(json!({"args": ["true"]}), 0), "-");
    }

    #[test]
    fn a_shell_without_input_exits() {
        let check = |container: Value, expected: &str| {
            assert_eq!(ends(container.clone(), 0), expected, "{container}");
        };
        check(json!({"image": "registry.example.com:5000/a/busybox:1.37@sha256:0"}), "0s 0");
        check(json!({"image": "busybox", "stdin": true}), "-");
        check(json!({"image": "busybox", "args": ["httpd", "-f"]}), "-");
        check(json!({"image": "nginx"}), "-");
    }

    #[test]
    fn a_script_exits_with_the_result_of_its_last_step() {
        let check = |script, expected: &str| assert_eq!(script_ends(script), expected, "{script}");
        check("date; echo Hello from the cluster", "0s 0");
        check("sleep 2 && exit 3; sleep 9", "2s 3");
        check("true || exit 1; false", "0s 1");
        check("false || exit 4", "0s 4");
        check("exec sleep 1; exit 9", "1s 0");
        check("exit $N", "0s 5");
        check("N=7; exit $N", "0s 7");
        check("echo $SECRET", "-");
        check("echo $UNSET; exit 1 2>/dev/null", "0s 1");
        check("curl http://x", "-");
        check("\n  if [ $(expr ${INDEX} % 2) -ne 0 ]; then\n exit 1\nelse\n exit 0\nfi\n", "0s 1");
        check("if [ $INDEX = 1 ]; then exit 1; elif [[ $INDEX == 3 ]]; then exit 33; fi", "0s 33");
        check("if test ! -e /f; then touch /f; fi; [ -e /f ]", "0s 0");
        check("echo -n > /f; test -s /f", "0s 1");
        check("echo x >> /f; rm /f; test -e /f", "0s 1");
        check("if [ -f /etc/config/x ]; then exit 1; fi", "-");
        check("test -f /ready", "-");
    }

    #[test]
    fn files_on_a_volume_survive_a_restart() {
        let script = "if [[ -r /data/f ]]; then exit 0; else touch /data/f; exit 1; fi";
        let mut container = json!({"command": ["sh", "-c", script]});
        assert_eq!(ends(container.clone(), 1), "0s 1");
        container["volumeMounts"] = json!([{"name": "v", "mountPath": "/data"}]);
        assert_eq!((ends(container.clone(), 0), ends(container, 1)), ("0s 1".into(), "0s 0".into()));
    }

    #[test]
    fn the_termination_message_comes_from_its_file_or_the_end_of_the_log() {
        let check = |script: &str, policy: &str, expected: &str| {
            let container = json!({"command": ["sh", "-c", script],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": policy});
            let object =
                setpoint::Object::from_json(r#"{"metadata":{"name":"p"}}"#.into()).expect("an object");
            let pod = Pod { meta: object.meta(), annotations: &BTreeMap::new() };
            let ending = program(container).and_then(|program| program.ending(pod, 0)).expect("ends");
            assert_eq!(&*ending.message, expected, "{script} {policy}");
        };
        check("/bin/echo -n DONE > /dev/termination-log", "File", "DONE");
        check("echo -n DONE; false", "File", "");
        check("echo -n DONE; false", "FallbackToLogsOnError", "DONE");
        check("echo DONE; true", "FallbackToLogsOnError", "");
        check("echo -n log; echo -n file > /dev/termination-log; false", "FallbackToLogsOnError", "file");
    }
}
