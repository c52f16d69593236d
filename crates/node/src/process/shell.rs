//! A shell: runs lists, pipelines and compound commands.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::endless::is_endless;
use super::expand::Room;
use super::variables::Variable;
use super::{Done, Input, Io, Machine, Output, Stop};
use crate::files::pattern;
use crate::shell::{Command, Expansion, List, Part, Pipeline, Stage, Step, When, Word};

/// The state of a shell. A subshell is a copy.
#[derive(Clone)]
pub(crate) struct Shell {
    pub(crate) machine: Machine,
    /// Copied by the first change in a subshell.
    pub(super) variables: Arc<BTreeMap<String, Variable>>,
    pub(super) variable_bytes: usize,
    /// Variables that are set to values that are not known.
    pub(super) unknown: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    pub(super) functions: Arc<BTreeMap<String, Arc<Stage>>>,
    /// `$0`.
    pub(super) name: String,
    /// `$1` and so on: at most the text of one command.
    pub(super) parameters: Arc<[String]>,
    pub(super) directory: String,
    pub(super) options: Options,
    /// The exit code of the last command.
    pub(super) status: i32,
    /// The nesting depth in conditions, where a failure does not end the script.
    conditions: usize,
    calls: usize,
    subshells: usize,
    /// The nesting depth of stages.
    stages: usize,
    steps: u64,
}

/// The options of `set`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    /// `-e`
    pub(super) exits_on_failure: bool,
    /// `-u`
    pub(super) rejects_unset: bool,
    /// `-o pipefail`
    pub(super) pipes_fail: bool,
}

/// What starts a process.
pub(crate) struct Invocation {
    pub(crate) machine: Machine,
    pub(crate) environment: BTreeMap<String, String>,
    /// Variables that are set to values that are not known.
    pub(crate) unknown: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    pub(crate) directory: String,
}

/// The maximum number of functions of a script.
const MAX_FUNCTIONS: usize = 256;

/// The maximum depth of calls, which count functions, substitutions, and commands that run commands. Each is a stack of
/// futures. The last one is a command inside of all others.
const MAX_CALLS: usize = 25;

/// The maximum depth of compound commands and calls together, which bounds the stack: each takes up to 4 KiB of it.
const MAX_STAGES: usize = 128;

/// The maximum depth of subshells, each of which may hold its own variables.
const MAX_SUBSHELLS: usize = 16;

impl Shell {
    pub(crate) fn new(invocation: Invocation) -> Self {
        let Invocation { machine, environment, unknown, directory } = invocation;
        let exported = |(name, value)| (name, Variable { value, is_exported: true });
        Self {
            machine,
            variables: Arc::new(environment.into_iter().map(exported).collect()),
            // The environment is bounded where it is resolved.
            variable_bytes: 0,
            unknown,
            functions: Arc::default(),
            name: "sh".into(),
            parameters: Arc::default(),
            directory,
            options: Options::default(),
            status: 0,
            conditions: 0,
            calls: 0,
            subshells: 0,
            stages: 0,
            steps: 0,
        }
    }

    /// Runs a whole script.
    pub(crate) async fn run(&mut self, script: &List, io: &Io) -> Done {
        match self.list(script, io).await {
            Err(Stop::Exit(code) | Stop::Return(code)) => Ok(code),
            Err(Stop::Break(_) | Stop::Continue(_)) => Ok(0),
            done => done,
        }
    }

