//! Redirections of a command's streams.

use std::sync::Arc;

use bytes::Bytes;

use super::{Input, Io, Output, Shell, Stop};
use crate::files::{FileError, MAX_PATH, path};
use crate::shell::{Redirect, Target};

impl Shell {
    /// Returns the redirected streams, or the exit code of a command whose file cannot be opened.
    pub(super) async fn redirected(
        &mut self,
        redirects: &[Redirect],
        io: &Io,
    ) -> Result<Result<Io, i32>, Stop> {
        let mut redirected = io.clone();
        for redirect in redirects {
            self.pay().await?;
            let opened = match &redirect.target {
                Target::Same(1) => Ok(redirected.stdout.clone()),
                Target::Same(_) => Ok(redirected.stderr.clone()),
                Target::Text(text) => {
                    redirected.stdin = Input::text(self.text(text, io).await?);
                    continue;
                }
                Target::Read(word) => {
                    let name = self.text(word, io).await?;
                    match self.open_input(&name, &redirected)? {
                        Ok(input) => redirected.stdin = input,
                        Err(why) => {
                            return self.complain(io, format!("sh: can't open {name}: {why}")).await.map(Err);
                        }
                    }
                    continue;
                }
                Target::Write(word) | Target::Append(word) => {
                    let name = self.text(word, io).await?;
                    let appends = matches!(redirect.target, Target::Append(_));
                    let opened = self.open_output(&name, appends, &redirected);
                    opened.map_err(|why| format!("sh: can't create {name}: {why}"))
                }
            };
            match opened {
                Ok(output) if redirect.stream == 2 => redirected.stderr = output,
                Ok(output) => redirected.stdout = output,
                Err(why) => return self.complain(io, why).await.map(Err),
            }
        }
        Ok(Ok(redirected))
    }

    /// Returns the normal path of a name.
    pub(super) fn path(&self, name: &str) -> String {
        path::normal(&self.directory, name)
    }

    /// Opens a file for reading.
    pub(super) fn open_input(&self, name: &str, io: &Io) -> Result<Result<Input, FileError>, Stop> {
        let path = self.path(name);
        match &*path {
            "/dev/null" => return Ok(Ok(Input::Empty)),
            "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0" => return Ok(Ok(io.stdin.clone())),
            _ => {}
        }
        let read = self.machine.certain(&path, self.machine.files.read(&path))?;
        Ok(read.map(|content| Input::text(shared(content))))
    }

    /// Opens a file for writing, and empties it unless the command appends.
    pub(super) fn open_output(&self, name: &str, appends: bool, io: &Io) -> Result<Output, FileError> {
        let path = self.path(name);
        let main = self.machine.main.as_deref();
        match (&*path, main) {
            ("/dev/null", _) => return Ok(Output::Null),
            ("/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1", _) => return Ok(io.stdout.clone()),
            ("/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2", _) => return Ok(io.stderr.clone()),
            ("/proc/1/fd/1", Some((stdout, _))) => return Ok(stdout.clone()),
            ("/proc/1/fd/2", Some((_, stderr))) => return Ok(stderr.clone()),
            _ => {}
        }
        self.machine.touch(&path);
        self.make_doubtful_parents(&path);
        let now = self.machine.pace.now();
        match appends {
            true => self.machine.files.append(&path, b"", now)?,
            false => self.machine.files.write(&path, Vec::new(), now)?,
        }
        Ok(Output::File(Arc::from(path)))
    }

    /// Records the work of checking all parents of a path.
    pub(super) fn owe_parents(&self, path: &str) {
        self.machine.owe(path.len().min(MAX_PATH) * path.matches('/').count().min(MAX_PATH) / 2);
    }

    /// Creates the directory of a file where it may be part of the image.
    pub(super) fn make_doubtful_parents(&self, path: &str) {
        let is_certain = self.machine.manner == super::UnknownCommands::Certain;
        if !is_certain || path.len() > MAX_PATH || self.machine.files.is_complete(path) {
            return;
        }
        self.owe_parents(path);
        let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
        for end in ends {
            // Fails if it exists, which is fine.
            _ = self.machine.files.make_directory(&path[..end], self.machine.pace.now());
        }
    }
}

/// Returns the content of a file without a copy.
fn shared(content: Arc<Vec<u8>>) -> Bytes {
    struct Content(Arc<Vec<u8>>);
    impl AsRef<[u8]> for Content {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Content(content))
}
