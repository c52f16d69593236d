//! `test` and `expr`.

use crate::process::{Done, Io, Shell, Stop};

impl Shell {
    pub(super) async fn bracket(&mut self, arguments: &[String], closing: &str, io: &Io) -> Done {
        match arguments.split_last() {
            Some((last, rest)) if last == closing => self.test(rest, io).await,
            _ => self.usage(io, &format!("sh: missing {closing}")).await.map(|_| 2),
        }
    }

    pub(super) async fn test(&mut self, arguments: &[String], io: &Io) -> Done {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match self.any(&words)? {
            Some(holds) => Ok(i32::from(!holds)),
            None => {
                let last = words.last().copied().unwrap_or_default();
                self.usage(io, &format!("sh: {last}: unknown operand")).await.map(|_| 2)
            }
        }
    }

    /// Conditions joined by `-o` and `-a`. `None` if they are malformed.
    fn any(&self, words: &[&str]) -> Result<Option<bool>, Stop> {
        if words.len() <= 4 {
            return self.condition_of(words);
        }
        for (joiner, is_enough) in [("-o", true), ("-a", false)] {
            let parts: Vec<&[&str]> = words.split(|word| *word == joiner).collect();
            if parts.len() == 1 {
                continue;
            }
            for part in parts {
                let holds = match joiner {
                    "-o" => self.any_without_or(part)?,
                    _ => self.condition_of(part)?,
                };
                match holds {
                    Some(holds) if holds == is_enough => return Ok(Some(is_enough)),
                    Some(_) => {}
                    None => return Ok(None),
                }
            }
            return Ok(Some(!is_enough));
        }
        self.condition_of(words)
    }

    fn any_without_or(&self, words: &[&str]) -> Result<Option<bool>, Stop> {
        for part in words.split(|word| *word == "-a") {
            match self.condition_of(part)? {
                Some(true) => {}
                other => return Ok(other),
            }
        }
        Ok(Some(true))
    }

    fn condition_of(&self, words: &[&str]) -> Result<Option<bool>, Stop> {
        let denials =
            words.iter().take(words.len().saturating_sub(1)).take_while(|word| **word == "!").count();
        let holds = match words[denials..] {
            [] => Some(false),
            [word] => Some(!word.is_empty()),
            [operator, operand] => self.unary(operator, operand),
            [left, operator, right] => binary(left, operator, right),
            _ => None,
        };
        Ok(holds.map(|holds| holds != (denials % 2 == 1)))
    }

    fn unary(&self, operator: &str, operand: &str) -> Option<bool> {
        let path = self.path(operand);
        let found = || self.machine.look(&path);
        Some(match operator {
            "-n" => !operand.is_empty(),
            "-z" => operand.is_empty(),
            "-e" | "-r" | "-w" => found().is_some(),
            "-f" => found().is_some_and(|entry| !entry.is_directory()),
            "-d" => found().is_some_and(|entry| entry.is_directory()),
            "-s" => found().is_some_and(|entry| entry.is_directory() || entry.size() > 0),
            "-x" => found().is_some_and(|entry| entry.is_directory() || entry.mode() & 0o111 != 0),
            "-L" | "-h" | "-S" | "-p" | "-b" | "-c" | "-t" => false,
            _ => return None,
        })
    }

    /// Prints the result of an operation. Fails if it is zero.
    pub(super) async fn expr(&mut self, arguments: &[String], io: &Io) -> Done {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let result = match *words {
            [left, operator, right] => expression(left, operator, right),
            [word] => Some(word.to_owned()),
            _ => None,
        };
        match result {
            Some(result) => {
                self.print(io, format!("{result}\n")).await?;
                Ok(i32::from(result.is_empty() || result == "0"))
            }
            None => self.usage(io, "expr: syntax error").await.map(|_| 2),
        }
    }
}

fn binary(left: &str, operator: &str, right: &str) -> Option<bool> {
    let number = |text: &str| text.trim().parse::<i64>().ok();
    let numbers = || Some((number(left)?, number(right)?));
    Some(match operator {
        "=" | "==" => left == right,
        "!=" => left != right,
        "<" => left < right,
        ">" => left > right,
        "-eq" => numbers().map(|(left, right)| left == right)?,
        "-ne" => numbers().map(|(left, right)| left != right)?,
        "-lt" => numbers().map(|(left, right)| left < right)?,
        "-le" => numbers().map(|(left, right)| left <= right)?,
        "-gt" => numbers().map(|(left, right)| left > right)?,
        "-ge" => numbers().map(|(left, right)| left >= right)?,
        "-a" => !left.is_empty() && !right.is_empty(),
        "-o" => !left.is_empty() || !right.is_empty(),
        _ => return None,
    })
}

fn expression(left: &str, operator: &str, right: &str) -> Option<String> {
    if let "=" | "!=" = operator {
        return Some(i32::from((left == right) == (operator == "=")).to_string());
    }
    let (left, right) = (left.parse::<i64>().ok()?, right.parse::<i64>().ok()?);
    let result = match operator {
        "+" => left.checked_add(right),
        "-" => left.checked_sub(right),
        "*" => left.checked_mul(right),
        "/" => left.checked_div(right),
        "%" => left.checked_rem(right),
        "<" => Some(i64::from(left < right)),
        "<=" => Some(i64::from(left <= right)),
        ">" => Some(i64::from(left > right)),
        ">=" => Some(i64::from(left >= right)),
        _ => None,
    };
    result.map(|result| result.to_string())
}
