//! Adapts `Retry-After` to the rejection rate: the more requests a level rejects, the longer its clients should wait.

use std::collections::VecDeque;

/// The longest wait in seconds. History older than this is useless.
const MAX: i64 = 32;

/// How long rejected clients of a level should wait, based on recent rejections.
#[derive(Debug)]
pub struct RetryAfter {
    /// Rejections per second, oldest first: at most [`MAX`] + 1 entries.
    history: VecDeque<(i64, i64)>,
    second: i64,
    count: i64,
    seconds: i64,
    raised: i64,
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self { history: VecDeque::new(), second: 0, count: 0, seconds: 1, raised: 0 }
    }
}

impl RetryAfter {
    /// Records a rejection in this second. Returns how many seconds the client should wait.
    pub fn rejected(&mut self, second: i64) -> i64 {
        if second == self.second {
            self.count += 1;
            return self.seconds;
        }
        self.remember();
        (self.second, self.count) = (second, 1);
        self.adapt();
        self.seconds
    }

    fn remember(&mut self) {
        self.history.push_back((self.second, self.count));
        let keep = (2 * self.seconds).min(MAX);
        while self.history.front().is_some_and(|(second, _)| self.second - second > keep)
            || self.history.len() > MAX as usize + 1
        {
            self.history.pop_front();
        }
    }

    /// Doubles the wait under load, at most once per wait interval. Otherwise lowers it one by one.
    fn adapt(&mut self) {
        let (now, seconds) = (self.second, self.seconds);
        let recent = self
            .history
            .iter()
            .rev()
            .take_while(|(second, _)| now - second <= seconds)
            .filter(|(second, _)| *second < now);
        let dropped: i64 = recent.map(|(_, count)| count).sum();
        if now - self.raised >= seconds && dropped >= 3 * seconds {
            self.seconds = (2 * seconds).min(MAX);
            self.raised = now;
        } else if dropped < seconds && seconds > 1 {
            self.seconds -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_wait_longer_under_load_and_shorter_after_it() {
        let mut retry = RetryAfter::default();
        assert_eq!(retry.rejected(100), 1);
        assert_eq!((0..5).map(|_| retry.rejected(100)).max(), Some(1));
        assert_eq!(retry.rejected(101), 2);
        for second in 102..200 {
            (0..200).for_each(|_| _ = retry.rejected(second));
        }
        assert_eq!(retry.rejected(200), 32);
        assert_eq!(retry.rejected(300), 31);
        assert!(retry.history.len() <= 33);
    }
}
