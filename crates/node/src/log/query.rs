//! The options of a request for a log, as a kubelet reads and applies them. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Line;

/// `PodLogOptions`, from the query of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogQuery {
    pub(crate) follow: bool,
    pub(crate) previous: bool,
    since_seconds: Option<i64>,
    since_time: Option<Timestamp>,
    timestamps: bool,
    tail_lines: Option<i64>,
    limit_bytes: Option<i64>,
    stream: Option<String>,
}

/// Why a request is rejected: before and after its options are understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueryError {
    Undecodable,
    Invalid,
    /// Needs a feature gate that is off.
    Stream(String),
}

impl LogQuery {
    /// Selects the current run of a container, or the previous one.
    pub(crate) fn of_run(is_previous: bool) -> Self {
        Self { previous: is_previous, ..Self::default() }
    }

    pub(crate) fn parse<'q>(
        pairs: impl Iterator<Item = (impl AsRef<str>, impl AsRef<str>)> + 'q,
    ) -> Result<Self, QueryError> {
        let mut query = Self::default();
        for (name, value) in pairs {
            let value = value.as_ref();
            let number = || value.parse::<i64>().map(Some).map_err(|_| QueryError::Undecodable);
            match name.as_ref() {
                "follow" => query.follow = is_true(value),
                "previous" => query.previous = is_true(value),
                "timestamps" => query.timestamps = is_true(value),
                "sinceSeconds" => query.since_seconds = number()?,
                "tailLines" => query.tail_lines = number()?,
                "tail" => query.tail_lines = if value == "all" { None } else { number()? },
                "limitBytes" => query.limit_bytes = number()?,
                "sinceTime" => {
                    let time = value.parse().map(Some);
                    query.since_time = time.map_err(|_| QueryError::Undecodable)?;
                }
                "stream" => query.stream = Some(value.to_owned()),
                _ => {}
            }
        }
        query.check()
    }

    fn check(self) -> Result<Self, QueryError> {
        let is_positive = |number: Option<i64>| number.is_none_or(|number| number > 0);
        let is_valid = self.tail_lines.is_none_or(|lines| lines >= 0)
            && is_positive(self.limit_bytes)
            && is_positive(self.since_seconds)
            && !(self.since_seconds.is_some() && self.since_time.is_some());
        match &self.stream {
            _ if !is_valid => Err(QueryError::Invalid),
            Some(stream) if stream != "All" => Err(QueryError::Stream(stream.clone())),
            _ => Ok(self),
        }
    }

    /// Starts to select lines.
    pub(crate) fn selection(&self, now: Timestamp) -> Selection {
        let seconds = self.since_seconds.map(SignedDuration::from_secs);
        // A duration that reaches back before all time selects everything.
        let since = seconds.and_then(|seconds| now.checked_sub(seconds).ok());
        Selection {
            since: since.or(self.since_time),
            timestamps: self.timestamps,
            tail: self.tail_lines.map(|lines| usize::try_from(lines).unwrap_or(usize::MAX)),
            left: self.limit_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        }
    }
}

/// A boolean of a query, as v1.34 decodes it: present and not false.
fn is_true(value: &str) -> bool {
    !matches!(value.to_ascii_lowercase().as_str(), "false" | "0")
}

/// Selects the lines of a log for a request.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    since: Option<Timestamp>,
    timestamps: bool,
    /// Only this many of the initial lines.
    tail: Option<usize>,
    /// How many bytes may still be sent.
    left: Option<usize>,
}

impl Selection {
    /// Returns the text of the selected lines. The first call gets the initial lines.
    pub(crate) fn text<'l>(&mut self, lines: impl ExactSizeIterator<Item = &'l Line>) -> Vec<u8> {
        let skipped = self.tail.take().map_or(0, |tail| lines.len().saturating_sub(tail));
        let mut text = Vec::new();
        for line in lines.skip(skipped).filter(|line| self.since.is_none_or(|since| line.at >= since)) {
            if self.timestamps {
                text.extend_from_slice(format!("{:.9} ", line.at).as_bytes());
            }
            text.extend_from_slice(&line.text);
        }
        if let Some(left) = &mut self.left {
            text.truncate(*left);
            *left -= text.len();
        }
        text
    }

    /// Whether nothing more may be sent.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.left == Some(0)
    }
}

/// The polling interval of a followed log, if nothing else wakes its follower: that of a kubelet's check whether the
/// container is still running.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The minimum wait of a follower: a program that prints constantly is polled ten times a second.
pub(crate) const LOOK_AFTER: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogStream;

    fn parse(query: &str) -> Result<LogQuery, QueryError> {
        LogQuery::parse(query.split('&').filter_map(|pair| pair.split_once('=')))
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_735_689_600 + seconds).expect("a time")
    }

    fn selected(query: &str) -> String {
        let line = |seconds: i64| Line {
            at: at(seconds),
            stream: LogStream::Stdout,
            text: format!("{seconds}\n").into_bytes(),
        };
        let lines: Vec<Line> = (0..10).map(line).collect();
        let mut selection = parse(query).expect("a query").selection(at(10));
        String::from_utf8(selection.text(lines.iter())).expect("text").replace('\n', ",")
    }

    #[test]
    fn lines_are_selected_as_a_kubelet_selects_them() {
        let check = |query: &str, expected: &str| assert_eq!(selected(query), expected, "{query}");
        check("tailLines=2", "8,9,");
        check("tailLines=0", "");
        check("tailLines=100", "0,1,2,3,4,5,6,7,8,9,");
        check("sinceSeconds=3", "7,8,9,");
        check("sinceTime=2025-01-01T00:00:08Z", "8,9,");
        check("tailLines=3&sinceSeconds=1", "9,");
        check("limitBytes=5", "0,1,2");
        check("tailLines=1&timestamps=true", "2025-01-01T00:00:09.000000000Z 9,");
        check("sinceSeconds=9223372036854775807&tailLines=1", "9,");
    }

    #[test]
    fn invalid_options_are_rejected() {
        let check = |query: &str, expected: QueryError| assert_eq!(parse(query), Err(expected), "{query}");
        check("tailLines=x", QueryError::Undecodable);
        check("sinceTime=yesterday", QueryError::Undecodable);
        check("tailLines=-1", QueryError::Invalid);
        check("limitBytes=0", QueryError::Invalid);
        check("sinceSeconds=1&sinceTime=2025-01-01T00:00:08Z", QueryError::Invalid);
        check("stream=Stdout", QueryError::Stream("Stdout".into()));
        assert_eq!(parse("follow=true&previous=false"), Ok(LogQuery { follow: true, ..LogQuery::default() }));
    }
}
