//! Commands that filter files or stdin.

use std::time::Duration;

use super::flags;
use crate::process::{Done, Input, Io, Shell, Stop};

/// The polling interval of `tail -f`.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Shell {
    /// Returns a file or, for `-`, stdin. `None` if it cannot be read, which is reported.
    pub(super) async fn content(
        &mut self,
        command: &str,
        name: &str,
        io: &Io,
    ) -> Result<Option<Vec<u8>>, Stop> {
        if name == "-" {
            return self.all(&io.stdin).await.map(Some);
        }
        match self.open_input(name, io)? {
            Ok(input) => self.all(&input).await.map(Some),
            Err(why) => {
                let message = match command {
                    "cat" => format!("cat: can't open '{name}': {why}"),
                    command => format!("{command}: {name}: {why}"),
                };
                self.complain(io, message).await?;
                Ok(None)
            }
        }
    }

    /// Reads everything, which counts as work.
    async fn all(&mut self, input: &Input) -> Result<Vec<u8>, Stop> {
        let content = input.read_all(&self.machine).await?;
        self.machine.owe(content.len());
        self.pay().await?;
        Ok(content)
    }

    pub(super) async fn cat(&mut self, arguments: &[String], io: &Io) -> Done {
        let Some((_, names)) = flags(arguments, "u") else {
            return self.usage(io, "cat: unrecognized option").await;
        };
        let (mut code, names) = (0, if names.is_empty() { vec!["-"] } else { names });
        for name in names {
            if name == "-" {
                while let Some(piece) = io.stdin.read(&self.machine).await? {
                    self.print(io, piece).await?;
                }
                continue;
            }
            match self.content("cat", name, io).await? {
                Some(content) => self.print(io, content).await?,
                None => code = 1,
            }
        }
        Ok(code)
    }

    pub(super) async fn tee(&mut self, arguments: &[String], io: &Io) -> Done {
        let Some((found, names)) = flags(arguments, "a") else {
            return self.usage(io, "tee: unrecognized option").await;
        };
        let mut outputs = vec![io.stdout.clone()];
        let mut code = 0;
        for name in names {
            match self.open_output(name, found.contains('a'), io) {
                Ok(output) => outputs.push(output),
                Err(why) => code = self.complain(io, format!("tee: {name}: {why}")).await?,
            }
        }
        while let Some(piece) = io.stdin.read(&self.machine).await? {
            for output in &outputs {
                self.machine.owe(piece.len());
                self.pay().await?;
                output.write(&self.machine, &piece).await?;
            }
        }
        Ok(code)
    }

    pub(super) async fn head(&mut self, arguments: &[String], io: &Io) -> Done {
        let Some(portion) = Portion::of(arguments).filter(|portion| !portion.follows) else {
            return self.usage(io, "head: unrecognized option").await;
        };
        match portion.names.is_empty() {
            true => self.head_of_input(&portion, io).await,
            false => self.portions("head", &portion, io, Portion::first).await,
        }
    }

    /// Prints the start of the input, and leaves the rest to the next command.
    async fn head_of_input(&mut self, portion: &Portion, io: &Io) -> Done {
        let mut left = portion.count;
        while left > 0
            && let Some(mut piece) = io.stdin.read(&self.machine).await?
        {
            let (end, taken) = portion.beginning(&piece, left);
            left -= taken;
            if end < piece.len() {
                io.stdin.unread(piece.split_off(end)).await;
            }
            self.print(io, piece).await?;
        }
        Ok(0)
    }

    pub(super) async fn tail(&mut self, arguments: &[String], io: &Io) -> Done {
        let Some(portion) = Portion::of(arguments) else {
            return self.usage(io, "tail: unrecognized option").await;
        };
        let code = self.portions("tail", &portion, io, Portion::last).await?;
        match (portion.follows, portion.names.first()) {
            (true, Some(name)) => self.follow(name, io).await,
            _ => Ok(code),
        }
    }

    async fn portions(
        &mut self,
        command: &str,
        portion: &Portion,
        io: &Io,
        take: fn(&Portion, &[u8]) -> std::ops::Range<usize>,
    ) -> Done {
        let (mut code, stdin) = (0, ["-".to_owned()]);
        let names = if portion.names.is_empty() { &stdin[..] } else { &portion.names };
        for name in names {
            let Some(content) = self.content(command, name, io).await? else {
                code = 1;
                continue;
            };
            if names.len() > 1 {
                self.print(io, format!("==> {name} <==\n")).await?;
            }
            self.print(io, &content[take(portion, &content)]).await?;
        }
        Ok(code)
    }

    /// Prints what is appended to a file, forever.
    async fn follow(&mut self, name: &str, io: &Io) -> Done {
        let path = self.path(name);
        if self.machine.only_ends || path == "/dev/null" {
            return Err(self.machine.pace.wait_forever().await);
        }
        let mut seen = self.machine.files.read(&path).map_or(0, |content| content.len());
        loop {
            self.count_step().await?;
            self.machine.pace.sleep(LOOK_EVERY).await?;
            let content = self.machine.files.read(&path).unwrap_or_default();
            self.print(io, content.get(seen..).unwrap_or_default()).await?;
            seen = content.len();
        }
    }

    /// Counts the input, which may have any size.
    async fn count_input(&self, io: &Io) -> Result<[usize; 3], Stop> {
        let (mut total, mut is_in_word) = ([0; 3], false);
        while let Some(piece) = io.stdin.read(&self.machine).await? {
            let is_of_word = |byte: Option<&u8>| byte.is_some_and(|byte| !byte.is_ascii_whitespace());
            total.iter_mut().zip(counts(&piece)).for_each(|(total, one)| *total += one);
            // A word may continue in the next piece.
            total[1] -= usize::from(is_in_word && is_of_word(piece.first()));
            is_in_word = is_of_word(piece.last());
        }
        Ok(total)
    }

    pub(super) async fn wc(&mut self, arguments: &[String], io: &Io) -> Done {
        let Some((found, names)) = flags(arguments, "lwcm") else {
            return self.usage(io, "wc: unrecognized option").await;
        };
        let wants = |letter: char| found.is_empty() || found.contains(letter);
        let (mut code, is_stdin) = (0, names.is_empty());
        let mut total = [0; 3];
        let count = names.len();
        for name in if is_stdin { vec!["-"] } else { names } {
            let counts = match name {
                "-" => self.count_input(io).await?,
                name => match self.content("wc", name, io).await? {
                    Some(content) => counts(&content),
                    None => {
                        code = 1;
                        continue;
                    }
                },
            };
            total.iter_mut().zip(counts).for_each(|(total, one)| *total += one);
            let shown = if is_stdin { "" } else { name };
            self.print(io, count_line(counts, [wants('l'), wants('w'), wants('c') || wants('m')], shown))
                .await?;
        }
        if count > 1 {
            self.print(io, count_line(total, [wants('l'), wants('w'), wants('c') || wants('m')], "total"))
                .await?;
        }
        Ok(code)
    }
}