    pub(super) fn list<'a>(&'a mut self, list: &'a List, io: &'a Io) -> BoxFuture<'a, Done> {
        async move {
            let mut code = 0;
            for (at, item) in list.iter().enumerate() {
                let is_due = match item.when {
                    When::Always => true,
                    When::Succeeded => code == 0,
                    When::Failed => code != 0,
                };
                if !is_due {
                    continue;
                }
                let decides = list.get(at + 1).is_some_and(|next| next.when != When::Always);
                let is_condition = decides || item.pipeline.is_negated;
                code = self.conditional(is_condition, &item.pipeline, io).await?;
                self.status = code;
                if code != 0 && self.options.exits_on_failure && !is_condition && self.conditions == 0 {
                    return Err(Stop::Exit(code));
                }
            }
            Ok(code)
        }
        .boxed()
    }

    async fn conditional(&mut self, is_condition: bool, pipeline: &Pipeline, io: &Io) -> Done {
        self.conditions += usize::from(is_condition);
        let done = self.pipeline(pipeline, io).await;
        self.conditions -= usize::from(is_condition);
        done
    }

    /// Runs the list of an `if`, `while` or `until`.
    async fn condition(&mut self, list: &List, io: &Io) -> Done {
        self.conditions += 1;
        let done = self.list(list, io).await;
        self.conditions -= 1;
        done
    }

    async fn pipeline(&mut self, pipeline: &Pipeline, io: &Io) -> Done {
        let code = match &*pipeline.stages {
            [only] => self.stage(only, io).await?,
            stages => self.pipe(stages, io).await?,
        };
        Ok(if pipeline.is_negated { i32::from(code == 0) } else { code })
    }

    /// Runs stages one after the other, each in its own subshell.
    async fn pipe(&mut self, stages: &[Stage], io: &Io) -> Done {
        let (mut stdin, mut code, mut failure) = (io.stdin.clone(), 0, 0);
        for (at, stage) in stages.iter().enumerate() {
            let is_last = at + 1 == stages.len();
            let (pipe, buffer) = Output::buffer();
            let stdout = if is_last { io.stdout.clone() } else { pipe };
            let stage_io = Io { stdin, stdout, stderr: io.stderr.clone(), terminal: io.terminal.clone() };
            let mut subshell = self.forked()?;
            code = subshell.contained(stage, &stage_io).await?;
            failure = if code == 0 { failure } else { code };
            self.steps = subshell.steps;
            stdin = Input::text(std::mem::take(&mut *buffer.lock()));
        }
        Ok(if self.options.pipes_fail { failure } else { code })
    }

    /// Runs a stage in this shell, which exits with it.
    async fn contained(&mut self, stage: &Stage, io: &Io) -> Done {
        match self.stage(stage, io).await {
            Err(Stop::Exit(code) | Stop::Return(code)) => Ok(code),
            Err(Stop::Break(_) | Stop::Continue(_)) => Ok(0),
            done => done,
        }
    }

    /// Runs a list in a copy of this shell.
    pub(super) async fn subshell(&mut self, list: &List, io: &Io) -> Done {
        let mut subshell = self.forked()?;
        let done = subshell.run(list, io).await;
        self.steps = subshell.steps;
        done
    }

    /// Returns a subshell.
    pub(super) fn forked(&self) -> Result<Self, Stop> {
        if self.subshells == MAX_SUBSHELLS {
            return Err(self.unclear(2));
        }
        Ok(Self { subshells: self.subshells + 1, ..self.clone() })
    }

    pub(super) fn stage<'a>(&'a mut self, stage: &'a Stage, io: &'a Io) -> BoxFuture<'a, Done> {
        async move {
            if self.stages == MAX_STAGES {
                return Err(self.unclear(2));
            }
            self.stages += 1;
            let done = self.stage_inside(stage, io).await;
            self.stages -= 1;
            done
        }
        .boxed()
    }

    async fn stage_inside(&mut self, stage: &Stage, io: &Io) -> Done {
        self.count_step().await?;
        let redirected;
        let io = match stage.redirects.is_empty() {
            true => io,
            false => match self.redirected(&stage.redirects, io).await? {
                Ok(io) => {
                    redirected = io;
                    &redirected
                }
                Err(code) => return Ok(code),
            },
        };
        match self.step(&stage.step, io).await {
            Err(Stop::WriteFailed(why)) => self.complain(io, format!("sh: write error: {why}")).await,
            done => done,
        }
    }

    /// Counts a step of the run, and the work since the last one.
    pub(super) async fn count_step(&mut self) -> Result<(), Stop> {
        let owed = self.machine.take_owed();
        self.machine.pace.step(&mut self.steps, 1 + owed).await
    }

    /// Counts the work since the last step, in the middle of a long step.
    pub(super) async fn pay(&mut self) -> Result<(), Stop> {
        match self.machine.take_owed() {
            0 => Ok(()),
            owed => self.machine.pace.step(&mut self.steps, owed).await,
        }
    }

    async fn step(&mut self, step: &Step, io: &Io) -> Done {
        match step {
            Step::Command(command) => self.command(command, io).await,
            Step::If(branches, otherwise) => {
                for (condition, then) in branches {
                    if self.condition(condition, io).await? == 0 {
                        return self.list(then, io).await;
                    }
                }
                self.list(otherwise, io).await
            }
            Step::While { is_until, condition, body } => {
                self.repeat_while(*is_until, condition, body, io).await
            }
            Step::For { variable, words, body } => {
                self.repeat_for(variable, words.as_deref(), body, io).await
            }
            Step::Case { subject, arms } => self.case(subject, arms, io).await,
            Step::Group(list) => self.list(list, io).await,
            Step::Subshell(list) => self.subshell(list, io).await,
            Step::Function(_, _) if self.functions.len() == MAX_FUNCTIONS => Err(self.unclear(2)),
            Step::Function(name, body) => {
                Arc::make_mut(&mut self.functions).insert(name.clone(), body.clone());
                Ok(0)
            }
        }
    }

    async fn repeat_while(&mut self, is_until: bool, condition: &List, body: &List, io: &Io) -> Done {
        if self.machine.only_ends && !self.options.exits_on_failure {
            let may_leave = |name: &str| self.functions.contains_key(name);
            if is_endless(is_until, condition, body, may_leave) {
                return Err(Stop::Forever);
            }
        }
        let mut code = 0;
        while (self.condition(condition, io).await? == 0) != is_until {
            match self.turn(body, io).await? {
                Turn::Next(done) => code = done,
                Turn::Over => return Ok(0),
            }
        }
        Ok(code)
    }

    async fn repeat_for(&mut self, variable: &str, words: Option<&[Word]>, body: &List, io: &Io) -> Done {
        let values = match words {
            Some(words) => self.fields(words, io).await?.into(),
            None => self.parameters.clone(),
        };
        let mut code = 0;
        for value in values.iter() {
            self.set(variable, value.clone())?;
            match self.turn(body, io).await? {
                Turn::Next(done) => code = done,
                Turn::Over => return Ok(0),
            }
        }
        Ok(code)
    }

    /// Runs the body of a loop once.
    async fn turn(&mut self, body: &List, io: &Io) -> Result<Turn, Stop> {
        match self.list(body, io).await {
            Ok(code) => Ok(Turn::Next(code)),
            Err(Stop::Break(levels)) if levels > 1 => Err(Stop::Break(levels - 1)),
            Err(Stop::Break(_)) => Ok(Turn::Over),
            Err(Stop::Continue(levels)) if levels > 1 => Err(Stop::Continue(levels - 1)),
            Err(Stop::Continue(_)) => Ok(Turn::Next(0)),
            Err(stop) => Err(stop),
        }
    }

    async fn case(&mut self, subject: &Word, arms: &[(Vec<Word>, List)], io: &Io) -> Done {
        let subject = self.text(subject, io).await?;
        for (patterns, list) in arms {
            for word in patterns {
                let wanted = self.pattern(word, io).await?;
                self.machine.owe(pattern::steps(&wanted, &subject));
                self.pay().await?;
                if pattern::matches(&wanted, &subject) {
                    return self.list(list, io).await;
                }
            }
        }
        Ok(0)
    }

    async fn command(&mut self, command: &Command, io: &Io) -> Done {
        let words = self.fields(&command.words, io).await?;
        let assigned = self.assigned(command, io).await?;
        let Some((name, arguments)) = words.split_first() else {
            for (name, value) in assigned {
                self.set(name, value)?;
            }
            // The code of an assignment is that of the command substitution in it.
            let prints = command.assigned.iter().any(|(_, word)| has_substitution(word));
            return Ok(if prints { self.status } else { 0 });
        };
        if assigned.is_empty() {
            return self.call(name, arguments, io).await;
        }
        // Variables before a command are for that command alone.
        let before = (self.variables.clone(), self.variable_bytes);
        for (name, value) in assigned {
            self.insert(name, value, true)?;
        }
        let done = self.call(name, arguments, io).await;
        (self.variables, self.variable_bytes) = before;
        done
    }

    /// Returns the values that a command assigns, whose total size is bounded.
    async fn assigned<'c>(&mut self, command: &'c Command, io: &Io) -> Result<Vec<(&'c str, String)>, Stop> {
        let (mut assigned, mut room) = (Vec::new(), Room::default());
        for (name, word) in &command.assigned {
            let value = self.text(word, io).await?;
            room.take(value.len())?;
            assigned.push((name.as_str(), value));
        }
        Ok(assigned)
    }

    /// Calls a function or a command.
    pub(super) fn call<'a>(
        &'a mut self,
        name: &'a str,
        arguments: &'a [String],
        io: &'a Io,
    ) -> BoxFuture<'a, Done> {
        async move {
            self.enter_call()?;
            let done = match self.functions.get(name).cloned() {
                Some(body) => self.function(&body, arguments, io).await,
                None => self.builtin(name, arguments, io).await,
            };
            self.leave_call();
            done
        }
        .boxed()
    }

    /// Starts a call, unless they are nested too deeply.
    pub(super) fn enter_call(&mut self) -> Result<(), Stop> {
        if self.calls == MAX_CALLS {
            return Err(self.unclear(2));
        }
        self.calls += 1;
        Ok(())
    }

    pub(super) fn leave_call(&mut self) {
        self.calls -= 1;
    }

    async fn function(&mut self, body: &Stage, arguments: &[String], io: &Io) -> Done {
        let before = std::mem::replace(&mut self.parameters, arguments.into());
        let done = self.stage(body, io).await;
        self.parameters = before;
        match done {
            Err(Stop::Return(code)) => Ok(code),
            done => done,
        }
    }

    /// Returns where this shell is, to return there from a command that is interrupted.
    pub(super) fn depth(&self) -> Depth {
        let (conditions, calls, stages) = (self.conditions, self.calls, self.stages);
        Depth { conditions, calls, stages, parameters: self.parameters.clone() }
    }

    pub(super) fn return_to(&mut self, depth: Depth) {
        Depth {
            conditions: self.conditions,
            calls: self.calls,
            stages: self.stages,
            parameters: self.parameters,
        } = depth;
    }

    /// Writes to stdout.
    pub(super) async fn print(&self, io: &Io, text: impl AsRef<[u8]>) -> Result<(), Stop> {
        self.machine.owe(text.as_ref().len());
        io.stdout.write(&self.machine, text.as_ref()).await
    }

    /// Writes a line to stderr. Returns the code of a failure.
    pub(super) async fn complain(&self, io: &Io, text: impl std::fmt::Display) -> Done {
        io.stderr.write(&self.machine, format!("{text}\n").as_bytes()).await?;
        Ok(1)
    }
}

/// The nesting depth of a shell in commands.
pub(super) struct Depth {
    conditions: usize,
    calls: usize,
    stages: usize,
    parameters: Arc<[String]>,
}

enum Turn {
    Next(i32),
    /// The loop was left.
    Over,
}

fn has_substitution(word: &Word) -> bool {
    let prints = |part: &Part| matches!(part, Part::Expanded { expansion: Expansion::Printed(_), .. });
    word.parts.iter().any(prints)
}