/// The part that `head` and `tail` print.
struct Portion {
    names: Vec<String>,
    count: usize,
    /// Whether to count from the start (`tail -n +5`).
    is_from_start: bool,
    is_in_bytes: bool,
    follows: bool,
}

impl Portion {
    fn of(arguments: &[String]) -> Option<Self> {
        let mut portion =
            Self { names: Vec::new(), count: 10, is_from_start: false, is_in_bytes: false, follows: false };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_bytes() {
                [b'-', digits @ ..] if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => {
                    portion.set_count(&word[1..])?;
                }
                [b'-', b'n' | b'c', rest @ ..] => {
                    portion.is_in_bytes = word.as_bytes()[1] == b'c';
                    let count = if rest.is_empty() { words.next()?.as_str() } else { &word[2..] };
                    portion.set_count(count)?;
                }
                [b'-', b'f' | b'F'] => portion.follows = true,
                [b'-', b'q'] => {}
                [b'-', _, ..] => return None,
                _ => portion.names.push(word.clone()),
            }
        }
        Some(portion)
    }

    fn set_count(&mut self, text: &str) -> Option<()> {
        self.is_from_start = text.starts_with('+');
        self.count = text.trim_start_matches('+').parse().ok()?;
        Some(())
    }

    fn first(&self, content: &[u8]) -> std::ops::Range<usize> {
        let end = match self.is_in_bytes {
            true => self.count,
            false => ends_of_lines(content).take(self.count).last().unwrap_or(0),
        };
        0..end.min(content.len())
    }

    /// Returns where a piece ends if this many lines or bytes are left, and how many of them it has.
    fn beginning(&self, piece: &[u8], left: usize) -> (usize, usize) {
        if self.is_in_bytes {
            let end = left.min(piece.len());
            return (end, end);
        }
        let mut newlines = piece.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        match newlines.nth(left - 1) {
            Some((at, _)) => (at + 1, left),
            None => (piece.len(), piece.iter().filter(|byte| **byte == b'\n').count()),
        }
    }

    fn last(&self, content: &[u8]) -> std::ops::Range<usize> {
        let ends: Vec<usize> = ends_of_lines(content).collect();
        let end_of = |lines: usize| lines.checked_sub(1).and_then(|at| ends.get(at)).copied();
        let start = match (self.is_in_bytes, self.is_from_start) {
            (true, true) => self.count.saturating_sub(1),
            (true, false) => content.len().saturating_sub(self.count),
            (false, true) if self.count <= 1 => 0,
            (false, true) => end_of(self.count - 1).unwrap_or(content.len()),
            (false, false) => end_of(ends.len().saturating_sub(self.count)).unwrap_or(0),
        };
        start.min(content.len())..content.len()
    }
}

/// Lists where lines end, including one without a newline.
fn ends_of_lines(content: &[u8]) -> impl Iterator<Item = usize> {
    let ends = content.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let is_cut = !content.is_empty() && !content.ends_with(b"\n");
    ends.chain(is_cut.then_some(content.len()))
}

/// Returns the numbers of lines, words and bytes.
fn counts(content: &[u8]) -> [usize; 3] {
    let words = content.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    [content.iter().filter(|byte| **byte == b'\n').count(), words.count(), content.len()]
}

fn count_line(counts: [usize; 3], wanted: [bool; 3], name: &str) -> String {
    let chosen: Vec<usize> =
        counts.into_iter().zip(wanted).filter(|(_, is_wanted)| *is_wanted).map(|(c, _)| c).collect();
    let numbers = match &*chosen {
        [only] => only.to_string(),
        several => several.iter().map(|count| format!("{count:>9}")).collect::<Vec<_>>().join(" "),
    };
    if name.is_empty() { format!("{numbers}\n") } else { format!("{numbers} {name}\n") }
}
